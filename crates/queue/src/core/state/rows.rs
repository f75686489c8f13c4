//! The rows of a partition's tables, and the events that it emits.

use crate::core::entry::TaskState;
use crate::core::lanes::Rings;
use crate::core::list::List;
use crate::core::slab::{NO_SLOT, Row, SlotIndex};
use crate::core::wheel::{Links, TimerRow};
use crate::model::{AttemptEnd, QueueSettings};

/// A queue as stored in this partition.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Tenant that owns the queue.
    pub tenant: Box<str>,
    /// Slot of the tenant in [`Tenants`](super::tenants::Tenants).
    pub(super) tenant_slot: SlotIndex,
    /// Name of the queue, unique in its tenant.
    pub name: Box<str>,
    /// Current settings of the queue.
    pub settings: QueueSettings,
    /// Whether no task is handed out.
    pub paused: bool,
    /// Whether no new task is accepted.
    pub draining: bool,
    /// Whether it is deleted; its row is removed after its tasks.
    pub deleted: bool,
    /// Time of creation, in Unix milliseconds.
    pub created_ms: u64,
    /// Its tasks by state.
    pub lists: [List; 7],
    /// Bytes of its tasks' records.
    pub bytes: u64,
    /// Lanes that are ready, by priority.
    pub rings: Rings,
    /// A bit for each state whose list of tasks has an age check.
    pub(super) retention_bits: u8,
}

impl Queue {
    /// A queue without tasks.
    pub fn new(tenant: &str, name: &str, settings: QueueSettings, created_ms: u64) -> Self {
        Self {
            tenant: tenant.into(),
            tenant_slot: NO_SLOT,
            name: name.into(),
            settings,
            paused: false,
            draining: false,
            deleted: false,
            created_ms,
            lists: Default::default(),
            bytes: 0,
            rings: Rings::default(),
            retention_bits: 0,
        }
    }

    /// Whether an age check is scheduled for the tasks that ended in this state.
    pub(super) fn has_retention_check(&self, state: TaskState) -> bool {
        self.retention_bits >> state as u8 & 1 == 1
    }
}

/// Queues by id. Ids are given one after the other, so a vector finds them at once.
#[derive(Clone, Debug, Default)]
pub struct QueueTable(Vec<Option<Box<Queue>>>);

impl QueueTable {
    /// The queue with this id.
    pub fn get(&self, id: u32) -> Option<&Queue> {
        self.0.get(id as usize)?.as_deref()
    }

    /// The queue with this id, for changes.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Queue> {
        self.0.get_mut(id as usize)?.as_deref_mut()
    }

    /// Whether there is a queue with this id.
    pub fn contains(&self, id: u32) -> bool {
        self.get(id).is_some()
    }

    /// Inserts a queue under its id.
    pub fn insert(&mut self, id: u32, queue: Queue) {
        let index = id as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(Box::new(queue));
    }

    /// Removes the queue with this id.
    pub fn remove(&mut self, id: u32) {
        self.0[id as usize] = None;
    }

    /// Every queue with its id, in order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(id, queue)| Some((id as u32, queue.as_deref()?)))
    }
}

impl std::ops::Index<u32> for QueueTable {
    type Output = Queue;

    fn index(&self, id: u32) -> &Queue {
        self.get(id).expect("a task's queue stays")
    }
}

/// A unique key that is remembered.
#[derive(Clone, Debug, Default)]
pub struct Unique {
    /// Hash of the key.
    pub hash: u128,
    /// The task that came first.
    pub task: TaskRef,
    /// Until when it is remembered, in Unix milliseconds.
    pub until_ms: u64,
    /// Links of its timer in the wheel.
    pub links: Links,
    /// Whether the slot is in use.
    pub used: bool,
}

/// Identity of a task, without its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRef {
    /// Number of the task in its partition.
    pub number: u64,
    /// When it was made.
    pub created_ms: u64,
    /// Shard of the task's id.
    pub shard: u16,
}

/// The ended task that a callback reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedTask {
    /// The task that has ended.
    pub task: TaskRef,
    /// Id of that task's queue.
    pub queue: u32,
    /// State in which it ended.
    pub state: TaskState,
}

impl Row for Unique {
    fn is_free(&self) -> bool {
        !self.used
    }
}

impl TimerRow for Unique {
    fn due_ms(&self) -> u64 {
        self.until_ms
    }

    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A past attempt that did not complete its task.
#[derive(Clone, Copy, Debug)]
pub struct PastAttempt {
    /// Start of the attempt, in Unix milliseconds.
    pub started_ms: u64,
    /// End of the attempt, in Unix milliseconds.
    pub ended_ms: u64,
    /// The record with the worker's error or reason; zero: none.
    pub record: u64,
    /// Number of the worker that held the task.
    pub worker: u32,
    /// The past attempt before this one.
    pub earlier: SlotIndex,
    /// Bytes of that error or reason.
    pub bytes: u32,
    /// Which attempt it was.
    pub attempt: u16,
    /// How the attempt ended.
    pub end: AttemptEnd,
    /// Whether the slot is in use.
    pub used: bool,
}

impl Default for PastAttempt {
    fn default() -> Self {
        Self {
            started_ms: 0,
            ended_ms: 0,
            record: 0,
            worker: 0,
            earlier: NO_SLOT,
            bytes: 0,
            attempt: 0,
            end: AttemptEnd::Failed,
            used: false,
        }
    }
}

impl Row for PastAttempt {
    fn is_free(&self) -> bool {
        !self.used
    }
}

/// A task came into a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The task that changed.
    pub task: TaskRef,
    /// Id of the task's queue.
    pub queue: u32,
    /// The state; `None` for a task that was deleted.
    pub state: Option<TaskState>,
    /// Attempts that have begun so far.
    pub attempts: u16,
}

/// A lease that did not end by a report of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLease {
    /// The task that was leased.
    pub task: TaskRef,
    /// Token of the lease.
    pub token: u64,
    /// How the attempt ended.
    pub end: AttemptEnd,
}

/// Events for other parts of the program; the driver of the partition takes them.
#[derive(Clone, Debug, Default)]
pub struct StateEvents {
    /// Whether `changes` are collected.
    pub wants_changes: bool,
    /// State changes, in the order in which they happened.
    pub changes: Vec<StateChange>,
    /// Lost leases, in the order in which they happened.
    pub lost_leases: Vec<LostLease>,
    /// Queues of which a first task may now be handed out, or the last one no longer may.
    pub readiness_changes: Vec<u32>,
    /// Deleted tasks whose attachments must be deleted.
    pub orphaned_attachments: Vec<TaskRef>,
    /// Number of sums, of a tenant, a queue or all, that were smaller than what was subtracted.
    pub miscounts: u64,
}

/// Outcome of an [`Enqueue`](crate::core::command::Enqueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// A new task was created.
    Created(TaskRef),
    /// There is a task with the same unique key. Nothing has changed, and nothing is logged.
    Duplicate(TaskRef),
}
