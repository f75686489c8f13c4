//! What can be asked of a partition: the alphabet of its log.
//!
//! Everything that decides on an outcome stands in the command, time and chance included (both come
//! with [`Command::Clock`]), so that a replay, a follower and the simulator reach the same state.

use crate::model::{QueueSettings, TaskId, TaskOptions};

use super::entry::TaskState;

/// A change of a partition's state, as the log has it. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Command<'a> {
    /// It is `now_ms`, and chance is `seed`, until the next of its kind.
    Clock {
        /// The time; one before that of the partition is taken for the partition's.
        now_ms: u64,
        /// Where jitter comes from.
        seed: u64,
    },
    /// The partition's time becomes another one; what counts elapsed time moves with it.
    Step {
        /// By so much; negative: back.
        by_ms: i64,
    },
    /// A new process drives the partition: leases given from here on differ from all before.
    Epoch {
        /// Higher than any before.
        epoch: u32,
        /// Tells this log from others; taken from the first epoch only.
        instance: u16,
        /// No lease expires for so many milliseconds, as workers could not reach the server.
        grace_ms: u64,
    },
    /// A queue is there, with these settings.
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
    /// Whether a queue hands out and takes in.
    SetFlow {
        /// Id of the queue.
        queue: u32,
        /// Nothing is handed out.
        paused: bool,
        /// Nothing is taken in.
        draining: bool,
    },
    /// A queue goes, with every task in it.
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
        /// At most so many.
        count: u32,
        /// Duration of the leases, in milliseconds.
        lease_ms: u64,
    },
    /// A task has been done; the result follows in the record.
    Complete(TaskReport<'a>),
    /// The same with attachments: their manifest comes before the result.
    CompleteAttached(TaskReport<'a>),
    /// An attempt failed; the error follows in the record.
    Fail {
        /// Which task, and what the worker says.
        held: TaskReport<'a>,
        /// No further attempt can help: the task is dead at once.
        permanent: bool,
    },
    /// A worker gives a task back.
    Defer {
        /// Which task, and what the worker says.
        held: TaskReport<'a>,
        /// Delay before the task is ready again, in milliseconds.
        delay_ms: u64,
        /// Whether the attempt counts.
        how: Defer,
    },
    /// A worker is still at work.
    Heartbeat {
        /// The task, and the lease that holds it.
        held: TaskReport<'a>,
        /// The lease lasts so long from now.
        lease_ms: u64,
    },
    /// A task is not wanted any longer.
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
    /// The oldest tasks of some states go.
    Purge {
        /// Id of the queue.
        queue: u32,
        /// A bit for each state.
        states: u8,
        /// At most so many.
        count: u32,
    },
    /// What is due happens, in at most so many steps.
    Advance {
        /// Maximum number of steps.
        budget: u32,
    },
    /// A task elsewhere wants to know how one here ends.
    Await {
        /// The task of this partition.
        task: TaskId,
        /// The one that waits.
        waiting: TaskId,
        /// Whose that is: see [`tenant_mark`](crate::core::state::tenant_mark). Of another's task
        /// nothing is told.
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
    /// A message of this partition has arrived where it should.
    Delivered {
        /// Number of the message.
        message: u64,
    },
    /// A schedule is there; the content of its tasks follows in the record.
    PutSchedule(PutSchedule<'a>),
    /// A schedule is deleted.
    DeleteSchedule {
        /// Tenant that owns the schedule.
        tenant: &'a str,
        /// Name of the schedule.
        name: &'a str,
    },
    /// Whether a schedule makes tasks.
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
        /// The tick after it; the tick itself where it waits for room.
        next_ms: u64,
        /// Tasks to make: none for one that was missed and is left out.
        tasks: u32,
    },
}

/// Description of a new task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enqueue<'a> {
    /// Id of the task's queue.
    pub queue: u32,
    /// What decides on the partition.
    pub shard: u16,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// Not before this time of day; zero: at once.
    pub run_at_ms: u64,
    /// Not before so much of the partition's own time has passed; zero: at once. Only without
    /// `run_at_ms`.
    pub delay_ms: u64,
    /// Hash of its ordering key; zero: none.
    pub key: u128,
    /// Hash of its unique key, and for how long it is remembered from now.
    pub unique: Option<(u128, u64)>,
    /// The same of what it was made from elsewhere, such as a row of an outbox: what was handed
    /// over twice is made once, whatever its unique key.
    pub origin: Option<(u128, u64)>,
    /// What it asks for otherwise than its queue.
    pub options: TaskOptions,
    /// Its tags, as they are sent to workers; empty: none.
    pub tags: &'a [u8],
    /// Whether its end causes a callback.
    pub callback: bool,
    /// Tasks that must complete before: 16 bytes each.
    pub after: &'a [u8],
    /// What the partition does not look at: payload, metadata and so on, as they are sent to
    /// workers.
    pub content: &'a [u8],
}

impl Enqueue<'_> {
    /// Bytes that its record holds of it: of its content, its tags and the tasks that it waits for.
    pub fn bytes(&self) -> u32 {
        (self.content.len() + self.tags.len() + self.after.len()) as u32
    }
}

/// A task that a worker says it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReport<'a> {
    /// Number of the task in its partition.
    pub number: u64,
    /// Token of the lease.
    pub token: u64,
    /// What the partition does not look at: a result or an error.
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

/// Why a partition did not do what it was asked. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such task.
    TaskUnknown,
    /// The queue is not there any longer.
    QueueUnknown,
    /// The queue takes nothing in.
    Draining,
    /// The lease is not the task's.
    LeaseLost,
    /// The task is not in a state for this.
    WrongState(TaskState),
    /// There is no such schedule.
    ScheduleUnknown,
}
