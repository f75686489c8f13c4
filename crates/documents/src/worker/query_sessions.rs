//! Pool of sessions for queries and small look-ups, bounded, with one query a session at a time.
//!
//! A caller may be dropped before the server has answered. The session then keeps its slot until
//! the server has finished the statement.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egret_base::settings::ConfigDuration;
use egret_base::sync::lock;
use egret_postgres::Databases;
use egret_postgres::databases::SessionPermit;
use egret_postgres::slots::{Slot, TenantSlots};
use egret_postgres::tokio_postgres::config::SslMode;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, NoTls, Row, Statement};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::config::DocumentsConfig;
use crate::error::DocumentsError;
use crate::store::install;
use crate::store::query::{FETCH_ROWS, PageBudget, Sql, read_rows, read_rows_in_parts};

/// Prepared statements of a session, at most: beyond that all are dropped.
const STATEMENTS_MAX: usize = 200;

/// How long a statement of a dropped caller may go on before the server is asked to cancel it.
const CANCEL_DELAY: Duration = Duration::from_millis(50);

/// How long a statement may overrun its timeout before its session is closed.
const OVERRUN_MAX: Duration = Duration::from_secs(5);

pub(crate) struct QuerySessionPool {
    sessions: Arc<IdleSessions>,
    query_slots: TenantSlots<String>,
    export_slots: TenantSlots<String>,
}

/// Slot of a running query or export; dropping it frees the slot.
pub(crate) struct QueryPermit {
    _slot: Slot<String>,
    _session: SessionPermit,
}

/// Idle sessions of a database, with what is needed to open further ones.
struct IdleSessions {
    database: String,
    databases: Databases,
    timeout: ConfigDuration,
    idle: Mutex<Vec<QuerySession>>,
}

struct QuerySession {
    client: Client,
    statements: HashMap<String, Statement>,
}

/// A session lent for one query. [`PooledSession::finish`] returns it with the result; dropping it
/// instead means that the caller was cancelled.
pub(crate) struct PooledSession {
    sessions: Arc<IdleSessions>,
    session: Option<QuerySession>,
    permit: Option<QueryPermit>,
}

impl QuerySessionPool {
    pub(crate) fn new(database: &str, databases: Databases, config: &DocumentsConfig) -> Self {
        let sessions = IdleSessions {
            database: database.to_owned(),
            databases,
            timeout: config.query_timeout,
            idle: Mutex::default(),
        };
        Self {
            sessions: Arc::new(sessions),
            query_slots: TenantSlots::new("documents.queries", config.queries),
            export_slots: TenantSlots::new("documents.exports", config.exports),
        }
    }

    /// Rows of a statement, on behalf of a tenant.
    ///
    /// # Errors
    /// [`DocumentsError::QueryTimeout`] and [`DocumentsError::Overloaded`].
    pub(crate) async fn query_sql(
        &self,
        tenant: &str,
        sql: &Sql,
    ) -> Result<Vec<Row>, DocumentsError> {
        self.query(tenant, &sql.text, &sql.values()).await
    }

    /// Like [`Self::query_sql`], for a statement and its parameters.
    ///
    /// # Errors
    /// Those of [`Self::query_sql`].
    pub(crate) async fn query(
        &self,
        tenant: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let mut session = self.acquire(tenant).await?;
        let result = session.session_mut().query(text, values).await;
        session.finish(result).await
    }

    /// The first rows of a statement, within the page budget.
    ///
    /// # Errors
    /// Those of [`Self::query_sql`].
    pub(crate) async fn query_page(
        &self,
        tenant: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        budget: &mut PageBudget,
    ) -> Result<Vec<Row>, DocumentsError> {
        let mut session = self.acquire(tenant).await?;
        let result = session.session_mut().query_page(text, values, budget).await;
        session.finish(result).await
    }

    /// Lends a session to a tenant, as soon as one is free.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`]: none was free within the query timeout.
    pub(crate) async fn acquire(&self, tenant: &str) -> Result<PooledSession, DocumentsError> {
        let wait_max = self.sessions.timeout.duration();
        let slot = self.query_slots.take(tenant.to_owned(), wait_max).await?;
        let permit = self.admit(tenant, slot).await?;
        let session = self.sessions.take_or_connect().await?;
        Ok(PooledSession {
            sessions: self.sessions.clone(),
            session: Some(session),
            permit: Some(permit),
        })
    }

    /// Admits an export of a tenant, which holds its slot until the permit is dropped.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`].
    pub(crate) async fn admit_export(&self, tenant: &str) -> Result<QueryPermit, DocumentsError> {
        let slot = self.export_slots.try_take(tenant.to_owned())?;
        self.admit(tenant, slot).await
    }

