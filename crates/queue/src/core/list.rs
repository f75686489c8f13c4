//! The tasks of one queue in one state, in the order in which they came into it.
//!
//! A doubly linked list through the entries. Every so often an entry is noted as a landmark, so
//! that a cursor finds its place again after the entry it named has moved on: from the landmark
//! before it.

use std::collections::BTreeMap;

use super::entry::{Entry, flag};
use super::slab::{NOWHERE, Slab, SlotIndex};
use super::wheel::Links;

/// Entries from one landmark to the next.
const STRIDE: u64 = 1_024;

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
        Self {
            head: NOWHERE,
            tail: NOWHERE,
            len: 0,
            next_ordinal: 0,
            landmarks: BTreeMap::new(),
        }
    }
}

impl List {
    /// Adds an entry as the newest.
    pub fn push(&mut self, entries: &mut Slab<Entry>, place: SlotIndex) {
        let tail = self.tail;
        let entry = entries.get_mut(place);
        entry.list = Links {
            next: NOWHERE,
            prev: tail,
        };
        entry.ordinal = self.next_ordinal;
        if self.next_ordinal.is_multiple_of(STRIDE) {
            entry.set(flag::LANDMARK);
            self.landmarks.insert(self.next_ordinal, place);
        }
        match tail {
            NOWHERE => self.head = place,
            tail => entries.get_mut(tail).list.next = place,
        }
        self.tail = place;
        self.next_ordinal += 1;
        self.len += 1;
    }

    /// Removes an entry from the list.
    pub fn remove(&mut self, entries: &mut Slab<Entry>, place: SlotIndex) {
        let entry = entries.get_mut(place);
        let (links, ordinal) = (entry.list, entry.ordinal);
        let was_landmark = entry.has(flag::LANDMARK);
        entry.clear(flag::LANDMARK);
        match links.prev {
            NOWHERE => self.head = links.next,
            prev => entries.get_mut(prev).list.next = links.next,
        }
        match links.next {
            NOWHERE => self.tail = links.prev,
            next => entries.get_mut(next).list.prev = links.prev,
        }
        self.len -= 1;
        if was_landmark {
            self.move_landmark(entries, ordinal, links.next);
        }
    }

    /// The entry after a removed landmark becomes one, unless it is one already.
    fn move_landmark(&mut self, entries: &mut Slab<Entry>, ordinal: u64, next: SlotIndex) {
        self.landmarks.remove(&ordinal);
        if next == NOWHERE || entries.get(next).has(flag::LANDMARK) {
            return;
        }
        let entry = entries.get_mut(next);
        entry.set(flag::LANDMARK);
        self.landmarks.insert(entry.ordinal, next);
    }

    /// The first entry with this ordinal or a later one.
    pub fn from(&self, entries: &Slab<Entry>, ordinal: u64) -> SlotIndex {
        let mut place = self
            .landmarks
            .range(..=ordinal)
            .next_back()
            .map_or(self.head, |(_, place)| *place);
        while place != NOWHERE && entries.get(place).ordinal < ordinal {
            place = entries.get(place).list.next;
        }
        place
    }

    /// The landmarks, for a snapshot.
    pub(crate) fn landmarks(&self) -> impl Iterator<Item = (u64, SlotIndex)> {
        self.landmarks
            .iter()
            .map(|(ordinal, place)| (*ordinal, *place))
    }

    /// Adds a landmark that [`List::landmarks`] returned.
    pub(crate) fn restore_landmark(&mut self, ordinal: u64, place: SlotIndex) {
        self.landmarks.insert(ordinal, place);
    }
}
