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
use crate::store::query::{PageBudget, ROWS_TOGETHER, Sql, rows, rows_by_parts};

/// Prepared statements of a session, at most: beyond that all are dropped.
const STATEMENTS_MAX: usize = 200;

/// How long a statement of a dropped caller may go on before the server is asked to cancel it.
const MOMENT: Duration = Duration::from_millis(50);

/// How long a statement may overrun its timeout before its session is closed.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct QuerySessionPool {
    sessions: Arc<IdleSessions>,
    queries: TenantSlots<String>,
    exports: TenantSlots<String>,
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
            queries: TenantSlots::new("documents.queries", config.queries),
            exports: TenantSlots::new("documents.exports", config.exports),
        }
    }

    /// Rows of a statement, on behalf of a tenant.
    ///
    /// # Errors
    /// [`DocumentsError::QueryTimeout`] and [`DocumentsError::Overloaded`].
    pub(crate) async fn ask(&self, tenant: &str, sql: &Sql) -> Result<Vec<Row>, DocumentsError> {
        self.run(tenant, &sql.text, &sql.values()).await
    }

    /// Like [`Self::query_sql`], for a statement and its parameters.
    ///
    /// # Errors
    /// Those of [`Self::query_sql`].
    pub(crate) async fn run(
        &self,
        tenant: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let mut lent = self.lend(tenant).await?;
        let told = lent.session().ask(text, values).await;
        lent.end(told).await
    }

    /// The first rows of a statement, within the page budget.
    ///
    /// # Errors
    /// Those of [`Self::query_sql`].
    pub(crate) async fn page(
        &self,
        tenant: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        room: &mut PageBudget,
    ) -> Result<Vec<Row>, DocumentsError> {
        let mut lent = self.lend(tenant).await?;
        let told = lent.session().page(text, values, room).await;
        lent.end(told).await
    }

    /// Lends a session to a tenant, as soon as one is free.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`]: none was free within the query timeout.
    pub(crate) async fn lend(&self, tenant: &str) -> Result<PooledSession, DocumentsError> {
        let wait_max = self.sessions.timeout.duration();
        let slot = self.queries.take(tenant.to_owned(), wait_max).await?;
        let permit = self.admit(tenant, slot).await?;
        let session = self.sessions.take().await?;
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
    pub(crate) async fn export(&self, tenant: &str) -> Result<QueryPermit, DocumentsError> {
        let slot = self.exports.try_take(tenant.to_owned())?;
        self.admit(tenant, slot).await
    }

    async fn admit(&self, tenant: &str, slot: Slot<String>) -> Result<QueryPermit, DocumentsError> {
        Ok(QueryPermit {
            _slot: slot,
            _session: self.sessions.databases.admit(tenant).await?,
        })
    }
}

impl PooledSession {
    pub(crate) fn client(&self) -> &Client {
        &self.session.as_ref().expect(HELD).client
    }

    fn session(&mut self) -> &mut QuerySession {
        self.session.as_mut().expect(HELD)
    }

    /// Returns the session to the pool, unless the result says that it failed, and translates
    /// errors of the result.
    pub(crate) async fn end<T>(
        mut self,
        told: Result<T, DocumentsError>,
    ) -> Result<T, DocumentsError> {
        let session = self.session.take().expect(HELD);
        match &told {
            Err(error) if error.is_of_session() => {}
            _ => self.sessions.idle().push(session),
        }
        match told {
            Ok(told) => Ok(told),
            Err(DocumentsError::Server { code, .. }) if code == Some(SqlState::QUERY_CANCELED) => {
                Err(DocumentsError::QueryTimeout {
                    timeout: self.sessions.timeout,
                })
            }
            Err(error) => {
                let IdleSessions {
                    databases,
                    database,
                    ..
                } = &*self.sessions;
                Err(install::check_removal(error, databases, database).await)
            }
        }
    }
}

const HELD: &str = "the session is returned only when this is dropped";

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
            sessions.settle(session).await;
            drop(permit);
        });
    }
}

impl IdleSessions {
    fn idle(&self) -> MutexGuard<'_, Vec<QuerySession>> {
        lock(&self.idle)
    }

    async fn take(&self) -> Result<QuerySession, DocumentsError> {
        let there = self.idle().pop();
        if let Some(session) = there.filter(|session| !session.client.is_closed()) {
            return Ok(session);
        }
        let client = self.databases.client(&self.database).await?;
        let millis = self.timeout.0.min(i32::MAX as u64);
        // Queries return short pages, so JIT compilation never pays off, whatever the planner
        // estimates.
        let settings = format!("SET statement_timeout = {millis}; SET jit = off");
        client.batch_execute(&settings).await?;
        Ok(QuerySession {
            client,
            statements: HashMap::new(),
        })
    }

    /// Waits until the server has finished the statement of a dropped caller; cancels it if that
    /// takes longer than [`CANCEL_DELAY`].
    async fn settle(&self, session: QuerySession) {
        let answered = timeout(MOMENT, session.client.batch_execute(""));
        if let Ok(Ok(())) = answered.await {
            self.idle().push(session);
            return;
        }
        // Cancellation is sent without TLS only; with TLS, the statement ends by its timeout.
        let mode = self.databases.connection(&self.database).get_ssl_mode();
        let is_plain = mode == SslMode::Disable;
        if is_plain {
            let token = session.client.cancel_token();
            if !matches!(
                timeout(PATIENCE, token.cancel_query(NoTls)).await,
                Ok(Ok(()))
            ) {
                let database = &self.database;
                tracing::debug!(
                    database,
                    "cannot cancel an abandoned query; it runs until its timeout"
                );
            }
        }
        let longest = self.timeout.duration() + PATIENCE;
        let answered = timeout(longest, session.client.batch_execute("")).await;
        // A cancel request that arrives late could hit the session's next statement: do not reuse
        // the session after one.
        if let (Ok(Ok(())), false) = (answered, is_plain) {
            self.idle().push(session);
        }
    }
}

impl QuerySession {
    async fn prepared(&mut self, text: &str) -> Result<Statement, DocumentsError> {
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

    async fn ask(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let statement = self.prepared(text).await?;
        Ok(self.client.query(&statement, values).await?)
    }

    async fn page(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        room: &mut PageBudget,
    ) -> Result<Vec<Row>, DocumentsError> {
        let statement = self.prepared(text).await?;
        Ok(if room.asked() <= i64::from(ROWS_TOGETHER) {
            rows(&self.client, &statement, values, room).await?
        } else {
            rows_by_parts(&mut self.client, &statement, values, room).await?
        })
    }
}
