//! Databases with documents that nobody has asked for: their subscribers are told all the same.

use std::sync::Arc;

use egret_postgres::database_watch::DatabaseVisitor;
use tokio::sync::{Notify, watch};

use super::{Documents, Kept, lock};
use crate::error::DocumentsError;
use crate::store::install;
use crate::worker::keeper::Standing;

impl DatabaseVisitor for Documents {
    type Error = DocumentsError;

    /// Keeps the documents of a database that has some, and those of one that has none any more no longer: its sessions would
    /// keep others from dropping it.
    async fn visit(&self, database: &str) -> Result<(), DocumentsError> {
        let databases = &self.inner.options.databases;
        let kept = lock(&self.inner.kept).get(database).cloned();
        if let Some(kept) = kept {
            if install::is_gone(databases, database).await {
                self.end_gone(database, &kept).await;
                return Ok(());
            }
            if kept.keeper.standing() != Standing::Gone {
                return Ok(());
            }
        }
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
    /// Ends what runs for the documents of a database that are gone, unless others have taken their place meanwhile.
    async fn end_gone(&self, database: &str, gone: &Arc<Kept>) {
        {
            let mut all = lock(&self.inner.kept);
            if all
                .get(database)
                .is_some_and(|kept| Arc::ptr_eq(kept, gone))
            {
                all.remove(database);
            }
        }
        gone.end().await;
    }

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
