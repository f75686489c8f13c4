//! Submissions to partitions: batches of new tasks and of reports, prepared by the caller's thread
//! so that the partition's thread has little work.

use std::ops::Range;
use std::sync::Arc;

use crate::core::command::{Defer, Enqueue, TaskReport};
use crate::core::state::TaskLoad;
use crate::error::QueueError;
use crate::model::{Lease, TaskOptions};
use crate::worker::session::WorkSession;
use crate::worker::sinks::{ProduceSink, ReportSink};
use crate::worker::turn::BatchTurn;

/// A range in the bytes of a batch.
pub(crate) type Span = Range<u32>;

/// A new task, validated and encoded.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub number: u64,
    pub queue: u32,
    pub shard: u16,
    pub priority: u8,
    pub callback: bool,
    pub run_at_ms: u64,
    pub delay_ms: u64,
    pub key: u128,
    pub unique: Option<(u128, u64)>,
    pub origin: Option<(u128, u64)>,
    pub options: TaskOptions,
    pub tags: Span,
    pub after: Span,
    pub content: Span,
}

impl Item {
    /// The item of a command, with its bytes.
    pub(crate) fn from_enqueue(task: &Enqueue<'_>) -> (Vec<Item>, Vec<u8>) {
        let bytes = [task.tags, task.after, task.content].concat();
        let tags = task.tags.len() as u32;
        let after = tags + task.after.len() as u32;
        let item = Item {
            number: 0,
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
            tags: 0..tags,
            after: tags..after,
            content: after..bytes.len() as u32,
        };
        (vec![item], bytes)
    }

    /// Bytes of its record.
    pub(crate) fn record_bytes(&self) -> u64 {
        let spans = [&self.tags, &self.after, &self.content];
        spans.map(|span| u64::from(span.end - span.start)).iter().sum()
    }

    /// The load that it adds to its tenant. The task of its callback is reserved now, so it is
    /// counted too.
    pub(crate) fn load(&self) -> TaskLoad {
        TaskLoad { tasks: 1 + u64::from(self.callback), bytes: self.record_bytes() }
    }

    /// The command for it.
    pub(crate) fn as_command<'a>(&self, bytes: &'a [u8]) -> Enqueue<'a> {
        Enqueue {
            queue: self.queue,
            shard: self.shard,
            priority: self.priority,
            run_at_ms: self.run_at_ms,
            delay_ms: self.delay_ms,
            key: self.key,
            unique: self.unique,
            origin: self.origin,
            options: self.options,
            tags: slice(bytes, &self.tags),
            callback: self.callback,
            after: slice(bytes, &self.after),
            content: slice(bytes, &self.content),
        }
    }
}

/// The part of a batch's bytes.
pub(crate) fn slice<'a>(bytes: &'a [u8], span: &Span) -> &'a [u8] {
    &bytes[span.start as usize..span.end as usize]
}

/// Grouping of the tasks of a batch.
pub(crate) enum Grouping {
    /// Each is made or refused by itself.
    Separate,
    /// All are made or none; for each task the indexes of earlier ones that it waits for.
    Chain(Vec<Vec<u32>>),
    /// They were promised, see [`crate::worker::chain`]: no limit applies any more.
    Promised,
}

impl Grouping {
    fn link_count(&self) -> usize {
        match self {
            Grouping::Chain(links) => links.iter().map(Vec::len).sum(),
            Grouping::Separate | Grouping::Promised => 0,
        }
    }
}

/// New tasks of one caller for one partition.
pub(crate) struct EnqueueBatch {
    pub grouping: Grouping,
    pub tenant: u32,
    pub items: Vec<Item>,
    pub bytes: Arc<Vec<u8>>,
    pub sink: Arc<dyn ProduceSink>,
}

/// A worker's report on a task, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The task is completed; with a result.
    Complete,
    /// The attempt failed; with an error.
    Fail {
        /// Trying again cannot help.
        permanent: bool,
    },
    /// The task is returned.
    Defer {
        /// Delay before the task is ready again, in milliseconds.
        delay_ms: u64,
        /// Why; with a reason for [`Defer::Nack`].
        mode: Defer,
    },
    /// The worker extends the lease; zero: by the lease time of the queue.
    Heartbeat {
        /// New duration of the lease from now, in milliseconds.
        lease_ms: u64,
    },
}

/// A report, validated and encoded.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub number: u64,
    pub lease: Lease,
    pub kind: ReportKind,
    /// Of a completion: whether its content begins with the manifest of attachments.
    pub attached: bool,
    pub content: Span,
}

impl Report {
    pub(crate) fn as_task_report<'a>(&self, bytes: &'a [u8]) -> TaskReport<'a> {
        TaskReport {
            number: self.lease.number,
            token: self.lease.token,
            content: slice(bytes, &self.content),
        }
    }
}

/// Decides by a queue's name whether a caller may touch its tasks.
pub type QueueFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Reports of one caller for one partition.
pub(crate) struct ReportBatch {
    pub tenant: u32,
    /// Name of the tenant: a lease is valid for its tenant only.
    pub owner: Box<str>,
    /// The queues whose tasks the caller may report on; `None`: all of the tenant's.
    pub filter: Option<QueueFilter>,
    pub items: Vec<Report>,
    pub bytes: Arc<Vec<u8>>,
    pub sink: Arc<dyn ReportSink>,
}

