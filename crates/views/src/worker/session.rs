//! A session in which views are refreshed, and those that a keeper has.

use std::sync::atomic::Ordering;

use egret_postgres::tokio_postgres::Client;

use crate::config::ViewsConfig;
use crate::core::memory::STEP_KB;
use crate::error::ViewsError;
use crate::store::statements::Statements;
use crate::worker::keeper::{Keeper, lock};

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

impl Keeper {
    /// A session in the database. It is given back by [`Self::give_back`] when nothing went wrong.
    ///
    /// # Errors
    /// What the server says.
    pub async fn session(&self) -> Result<Session, ViewsError> {
        let idle = lock(&self.idle).pop();
        if let Some(session) = idle
            && !session.client.is_closed()
        {
            return Ok(session);
        }
        let client = self.shared.databases.client(&self.database).await?;
        Session::new(client, &self.shared.config).await
    }

    /// Keeps a session for others, as long as the database has views.
    pub fn give_back(&self, session: Session) {
        let mut idle = lock(&self.idle);
        if self.is_installed()
            && !session.statements.is_spoiled
            && idle.len() <= self.shared.config.refresh_parallel_max as usize
        {
            idle.push(session);
        }
    }

    /// Closes the sessions that are kept and forgets what was read: the database has nothing of the engine any more. A session would keep
    /// others from dropping it.
    pub async fn leave(&self) {
        // First: whoever gives back a session from here on closes it.
        self.installed.store(false, Ordering::Relaxed);
        lock(&self.idle).clear();
        self.backlog.close_session();
        self.feed.close_session().await;
        self.known.doubt();
        self.known.give_up();
        lock(&self.loaded).clear();
        lock(&self.costs).clear();
        lock(&self.latest).clear();
    }
}
