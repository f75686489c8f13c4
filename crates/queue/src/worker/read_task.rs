//! Reading tasks: the index entry in a partition, then the records of its log.

use egret_log::{LogError, Seq};

use super::queues::Queues;
use super::task_view::{Detail, TaskSnapshot, TaskView, build_view};
use crate::error::QueueError;
use crate::model::TaskId;

impl Queues {
    /// A task of any tenant.
    pub(crate) async fn read_task(
        &self,
        id: TaskId,
        detail: Detail,
    ) -> Result<TaskView, QueueError> {
        let partition = self.inner.partition_of(id.shard())?;
        let reply = self.inner.run_in_turn(partition, move |turn| {
            let slot = turn.state.find_task(id)?;
            TaskSnapshot::from_state(turn.state, slot)
        });
        let snapshot = reply.await?.ok_or_else(|| not_found(id))?;
        let views = self.build_views(partition, vec![snapshot], detail).await?;
        views.into_iter().next().ok_or_else(|| not_found(id))
    }

    /// Reads the records of the snapshots; tasks that were deleted meanwhile are left out.
    pub(crate) async fn build_views(
        &self,
        partition: usize,
        snapshots: Vec<TaskSnapshot>,
        detail: Detail,
    ) -> Result<Vec<TaskView>, QueueError> {
        let handle = self.inner.partitions()?[partition].clone();
        let reading = tokio::task::spawn_blocking(move || {
            let read = |seq: u64| match (handle.read_record)(Seq(seq)) {
                Ok(record) => Ok(Some(record)),
                Err(LogError::Truncated { .. } | LogError::Compacted { .. }) => Ok(None),
                Err(error) => Err(QueueError::Log(error)),
            };
            let mut views = Vec::with_capacity(snapshots.len());
            for snapshot in snapshots {
                views.extend(build_view(snapshot, detail, &read)?);
            }
            Ok(views)
        });
        reading.await.map_err(|_| QueueError::Stopping)?
    }
}

pub(crate) fn not_found(id: TaskId) -> QueueError {
    QueueError::TaskNotFound { id: id.to_string() }
}
