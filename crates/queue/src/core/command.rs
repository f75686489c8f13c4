//! Commands of a partition, which are also the records of its log.
//!
//! A command contains everything that decides on its outcome, time and random bits included (both
//! come with [`Command::Clock`]), so that a replay, a follower and the simulator reach the same
//! state.

use crate::model::{QueueSettings, TaskId, TaskOptions};

use super::entry::TaskState;

/// A change of a partition's state, as the log has it. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Command<'a> {
    /// Sets the time to `now_ms` and the random seed to `seed`, until the next command of this
    /// kind.
    Clock {
        /// The time; one before that of the partition is ignored.
        now_ms: u64,
        /// Seed of the jitter.
        seed: u64,
    },
    /// Shifts the partition's time, and with it whatever counts elapsed time.
    Step {
        /// Shift in milliseconds; negative: back.
        by_ms: i64,
    },
    /// Begins an epoch, for a new process: leases given from here on differ from all before.
    Epoch {
        /// Higher than any before.
        epoch: u32,
        /// Tells this log from others; taken from the first epoch only.
        instance: u16,
        /// Milliseconds in which no lease expires, as workers could not reach the server.
        grace_ms: u64,
    },
    /// Creates a queue, or changes its settings.
    PutQueue {
        /// Its id, the same in every partition.
        queue: u32,
        /// Tenant that owns the queue.
        tenant: &'a str,
        /// Name of the queue.
        name: &'a str,
        /// Settings of the queue.
        settings: Box<QueueSettings>,
    },
    /// Pauses a queue, or makes it refuse new tasks.
    SetFlow {
        /// Id of the queue.
        queue: u32,
        /// Whether no task is handed out.
        paused: bool,
        /// Whether no new task is accepted.
        draining: bool,
    },
    /// Deletes a queue with every task in it.
    DeleteQueue {
        /// Id of the queue.
        queue: u32,
    },
    /// A new task is enqueued.
    Enqueue(Enqueue<'a>),
    /// The next records are the tasks of one chain. A replay applies all of them or none: a crash
    /// may have cut the log between two.
    Chain {
        /// Records of the chain that follow.
        tasks: u32,
    },
    /// A worker takes ready tasks.
    Claim {
        /// Id of the queue.
        queue: u32,
        /// Name of the worker.
        worker: &'a str,
        /// Maximum number of tasks.
        count: u32,
        /// Duration of the leases, in milliseconds.
        lease_ms: u64,
    },
    /// A task has been done; the result follows in the record.
    Complete(TaskReport<'a>),
    /// A completion with attachments: their manifest comes before the result.
    CompleteAttached(TaskReport<'a>),
    /// An attempt failed; the error follows in the record.
    Fail {
        /// The task, its lease and the error.
        report: TaskReport<'a>,
        /// No further attempt can help: the task is dead at once.
        permanent: bool,
    },
    /// A worker gives a task back.
    Defer {
        /// The task, its lease and the reason.
        report: TaskReport<'a>,
        /// Delay before the task is ready again, in milliseconds.
        delay_ms: u64,
        /// Whether the attempt counts.
        mode: Defer,
    },
    /// A worker extends its lease.
    Heartbeat {
        /// The task, and the lease that holds it.
        report: TaskReport<'a>,
        /// New duration of the lease from now, in milliseconds.
        lease_ms: u64,
    },
    /// A task is cancelled.
    Cancel {
        /// Number of the task in its partition.
        number: u64,
    },
    /// A dead or cancelled task is requeued.
    Requeue {
        /// Number of the task in its partition.
        number: u64,
        /// Hash of its ordering key; zero: none.
        key: u128,
    },
    /// A task is deleted.
    Delete {
        /// Number of the task in its partition.
        number: u64,
    },
    /// The oldest tasks of some states are deleted.
    Purge {
        /// Id of the queue.
        queue: u32,
        /// A bit for each state.
        states: u8,
        /// Maximum number of tasks.
        count: u32,
    },
    /// Timers that are due fire, in at most so many steps.
    Advance {
        /// Maximum number of steps.
        budget: u32,
    },
    /// A task, perhaps of another partition, waits for the end of one here.
    Await {
        /// The task of this partition.
        task: TaskId,
        /// The task that waits for it.
        waiting: TaskId,
        /// Mark of the waiting task's tenant: see [`tenant_mark`](crate::core::state::tenant_mark).
        /// A task of another tenant counts as unknown.
        tenant: u64,
    },
    /// A task that one here waits for has ended.
    Resolve {
        /// The task of this partition.
        waiting: TaskId,
        /// The one it waits for.
        task: TaskId,
        /// Whether it was completed.
        completed: bool,
    },
    /// A message of this partition was delivered.
    Delivered {
        /// Number of the message.
        message: u64,
    },
    /// Creates or replaces a schedule; the content of its tasks follows in the record.
    PutSchedule(PutSchedule<'a>),
    /// A schedule is deleted.
    DeleteSchedule {
        /// Tenant that owns the schedule.
        tenant: &'a str,
        /// Name of the schedule.
        name: &'a str,
    },
    /// Pauses or resumes a schedule.
    PauseSchedule {
        /// Tenant that owns the schedule.
        tenant: &'a str,
        /// Name of the schedule.
        name: &'a str,
        /// Whether the schedule is paused.
        paused: bool,
        /// Time of the next tick.
        next_ms: u64,
    },
    /// A tick of a schedule has come.
    Tick {
        /// Tenant that owns the schedule.
        tenant: &'a str,
        /// Name of the schedule.
        name: &'a str,
        /// The tick; without effect when it is not the schedule's next one.
        tick_ms: u64,
        /// The tick after it; the same tick where it waits for room.
        next_ms: u64,
        /// Tasks to make: none for a missed tick that is skipped.
        tasks: u32,
    },
}

/// Description of a new task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enqueue<'a> {
    /// Id of the task's queue.
    pub queue: u32,
    /// Shard, which determines the partition.
    pub shard: u16,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// Earliest time of day; zero: at once.
    pub run_at_ms: u64,
    /// Earliest time, as a delay in the partition's own time; zero: at once. Only without
    /// `run_at_ms`.
    pub delay_ms: u64,
    /// Hash of its ordering key; zero: none.
    pub key: u128,
    /// Hash of its unique key, and the window in which it is remembered.
    pub unique: Option<(u128, u64)>,
    /// Deduplication key of the task's source, such as an outbox row, as hash and window in
    /// milliseconds: a source that is delivered twice creates one task, whatever its unique key.
    pub origin: Option<(u128, u64)>,
    /// Options in which it differs from its queue.
    pub options: TaskOptions,
    /// Its tags, as they are sent to workers; empty: none.
    pub tags: &'a [u8],
    /// Whether its end causes a callback.
    pub callback: bool,
    /// Tasks that must complete before: 16 bytes each.
    pub after: &'a [u8],
    /// What the partition does not interpret: payload, metadata and so on, as they are sent to
    /// workers.
    pub content: &'a [u8],
}

impl Enqueue<'_> {
    /// Bytes of the record that hold its content, its tags and the tasks that it waits for.
    pub fn bytes(&self) -> u32 {
        (self.content.len() + self.tags.len() + self.after.len()) as u32
    }
}

/// A worker's report on a task: the lease and the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReport<'a> {
    /// Number of the task in its partition.
    pub number: u64,
    /// Token of the lease.
    pub token: u64,
    /// What the partition does not interpret: a result or an error.
    pub content: &'a [u8],
}

/// How a worker gives a task back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defer {
    /// The attempt counts towards the maximum.
    Nack = 0,
    /// The attempt does not count.
    Snooze = 1,
    /// At once; the attempt does not count.
    Release = 2,
}

/// Description of a new schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct PutSchedule<'a> {
    /// Tenant that owns the schedule.
    pub tenant: &'a str,
    /// Name of the schedule.
    pub name: &'a str,
    /// Time of the first tick.
    pub next_ms: u64,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// What each task is like; its content holds the schedule's own description too.
    pub task: Enqueue<'a>,
}

/// Why a partition refused a command. The state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such task.
    TaskUnknown,
    /// The queue does not exist.
    QueueUnknown,
    /// The queue is draining.
    Draining,
    /// The lease does not hold the task.
    LeaseLost,
    /// The task is not in a state for this.
    WrongState(TaskState),
    /// There is no such schedule.
    ScheduleUnknown,
}
