//! Sessions in which views are refreshed.

use egret_postgres::tokio_postgres::Client;

use crate::config::ViewsConfig;
use crate::core::memory::STEP_MEMORY_KB;
use crate::error::ViewsError;
use crate::store::statements::Statements;

/// A connection with its prepared statements.
pub struct Session {
    pub client: Client,
    pub statements: Statements,
}

impl Session {
    /// Sets up a new connection: timeouts, search path, planner settings.
    pub async fn new(client: Client, config: &ViewsConfig) -> Result<Self, ViewsError> {
        let settings = format!(
            // All plans are generic: no parameter tells the planner anything, so a plan that is
            // made once is as good as any. The search path never differs from that of a refresh, as
            // another one would invalidate all plans.
            "SET lock_timeout = {}; SET statement_timeout = {}; SET client_min_messages = warning; \
             SET search_path = pg_catalog, egret, pg_temp; SET plan_cache_mode = force_generic_plan; SET jit = off; \
             SET work_mem = '{STEP_MEMORY_KB}kB'; SET hash_mem_multiplier = 1",
            config.lock_timeout.0.min(i32::MAX as u64),
            config.refresh_timeout.0.min(i32::MAX as u64),
        );
        client.batch_execute(&settings).await?;
        Ok(Self { client, statements: Statements::default() })
    }
}
