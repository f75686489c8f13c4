//! Index from a task's number to its slot.
//!
//! Numbers are given in order and most tasks are recent, so a number is looked up in a page of
//! neighbours: four bytes a task, no probing, and no rehashing as it grows. A page with few tasks
//! left moves them to a map and is freed: old tasks cost what they would in any map.

use std::collections::BTreeMap;

use hashbrown::HashTable;

use super::retry::mix;
use super::slab::{NOWHERE, SlotIndex};

/// Numbers in a page, as a power of two.
const PAGE_BITS: u32 = 10;

/// Numbers in a page.
const PAGE_NUMBERS: usize = 1 << PAGE_BITS;

/// A page with fewer tasks is freed: each costs then less than its own entry.
const PAGE_TASKS_MIN: u16 = 64;

#[derive(Clone, Debug)]
struct IndexPage {
    /// Its numbers without their low bits.
    prefix: u64,
    /// Number of its tasks.
    tasks: u16,
    places: Box<[SlotIndex; PAGE_NUMBERS]>,
}

impl IndexPage {
    fn new(prefix: u64) -> Self {
        Self {
            prefix,
            tasks: 0,
            places: Box::new([NOWHERE; PAGE_NUMBERS]),
        }
    }

    fn set(&mut self, number: u64, place: SlotIndex) {
        let before = std::mem::replace(&mut self.places[at(number)], place);
        self.tasks += u16::from(before == NOWHERE);
        self.tasks -= u16::from(place == NOWHERE);
    }
}

/// Offset of a number in its page.
fn at(number: u64) -> usize {
    number as usize % PAGE_NUMBERS
}

fn hash(prefix: u64) -> u64 {
    mix(prefix, 1)
}

/// Index from a task's number to its slot in the slab.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskIndex {
    pages: HashTable<IndexPage>,
    /// The latest page: it is still being filled, and is kept however few tasks it has.
    latest: Option<u64>,
    /// Tasks whose pages are freed.
    few: BTreeMap<u64, SlotIndex>,
}

impl TaskIndex {
    /// An index of numbers in any order, each once.
    pub(crate) fn of(numbers: impl Iterator<Item = (u64, SlotIndex)> + Clone) -> Self {
        let mut tasks: BTreeMap<u64, u16> = BTreeMap::new();
        for (number, _) in numbers.clone() {
            *tasks.entry(number >> PAGE_BITS).or_default() += 1;
        }
        let mut places = Self {
            latest: tasks.last_key_value().map(|(prefix, _)| *prefix),
            ..Self::default()
        };
        for (prefix, tasks) in tasks {
            if tasks >= PAGE_TASKS_MIN || Some(prefix) == places.latest {
                places.add(prefix);
            }
        }
        numbers.for_each(|(number, place)| places.insert(number, place));
        places
    }

    fn page(&self, prefix: u64) -> Option<&IndexPage> {
        self.pages.find(hash(prefix), |page| page.prefix == prefix)
    }

    fn page_mut(&mut self, prefix: u64) -> Option<&mut IndexPage> {
        let same = |page: &IndexPage| page.prefix == prefix;
        self.pages.find_mut(hash(prefix), same)
    }

    fn add(&mut self, prefix: u64) {
        let rehash = |page: &IndexPage| hash(page.prefix);
        self.pages
            .insert_unique(hash(prefix), IndexPage::new(prefix), rehash);
    }

    /// Adds the slot of a number that has none.
    pub(crate) fn insert(&mut self, number: u64, place: SlotIndex) {
        let prefix = number >> PAGE_BITS;
        if Some(prefix) > self.latest {
            let before = self.latest.replace(prefix);
            self.add(prefix);
            before
                .into_iter()
                .for_each(|before| self.free_if_few(before));
        }
        match self.page_mut(prefix) {
            Some(page) => page.set(number, place),
            None => drop(self.few.insert(number, place)),
        }
    }

    /// The slot of a number.
    pub(crate) fn get(&self, number: u64) -> Option<SlotIndex> {
        match self.page(number >> PAGE_BITS) {
            Some(page) => Some(page.places[at(number)]).filter(|place| *place != NOWHERE),
            None => self.few.get(&number).copied(),
        }
    }

    /// Removes a number from the index.
    pub(crate) fn remove(&mut self, number: u64) {
        let prefix = number >> PAGE_BITS;
        match self.page_mut(prefix) {
            Some(page) => {
                page.set(number, NOWHERE);
                if page.tasks < PAGE_TASKS_MIN {
                    self.free_if_few(prefix);
                }
            }
            None => drop(self.few.remove(&number)),
        }
    }

    fn free_if_few(&mut self, prefix: u64) {
        let few = |page: &IndexPage| page.prefix == prefix && page.tasks < PAGE_TASKS_MIN;
        if Some(prefix) == self.latest {
            return;
        }
        if let Ok(found) = self.pages.find_entry(hash(prefix), few) {
            let (page, _) = found.remove();
            let numbers = (prefix << PAGE_BITS)..;
            let left = numbers.zip(*page.places);
            self.few.extend(left.filter(|(_, place)| *place != NOWHERE));
        }
    }
}

#[cfg(test)]
mod tests;
