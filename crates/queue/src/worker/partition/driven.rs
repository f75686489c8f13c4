//! A partition without its thread, on a simulated disk: for tests that run it turn by turn and let
//! it crash anywhere.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use egret_log::simulated::SimulatedDisk;
use egret_log::{FileLog, Inbox, InboxLimits, LogConfig, LogReader};
use prometheus_client::registry::Registry;

use super::*;
use crate::core::command::Enqueue;
use crate::model::{Lease, QueueSettings};
use crate::worker::admission_queue::TenantBufferQuota;
use crate::worker::attachment_store::AttachmentStore;
use crate::worker::recovery;
use crate::worker::sinks::WorkSink;
use crate::worker::submission::{Grouping, Item, Report};
use egret_base::{Limit, TenantShare};

/// Messages that may be in flight.
const CHAIN_MESSAGES_MAX: u64 = 100;

const TENANT: u32 = 1;

/// A partition on a simulated disk, driven turn by turn.
pub struct DrivenPartition {
    partition: Partition<FileLog<SimulatedDisk>>,
    has_ended: bool,
}

/// A worker of such a partition.
pub struct DrivenWorker(Arc<WorkSession>);

/// Makes the thread of a partition panic in its next turn.
pub fn panic_in_turn(queues: &crate::worker::queues::Queues, partition: usize) {
    let job = Box::new(|_: &mut BatchTurn<'_>| -> OnCommit { panic!("asked to") });
    // A partition that has ended already needs no panic.
    let _ = queues.inner.submit(partition, Submission::Job(job));
}

/// Appends bytes to those of a batch.
fn append_span(bytes: &mut Vec<u8>, part: &[u8]) -> std::ops::Range<u32> {
    let start = bytes.len() as u32;
    bytes.extend_from_slice(part);
    start..bytes.len() as u32
}

impl DrivenPartition {
    /// Opens the log and begins an epoch, as at a start of Egret.
    ///
    /// # Errors
    /// As at a start of Egret.
    pub fn open(
        disk: SimulatedDisk,
        config: LogConfig,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        grace_ms: u64,
    ) -> Result<Self, QueueError> {
        let (mut log, _) = FileLog::open_with(disk, config, Seq::FIRST, entropy.clone())?;
        let mut state = State::default();
        recovery::replay(&log, Seq::FIRST, 0, &mut state)?;
        recovery::begin_epoch(&mut log, &mut state, &*clock, &*entropy, grace_ms)?;
        let reader = log.reader();
        let handle = Arc::new(PartitionHandle {
            tenant_quota: TenantBufferQuota::new(usize::MAX),
            inbox: Inbox::new(InboxLimits {
                items_name: "queue.waiting_max",
                items_max: 1_000,
                bytes_name: "queue.waiting_bytes_max",
                bytes_max: 1 << 20,
            }),
            ready_queues: Arc::default(),
            read_record: Box::new(move |seq| reader.read(seq)),
            failure: std::sync::OnceLock::new(),
        });
        let ready = handle.ready_queues.clone();
        let no_attachments = TenantShare::new(
            Limit::new("queue.attachments_bytes_total_max", 0),
            Limit::new("queue.tenant_attachments_bytes_max", 0),
        );
        let attachments = Arc::new(AttachmentStore::new(Path::new(""), no_attachments));
        let peers = Arc::new(std::sync::OnceLock::from(vec![handle.clone()]));
        Ok(Self {
            partition: Partition::new(PartitionParts {
                // Snapshots have a real disk of their own: none is due.
                upkeep: Upkeep::new(PathBuf::new(), handle.clone(), u64::MAX, 0),
                handle,
                state,
                log,
                clock,
                entropy,
                dispatcher: Dispatcher::new(0, Arc::default(), Arc::default(), ready),
                metrics: Arc::new(Metrics::register(&mut Registry::default(), attachments.clone())),
                mailer: PartitionMailer::new(peers, 0),
                partition: 0,
                reserve_bytes: config.segment_bytes,
                task_shares: TaskShares {
                    tasks: TenantShare::new(
                        Limit::new("queue.tasks_max", u64::MAX),
                        Limit::new("queue.tenant_tasks_max", 0),
                    ),
                    bytes: TenantShare::new(
                        Limit::new("queue.tasks_bytes_max", u64::MAX),
                        Limit::new("queue.tenant_tasks_bytes_max", 0),
                    ),
                },
                attachments,
                chain_messages_max: CHAIN_MESSAGES_MAX,
            }),
            has_ended: false,
        })
    }

    /// Replays the log into an empty state.
    ///
    /// # Errors
    /// What a start of Egret would fail with.
    pub fn replay_log(&self) -> Result<State, QueueError> {
        let mut state = State::default();
        recovery::replay(&self.partition.log, Seq::FIRST, 0, &mut state)?;
        Ok(state)
    }

    /// Creates a queue, in a turn of its own.
    ///
    /// # Errors
    /// Why it was not committed.
    pub fn put_queue(&mut self, id: u32, settings: &QueueSettings) -> Result<(), LogError> {
        let settings = Box::new(settings.clone());
        self.push(Submission::Job(Box::new(move |turn: &mut BatchTurn<'_>| {
            let put = turn.run(&Command::PutQueue { queue: id, tenant: "t", name: "q", settings });
            assert_eq!(put, Ok(()));
            Box::new(|_| {})
        })));
        self.run_turn()
    }

    /// Makes everything before survive a loss of power, in a turn of its own.
    ///
    /// # Errors
    /// Why it would not.
    pub fn make_durable(&mut self) -> Result<(), LogError> {
        self.push(Submission::Sync(Box::new(|_| {})));
        self.run_turn()
    }

    fn push(&mut self, submission: Submission) {
        let (tenant, bytes) = (submission.tenant(), submission.memory_bytes());
        let reserved = self.partition.handle.tenant_quota.reserve(tenant, bytes);
        assert_eq!(reserved, Ok(()), "the share has no end");
        self.partition.waiting.push(submission);
    }

    /// Submits new tasks of one caller, with the caller's numbers.
    pub fn enqueue(&mut self, tasks: &[(u64, Enqueue<'_>)], sink: Arc<dyn ProduceSink>) {
        self.enqueue_as(TENANT, tasks, Grouping::Separate, sink);
    }

    /// Submits a chain: for each task the indexes of earlier ones that it waits for.
    pub fn enqueue_chain(
        &mut self,
        tasks: &[(u64, Enqueue<'_>)],
        links: &[Vec<u32>],
        sink: Arc<dyn ProduceSink>,
    ) {
        self.enqueue_as(TENANT, tasks, Grouping::Chain(links.to_vec()), sink);
    }

    fn enqueue_as(
        &mut self,
        tenant: u32,
        tasks: &[(u64, Enqueue<'_>)],
        grouping: Grouping,
        sink: Arc<dyn ProduceSink>,
    ) {
        let mut bytes = Vec::new();
        let items = tasks
            .iter()
            .map(|(number, task)| Item {
                number: *number,
                queue: task.queue,
                shard: task.shard,
                priority: task.priority,
                callback: task.callback,
                run_at_ms: task.run_at_ms,
                delay_ms: task.delay_ms,
                key: task.key,
                unique: task.unique,
                origin: task.origin,
                options: task.options,
                tags: append_span(&mut bytes, task.tags),
                after: append_span(&mut bytes, task.after),
                content: append_span(&mut bytes, task.content),
            })
            .collect();
        self.push(Submission::Enqueue(EnqueueBatch {
            grouping,
            tenant,
            items,
            bytes: Arc::new(bytes),
            sink,
        }));
    }

    /// Submits a worker's reports, with the worker's numbers.
    pub fn report(
        &mut self,
        reports: &[(u64, Lease, ReportKind, &[u8])],
        sink: Arc<dyn ReportSink>,
    ) {
        let mut bytes = Vec::new();
        let items = reports
            .iter()
            .map(|(number, lease, said, content)| Report {
                number: *number,
                lease: *lease,
                kind: *said,
                attached: false,
                content: append_span(&mut bytes, content),
            })
            .collect();
        self.push(Submission::Report(ReportBatch {
            tenant: TENANT,
            owner: "t".into(),
            filter: None,
            items,
            bytes: Arc::new(bytes),
            sink,
        }));
    }

    /// A worker of a queue, without credits.
    pub fn new_worker(
        &mut self,
        queue: u32,
        lease_ms: u64,
        sink: Arc<dyn WorkSink>,
    ) -> DrivenWorker {
        let session = WorkSession::new("w", vec![(queue, lease_ms)], sink, 1);
        DrivenWorker(Arc::new(session))
    }

    /// Adds credits to a worker.
    pub fn add_credits(&mut self, worker: &DrivenWorker, count: u32) {
        assert!(worker.0.add_credits(count), "more credits than a worker may have");
        if worker.0.register_with(0) {
            self.push(Submission::Credits(worker.0.clone()));
        }
    }

    /// Runs one turn. After an error there is no other: all sinks are notified, as when the thread
    /// ends.
    ///
    /// # Errors
    /// Why the partition cannot go on.
    pub fn run_turn(&mut self) -> Result<(), LogError> {
        assert!(!self.has_ended, "the partition has ended");
        let mut submissions = Vec::new();
        let inbox = &self.partition.handle.inbox;
        inbox.take_all(&mut submissions, Some(Duration::ZERO));
        submissions.into_iter().for_each(|submission| self.push(submission));
        let result = self.partition.run_turn();
        if let Err(error) = &result {
            self.has_ended = true;
            self.partition.reject_waiting(&QueueError::Log(error.clone()));
        }
        result
    }

    /// Whether nothing waits for a turn, or for the log to take the last one.
    pub fn is_idle(&self) -> bool {
        self.partition.waiting.is_empty() && !self.is_commit_pending()
    }

    /// Whether the log has not taken the last turn yet.
    pub fn is_commit_pending(&self) -> bool {
        self.partition.commit_error.is_some()
    }

    /// Makes room in the log, as its thread would.
    pub fn housekeep(&mut self) {
        // A failure is retried later.
        while self.partition.log.housekeep().unwrap_or(false) {}
    }

    /// The state of the partition.
    pub fn state(&self) -> &State {
        &self.partition.state
    }

    /// A record of the log.
    ///
    /// # Errors
    /// Those of the log.
    pub fn read(&self, seq: u64) -> Result<Bytes, LogError> {
        self.partition.reader.read(Seq(seq))
    }
}

#[cfg(test)]
mod tests;
