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
use crate::error::{QueueError, io_error};
use crate::model::TaskId;

/// How often files of ended leases are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Leases in one query to a partition.
const LEASES_PER_QUERY_MAX: usize = 1_000;

/// Deleted tasks whose files are deleted in one step.
const DELETED_TASKS_MAX: usize = 256;

impl Queues {
    /// Deletes the files of deleted tasks and of ended leases, for as long as the engine runs.
    pub(super) fn start_attachment_upkeep(&self) {
        let Some(mut deleted_tasks) = lock(&self.inner.attachments.deleted_task_receiver).take()
        else {
            return;
        };
        // The engine holds the task, so the task must not hold the engine.
        let inner = std::sync::Arc::downgrade(&self.inner);
        let upkeep = tokio::spawn(async move {
            let failing = Condition::new("queue_attachments_not_deleted", "queue");
            let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
            loop {
                let mut ids = Vec::new();
                let is_sweep = tokio::select! {
                    biased;
                    received = deleted_tasks.recv_many(&mut ids, DELETED_TASKS_MAX) => {
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
                let result = if is_sweep {
                    queues.sweep_attachments().await
                } else {
                    queues.delete_attachments_of(ids).await
                };
                match result {
                    Ok(()) => failing.recover("attachments of ended tasks are deleted again"),
                    Err(error) => {
                        let message = "cannot delete attachments of ended tasks; they stay until the next start";
                        failing.fail(error, message);
                    }
                }
            }
        });
        *lock(&self.inner.attachment_upkeep) = Some(upkeep);
    }

    async fn delete_attachments_of(&self, ids: Vec<TaskId>) -> Result<(), QueueError> {
        self.run_on_attachments(move |shelf| {
            ids.into_iter().try_for_each(|id| shelf.delete_all(id))
        })
        .await
    }

    /// Runs a closure on the files, where it may block.
    pub(crate) async fn run_on_attachments<R: Send + 'static>(
        &self,
        work: impl FnOnce(&AttachmentStore) -> std::io::Result<R> + Send + 'static,
    ) -> Result<R, QueueError> {
        let store = self.inner.attachments.clone();
        let result = tokio::task::spawn_blocking(move || {
            work(&store).map_err(io_error("changing", store.root()))
        });
        result.await.map_err(|_| QueueError::Stopping)?
    }

    /// Deletes the files of ended leases.
    ///
    /// # Errors
    /// [`QueueError::Io`], and those of a query to a partition.
    pub async fn sweep_attachments(&self) -> Result<(), QueueError> {
        let doubtful: Vec<(TaskId, u64)> =
            lock(&self.inner.attachments.leases_to_check).iter().copied().collect();
        let mut by_partition: BTreeMap<usize, Vec<(TaskId, u64)>> = BTreeMap::new();
        for (id, token) in doubtful {
            let partition = self.inner.partition_of(id.shard())?;
            by_partition.entry(partition).or_default().push((id, token));
        }
        for (partition, leases) in by_partition {
            for chunk in leases.chunks(LEASES_PER_QUERY_MAX) {
                self.sweep_leases(partition, chunk.to_vec()).await?;
            }
        }
        Ok(())
    }

    async fn sweep_leases(
        &self,
        partition: usize,
        leases: Vec<(TaskId, u64)>,
    ) -> Result<(), QueueError> {
        let queried = leases.clone();
        let statuses = self.inner.run_in_turn(partition, move |turn| {
            let fates = queried.iter().map(|(id, token)| turn.state.lease_status(*id, *token));
            fates.collect::<Vec<LeaseStatus>>()
        });
        for ((id, token), status) in leases.into_iter().zip(statuses.await?) {
            let named = match status {
                LeaseStatus::Held => continue,
                LeaseStatus::Ended => Vec::new(),
                LeaseStatus::Completed => match self.read_task(id, Detail::Whole).await {
                    Ok(view) => {
                        view.attachments.into_iter().map(|attachment| attachment.name).collect()
                    }
                    // It was deleted meanwhile.
                    Err(QueueError::TaskNotFound { .. }) => Vec::new(),
                    Err(error) => return Err(error),
                },
            };
            self.run_on_attachments(move |shelf| shelf.delete_except(id, token, &named)).await?;
            lock(&self.inner.attachments.leases_to_check).remove(&(id, token));
        }
        Ok(())
    }
}
