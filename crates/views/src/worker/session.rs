//! A session in which views are refreshed.

use egret_postgres::tokio_postgres::Client;

use crate::config::ViewsConfig;
use crate::core::memory::STEP_KB;
use crate::error::ViewsError;
use crate::store::statements::Statements;

/// A session with what it has prepared.
pub struct Session {
    /// It.
    pub client: Client,
    /// What it has prepared.
    pub statements: Statements,
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
             SET work_mem = '{STEP_KB}kB'; SET hash_mem_multiplier = 1",
            config.lock_timeout.duration().as_millis(),
            config.refresh_timeout.duration().as_millis(),
        );
        client.batch_execute(&settings).await?;
        Ok(Self {
            client,
            statements: Statements::default(),
        })
    }
}
