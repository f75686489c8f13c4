//! Sessions for queries and small look-ups: so many at a time, each for one.
//!
//! Whoever asks may go away before the server has answered. The session then stays among those that there may be until the server has ended what
//! it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egret_base::settings::Span;
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
use crate::store::query::{ROWS_TOGETHER, Room, Sql, rows, rows_by_parts};

/// Statements that a session has prepared, at most: then it forgets all.
const STATEMENTS_MAX: usize = 200;

/// How long a question may go on that nobody waits for any more, before the server is asked to give it up.
const MOMENT: Duration = Duration::from_millis(50);

/// How long after the end of its time a question may go on, before its session is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub struct Asker {
    sessions: Arc<Sessions>,
    queries: TenantSlots<String>,
    exports: TenantSlots<String>,
}

/// What lets a query or an export run, until it is dropped.
pub struct Permit {
    _slot: Slot<String>,
    _session: SessionPermit,
}

/// The sessions of a database that nobody has at the moment.
struct Sessions {
    database: String,
    databases: Databases,
    timeout: Span,
    idle: Mutex<Vec<Session>>,
}

struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
}

/// A session that somebody has for a question. Whoever has asked it says so by [`Lent::end`]; else he has gone away.
pub struct Lent {
    sessions: Arc<Sessions>,
    session: Option<Session>,
    permit: Option<Permit>,
}

impl Asker {
    /// For a database.
    pub fn new(database: &str, databases: Databases, config: &DocumentsConfig) -> Self {
        let sessions = Sessions {
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

    /// The rows of a statement that a tenant has asked for.
    ///
    /// # Errors
    /// What the server says, and that it takes too long; [`DocumentsError::Overloaded`].
    pub async fn ask(&self, tenant: &str, sql: &Sql) -> Result<Vec<Row>, DocumentsError> {
        self.run(tenant, &sql.text, &sql.values()).await
    }

    /// The same of a statement with its values.
    ///
    /// # Errors
    /// Those of [`Self::ask`].
    pub async fn run(
        &self,
        tenant: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let mut lent = self.lend(tenant).await?;
        let told = lent.session().ask(text, values).await;
        lent.end(told).await
    }

    /// The first rows of a statement, as many as a page has room for.
    ///
    /// # Errors
    /// Those of [`Self::ask`].
    pub async fn page(
        &self,
        tenant: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        room: &mut Room,
    ) -> Result<Vec<Row>, DocumentsError> {
        let mut lent = self.lend(tenant).await?;
        let told = lent.session().page(text, values, room).await;
        lent.end(told).await
    }

    /// A session for a tenant, as soon as one is free.
    ///
    /// # Errors
    /// There is none, as the database cannot be reached; [`DocumentsError::Overloaded`].
    pub async fn lend(&self, tenant: &str) -> Result<Lent, DocumentsError> {
        let wait_max = self.sessions.timeout.duration();
        let slot = self.queries.take(tenant.to_owned(), wait_max).await?;
        let permit = self.admit(tenant, slot).await?;
        let session = self.sessions.take().await?;
        Ok(Lent {
            sessions: self.sessions.clone(),
            session: Some(session),
            permit: Some(permit),
        })
    }

    /// Lets an export of a tenant begin, which counts until what is returned is dropped.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`].
    pub async fn export(&self, tenant: &str) -> Result<Permit, DocumentsError> {
        let slot = self.exports.try_take(tenant.to_owned())?;
        self.admit(tenant, slot).await
    }

    async fn admit(&self, tenant: &str, slot: Slot<String>) -> Result<Permit, DocumentsError> {
        Ok(Permit {
            _slot: slot,
            _session: self.sessions.databases.admit(tenant).await?,
        })
    }
}

impl Lent {
    /// The session.
    pub fn client(&self) -> &Client {
        &self.session.as_ref().expect(HELD).client
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect(HELD)
    }

    /// Gives it back, now that this was answered.
    ///
    /// # Errors
    /// What was answered, if that is one.
    pub async fn end<T>(mut self, told: Result<T, DocumentsError>) -> Result<T, DocumentsError> {
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
                let Sessions {
                    databases,
                    database,
                    ..
                } = &*self.sessions;
                Err(install::check_removal(error, databases, database).await)
            }
        }
    }
}

const HELD: &str = "it is given back at the end alone";

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        // Without a runtime the connection is at its end, too.
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

impl Sessions {
    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self) -> Result<Session, DocumentsError> {
        let there = self.idle().pop();
        if let Some(session) = there.filter(|session| !session.client.is_closed()) {
            return Ok(session);
        }
        let client = self.databases.client(&self.database).await?;
        let millis = self.timeout.duration().as_millis();
        // Pages are short, whatever the planner thinks of a condition.
        let settings = format!("SET statement_timeout = {millis}; SET jit = off");
        client.batch_execute(&settings).await?;
        Ok(Session {
            client,
            statements: HashMap::new(),
        })
    }

    /// Waits until the server has ended what a session was asked, and has it give up what takes longer than a moment.
    async fn settle(&self, session: Session) {
        let answered = timeout(MOMENT, session.client.batch_execute(""));
        if let Ok(Ok(())) = answered.await {
            self.idle().push(session);
            return;
        }
        // Where the server is reached by TLS, what it was asked ends by its timeout.
        let mode = self.databases.connection(&self.database).get_ssl_mode();
        let is_plain = mode == SslMode::Disable;
        if is_plain {
            let token = session.client.cancel_token();
            if !matches!(
                timeout(PATIENCE, token.cancel_query(NoTls)).await,
                Ok(Ok(()))
            ) {
                let database = &self.database;
                tracing::debug!(database, "a query that nobody waits for goes on");
            }
        }
        let longest = self.timeout.duration() + PATIENCE;
        let answered = timeout(longest, session.client.batch_execute("")).await;
        // What the server is asked to give up may be the next question, where it hears of that too late: that session has no next one.
        if let (Ok(Ok(())), false) = (answered, is_plain) {
            self.idle().push(session);
        }
    }
}

impl Session {
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
        room: &mut Room,
    ) -> Result<Vec<Row>, DocumentsError> {
        let statement = self.prepared(text).await?;
        Ok(match room.asked() <= i64::from(ROWS_TOGETHER) {
            true => rows(&self.client, &statement, values, room).await?,
            false => rows_by_parts(&mut self.client, &statement, values, room).await?,
        })
    }
}
