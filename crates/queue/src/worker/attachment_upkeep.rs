//! Deletes attachments that belong to no task any more: those of deleted tasks, and those of ended
//! leases.

use std::collections::BTreeMap;
use std::time::Duration;

use egret_base::Condition;
use egret_base::sync::lock;

use super::attachment_store::AttachmentStore;
use super::queues::Queues;
use super::task_view::Detail;
use crate::core::state::LeaseStatus;
use crate::error::{QueueError, io};
use crate::model::TaskId;

/// How often files of ended leases are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Leases in one query to a partition.
const ASKED_MAX: usize = 1_000;

/// Deleted tasks whose files are deleted in one step.
const GONE_MAX: usize = 256;

impl Queues {
    /// Deletes the files of deleted tasks and of ended leases, for as long as the engine runs.
    pub(super) fn begin_upkeep_of_shelf(&self) {
        let Some(mut gone) = lock(&self.inner.shelf.janitor).take() else {
            return;
        };
        // The engine holds the task, so the task must not hold the engine.
        let inner = std::sync::Arc::downgrade(&self.inner);
        let upkeep = tokio::spawn(async move {
            let failing = Condition::new("queue_attachments_not_deleted", "queue");
            let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
            loop {
                let mut ids = Vec::new();
                let sweep = tokio::select! {
                    biased;
                    received = gone.recv_many(&mut ids, GONE_MAX) => {
                        if received == 0 {
                            return;
                        }
                        false
                    }
                    _ = sweeps.tick() => true,
                };
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                let queues = Queues { inner };
                let done = if sweep {
                    queues.sweep_attachments().await
                } else {
                    queues.clear_gone(ids).await
                };
                match done {
                    Ok(()) => failing.recover("attachments of ended tasks are deleted again"),
                    Err(error) => {
                        let message = "cannot delete attachments of ended tasks; they stay until the next start";
                        failing.fail(error, message);
                    }
                }
            }
        });
        *lock(&self.inner.shelf_upkeep) = Some(upkeep);
    }

    async fn clear_gone(&self, ids: Vec<TaskId>) -> Result<(), QueueError> {
        self.on_shelf(move |shelf| ids.into_iter().try_for_each(|id| shelf.clear_all(id)))
            .await
    }

    /// Runs a closure on the files, where it may block.
    pub(crate) async fn on_shelf<R: Send + 'static>(
        &self,
        work: impl FnOnce(&AttachmentStore) -> std::io::Result<R> + Send + 'static,
    ) -> Result<R, QueueError> {
        let shelf = self.inner.shelf.clone();
        let done =
            tokio::task::spawn_blocking(move || work(&shelf).map_err(io("changing", shelf.root())));
        done.await.map_err(|_| QueueError::Stopping)?
    }

    /// Deletes the files of ended leases.
    ///
    /// # Errors
    /// [`QueueError::Io`], and those of a query to a partition.
    pub async fn sweep_attachments(&self) -> Result<(), QueueError> {
        let doubtful: Vec<(TaskId, u64)> =
            lock(&self.inner.shelf.doubtful).iter().copied().collect();
        let mut by_partition: BTreeMap<usize, Vec<(TaskId, u64)>> = BTreeMap::new();
        for (id, token) in doubtful {
            let partition = self.inner.partition_of(id.shard())?;
            by_partition.entry(partition).or_default().push((id, token));
        }
        for (partition, leases) in by_partition {
            for some in leases.chunks(ASKED_MAX) {
                self.sweep_some(partition, some.to_vec()).await?;
            }
        }
        Ok(())
    }

    async fn sweep_some(
        &self,
        partition: usize,
        leases: Vec<(TaskId, u64)>,
    ) -> Result<(), QueueError> {
        let asked = leases.clone();
        let fates = self.inner.ask(partition, move |turn| {
            let fates = asked
                .iter()
                .map(|(id, token)| turn.state.lease_status(*id, *token));
            fates.collect::<Vec<LeaseStatus>>()
        });
        for ((id, token), fate) in leases.into_iter().zip(fates.await?) {
            let kept = match fate {
                LeaseStatus::Held => continue,
                LeaseStatus::Over => Vec::new(),
                LeaseStatus::Completed => match self.any_task(id, Detail::Whole).await {
                    Ok(view) => view.attachments.into_iter().map(|one| one.name).collect(),
                    // It was deleted meanwhile.
                    Err(QueueError::TaskNotFound { .. }) => Vec::new(),
                    Err(error) => return Err(error),
                },
            };
            self.on_shelf(move |shelf| shelf.clear(id, token, &kept))
                .await?;
            lock(&self.inner.shelf.doubtful).remove(&(id, token));
        }
        Ok(())
    }
}
