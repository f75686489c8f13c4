//! The refresh workers of all databases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use tokio::sync::{Notify, watch};

use super::context::ViewsContext;
use super::refresh_worker::ViewRefreshWorker;

/// The refresh workers by database.
pub(crate) struct RefreshWorkers {
    pub context: Arc<ViewsContext>,
    workers: Mutex<BTreeMap<String, Arc<ViewRefreshWorker>>>,
    /// Wakes the watch over databases: a database may have got its first view.
    pub databases_changed: Notify,
    /// True once the engine stops.
    pub stopping: watch::Sender<bool>,
}

impl RefreshWorkers {
    pub(crate) fn new(context: ViewsContext) -> Self {
        Self {
            context: Arc::new(context),
            workers: Mutex::default(),
            databases_changed: Notify::new(),
            stopping: watch::Sender::new(false),
        }
    }

    /// The worker of a database.
    pub(crate) fn worker(&self, database: &str) -> Arc<ViewRefreshWorker> {
        let mut workers = lock(&self.workers);
        let worker = workers.entry(database.to_owned()).or_insert_with(|| {
            let context = self.context.clone();
            Arc::new(ViewRefreshWorker::new(database, context))
        });
        worker.clone()
    }

    /// The workers of databases with views, or the one of `database` if it has views.
    pub(crate) fn installed_workers(&self, database: Option<&str>) -> Vec<Arc<ViewRefreshWorker>> {
        lock(&self.workers)
            .values()
            .filter(|worker| worker.is_installed())
            .filter(|worker| database.is_none_or(|name| *name == worker.database))
            .cloned()
            .collect()
    }
}
