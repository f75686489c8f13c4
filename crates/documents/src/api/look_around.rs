//! Databases with documents that nobody has asked for: their subscribers are told all the same.

use egret_postgres::database_watch::DatabaseVisitor;
use tokio::sync::{Notify, watch};

use super::{Documents, lock};
use crate::error::DocumentsError;
use crate::store::install;
use crate::worker::keeper::Standing;

impl DatabaseVisitor for Documents {
    type Error = DocumentsError;

    /// Keeps the documents of a database that has some.
    async fn visit(&self, database: &str) -> Result<(), DocumentsError> {
        let is_kept = lock(&self.inner.kept)
            .get(database)
            .is_some_and(|kept| kept.keeper.standing() != Standing::Gone);
        if is_kept {
            return Ok(());
        }
        let databases = &self.inner.options.databases;
        let Some(client) = databases.client_of_existing(database).await? else {
            return Ok(());
        };
        if install::is_installed(&client).await? {
            self.keep(database).await?;
        }
        Ok(())
    }
}

impl Documents {
    /// Looks for databases with documents from now on.
    pub(super) async fn begin_watch(&self) {
        // What it fails of is a condition, and tried again.
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

    /// Looks for none any more.
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
