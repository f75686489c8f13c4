//! Where answers go: a frontend gives the engine a sink, so that a partition hands over what it has
//! committed without waiting, and without knowing the receiver.

use crate::error::QueueError;
use crate::model::{AttemptEnd, Lease, TaskId, TaskState};

/// What became of a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnqueueReceipt {
    /// Id of the enqueued task.
    pub id: TaskId,
    /// There was such a task already, with the same unique key.
    pub replayed: bool,
}

/// Receives the outcomes of new tasks. Called on a partition's thread: must not block.
pub trait ProduceSink: Send + Sync {
    /// What became of tasks, by the caller's numbers.
    fn outcomes(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]);
}

/// Receives the outcomes of reports on leased tasks. Called on a partition's thread: must not
/// block.
pub trait ReportSink: Send + Sync {
    /// What became of reports, by the caller's numbers.
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]);
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
    /// Payload and so on, in the same format.
    pub content: &'a [u8],
    /// What workers do not get; see `store/content.rs`.
    pub(crate) private: &'a [u8],
    /// What it tells of, where it is a callback.
    pub(crate) about: Option<CallbackSubject<'a>>,
}

/// What a callback tells of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallbackSubject<'a> {
    pub task: TaskId,
    pub state: TaskState,
    pub queue: &'a str,
    pub tenant: &'a str,
}

/// A worker. Called on a partition's thread: must not block.
pub trait WorkSink: ReportSink {
    /// Tasks for it, which are leased to it from here on.
    fn assigned(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>);

    /// Whether the worker can take no more tasks until some of those it has are sent. A sink that
    /// returns true must call [`Worker::resume`](crate::Worker::resume) when the worker can again.
    fn is_full(&self) -> bool {
        false
    }

    /// Leases that are its own and of which it will never see the tasks: it takes no more.
    fn not_taken(&self, _leases: &mut dyn Iterator<Item = Lease>) {}

    /// A lease of its ended otherwise than by its report.
    fn lost(&self, id: TaskId, lease: Lease, end: AttemptEnd);

    /// There will be no more: the engine stops, or cannot go on.
    fn ended(&self, error: QueueError);
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
    /// Changes of one partition, in the order in which they happened.
    fn changed(&self, changes: &[TaskChange]);

    /// There will be no more of one partition: it has ended.
    fn ended(&self, error: QueueError);

    /// Whether the subscriber has gone away.
    fn is_gone(&self) -> bool;
}
