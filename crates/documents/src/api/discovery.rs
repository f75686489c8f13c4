//! Discovery of databases with documents before the first request for them, so that their
//! subscriptions are served.

use std::sync::Arc;

use egret_base::sync::lock;
use egret_postgres::database_watch::DatabaseVisitor;
use tokio::sync::{Notify, watch};

use super::database::DatabaseHandle;
use super::engine::Documents;
use crate::error::DocumentsError;
use crate::store::install;
use crate::worker::ownership::OwnershipState;

impl DatabaseVisitor for Documents {
    type Error = DocumentsError;

    /// Opens the documents of a database that has some. Closes those of a database that no longer
    /// has any: open sessions would keep the database from being dropped.
    async fn visit(&self, database: &str) -> Result<(), DocumentsError> {
        let databases = &self.inner.options.databases;
        let handle = lock(&self.inner.handles).get(database).cloned();
        if let Some(handle) = handle {
            if install::is_removed(databases, database).await {
                self.stop_removed(database, &handle).await;
                return Ok(());
            }
            if handle.ownership.state() != OwnershipState::Removed {
                return Ok(());
            }
        }
        let Some(client) = databases.client_if_exists(database).await? else {
            return Ok(());
        };
        if install::is_installed(&client).await? {
            self.open_handle(database).await?;
        }
        Ok(())
    }
}

impl Documents {
    /// Stops the tasks for the removed documents of a database. A newer handle for the same
    /// database stays.
    async fn stop_removed(&self, database: &str, removed: &Arc<DatabaseHandle>) {
        {
            let mut handles = lock(&self.inner.handles);
            if handles.get(database).is_some_and(|handle| Arc::ptr_eq(handle, removed)) {
                handles.remove(database);
            }
        }
        removed.stop().await;
    }

    /// Starts the periodic search for databases with documents.
    pub(super) async fn start_watch(&self) {
        // A failure raises a condition and is retried.
        _ = self.inner.watch.visit_all(self).await;
        let (stopping, stopped) = watch::channel(false);
        let documents = self.clone();
        let task = tokio::spawn(async move {
            let watch = &documents.inner.watch;
            let never_notified = Notify::new();
            let first_wait = watch.time_until_next_visit();
            watch.run(&documents, first_wait, &never_notified, stopped).await;
        });
        *lock(&self.inner.watcher) = Some((stopping, task));
    }

    /// Stops the periodic search.
    pub(super) async fn stop_watch(&self) {
        let watcher = lock(&self.inner.watcher).take();
        if let Some((stopping, task)) = watcher {
            stopping.send_replace(true);
            if let Err(error) = task.await {
                tracing::error!(%error, "the watch over databases with documents panicked");
            }
        }
    }
}