    async fn admit(&self, tenant: &str, slot: Slot<String>) -> Result<QueryPermit, DocumentsError> {
        Ok(QueryPermit { _slot: slot, _session: self.sessions.databases.admit(tenant).await? })
    }
}

impl PooledSession {
    pub(crate) fn client(&self) -> &Client {
        &self.session.as_ref().expect(SESSION_HELD).client
    }

    fn session_mut(&mut self) -> &mut QuerySession {
        self.session.as_mut().expect(SESSION_HELD)
    }

    /// Returns the session to the pool, unless the result says that it failed, and translates
    /// errors of the result.
    pub(crate) async fn finish<T>(
        mut self,
        result: Result<T, DocumentsError>,
    ) -> Result<T, DocumentsError> {
        let session = self.session.take().expect(SESSION_HELD);
        match &result {
            Err(error) if error.is_session_lost() => {}
            _ => self.sessions.idle().push(session),
        }
        match result {
            Ok(value) => Ok(value),
            Err(DocumentsError::Server { code, .. }) if code == Some(SqlState::QUERY_CANCELED) => {
                Err(DocumentsError::QueryTimeout { timeout: self.sessions.timeout })
            }
            Err(error) => {
                let IdleSessions { databases, database, .. } = &*self.sessions;
                Err(install::check_removal(error, databases, database).await)
            }
        }
    }
}

const SESSION_HELD: &str = "the session is returned only when this is dropped";

impl Drop for PooledSession {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        // Without a runtime, the connection is closed too.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (sessions, permit) = (self.sessions.clone(), self.permit.take());
        runtime.spawn(async move {
            sessions.await_statement(session).await;
            drop(permit);
        });
    }
}

impl IdleSessions {
    fn idle(&self) -> MutexGuard<'_, Vec<QuerySession>> {
        lock(&self.idle)
    }

    async fn take_or_connect(&self) -> Result<QuerySession, DocumentsError> {
        let idle = self.idle().pop();
        if let Some(session) = idle.filter(|session| !session.client.is_closed()) {
            return Ok(session);
        }
        let client = self.databases.client(&self.database).await?;
        let millis = self.timeout.0.min(i32::MAX as u64);
        // Queries return short pages, so JIT compilation never pays off, whatever the planner
        // estimates. Values of all paths share their statistics: a bitmap scan for what looks like
        // a few of them would read and sort millions, where an index scan stops after the page.
        let settings =
            format!("SET statement_timeout = {millis}; SET jit = off; SET enable_bitmapscan = off");
        client.batch_execute(&settings).await?;
        Ok(QuerySession { client, statements: HashMap::new() })
    }

    /// Waits until the server has finished the statement of a dropped caller; cancels it if that
    /// takes longer than [`CANCEL_DELAY`].
    async fn await_statement(&self, session: QuerySession) {
        let probe = timeout(CANCEL_DELAY, session.client.batch_execute(""));
        if let Ok(Ok(())) = probe.await {
            self.idle().push(session);
            return;
        }
        // Cancellation is sent without TLS only; with TLS, the statement ends by its timeout.
        let mode = self.databases.connection(&self.database).get_ssl_mode();
        let is_without_tls = mode == SslMode::Disable;
        if is_without_tls {
            let token = session.client.cancel_token();
            if !matches!(timeout(OVERRUN_MAX, token.cancel_query(NoTls)).await, Ok(Ok(()))) {
                let database = &self.database;
                tracing::debug!(
                    database,
                    "cannot cancel an abandoned query; it runs until its timeout"
                );
            }
        }
        let overrun_timeout = self.timeout.duration() + OVERRUN_MAX;
        let result = timeout(overrun_timeout, session.client.batch_execute("")).await;
        // A cancel request that arrives late could hit the session's next statement: do not reuse
        // the session after one.
        if let (Ok(Ok(())), false) = (result, is_without_tls) {
            self.idle().push(session);
        }
    }
}

impl QuerySession {
    async fn prepare(&mut self, text: &str) -> Result<Statement, DocumentsError> {
        if let Some(statement) = self.statements.get(text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(text).await?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    async fn query(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let statement = self.prepare(text).await?;
        Ok(self.client.query(&statement, values).await?)
    }

    async fn query_page(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        budget: &mut PageBudget,
    ) -> Result<Vec<Row>, DocumentsError> {
        let statement = self.prepare(text).await?;
        Ok(if budget.rows_to_request() <= i64::from(FETCH_ROWS) {
            read_rows(&self.client, &statement, values, budget).await?
        } else {
            read_rows_in_parts(&mut self.client, &statement, values, budget).await?
        })
    }
}
