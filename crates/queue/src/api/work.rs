//! Worker sessions, to which tasks are pushed.

use std::sync::Arc;

use crate::error::QueueError;
use crate::worker::new_task::check_text;
use crate::worker::queues::Queues;
use crate::worker::session::{WorkSession, WorkSpec, check_lease};
use crate::worker::sinks::WorkSink;
use crate::worker::worker_handle::Worker;

/// Queues that one worker may work on.
const QUEUES_MAX: usize = 1_000;

impl Queues {
    /// Registers a worker without credits. Also returns the shortest of its lease times, in
    /// milliseconds.
    ///
    /// # Errors
    /// [`QueueError`] when a queue does not exist or the lease time is out of range.
    pub async fn register_worker(
        &self,
        tenant: &str,
        spec: &WorkSpec,
        sink: Arc<dyn WorkSink>,
    ) -> Result<(Worker, u64), QueueError> {
        if spec.queues.is_empty() || spec.queues.len() > QUEUES_MAX {
            return Err(QueueError::Invalid {
                what: "queues",
                reason: format!("{} are given, not 1 to {QUEUES_MAX}", spec.queues.len()),
            });
        }
        check_text("worker", &spec.worker)?;
        if let Some(lease_ms) = spec.lease_ms {
            check_lease(lease_ms)?;
        }
        let mut queue_leases = Vec::with_capacity(spec.queues.len());
        let mut handles = Vec::with_capacity(spec.queues.len());
        for name in &spec.queues {
            let queue = self.get_or_create_queue(tenant, name).await?;
            let lease_ms = spec.lease_ms.unwrap_or(queue.settings().lease_ms);
            if !queue_leases.iter().any(|(id, _)| *id == queue.id) {
                queue_leases.push((queue.id, lease_ms));
                handles.push(queue);
            }
        }
        let lease_ms_min = queue_leases.iter().map(|(_, lease_ms)| *lease_ms).min();
        let partitions = self.inner.partitions()?.len();
        let session = WorkSession::new(&spec.worker, queue_leases, sink, partitions);
        let mut worker = Worker::new(self.clone(), session);
        worker.has_priorities = handles.iter().any(|queue| queue.has_priorities());
        for queue in &handles {
            queue.add_worker(&worker.session);
        }
        // A queue deleted before this point has not notified us: its list of workers did not
        // include this session yet.
        if let Some(queue) = handles.iter().find(|queue| queue.is_deleted()) {
            return Err(QueueError::QueueNotFound { name: queue.name.to_string() });
        }
        Ok((worker, lease_ms_min.unwrap_or_default()))
    }
}
