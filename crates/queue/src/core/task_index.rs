//! Index from a task's number to its slot.
//!
//! Numbers are given in order and most tasks are recent, so a number is looked up in a page of
//! neighbours: four bytes a task, no probing, and no rehashing as it grows. A page with few tasks
//! left moves them to a map and is freed: old tasks cost what they would in any map.

use std::collections::BTreeMap;

use hashbrown::HashTable;

use super::retry::mix;
use super::slab::{NO_SLOT, SlotIndex};

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
    slots: Box<[SlotIndex; PAGE_NUMBERS]>,
}

impl IndexPage {
    fn new(prefix: u64) -> Self {
        Self { prefix, tasks: 0, slots: Box::new([NO_SLOT; PAGE_NUMBERS]) }
    }

    fn set(&mut self, number: u64, slot: SlotIndex) {
        let previous = std::mem::replace(&mut self.slots[page_offset(number)], slot);
        self.tasks += u16::from(previous == NO_SLOT);
        self.tasks -= u16::from(slot == NO_SLOT);
    }
}

/// Offset of a number in its page.
fn page_offset(number: u64) -> usize {
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
    sparse: BTreeMap<u64, SlotIndex>,
}

impl TaskIndex {
    /// An index of numbers in any order, each once.
    pub(crate) fn from_numbers(numbers: impl Iterator<Item = (u64, SlotIndex)> + Clone) -> Self {
        let mut tasks: BTreeMap<u64, u16> = BTreeMap::new();
        for (number, _) in numbers.clone() {
            *tasks.entry(number >> PAGE_BITS).or_default() += 1;
        }
        let mut index =
            Self { latest: tasks.last_key_value().map(|(prefix, _)| *prefix), ..Self::default() };
        for (prefix, tasks) in tasks {
            if tasks >= PAGE_TASKS_MIN || Some(prefix) == index.latest {
                index.add_page(prefix);
            }
        }
        numbers.for_each(|(number, slot)| index.insert(number, slot));
        index
    }

    fn page(&self, prefix: u64) -> Option<&IndexPage> {
        self.pages.find(hash(prefix), |page| page.prefix == prefix)
    }

    fn page_mut(&mut self, prefix: u64) -> Option<&mut IndexPage> {
        let is_match = |page: &IndexPage| page.prefix == prefix;
        self.pages.find_mut(hash(prefix), is_match)
    }

    fn add_page(&mut self, prefix: u64) {
        let rehash = |page: &IndexPage| hash(page.prefix);
        self.pages.insert_unique(hash(prefix), IndexPage::new(prefix), rehash);
    }

    /// Adds the slot of a number that has none.
    pub(crate) fn insert(&mut self, number: u64, slot: SlotIndex) {
        let prefix = number >> PAGE_BITS;
        if Some(prefix) > self.latest {
            let previous = self.latest.replace(prefix);
            self.add_page(prefix);
            previous.into_iter().for_each(|before| self.free_page_if_sparse(before));
        }
        match self.page_mut(prefix) {
            Some(page) => page.set(number, slot),
            None => drop(self.sparse.insert(number, slot)),
        }
    }

    /// The slot of a number.
    pub(crate) fn get(&self, number: u64) -> Option<SlotIndex> {
        match self.page(number >> PAGE_BITS) {
            Some(page) => Some(page.slots[page_offset(number)]).filter(|slot| *slot != NO_SLOT),
            None => self.sparse.get(&number).copied(),
        }
    }

    /// Removes a number from the index.
    pub(crate) fn remove(&mut self, number: u64) {
        let prefix = number >> PAGE_BITS;
        match self.page_mut(prefix) {
            Some(page) => {
                page.set(number, NO_SLOT);
                if page.tasks < PAGE_TASKS_MIN {
                    self.free_page_if_sparse(prefix);
                }
            }
            None => drop(self.sparse.remove(&number)),
        }
    }

    fn free_page_if_sparse(&mut self, prefix: u64) {
        let is_sparse = |page: &IndexPage| page.prefix == prefix && page.tasks < PAGE_TASKS_MIN;
        if Some(prefix) == self.latest {
            return;
        }
        if let Ok(found) = self.pages.find_entry(hash(prefix), is_sparse) {
            let (page, _) = found.remove();
            let numbers = (prefix << PAGE_BITS)..;
            let remaining = numbers.zip(*page.slots);
            self.sparse.extend(remaining.filter(|(_, slot)| *slot != NO_SLOT));
        }
    }
}

#[cfg(test)]
mod tests;
