//! Where answers go: what a door gives the engine, so that a partition hands over what it has
//! committed without knowing who listens, and without waiting.

use crate::error::QueueError;
use crate::model::{AttemptEnd, Lease, TaskId, TaskState};

/// What became of a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The task's id.
    pub id: TaskId,
    /// There was such a task already, with the same unique key.
    pub replayed: bool,
}

/// Somebody who enqueues. Called on a partition's thread: must not block.
pub trait ProduceSink: Send + Sync {
    /// What became of tasks, by the caller's numbers.
    fn outcomes(&self, outcomes: &[(u64, Result<Enqueued, QueueError>)]);
}

/// Somebody who reports on leased tasks. Called on a partition's thread: must not block.
pub trait ReportSink: Send + Sync {
    /// What became of reports, by the caller's numbers.
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]);
}

/// A task handed out.
#[derive(Clone, Copy, Debug)]
pub struct Assigned<'a> {
    /// The task's id.
    pub id: TaskId,
    /// Its queue's name.
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
    /// 0 to 9.
    pub priority: u8,
    /// Its tags, as fields of `Assignment` in the wire format of Protocol Buffers.
    pub tags: &'a [u8],
    /// Payload and so on, in the same format.
    pub content: &'a [u8],
    /// What workers do not get; see `store/content.rs`.
    pub(crate) private: &'a [u8],
    /// What it tells of, where it is a callback.
    pub(crate) about: Option<About<'a>>,
}

/// What a callback tells of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub task: TaskId,
    pub state: TaskState,
    pub queue: &'a str,
    pub tenant: &'a str,
}

/// A worker. Called on a partition's thread: must not block.
pub trait WorkSink: ReportSink {
    /// Tasks for it, which are leased to it from here on.
    fn assigned(&self, tasks: &mut dyn Iterator<Item = Assigned<'_>>);

    /// Whether it can take no more until something of what it has is sent. Whoever says so calls
    /// [`Worker::resume`](crate::Worker::resume) when it can again.
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
