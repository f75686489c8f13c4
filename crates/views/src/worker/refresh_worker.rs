//! State of the views engine for one database: sessions, caches, and what was learned of views.
//!
//! `refresh` refreshes the views, `change_reader` reads their change sets, and `change_log_task`
//! removes applied changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_postgres::tokio_postgres::Client;
use tokio::sync::{Notify, Semaphore};

use super::catalog_cache::CatalogCache;
use super::change_log_gc::ChangeLogGc;
use super::change_notifier::ChangeNotifier;
use super::context::ViewsContext;
use super::session::Session;
use super::view_faults::ViewFaults;
use crate::core::strategy::CostModel;
use crate::error::ViewsError;
use crate::model::RefreshReport;
use crate::store::install::install;
use crate::store::load::load;
use crate::store::lock_retry::LockRetryPolicy;
use crate::store::refreshable::Refreshable;
use crate::store::restored;

/// Identifies a database across DROP and CREATE under the same name, since the ids of its views and
/// tables start over.
#[derive(Debug, Default)]
struct DatabaseIncarnation {
    /// Server and database, as a session read them.
    server: Option<String>,
    /// Oid of the table of views.
    table: Option<u32>,
}

/// State of the views engine for one database.
pub struct ViewRefreshWorker {
    pub database: String,
    pub context: Arc<ViewsContext>,
    /// Wakes the refresh loop: there may be a new view, or another schedule.
    pub views_changed: Notify,
    /// Tables for changes of which applied rows may be removed.
    pub change_log: ChangeLogGc,
    /// Notifies followers of the database's views.
    pub notifier: ChangeNotifier,
    /// Whether the engine is known to be installed in the database.
    installed: AtomicBool,
    /// Cached registry of views, valid for seconds.
    pub catalog: CatalogCache,
    /// The incarnation that the caches of this worker belong to.
    incarnation: Mutex<DatabaseIncarnation>,
    /// Idle sessions, to be used again.
    idle_sessions: Mutex<Vec<Session>>,
    pub(super) loaded_views: Mutex<BTreeMap<i64, Arc<Refreshable>>>,
    pub(super) costs: Mutex<BTreeMap<i64, CostModel>>,
    pub(super) latest_reports: Mutex<BTreeMap<i64, RefreshReport>>,
    /// One permit for each refresh that may run at a time.
    pub(super) refresh_permits: Semaphore,
    pub(super) faults: ViewFaults,
}

impl ViewRefreshWorker {
    pub fn new(database: &str, context: Arc<ViewsContext>) -> Self {
        let parallel = context.config.refresh_parallel_max.max(1) as usize;
        Self {
            database: database.to_owned(),
            faults: ViewFaults::new(),
            context,
            views_changed: Notify::new(),
            change_log: ChangeLogGc::default(),
            notifier: ChangeNotifier::default(),
            installed: AtomicBool::new(false),
            catalog: CatalogCache::default(),
            incarnation: Mutex::default(),
            idle_sessions: Mutex::default(),
            loaded_views: Mutex::default(),
            costs: Mutex::default(),
            latest_reports: Mutex::default(),
            refresh_permits: Semaphore::new(parallel),
        }
    }

    /// Bounds retries of locks on tables by `views.lock_timeout`.
    pub(crate) fn lock_retry_policy(&self) -> LockRetryPolicy {
        LockRetryPolicy::new(self.context.config.lock_timeout.duration())
    }