/// A batch whose submitter must get an answer in any case.
pub(crate) trait Rejectable {
    /// Reports to the sink that nothing of the batch was done.
    fn refuse(&self, error: &QueueError);
}

impl Rejectable for EnqueueBatch {
    fn refuse(&self, error: &QueueError) {
        let outcomes = self.items.iter().map(|item| (item.number, Err(error.clone())));
        self.sink.deliver_receipts(&outcomes.collect::<Vec<_>>());
    }
}

impl Rejectable for ReportBatch {
    fn refuse(&self, error: &QueueError) {
        let outcomes = self.items.iter().map(|item| (item.number, Err(error.clone())));
        self.sink.deliver_outcomes(&outcomes.collect::<Vec<_>>());
    }
}

/// A batch that is being processed: dropped by a panic before it is answered, it is refused.
pub(crate) struct ReplyGuard<B: Rejectable>(pub Option<B>);

impl<B: Rejectable> ReplyGuard<B> {
    pub(crate) fn get(&self) -> &B {
        self.0.as_ref().expect("answering consumes the guard")
    }

    pub(crate) fn disarm(mut self) -> B {
        self.0.take().expect("answering consumes the guard")
    }
}

impl<B: Rejectable> Drop for ReplyGuard<B> {
    fn drop(&mut self) {
        if let Some(batch) = &self.0 {
            batch.refuse(&QueueError::Stopping);
        }
    }
}

/// A job that runs in a partition's turn. It returns a callback, which is called after the turn's
/// commit, or with the error that prevented it.
pub(crate) type TurnJob = Box<dyn FnOnce(&mut BatchTurn<'_>) -> OnCommit + Send>;

/// Called with the result of the turn's commit.
pub(crate) type OnCommit = Box<dyn FnOnce(Result<(), QueueError>) + Send>;

/// A request to a partition.
pub(crate) enum Submission {
    Enqueue(EnqueueBatch),
    Report(ReportBatch),
    /// A worker has new credits.
    Credits(Arc<WorkSession>),
    /// A worker leaves; the reply comes when nothing will be pushed to it any more.
    Detach(Arc<WorkSession>, Option<OnCommit>),
    /// A claim, which takes ready tasks of this turn only; the reply comes after the tasks.
    Claim(Arc<WorkSession>, OnCommit),
    /// A worker has dropped its credits; the reply comes when nothing will be pushed to it until it
    /// has new ones.
    Drain(Arc<WorkSession>, OnCommit),
    /// The reply comes when everything committed before is durable.
    Sync(OnCommit),
    /// A queue may have tasks to hand out.
    ReconsiderQueue(u32),
    Job(TurnJob),
}

/// Maximum bytes of a new task's record without tags, dependencies and content, with the log's
/// overhead.
const TASK_BYTES_MAX: usize = 192;

/// An id of a task that another waits for.
const TASK_ID_BYTES: usize = 16;

/// Maximum bytes of a report's record without result or error, with the log's overhead.
const REPORT_BYTES_MAX: usize = 64;

/// Tenant number of requests that belong to no tenant.
pub(crate) const NO_TENANT: u32 = 0;

/// Queue of all jobs, so that they do not delay the credits of workers.
pub(crate) const JOB_TURN: u32 = u32::MAX;

/// Items that a job counts for: some read thousands of tasks.
const JOB_WEIGHT: usize = 16;

impl Submission {
    pub(crate) fn tenant(&self) -> u32 {
        match self {
            Submission::Enqueue(batch) => batch.tenant,
            Submission::Report(batch) => batch.tenant,
            _ => NO_TENANT,
        }
    }

    /// The queue in which it waits for its turn.
    pub(crate) fn turn_owner(&self) -> u32 {
        match self {
            Submission::Job(_) => JOB_TURN,
            other => other.tenant(),
        }
    }

    /// Bytes of memory while it waits.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Submission::Enqueue(batch) => batch.bytes.len() + batch.items.len() * size_of::<Item>(),
            Submission::Report(batch) => {
                batch.bytes.len() + batch.items.len() * size_of::<Report>()
            }
            _ => size_of::<Submission>(),
        }
    }

    /// Maximum bytes of the records that it causes; of a [`TurnJob`], which is one record, not
    /// known.
    pub(crate) fn record_bytes(&self) -> usize {
        match self {
            Submission::Enqueue(batch) => {
                let ids_bytes = batch.grouping.link_count() * TASK_ID_BYTES;
                batch.bytes.len() + ids_bytes + batch.items.len() * TASK_BYTES_MAX
            }
            Submission::Report(batch) => batch.bytes.len() + batch.items.len() * REPORT_BYTES_MAX,
            _ => 0,
        }
    }

    /// Share of a partition's turn: the number of new tasks or reports, otherwise one.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Submission::Enqueue(batch) => batch.items.len(),
            Submission::Report(batch) => batch.items.len(),
            Submission::Job(_) => JOB_WEIGHT,
            _ => 1,
        }
    }
}
