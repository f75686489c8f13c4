//! Sinks: a frontend gives the engine a sink, so that a partition delivers committed results
//! without waiting, and without knowing the receiver.

use crate::error::QueueError;
use crate::model::{AttemptEnd, Lease, TaskId, TaskState};

/// Outcome of a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnqueueReceipt {
    /// Id of the enqueued task.
    pub id: TaskId,
    /// Whether there was such a task already, with the same unique key.
    pub replayed: bool,
}

/// Receives the outcomes of new tasks. Called on a partition's thread: must not block.
pub trait ProduceSink: Send + Sync {
    /// Delivers the outcomes of tasks, by the caller's numbers.
    fn deliver_receipts(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]);
}

/// Receives the outcomes of reports on leased tasks. Called on a partition's thread: must not
/// block.
pub trait ReportSink: Send + Sync {
    /// Delivers the outcomes of reports, by the caller's numbers.
    fn deliver_outcomes(&self, outcomes: &[(u64, Result<(), QueueError>)]);
}

/// A task handed out.
#[derive(Clone, Copy, Debug)]
pub struct TaskAssignment<'a> {
    /// Id of the leased task.
    pub id: TaskId,
    /// Name of the task's queue.
    pub queue: &'a str,
    /// Proof of the lease.
    pub lease: Lease,
    /// When the lease ends, in Unix milliseconds.
    pub lease_until_ms: u64,
    /// How long it lasts, in milliseconds.
    pub lease_ms: u64,
    /// The longest that the attempt may take, heartbeats or not, in milliseconds; zero: any time.
    pub timeout_ms: u64,
    /// Which attempt this is, from 1.
    pub attempt: u16,
    /// Attempts before it is dead.
    pub max_attempts: u16,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// Its tags, as fields of `Assignment` in the wire format of Protocol Buffers.
    pub tags: &'a [u8],
    /// Payload and other content, in the same format.
    pub content: &'a [u8],
    /// The part that workers do not receive; see `store/content.rs`.
    pub(crate) private: &'a [u8],
    /// The ended task that it reports, if it is a callback.
    pub(crate) subject: Option<CallbackSubject<'a>>,
}

/// The ended task that a callback reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallbackSubject<'a> {
    pub task: TaskId,
    pub state: TaskState,
    pub queue: &'a str,
    pub tenant: &'a str,
}

/// Receives the tasks of a worker. Called on a partition's thread: must not block.
pub trait WorkSink: ReportSink {
    /// Delivers tasks, which are leased to the worker from here on.
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>);

    /// Whether the worker can take no more tasks until some of those it has are sent. A sink that
    /// returns true must call [`Worker::resume`](crate::Worker::resume) when the worker can again.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns leases of the worker whose tasks it will never receive, as it takes no more.
    fn return_leases(&self, _leases: &mut dyn Iterator<Item = Lease>) {}

    /// Notifies the worker that a lease did not end by its report.
    fn notify_lost_lease(&self, id: TaskId, lease: Lease, end: AttemptEnd);

    /// Notifies the worker that there are no more tasks: the engine stops, or cannot go on.
    fn notify_end(&self, error: QueueError);
}

/// A task came into a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// Id of the changed task.
    pub id: TaskId,
    /// Name of the task's queue.
    pub queue: Box<str>,
    /// State that the task came into.
    pub state: TaskState,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// Attempts that have begun so far.
    pub attempt: u16,
}

/// Receives changes of tasks. Called on a partition's thread: must not block, and must bound what
/// it keeps.
pub trait ChangeSink: Send + Sync {
    /// Delivers changes of one partition, in the order in which they happened.
    fn deliver_changes(&self, changes: &[TaskChange]);

    /// Notifies the subscriber that a partition has ended and delivers no more.
    fn notify_end(&self, error: QueueError);

    /// Whether the subscriber is gone.
    fn is_closed(&self) -> bool;
}
