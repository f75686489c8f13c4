//! The state of a running engine, shared by its handles, and access to its partitions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;

use egret_base::lifecycle::{Readiness, hide_directory};
use egret_base::{Clock, Condition, Entropy};
use egret_log::InboxRejection;
use egret_outgoing::Destinations;

use super::attachment_store::AttachmentStore;
use super::in_flight::InFlight;
use super::limits::Limits;
use super::partition_handle::PartitionHandle;
use super::precedence::SharedRanks;
use super::queue_handle::Directory;
use super::schedule_locations::ScheduleLocations;
use super::submission::{OnCommit, Submission};
use super::task_shares::{TaskShares, task_shares, volume_bytes};
use super::turn::BatchTurn;
use crate::config::QueueConfig;
use crate::error::QueueError;
use crate::metrics::Metrics;
use crate::model::SHARD_BITS;

pub(crate) struct EngineState {
    pub config: QueueConfig,
    pub directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Where callbacks may go.
    pub destinations: Destinations,
    /// Set at the start.
    pub partitions: Arc<OnceLock<Vec<Arc<PartitionHandle>>>>,
    pub metrics: Arc<Metrics>,
    /// Limits that hold over all partitions.
    pub limits: Arc<Limits>,
    /// Ranks of the next tasks of queues with several priorities.
    pub ranks: Arc<SharedRanks>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    pub queues: RwLock<Directory>,
    /// Which partition has a schedule, by tenant and name.
    pub schedules: Mutex<ScheduleLocations>,
    /// The task that sends callbacks.
    pub callbacks: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// Condition of a callback key that cannot be read, or was lost and replaced.
    pub callback_key_lost: Condition,
    /// Held while the key of callbacks is read or created.
    pub callback_key_access: Mutex<()>,
    /// The store of attachments.
    pub attachments: Arc<AttachmentStore>,
    /// The task that deletes them.
    pub attachment_upkeep: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// Held while a queue, a schedule or a chain is changed: one at a time.
    pub definition_lock: Arc<tokio::sync::Mutex<()>>,
    pub next_queue: AtomicU64,
    /// Distributes tasks without a key.
    pub next_partition: AtomicU64,
    /// Limits on the tasks of a partition.
    pub task_shares: OnceLock<TaskShares>,
    /// Calls in flight by tenant.
    pub in_flight: InFlight,
    pub stopping: AtomicBool,
}

impl EngineState {
    pub(crate) fn partitions(&self) -> Result<&[Arc<PartitionHandle>], QueueError> {
        let known = self.partitions.get();
        known.map(Vec::as_slice).ok_or(QueueError::Stopping)
    }

    /// The partitions that accept submissions.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn running_partitions(&self) -> Result<Vec<usize>, QueueError> {
        let partitions = self.partitions()?;
        let running = (0..partitions.len()).filter(|index| !partitions[*index].inbox.is_closed());
        let running: Vec<usize> = running.collect();
        if running.is_empty() { Err(self.end_reason(0)) } else { Ok(running) }
    }

    /// The partitions that have failed while others run.
    pub(crate) fn failed_partitions(&self) -> Vec<usize> {
        let partitions = self.partitions().unwrap_or_default();
        let failed =
            (0..partitions.len()).filter(|index| partitions[*index].failure.get().is_some());
        failed.collect()
    }

    /// Fails unless every partition runs: a change of queues is made in all of them or in none.
    pub(crate) fn require_all_running(&self) -> Result<(), QueueError> {
        match self.failed_partitions().first() {
            Some(partition) => Err(self.end_reason(*partition)),
            None => Ok(()),
        }
    }

    /// The partition of a shard.
    pub(crate) fn partition_of(&self, shard: u16) -> Result<usize, QueueError> {
        let count = self.partitions()?.len();
        Ok((usize::from(shard) * count) >> SHARD_BITS)
    }

    /// Submits a request to a partition.
    pub(crate) fn submit(
        &self,
        partition: usize,
        submission: Submission,
    ) -> Result<(), QueueError> {
        let handle = &self.partitions()?[partition];
        let (tenant, bytes) = (submission.tenant(), submission.memory_bytes());
        handle.tenant_quota.reserve(tenant, bytes)?;
        let pushed = handle.inbox.push(submission, bytes);
        pushed.map_err(|rejection| {
            handle.tenant_quota.release(tenant, bytes);
            match rejection {
                InboxRejection::Full(_, limit) => QueueError::Limit(limit),
                InboxRejection::Closed(_) => self.end_reason(partition),
            }
        })
    }

    /// Submits what a partition must receive, regardless of limits.
    pub(crate) fn submit_always(
        &self,
        partition: usize,
        submission: Submission,
    ) -> Result<(), QueueError> {
        let pushed = self.partitions()?[partition].inbox.push_unbounded(submission);
        pushed.map_err(|_| self.end_reason(partition))
    }

    /// Why a partition accepts nothing.
    pub(crate) fn end_reason(&self, partition: usize) -> QueueError {
        let partitions = self.partitions.get();
        let failure = partitions.and_then(|handles| handles[partition].failure.get());
        match failure {
            Some(failure) if failure.failed_partition().is_some() => failure.clone(),
            Some(error) => self.unusable_error(partition, error),
            None => QueueError::Stopping,
        }
    }

    /// The error that callers and operators see for a partition that cannot work.
    pub(crate) fn unusable_error(&self, partition: usize, error: &QueueError) -> QueueError {
        let reason = egret_base::error::chain(error);
        let data_dir = self.directory.parent().unwrap_or(&self.directory);
        QueueError::PartitionUnusable { partition, reason: hide_directory(&reason, data_dir) }
    }

    /// Runs a job in a partition's turn; returns its result when the turn is committed.
    pub(crate) async fn run_in_turn<R: Send + 'static>(
        &self,
        partition: usize,
        job: impl FnOnce(&mut BatchTurn<'_>) -> R + Send + 'static,
    ) -> Result<R, QueueError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let turn_job = Box::new(move |turn: &mut BatchTurn<'_>| -> OnCommit {
            let result = job(turn);
            Box::new(move |committed: Result<(), QueueError>| {
                // The caller may have gone away.
                let _ = sender.send(committed.map(|()| result));
            })
        });
        self.submit(partition, Submission::Job(turn_job))?;
        receiver.await.unwrap_or_else(|_| Err(self.end_reason(partition)))
    }

    /// Limits on the tasks of each of so many partitions.
    pub(crate) fn task_shares(&self, partitions: usize) -> &TaskShares {
        let shares = || task_shares(&self.config, partitions, volume_bytes(&self.directory));
        self.task_shares.get_or_init(shares)
    }

    /// Whether tasks of every partition can be worked on.
    pub(crate) fn readiness(&self) -> Readiness {
        let Ok(partitions) = self.partitions() else {
            return Readiness::NotReady("starting".to_owned());
        };
        // While some run, the others are reported as failed parts.
        if partitions.iter().any(|handle| !handle.inbox.is_closed()) {
            return Readiness::Ready;
        }
        let failure = partitions.iter().find_map(|one| one.failure.get());
        Readiness::NotReady(match failure {
            Some(failure) => format!("no partition runs: {failure}"),
            None => "no partition runs".to_owned(),
        })
    }
}

/// Runs a change of several steps to its end even if its caller goes away.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    steps: impl Future<Output = Result<T, QueueError>> + Send + 'static,
) -> Result<T, QueueError> {
    match tokio::spawn(steps).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(QueueError::Stopping),
    }
}
