//! A session in which views are refreshed.

use std::time::{Duration, Instant};

use egret_postgres::tokio_postgres::Client;

use crate::config::ViewsConfig;
use crate::error::ViewsError;
use crate::store::install;
use crate::store::statements::Statements;

/// For so long nobody is expected to have changed whose schema `egret` is.
const SEEN: Duration = Duration::from_secs(5);

/// A session with what it has prepared.
pub struct Session {
    /// It.
    pub client: Client,
    /// What it has prepared.
    pub statements: Statements,
    /// The table of views, of which it was seen then that it is Egret's own.
    seen: Option<(u32, Instant)>,
}

impl Session {
    /// Prepares a connection.
    ///
    /// # Errors
    /// What the server says.
    pub async fn new(client: Client, config: &ViewsConfig) -> Result<Self, ViewsError> {
        let settings = format!(
            // No parameter tells the planner anything: a plan that is made once is as good as any. Nor is the search path ever another
            // than in a refresh, or all plans would be made again.
            "SET lock_timeout = {}; SET statement_timeout = {}; SET client_min_messages = warning; \
             SET search_path = pg_catalog, egret, pg_temp; SET plan_cache_mode = force_generic_plan; SET jit = off; \
             SET work_mem = '{}kB'",
            config.lock_timeout.duration().as_millis(),
            config.refresh_timeout.duration().as_millis(),
            config.work_mem.bytes() / 1024,
        );
        client.batch_execute(&settings).await?;
        Ok(Self {
            client,
            statements: Statements::default(),
            seen: None,
        })
    }

    /// Whether the database has views.
    ///
    /// # Errors
    /// What the server says, and that somebody else has made schema `egret`.
    pub async fn is_installed(&mut self) -> Result<bool, ViewsError> {
        if let Some((table, _)) = self.seen.filter(|(_, at)| at.elapsed() < SEEN) {
            let Self {
                client, statements, ..
            } = self;
            let row = statements.query_one(client, install::IS_THERE, &[]).await?;
            if row.get::<_, Option<u32>>(0) == Some(table) {
                return Ok(true);
            }
        }
        let found = install::is_installed(&self.client).await?;
        self.seen = found.map(|table| (table, Instant::now()));
        Ok(found.is_some())
    }
}
