//! Ready tasks and the order in which they are handed out.
//!
//! A *flow* is one ordering key of a queue (tasks without a key share the flow of key zero); a
//! *lane* is a flow's tasks of one priority, first in, first out. Lanes of a priority take turns in
//! a *ring*, so that no key starves another. A keyed flow whose tasks under way have reached the
//! queue's `key_concurrency` has no lane in any ring until one of them is over: that keeps the
//! order.

use super::entry::Entry;
use super::slab::{NO_SLOT, Row, Slab, SlotIndex};
use super::wheel::Links;

/// Priorities are 0 to 9.
pub const PRIORITY_COUNT: usize = 10;

/// The priority of a task without an explicit one.
pub const PRIORITY_DEFAULT: u8 = 5;

/// One ordering key of one queue, while tasks with it have not ended.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The key's hash; zero for tasks without one.
    pub key: u128,
    /// Id of the queue.
    pub queue: u32,
    /// Tasks that hold the key: leased, or between two attempts.
    pub in_flight: u32,
    /// Tasks that have not ended.
    pub tasks: u32,
    /// The first of its lanes.
    pub first_lane: SlotIndex,
    used: bool,
}

impl Default for Flow {
    fn default() -> Self {
        Self { key: 0, queue: 0, in_flight: 0, tasks: 0, first_lane: NO_SLOT, used: false }
    }
}

impl Row for Flow {
    fn is_free(&self) -> bool {
        !self.used
    }
}

impl Flow {
    /// A flow without tasks.
    pub fn new(queue: u32, key: u128) -> Self {
        Self { key, queue, used: true, ..Self::default() }
    }
}

/// A flow's tasks of one priority.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The flow that it belongs to.
    pub flow: SlotIndex,
    /// Priority of its tasks, from 0 to 9.
    pub priority: u8,
    /// Whether it is in the ring.
    pub in_ring: bool,
    /// The task that goes first.
    pub head: SlotIndex,
    /// The one that goes last.
    pub tail: SlotIndex,
    /// Neighbours in the ring.
    pub ring: Links,
    /// The flow's next lane.
    pub sibling: SlotIndex,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            flow: NO_SLOT,
            priority: 0,
            in_ring: false,
            head: NO_SLOT,
            tail: NO_SLOT,
            ring: Links::default(),
            sibling: NO_SLOT,
        }
    }
}

impl Row for Lane {
    fn is_free(&self) -> bool {
        self.flow == NO_SLOT
    }
}

/// The lanes of one queue whose turn may come, by priority.
#[derive(Clone, Debug)]
pub struct Rings {
    /// First and last lane of each ring.
    pub ends: [Links; PRIORITY_COUNT],
    /// Which rings have a lane.
    pub occupied: u16,
}

impl Default for Rings {
    fn default() -> Self {
        Self { ends: [Links::default(); PRIORITY_COUNT], occupied: 0 }
    }
}

impl Rings {
    /// Appends a lane to its ring, unless it is there already.
    pub(crate) fn push_lane(&mut self, lanes: &mut Slab<Lane>, slot: SlotIndex) {
        let lane = lanes.get(slot);
        if lane.in_ring {
            return;
        }
        let priority = usize::from(lane.priority);
        let last = self.ends[priority].prev;
        let lane = lanes.get_mut(slot);
        lane.in_ring = true;
        lane.ring = Links { next: NO_SLOT, prev: last };
        match last {
            NO_SLOT => self.ends[priority].next = slot,
            last => lanes.get_mut(last).ring.next = slot,
        }
        self.ends[priority].prev = slot;
        self.occupied |= 1 << priority;
    }

    /// Removes a lane from its ring, if it is there.
    pub(crate) fn remove_lane(&mut self, lanes: &mut Slab<Lane>, slot: SlotIndex) {
        let lane = lanes.get(slot);
        if !lane.in_ring {
            return;
        }
        let (priority, ring) = (usize::from(lane.priority), lane.ring);
        match ring.prev {
            NO_SLOT => self.ends[priority].next = ring.next,
            prev => lanes.get_mut(prev).ring.next = ring.next,
        }
        match ring.next {
            NO_SLOT => self.ends[priority].prev = ring.prev,
            next => lanes.get_mut(next).ring.prev = ring.prev,
        }
        let lane = lanes.get_mut(slot);
        lane.in_ring = false;
        lane.ring = Links::default();
        if self.ends[priority].next == NO_SLOT {
            self.occupied &= !(1 << priority);
        }
    }

    /// Whether tasks of another than the default priority are ready.
    pub(crate) fn has_priorities(&self) -> bool {
        self.occupied & !(1 << PRIORITY_DEFAULT) != 0
    }

    /// The lane whose turn it is: of the highest priority, where each `aging_ms` that the first
    /// task of a ring has waited counts as one priority more. Zero: strictly by priority.
    pub fn front(
        &self,
        lanes: &Slab<Lane>,
        entries: &Slab<Entry>,
        aging_ms: u64,
        now_ms: u64,
    ) -> Option<SlotIndex> {
        let highest = 15u32.checked_sub(self.occupied.leading_zeros())? as usize;
        if aging_ms == 0 || self.occupied & (self.occupied - 1) == 0 {
            return Some(self.ends[highest].next);
        }
        let score = |priority: &usize| {
            let first = lanes.get(self.ends[*priority].next).head;
            let waited = now_ms.saturating_sub(entries.get(first).at_ms);
            (*priority as u64).saturating_mul(aging_ms).saturating_add(waited)
        };
        let occupied = (0..PRIORITY_COUNT).filter(|priority| self.occupied >> priority & 1 == 1);
        let best = occupied.max_by_key(score)?;
        Some(self.ends[best].next)
    }
}

/// Appends a task to its lane.
pub fn push_back(
    lanes: &mut Slab<Lane>,
    entries: &mut Slab<Entry>,
    lane: SlotIndex,
    task: SlotIndex,
) {
    let row = lanes.get_mut(lane);
    let tail = std::mem::replace(&mut row.tail, task);
    if row.head == NO_SLOT {
        row.head = task;
    }
    entries.get_mut(task).links = Links { next: NO_SLOT, prev: tail };
    if tail != NO_SLOT {
        entries.get_mut(tail).links.next = task;
    }
}

/// Puts a task at the front of its lane.
pub fn push_front(
    lanes: &mut Slab<Lane>,
    entries: &mut Slab<Entry>,
    lane: SlotIndex,
    task: SlotIndex,
) {
    let row = lanes.get_mut(lane);
    let head = std::mem::replace(&mut row.head, task);
    if row.tail == NO_SLOT {
        row.tail = task;
    }
    entries.get_mut(task).links = Links { next: head, prev: NO_SLOT };
    if head != NO_SLOT {
        entries.get_mut(head).links.prev = task;
    }
}

/// Removes a task from its lane.
pub(crate) fn remove_task(
    lanes: &mut Slab<Lane>,
    entries: &mut Slab<Entry>,
    lane: SlotIndex,
    task: SlotIndex,
) {
    let links = std::mem::take(&mut entries.get_mut(task).links);
    match links.prev {
        NO_SLOT => lanes.get_mut(lane).head = links.next,
        prev => entries.get_mut(prev).links.next = links.next,
    }
    match links.next {
        NO_SLOT => lanes.get_mut(lane).tail = links.prev,
        next => entries.get_mut(next).links.prev = links.prev,
    }
}
