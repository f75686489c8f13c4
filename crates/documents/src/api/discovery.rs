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
            if install::is_gone(databases, database).await {
                self.end_gone(database, &handle).await;
                return Ok(());
            }
            if handle.ownership.standing() != OwnershipState::Gone {
                return Ok(());
            }
        }
        let Some(client) = databases.client_of_existing(database).await? else {
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
    async fn end_gone(&self, database: &str, gone: &Arc<DatabaseHandle>) {
        {
            let mut all = lock(&self.inner.handles);
            if all
                .get(database)
                .is_some_and(|handle| Arc::ptr_eq(handle, gone))
            {
                all.remove(database);
            }
        }
        gone.end().await;
    }

    /// Starts the periodic search for databases with documents.
    pub(super) async fn begin_watch(&self) {
        // A failure raises a condition and is retried.
        _ = self.inner.watch.visit_all(self).await;
        let (stopping, stopped) = watch::channel(false);
        let documents = self.clone();
        let task = tokio::spawn(async move {
            let watch = &documents.inner.watch;
            let nothing_changes = Notify::new();
            let first_wait = watch.pause();
            watch
                .run(&documents, first_wait, &nothing_changes, stopped)
                .await;
        });
        *lock(&self.inner.watcher) = Some((stopping, task));
    }

    /// Stops the periodic search.
    pub(super) async fn end_watch(&self) {
        let watcher = lock(&self.inner.watcher).take();
        if let Some((stopping, task)) = watcher {
            stopping.send_replace(true);
            if let Err(error) = task.await {
                tracing::error!(%error, "the watch over databases with documents panicked");
            }
        }
    }
}