    /// Whether the engine is known to be installed in the database.
    pub fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Relaxed)
    }

    /// Notes that the engine is installed in the database.
    pub(crate) fn set_installed(&self) {
        self.installed.store(true, Ordering::Relaxed);
    }

    /// Checks whether the database has views.
    pub async fn inspect(&self) -> Result<bool, ViewsError> {
        let mut session = self.session().await?;
        let is_installed = self.catalog.check_registry(&session.client).await?.is_some();
        if is_installed && !self.is_installed() {
            // An older version of Egret may have installed the schema.
            install(&mut session.client).await?;
        }
        if is_installed {
            self.set_installed();
            self.return_session(session);
        } else {
            self.close().await;
        }
        Ok(is_installed)
    }

    /// An idle session of the database, or a new one. To be given back by [`Self::return_session`]
    /// unless an error occurred.
    pub async fn session(&self) -> Result<Session, ViewsError> {
        let idle = lock(&self.idle_sessions).pop();
        if let Some(session) = idle
            && !session.client.is_closed()
        {
            return Ok(session);
        }
        let client = self.context.databases.client(&self.database).await?;
        let mut session = Session::new(client, &self.context.config).await?;
        self.note_server(&mut session).await?;
        Ok(session)
    }

    /// Clears the caches if the database of a new session is not the one that they are of.
    async fn note_server(&self, session: &mut Session) -> Result<(), ViewsError> {
        let server = session.statements.server_identity(&session.client).await?;
        let before = lock(&self.incarnation).server.replace(server.clone());
        if before.is_some_and(|before| before != server) {
            let database = &self.database;
            tracing::info!(database, "another database has this name now");
            self.close().await;
        }
        Ok(())
    }

    /// Clears the caches if the table of views is not the one that they are of.
    pub(super) fn note_table(&self, table: Option<u32>) {
        let Some(table) = table else { return };
        let before = lock(&self.incarnation).table.replace(table);
        if before.is_some_and(|before| before != table) {
            self.clear_caches();
        }
    }

    /// Keeps a session for later use, as long as the database has views.
    pub(crate) fn return_session(&self, session: Session) {
        let mut idle = lock(&self.idle_sessions);
        if self.is_installed()
            && !session.statements.is_spoiled
            && idle.len() <= self.context.config.refresh_parallel_max as usize
        {
            idle.push(session);
        }
    }

    /// Closes the idle sessions and clears the caches: the database has nothing of the engine any
    /// more, and an open session would keep its owner from dropping it.
    pub async fn close(&self) {
        // Before the sessions are closed: a session that is given back from here on is dropped.
        self.installed.store(false, Ordering::Relaxed);
        lock(&self.idle_sessions).clear();
        self.change_log.close_session();
        self.notifier.close_session().await;
        self.catalog.invalidate_registry_oid();
        self.clear_caches();
    }

    /// Clears what is known of views by their numbers.
    fn clear_caches(&self) {
        self.catalog.invalidate_views();
        self.change_log.clear_tables();
        lock(&self.loaded_views).clear();
        lock(&self.costs).clear();
        lock(&self.latest_reports).clear();
    }

    /// Discards the cached list of views and wakes the refresh loop.
    pub(crate) fn announce_change(&self) {
        self.catalog.invalidate_views();
        self.views_changed.notify_one();
    }

    /// Report of the last refresh of a view by this process; the history may not have it yet.
    pub(crate) fn latest_report(&self, view: i64) -> Option<RefreshReport> {
        lock(&self.latest_reports).get(&view).cloned()
    }

    /// Has a view loaded again before its next refresh.
    pub(crate) fn unload(&self, view: i64) {
        self.catalog.invalidate_views();
        lock(&self.loaded_views).remove(&view);
    }

    /// Discards the learned costs and the latest report of a view.
    pub(crate) fn discard_costs(&self, view: i64) {
        lock(&self.costs).remove(&view);
        lock(&self.latest_reports).remove(&view);
    }

    /// A view prepared for refreshes, from the cache if it is there.
    pub(crate) async fn load_view(
        &self,
        client: &mut Client,
        view: i64,
    ) -> Result<Arc<Refreshable>, ViewsError> {
        let cached = lock(&self.loaded_views).get(&view).cloned();
        if let Some(cached) = cached {
            return Ok(cached);
        }
        self.adopt_restored(client).await?;
        let loaded = Arc::new(load(client, view).await?);
        lock(&self.loaded_views).insert(view, loaded.clone());
        Ok(loaded)
    }

    /// Converts the views of a restored database to the object numbers of this one.
    pub(crate) async fn adopt_restored(&self, client: &mut Client) -> Result<(), ViewsError> {
        let capture_options = self.context.config.capture_options();
        if restored::adopt_restored(client, capture_options).await? {
            let database = &self.database;
            tracing::info!(database, "the database was restored: rebuilding its views");
            lock(&self.loaded_views).clear();
        }
        Ok(())
    }
}
