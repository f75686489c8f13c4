//! What a partition keeps in its tables, and what it tells.

use super::*;

/// A queue as this partition knows it.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Whose it is.
    pub tenant: Box<str>,
    /// The same by place among [`Tenants`].
    pub(super) tenant_place: Place,
    /// Its name.
    pub name: Box<str>,
    /// What it does.
    pub settings: QueueSettings,
    /// Nothing is handed out.
    pub paused: bool,
    /// Nothing is taken in.
    pub draining: bool,
    /// It goes, as soon as its tasks have gone.
    pub deleted: bool,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Its tasks by state.
    pub lists: [List; 7],
    /// Bytes of what records hold of its tasks.
    pub bytes: u64,
    /// Whose turn it is.
    pub rings: Rings,
    /// A bit for each state whose list is watched for tasks that are too old.
    pub(super) watched: u8,
}

impl Queue {
    /// A queue without tasks.
    pub fn new(tenant: &str, name: &str, settings: QueueSettings, created_ms: u64) -> Self {
        Self {
            tenant: tenant.into(),
            tenant_place: NOWHERE,
            name: name.into(),
            settings,
            paused: false,
            draining: false,
            deleted: false,
            created_ms,
            lists: Default::default(),
            bytes: 0,
            rings: Rings::default(),
            watched: 0,
        }
    }

    /// Whether it is noted when a task that ended in this state may be too old.
    pub(super) fn is_watched(&self, state: TaskState) -> bool {
        self.watched >> state as u8 & 1 == 1
    }
}

/// Queues by id. Ids are given one after the other, so a vector finds them at once.
#[derive(Clone, Debug, Default)]
pub struct Queues(Vec<Option<Box<Queue>>>);

impl Queues {
    /// The queue with this id.
    pub fn get(&self, id: u32) -> Option<&Queue> {
        self.0.get(id as usize)?.as_deref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Queue> {
        self.0.get_mut(id as usize)?.as_deref_mut()
    }

    /// Whether there is such a queue.
    pub fn contains(&self, id: u32) -> bool {
        self.get(id).is_some()
    }

    /// Puts a queue in its place.
    pub fn insert(&mut self, id: u32, queue: Queue) {
        let place = id as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(Box::new(queue));
    }

    /// Removes a queue.
    pub fn remove(&mut self, id: u32) {
        self.0[id as usize] = None;
    }

    /// Every queue with its id, in order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(id, queue)| Some((id as u32, queue.as_deref()?)))
    }
}

impl std::ops::Index<u32> for Queues {
    type Output = Queue;

    fn index(&self, id: u32) -> &Queue {
        self.get(id).expect("a task's queue stays")
    }
}

/// A unique key that is remembered.
#[derive(Clone, Debug, Default)]
pub struct Unique {
    /// Its hash.
    pub hash: u128,
    /// The task that came first.
    pub task: TaskRef,
    /// Until when.
    pub until_ms: u64,
    /// Of the wheel.
    pub links: Links,
    /// Whether the place is in use.
    pub used: bool,
}

/// What tells a task apart, without its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRef {
    /// Its number.
    pub number: u64,
    /// When it was made.
    pub created_ms: u64,
    /// Its shard.
    pub shard: u16,
}

/// What a callback tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The task that has ended.
    pub task: TaskRef,
    /// Its queue.
    pub queue: u32,
    /// How it ended.
    pub state: TaskState,
}

impl Row for Unique {
    fn is_free(&self) -> bool {
        !self.used
    }
}

impl Timed for Unique {
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
pub struct Past {
    /// Unix milliseconds.
    pub started_ms: u64,
    /// Unix milliseconds.
    pub ended_ms: u64,
    /// The record with the worker's words; zero: none.
    pub record: u64,
    /// Who worked.
    pub worker: u32,
    /// The attempt before.
    pub earlier: Place,
    /// Bytes of the worker's words.
    pub bytes: u32,
    /// Which attempt it was.
    pub attempt: u16,
    /// How it ended.
    pub end: AttemptEnd,
    /// Whether the place is in use.
    pub used: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self {
            started_ms: 0,
            ended_ms: 0,
            record: 0,
            worker: 0,
            earlier: NOWHERE,
            bytes: 0,
            attempt: 0,
            end: AttemptEnd::Failed,
            used: false,
        }
    }
}

impl Row for Past {
    fn is_free(&self) -> bool {
        !self.used
    }
}

/// A task came into a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which task.
    pub task: TaskRef,
    /// Of which queue.
    pub queue: u32,
    /// The state; `None` for a task that was deleted.
    pub state: Option<TaskState>,
    /// Attempts begun.
    pub attempts: u16,
}

/// A lease that ended otherwise than by a report of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLease {
    /// Which task.
    pub task: TaskRef,
    /// The lease's token.
    pub token: u64,
    /// Why.
    pub end: AttemptEnd,
}

/// What others may want to know of what has happened; taken away by whoever drives the partition.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Whether `changes` are wanted.
    pub wanted: bool,
    /// In the order in which they happened.
    pub changes: Vec<Change>,
    /// In the order in which they happened.
    pub lost: Vec<LostLease>,
    /// Queues of which a first task may now be handed out, or none any more.
    pub turned: Vec<u32>,
    /// Tasks with attachments that are gone.
    pub detached: Vec<TaskRef>,
    /// Sums of a tenant, a queue or all that had less than was to be taken from them.
    pub miscounts: u64,
}

/// What became of an [`Enqueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// There is a new task.
    Made(TaskRef),
    /// There was one with the same unique key. Nothing has changed, and nothing needs to be logged.
    Replayed(TaskRef),
}
