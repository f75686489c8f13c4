//! Sessions for queries: so many at a time, each for one query.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use egret_base::settings::Span;
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row, Statement};
use tokio::sync::Semaphore;

use crate::error::DocumentsError;
use crate::store::query::Sql;

/// Statements that a session has prepared, at most: then it forgets all.
const STATEMENTS_MAX: usize = 200;

/// See the module.
pub struct Asker {
    database: String,
    databases: Databases,
    timeout: Span,
    free: Semaphore,
    sessions: Mutex<Vec<Session>>,
}

struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl Asker {
    /// For a database; `queries` run at a time and may take as long as `timeout`.
    pub fn new(database: &str, databases: Databases, (queries, timeout): (u32, Span)) -> Self {
        Self {
            database: database.to_owned(),
            databases,
            timeout,
            free: Semaphore::new(queries.max(1) as usize),
            sessions: Mutex::default(),
        }
    }

    /// The rows of a statement.
    ///
    /// # Errors
    /// What the server says, and that it takes too long.
    pub async fn ask(&self, sql: &Sql) -> Result<Vec<Row>, DocumentsError> {
        self.run(&sql.text, &sql.values()).await
    }

    /// The same of a statement with its values.
    ///
    /// # Errors
    /// What the server says, and that it takes too long.
    pub async fn run(
        &self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let permit = self.free.acquire().await;
        let _permit = permit.map_err(|_| DocumentsError::Stopping)?;
        let mut session = self.session().await?;
        let asked = session.ask(text, values).await;
        match &asked {
            Err(error) if error.is_of_session() => {}
            _ => self.sessions().push(session),
        }
        asked.map_err(|error| match &error {
            DocumentsError::Server { code, .. } if *code == Some(SqlState::QUERY_CANCELED) => {
                DocumentsError::QueryTimeout {
                    timeout: self.timeout,
                }
            }
            _ => error,
        })
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn session(&self) -> Result<Session, DocumentsError> {
        let there = self.sessions().pop();
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
}

impl Session {
    async fn ask(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DocumentsError> {
        let statement = match self.statements.get(text) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(text).await?;
                if self.statements.len() >= STATEMENTS_MAX {
                    self.statements.clear();
                }
                self.statements.insert(text.to_owned(), statement.clone());
                statement
            }
        };
        Ok(self.client.query(&statement, values).await?)
    }
}
