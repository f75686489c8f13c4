//! The tasks of one queue in one state, in the order in which they came into it.
//!
//! A doubly linked list through the entries. Every so often an entry is noted as a landmark, so
//! that a cursor finds its place again after the entry it named has moved on: from the landmark
//! before it.

use std::collections::BTreeMap;

use super::entry::{Entry, flag};
use super::slab::{NO_SLOT, Slab, SlotIndex};
use super::wheel::Links;

/// Entries from one landmark to the next.
const LANDMARK_STRIDE: u64 = 1_024;

/// Links and landmarks of a list of tasks.
#[derive(Clone, Debug)]
pub struct List {
    /// The oldest row of the list.
    pub head: SlotIndex,
    /// The newest row of the list.
    pub tail: SlotIndex,
    /// Number of tasks in the list.
    pub len: u64,
    /// Ordinal of the next task.
    pub next_ordinal: u64,
    landmarks: BTreeMap<u64, SlotIndex>,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NO_SLOT, tail: NO_SLOT, len: 0, next_ordinal: 0, landmarks: BTreeMap::new() }
    }
}

impl List {
    /// Adds an entry as the newest.
    pub fn push(&mut self, entries: &mut Slab<Entry>, slot: SlotIndex) {
        let tail = self.tail;
        let entry = entries.get_mut(slot);
        entry.list_links = Links { next: NO_SLOT, prev: tail };
        entry.ordinal = self.next_ordinal;
        if self.next_ordinal.is_multiple_of(LANDMARK_STRIDE) {
            entry.set_flag(flag::LANDMARK);
            self.landmarks.insert(self.next_ordinal, slot);
        }
        match tail {
            NO_SLOT => self.head = slot,
            tail => entries.get_mut(tail).list_links.next = slot,
        }
        self.tail = slot;
        self.next_ordinal += 1;
        self.len += 1;
    }

    /// Removes an entry from the list.
    pub fn remove(&mut self, entries: &mut Slab<Entry>, slot: SlotIndex) {
        let entry = entries.get_mut(slot);
        let (links, ordinal) = (entry.list_links, entry.ordinal);
        let was_landmark = entry.has_flag(flag::LANDMARK);
        entry.clear_flag(flag::LANDMARK);
        match links.prev {
            NO_SLOT => self.head = links.next,
            prev => entries.get_mut(prev).list_links.next = links.next,
        }
        match links.next {
            NO_SLOT => self.tail = links.prev,
            next => entries.get_mut(next).list_links.prev = links.prev,
        }
        self.len -= 1;
        if was_landmark {
            self.move_landmark(entries, ordinal, links.next);
        }
    }

    /// The entry after a removed landmark becomes one, unless it is one already.
    fn move_landmark(&mut self, entries: &mut Slab<Entry>, ordinal: u64, next: SlotIndex) {
        self.landmarks.remove(&ordinal);
        if next == NO_SLOT || entries.get(next).has_flag(flag::LANDMARK) {
            return;
        }
        let entry = entries.get_mut(next);
        entry.set_flag(flag::LANDMARK);
        self.landmarks.insert(entry.ordinal, next);
    }

    /// The first entry with this ordinal or a later one.
    pub fn seek(&self, entries: &Slab<Entry>, ordinal: u64) -> SlotIndex {
        let mut slot =
            self.landmarks.range(..=ordinal).next_back().map_or(self.head, |(_, place)| *place);
        while slot != NO_SLOT && entries.get(slot).ordinal < ordinal {
            slot = entries.get(slot).list_links.next;
        }
        slot
    }

    /// The landmarks, for a snapshot.
    pub(crate) fn landmarks(&self) -> impl Iterator<Item = (u64, SlotIndex)> {
        self.landmarks.iter().map(|(ordinal, slot)| (*ordinal, *slot))
    }

    /// Adds a landmark that [`List::landmarks`] returned.
    pub(crate) fn restore_landmark(&mut self, ordinal: u64, slot: SlotIndex) {
        self.landmarks.insert(ordinal, slot);
    }
}
