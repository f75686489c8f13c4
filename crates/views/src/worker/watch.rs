//! Finds the databases that have views, and starts a refresh loop for each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::condition::ConditionSet;
use egret_base::sync::lock;
use egret_postgres::database_watch::{DatabaseVisitor, DatabaseWatch};
use egret_postgres::databases::is_database_missing;
use tokio::task::JoinHandle;

use super::refresh_loop;
use super::refresh_workers::RefreshWorkers;
use crate::error::ViewsError;

/// How long a running refresh may take to end when the engine stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Refresh loops by database.
struct WatchedDatabases {
    workers: Arc<RefreshWorkers>,
    tasks: Mutex<BTreeMap<String, JoinHandle<()>>>,
}

impl DatabaseVisitor for WatchedDatabases {
    type Error = ViewsError;

    /// Starts the refresh loop of a database with views, if it does not run. A session stays open
    /// only in databases with views: it would keep an owner from dropping the database.
    async fn visit(&self, database: &str) -> Result<(), ViewsError> {
        let is_running = lock(&self.tasks).get(database).is_some_and(|task| !task.is_finished());
        if is_running {
            return Ok(());
        }
        let worker = self.workers.worker(database);
        let is_installed = match worker.inspect().await {
            Err(ViewsError::Postgres(error)) if is_database_missing(&error) => false,
            is_installed => is_installed?,
        };
        if is_installed {
            let stopping = self.workers.stopping.subscribe();
            let task = tokio::spawn(refresh_loop::run(worker, stopping));
            lock(&self.tasks).insert(database.to_owned(), task);
        }
        Ok(())
    }
}

/// Looks for databases with views and keeps these fresh, until the engine stops.
pub(crate) async fn watch_databases(workers: Arc<RefreshWorkers>) {
    let stopping = workers.stopping.subscribe();
    let faults = ConditionSet::new("views_databases_unreadable");
    let databases = workers.context.databases.clone();
    let watch = DatabaseWatch::new(databases, faults, "views");
    let watched = WatchedDatabases { workers, tasks: Mutex::default() };
    let changed = &watched.workers.databases_changed;
    watch.run(&watched, Duration::ZERO, changed, stopping).await;
    let tasks = std::mem::take(&mut *lock(&watched.tasks));
    for (database, mut task) in tasks {
        match tokio::time::timeout(STOP_TIMEOUT, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, database, "view refresh worker stopped with an error")
            }
            // The transaction under way is rolled back, and repeated after the next start.
            Err(_) => task.abort(),
        }
    }
}
