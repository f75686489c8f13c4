//! The index entry of a task, of fixed size. Payload and result are in the log.

use super::slab::{NO_SLOT, Row, SlotIndex};
use super::wheel::{Links, TimerRow};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// Other tasks must complete before.
    #[default]
    Waiting = 0,
    /// Its time has not come.
    Delayed = 1,
    /// It may be handed out.
    Ready = 2,
    /// A worker holds it.
    Leased = 3,
    /// It has been done.
    Completed = 4,
    /// It failed for good.
    Dead = 5,
    /// It is not wanted any longer.
    Cancelled = 6,
}

impl TaskState {
    /// Every state, in order of their numbers.
    pub const ALL: [TaskState; 7] = [
        TaskState::Waiting,
        TaskState::Delayed,
        TaskState::Ready,
        TaskState::Leased,
        TaskState::Completed,
        TaskState::Dead,
        TaskState::Cancelled,
    ];

    /// The state with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether a task in it has ended.
    pub fn has_ended(self) -> bool {
        self >= TaskState::Completed
    }

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Waiting => "waiting",
            TaskState::Delayed => "delayed",
            TaskState::Ready => "ready",
            TaskState::Leased => "leased",
            TaskState::Completed => "completed",
            TaskState::Dead => "dead",
            TaskState::Cancelled => "cancelled",
        }
    }

    /// Every name, in order of the states' numbers.
    pub const TEXTS: [&str; 7] =
        ["waiting", "delayed", "ready", "leased", "completed", "dead", "cancelled"];
}

impl std::str::FromStr for TaskState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not one of {}", Self::TEXTS.join(", ")))
    }
}

/// The bits of [`Entry::flags`].
pub mod flag {
    /// The place is in use.
    pub(crate) const USED: u16 = 1;
    /// The task counts among those of its ordering key that are under way.
    pub(crate) const HOLDS_KEY: u16 = 2;
    /// The list of its state knows this place as a landmark.
    pub(crate) const LANDMARK: u16 = 4;
    /// Other tasks wait for this one.
    pub(crate) const AWAITED: u16 = 8;
    /// Its end causes a callback.
    pub(crate) const CALLBACK: u16 = 16;
    /// It is itself the callback of another task's end.
    pub(crate) const IS_CALLBACK: u16 = 32;
    /// It was completed with attachments, which are files to be deleted with it.
    pub(crate) const ATTACHED: u16 = 64;
    /// While it waits or is delayed: `at_ms` is a time of day, which does not move with the clock.
    pub(crate) const RUN_AT: u16 = 128;
    /// Its record belongs to a schedule or to another task, and it counts among the record's
    /// holders.
    pub(crate) const SHARES_RECORD: u16 = 256;
}

/// Unix milliseconds in 48 bits, which last until the year 10889.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactMillis([u16; 3]);

impl CompactMillis {
    const MAX: u64 = (1 << 48) - 1;

    /// The time as a number.
    pub fn get(self) -> u64 {
        let [low, middle, high] = self.0.map(u64::from);
        high << 32 | middle << 16 | low
    }
}

impl From<u64> for CompactMillis {
    fn from(ms: u64) -> Self {
        let ms = ms.min(Self::MAX);
        Self([ms as u16, (ms >> 16) as u16, (ms >> 32) as u16])
    }
}

/// The index entry of a task.
///
/// | `state` | `at_ms` | `token` | `started_ms` |
/// |---|---|---|---|
/// | waiting | not before; 0: at once | – | tasks it still waits for |
/// | delayed | due | – | – |
/// | ready | since when | – | – |
/// | leased | end of the lease | the lease's token | start of the attempt |
/// | ended | when | record of the outcome | start of the last attempt |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The task's number in its partition; 48 bits.
    pub number: u64,
    /// Sequence number of the record that holds its content.
    pub record: u64,
    /// Depends on the state: see the table.
    pub token: u64,
    /// See above. Unix milliseconds.
    pub at_ms: u64,
    /// Depends on the state: see the table.
    pub started_ms: CompactMillis,
    /// Part of the task's id.
    pub created_ms: CompactMillis,
    /// Place in the order of its state's list.
    pub ordinal: u64,
    /// Of its state's list.
    pub list_links: Links,
    /// Of its lane when ready, of the wheel when delayed or leased.
    pub links: Links,
    /// Id of the task's queue.
    pub queue: u32,
    /// Its lane when it has not ended.
    pub lane: SlotIndex,
    /// What it asks for otherwise than its queue.
    pub options: u32,
    /// Its set of tags.
    pub tags: u32,
    /// Number of the worker that holds it or held it last.
    pub worker: u32,
    /// The latest of its past attempts.
    pub past_attempts: SlotIndex,
    /// Bytes of what records hold of it: payload and what goes with it, result, words of past
    /// attempts.
    pub bytes: u32,
    /// Attempts that have begun so far.
    pub attempts: u16,
    /// 12 bits of its id that decide on the partition.
    pub shard: u16,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// State that the task is in.
    pub state: TaskState,
    /// The bits of [`flag`].
    pub flags: u16,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            number: 0,
            record: 0,
            token: 0,
            at_ms: 0,
            started_ms: CompactMillis::default(),
            created_ms: CompactMillis::default(),
            ordinal: 0,
            list_links: Links::default(),
            links: Links::default(),
            queue: 0,
            lane: NO_SLOT,
            options: 0,
            tags: 0,
            worker: 0,
            past_attempts: NO_SLOT,
            bytes: 0,
            attempts: 0,
            shard: 0,
            priority: 0,
            state: TaskState::Waiting,
            flags: 0,
        }
    }
}

impl Entry {
    /// Notes the record of the outcome, and the lease that caused it: the token goes where the
    /// links were, which nothing uses any longer.
    pub(crate) fn set_outcome_record(&mut self, record: u64) {
        self.links = Links { next: self.token as u32, prev: (self.token >> 32) as u32 };
        self.token = record;
    }

    /// The token of the lease that ended the task, where one did.
    pub(crate) fn ending_token(&self) -> u64 {
        u64::from(self.links.prev) << 32 | u64::from(self.links.next)
    }

    /// Whether the lease with this token ended the task.
    pub(crate) fn was_ended_by(&self, token: u64) -> bool {
        token != 0 && self.ending_token() == token
    }

    /// Whether a bit of [`flag`] is set.
    pub(crate) fn has_flag(&self, bit: u16) -> bool {
        self.flags & bit != 0
    }

    /// Sets a bit of [`flag`].
    pub(crate) fn set_flag(&mut self, bit: u16) {
        self.flags |= bit;
    }

    /// Clears a bit of [`flag`].
    pub(crate) fn clear_flag(&mut self, bit: u16) {
        self.flags &= !bit;
    }
}

impl Row for Entry {
    fn is_free(&self) -> bool {
        !self.has_flag(flag::USED)
    }
}

impl TimerRow for Entry {
    fn due_ms(&self) -> u64 {
        self.at_ms
    }

    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}
