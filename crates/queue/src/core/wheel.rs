//! A hierarchical timing wheel: what is due next, without a scan and without a pause.
//!
//! Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), scheme 7, with one slot a
//! millisecond on the lowest level and 64 slots a level. The level of a timer is that of the
//! highest digit (base 64) in which its time differs from the wheel's, so that a timer only ever
//! moves down. Timers move one by one and each move counts against a budget: a million timers due
//! in one second are spread over as many calls as it takes. Timers that are due at the same time
//! fire in the order in which they were inserted, also then.

use super::slab::{NO_SLOT, Row, Slab, SlotIndex};

const LEVELS: usize = 8;
const SLOT_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << SLOT_BITS;
const SLOT_COUNT: usize = LEVELS * SLOTS_PER_LEVEL;

/// The last moment a wheel can tell apart: some nine thousand years after 1970.
pub(crate) const TIME_MAX_MS: u64 = (1 << (SLOT_BITS as u64 * LEVELS as u64)) - 1;

/// The neighbours of a row in an intrusive doubly linked list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// The row after this one; for the last row of a wheel's slot, the slot itself.
    pub next: SlotIndex,
    /// The row before this one; for the first row of a wheel's slot, the slot itself.
    pub prev: SlotIndex,
}

impl Default for Links {
    fn default() -> Self {
        Self { next: NO_SLOT, prev: NO_SLOT }
    }
}

/// A row that can wait in a wheel.
pub trait TimerRow: Row {
    /// When it is due, in Unix milliseconds; must not change while it waits.
    fn due_ms(&self) -> u64;

    /// The links of the wheel's list.
    fn links(&self) -> Links;

    /// The links of the wheel's list, for changes.
    fn links_mut(&mut self) -> &mut Links;
}

/// The timers of one slab.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// Everything due before this time has been handed out. Unix milliseconds.
    now_ms: u64,
    /// The first row of each slot, and then the last of each.
    ends: Box<[SlotIndex; 2 * SLOT_COUNT]>,
    /// Which slots of a level have timers.
    occupied: [u64; LEVELS],
    len: u64,
}

