//! Everything that is open for one database.

use std::sync::{Arc, Mutex};

use egret_base::Clock;
use egret_base::sync::lock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::caller::Caller;
use super::patch_locks::PatchLocks;
use crate::config::DocumentsConfig;
use crate::core::collection::DeclaredCollection;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::CollectionName;
use crate::worker::batched_reader::BatchedReader;
use crate::worker::feed_tailer::FeedTailer;
use crate::worker::ownership::OwnershipManager;
use crate::worker::query_sessions::QuerySessionPool;
use crate::worker::subscription_dispatch::SubscriptionDispatcher;
use crate::worker::sweeper::Sweeper;

/// Everything that is open for one database.
pub(super) struct DatabaseHandle {
    pub(super) ownership: Arc<OwnershipManager>,
    pub(super) reader: Arc<BatchedReader>,
    pub(super) queries: QuerySessionPool,
    pub(super) feed: Arc<FeedTailer>,
    pub(super) subscriptions: Arc<SubscriptionDispatcher>,
    pub(super) patch_locks: PatchLocks,
    pub(super) tasks: Mutex<JoinSet<()>>,
    pub(super) stopping: watch::Sender<bool>,
}

impl DatabaseHandle {
    /// A collection in which the caller may do this.
    pub(super) fn authorized_collection(
        &self,
        caller: &Caller,
        action: Action,
        collection: &CollectionName,
    ) -> Result<Arc<DeclaredCollection>, DocumentsError> {
        if !caller.rights.allows(action, collection) {
            let action = match action {
                Action::Read => "read",
                Action::Write => "write",
            };
            return Err(DocumentsError::AccessDenied {
                what: format!("the token may not {action} documents of collection `{collection}`"),
            });
        }
        let found = self.ownership.writer.catalogue().by_name(collection);
        found.ok_or_else(|| DocumentsError::NoCollection { collection: collection.clone() })
    }

    /// Starts the tasks of this database.
    pub(super) fn start_tasks(&self, config: &DocumentsConfig, clock: &Arc<dyn Clock>) {
        let mut tasks = lock(&self.tasks);
        let stopping = || self.stopping.subscribe();
        tasks.spawn(self.ownership.clone().run(stopping()));
        let sweeper = Sweeper {
            ownership: self.ownership.clone(),
            config: config.clone(),
            clock: clock.clone(),
        };
        tasks.spawn(sweeper.sweep(stopping()));
        tasks.spawn(self.feed.clone().run(stopping()));
        tasks.spawn(self.subscriptions.clone().run(stopping()));
        for _ in 0..config.readers.max(1) {
            tasks.spawn(self.reader.clone().run(stopping()));
        }
    }

    /// Stops the tasks of this database and waits for them; work in progress is finished.
    pub(super) async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }
}
