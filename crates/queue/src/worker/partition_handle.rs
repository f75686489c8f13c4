//! Handles of partitions, whether they run or not.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use egret_base::sync::lock;
use egret_log::{Inbox, InboxLimits, LogError, Seq};

use crate::error::QueueError;
use crate::worker::admission_queue::TenantBufferQuota;
use crate::worker::submission::Submission;

/// Reads a record of a log.
pub(crate) type ReadRecord = dyn Fn(Seq) -> Result<Bytes, LogError> + Send + Sync;

/// The queues with ready tasks of a partition, so that claims ask it before others: a hint, which
/// may be late.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueues(Mutex<HashSet<u32>>);

impl ReadyQueues {
    pub(crate) fn add(&self, queues: impl Iterator<Item = u32>) {
        lock(&self.0).extend(queues);
    }

    pub(crate) fn remove(&self, queue: u32) {
        lock(&self.0).remove(&queue);
    }

    /// Whether one of these queues has ready tasks.
    pub(crate) fn has_any(&self, mut queues: impl Iterator<Item = u32>) -> bool {
        let ready = lock(&self.0);
        queues.any(|queue| ready.contains(&queue))
    }
}

/// Name of a partition in reports of failed parts and conditions.
pub(crate) fn part_name(number: usize) -> String {
    format!("queue/{number:03}")
}

/// Shared access to a partition.
pub(crate) struct PartitionHandle {
    pub inbox: Inbox<Submission>,
    /// Bytes of each tenant's waiting submissions.
    pub tenant_quota: TenantBufferQuota,
    /// The queues with ready tasks.
    pub ready_queues: Arc<ReadyQueues>,
    /// Reads a record of the log, from any thread.
    pub read_record: Box<ReadRecord>,
    /// Why the partition has ended, if it was not stopped.
    pub failure: OnceLock<QueueError>,
}

impl PartitionHandle {
    /// The handle of a partition that could not start: it accepts nothing and has no records.
    pub(crate) fn failed(failure: QueueError) -> Self {
        let limits = InboxLimits {
            items_name: "queue.waiting_max",
            items_max: 0,
            bytes_name: "queue.waiting_bytes_max",
            bytes_max: 0,
        };
        let handle = Self {
            tenant_quota: TenantBufferQuota::new(limits.bytes_max),
            inbox: Inbox::new(limits),
            ready_queues: Arc::default(),
            read_record: Box::new(|_| {
                Err(LogError::Closed { name: "a partition that could not start" })
            }),
            failure: OnceLock::from(failure),
        };
        handle.inbox.close();
        handle
    }
}