impl Wheel {
    /// A wheel that stands at `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self { now_ms, ends: Box::new([NO_SLOT; 2 * SLOT_COUNT]), occupied: [0; LEVELS], len: 0 }
    }

    /// Number of timers that wait.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no timer waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a timer, after those that are due at the same time. One whose time has passed is due at
    /// once.
    pub fn insert<R: TimerRow>(&mut self, rows: &mut Slab<R>, row: SlotIndex) {
        let due = self.clamp_due(rows.get(row).due_ms());
        let slot = self.insertion_slot(due);
        self.push_last(rows, row, slot);
    }

    /// Adds a timer before those that are due at the same time.
    pub(crate) fn insert_first<R: TimerRow>(&mut self, rows: &mut Slab<R>, row: SlotIndex) {
        let slot = self.slot_for_due(self.clamp_due(rows.get(row).due_ms()));
        let head = self.ends[slot];
        if head == NO_SLOT {
            return self.push_last(rows, row, slot);
        }
        *rows.get_mut(row).links_mut() = Links { next: head, prev: slot_link(slot) };
        rows.get_mut(head).links_mut().prev = row;
        self.ends[slot] = row;
        self.len += 1;
    }

    fn push_last<R: TimerRow>(&mut self, rows: &mut Slab<R>, row: SlotIndex, slot: usize) {
        let tail = std::mem::replace(&mut self.ends[SLOT_COUNT + slot], row);
        let prev = match tail {
            NO_SLOT => {
                self.ends[slot] = row;
                self.occupied[slot / SLOTS_PER_LEVEL] |= 1 << (slot % SLOTS_PER_LEVEL);
                slot_link(slot)
            }
            tail => {
                rows.get_mut(tail).links_mut().next = row;
                tail
            }
        };
        let next = slot_link(slot);
        *rows.get_mut(row).links_mut() = Links { next, prev };
        self.len += 1;
    }

    /// Removes a timer from the wheel.
    pub fn remove<R: TimerRow>(&mut self, rows: &mut Slab<R>, row: SlotIndex) {
        let links = std::mem::take(rows.get_mut(row).links_mut());
        let (before, after) = (linked_slot(links.prev), linked_slot(links.next));
        match before {
            Some(slot) => self.ends[slot] = if after.is_some() { NO_SLOT } else { links.next },
            None => rows.get_mut(links.prev).links_mut().next = links.next,
        }
        match after {
            Some(slot) => {
                self.ends[SLOT_COUNT + slot] = if before.is_some() { NO_SLOT } else { links.prev };
            }
            None => rows.get_mut(links.next).links_mut().prev = links.prev,
        }
        if let (Some(slot), Some(_)) = (before, after) {
            self.occupied[slot / SLOTS_PER_LEVEL] &= !(1 << (slot % SLOTS_PER_LEVEL));
        }
        self.len -= 1;
    }

    /// Removes a row that is due at `now_ms`, or does one step towards it.
    pub fn step<R: TimerRow>(&mut self, rows: &mut Slab<R>, now_ms: u64) -> WheelStep {
        let Some((slot, start_ms)) = self.first_slot() else {
            self.now_ms = self.now_ms.max(now_ms);
            return WheelStep::Idle;
        };
        if start_ms > now_ms {
            // Still in the same slots as seen from there: no occupied one is passed over.
            self.now_ms = self.now_ms.max(now_ms);
            return WheelStep::Idle;
        }
        self.now_ms = self.now_ms.max(start_ms);
        let row = self.ends[slot];
        self.remove(rows, row);
        if slot < SLOTS_PER_LEVEL {
            return WheelStep::Due(row);
        }
        let finer_slot = self.slot_for_due(self.clamp_due(rows.get(row).due_ms()));
        self.push_last(rows, row, finer_slot);
        WheelStep::Moved
    }

    /// A time at which [`Wheel::step`] has something to do: never later than the first timer.
    pub fn next_ms(&self) -> Option<u64> {
        self.first_slot().map(|(_, start_ms)| start_ms)
    }

    /// The slot that is due first, and when it begins.
    fn first_slot(&self) -> Option<(usize, u64)> {
        // One whose time has begun is emptied before what has moved down from it counts.
        for level in 1..LEVELS {
            let digit = self.digit(level);
            if self.occupied[level] >> digit & 1 == 1 {
                return Some((level * SLOTS_PER_LEVEL + digit as usize, self.now_ms));
            }
        }
        for level in 0..LEVELS {
            let digit = self.digit(level);
            let ahead = self.occupied[level] >> digit << digit;
            if ahead == 0 {
                continue;
            }
            let first = ahead.trailing_zeros() as usize;
            let shift = SLOT_BITS * level as u32;
            let above = self.now_ms >> shift >> SLOT_BITS << SLOT_BITS << shift;
            let start_ms = above + ((first as u64) << shift);
            return Some((level * SLOTS_PER_LEVEL + first, start_ms.max(self.now_ms)));
        }
        None
    }

    fn digit(&self, level: usize) -> u64 {
        self.now_ms >> (SLOT_BITS * level as u32) & (SLOTS_PER_LEVEL as u64 - 1)
    }

    fn clamp_due(&self, due_ms: u64) -> u64 {
        due_ms.clamp(self.now_ms, TIME_MAX_MS)
    }

    /// The slot for a new timer: its own, unless a coarser one that is due is not empty yet. Timers
    /// there that are due at the same time fire first.
    fn insertion_slot(&self, due_ms: u64) -> usize {
        let slot = self.slot_for_due(due_ms);
        for level in (slot / SLOTS_PER_LEVEL + 1..LEVELS).rev() {
            let digit = self.digit(level);
            if self.occupied[level] >> digit & 1 == 1 {
                return level * SLOTS_PER_LEVEL + digit as usize;
            }
        }
        slot
    }

    fn slot_for_due(&self, due_ms: u64) -> usize {
        let differs = due_ms ^ self.now_ms;
        let level = ((63 - (differs | 1).leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let digit = due_ms >> (SLOT_BITS * level) & (SLOTS_PER_LEVEL as u64 - 1);
        level as usize * SLOTS_PER_LEVEL + digit as usize
    }

    /// The rows with timers, those that are due at the same time in order.
    pub(crate) fn waiting_rows<R: TimerRow>(&self, rows: &Slab<R>) -> Vec<SlotIndex> {
        let mut waiting = Vec::with_capacity(usize::try_from(self.len).unwrap_or(0));
        // Of those that are due at the same time, the first ones have moved to finer slots.
        for head in &self.ends[..SLOT_COUNT] {
            let mut row = *head;
            while row != NO_SLOT && linked_slot(row).is_none() {
                waiting.push(row);
                row = rows.get(row).links().next;
            }
        }
        waiting
    }

    /// What a snapshot keeps beside the rows: the time, the ends of slots, and [`Wheel::len`].
    pub fn parts(&self) -> (u64, &[SlotIndex]) {
        (self.now_ms, &self.ends[..])
    }

    /// Rebuilds a wheel from its parts; `None` for another number of ends.
    pub fn restore(now_ms: u64, ends: &[SlotIndex], len: u64) -> Option<Self> {
        let mut wheel = Self::new(now_ms);
        *wheel.ends = ends.try_into().ok()?;
        for (slot, head) in wheel.ends[..SLOT_COUNT].iter().enumerate() {
            if *head != NO_SLOT {
                wheel.occupied[slot / SLOTS_PER_LEVEL] |= 1 << (slot % SLOTS_PER_LEVEL);
            }
        }
        wheel.len = len;
        Some(wheel)
    }
}

/// Result of one [`Wheel::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WheelStep {
    /// This row is due and no longer waits.
    Due(SlotIndex),
    /// A timer moved to a finer slot.
    Moved,
    /// No timer is due.
    Idle,
}

/// The value of a link that refers to a slot.
fn slot_link(slot: usize) -> SlotIndex {
    NO_SLOT - 1 - slot as SlotIndex
}

/// The slot that a link refers to when it refers to no row.
fn linked_slot(link: SlotIndex) -> Option<usize> {
    let slot = (NO_SLOT - 1).wrapping_sub(link) as usize;
    (slot < SLOT_COUNT).then_some(slot)
}

#[cfg(test)]
mod tests;
