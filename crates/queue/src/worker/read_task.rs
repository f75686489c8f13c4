//! Reading tasks: the index entry in a partition, then the records of its log.

use egret_log::{LogError, Seq};

use super::queues::Queues;
use super::task_view::{Detail, TaskSnapshot, TaskView, view};
use crate::error::QueueError;
use crate::model::TaskId;

impl Queues {
    /// A task of any tenant.
    pub(crate) async fn any_task(
        &self,
        id: TaskId,
        detail: Detail,
    ) -> Result<TaskView, QueueError> {
        let partition = self.inner.partition_of(id.shard())?;
        let asked = self.inner.ask(partition, move |turn| {
            let place = turn.state.find(id)?;
            TaskSnapshot::of(turn.state, place)
        });
        let sight = asked.await?.ok_or_else(|| not_found(id))?;
        let views = self.views(partition, vec![sight], detail).await?;
        views.into_iter().next().ok_or_else(|| not_found(id))
    }

    /// Reads the records of the snapshots; tasks that were deleted meanwhile are left out.
    pub(crate) async fn views(
        &self,
        partition: usize,
        sights: Vec<TaskSnapshot>,
        detail: Detail,
    ) -> Result<Vec<TaskView>, QueueError> {
        let shared = self.inner.partitions()?[partition].clone();
        let reading = tokio::task::spawn_blocking(move || {
            let read = |seq: u64| match (shared.read)(Seq(seq)) {
                Ok(record) => Ok(Some(record)),
                Err(LogError::Truncated { .. } | LogError::Compacted { .. }) => Ok(None),
                Err(error) => Err(QueueError::Log(error)),
            };
            let mut views = Vec::with_capacity(sights.len());
            for sight in sights {
                views.extend(view(sight, detail, &read)?);
            }
            Ok(views)
        });
        reading.await.map_err(|_| QueueError::Stopping)?
    }
}

pub(crate) fn not_found(id: TaskId) -> QueueError {
    QueueError::TaskNotFound { id: id.to_string() }
}
