//! Slots of a slab, found by a hash of their rows.

use hashbrown::HashTable;

use super::slab::SlotIndex;

/// Number of tables: a small one rehashes quickly when it grows.
const TABLES: usize = 256;

/// The bits of a hash that decide on the table; within a table the lowest and the highest count.
const TABLE_SHIFT: u32 = 40;

/// Index from a hash to slots of a slab.
#[derive(Clone, Debug)]
pub(crate) struct ShardedHashIndex {
    tables: Box<[HashTable<SlotIndex>]>,
}

impl Default for ShardedHashIndex {
    fn default() -> Self {
        Self {
            tables: (0..TABLES).map(|_| HashTable::new()).collect(),
        }
    }
}

fn table_of(hash: u64) -> usize {
    (hash >> TABLE_SHIFT) as usize % TABLES
}

impl ShardedHashIndex {
    /// The slot with this hash for which `is_match` holds.
    pub(crate) fn find(&self, hash: u64, same: impl Fn(SlotIndex) -> bool) -> Option<SlotIndex> {
        let table = &self.tables[table_of(hash)];
        table.find(hash, |place| same(*place)).copied()
    }

    /// Adds a slot that is not in the index; `hash_of` returns the hash of any slot.
    pub(crate) fn insert(&mut self, place: SlotIndex, hash: impl Fn(SlotIndex) -> u64) {
        let own = hash(place);
        self.tables[table_of(own)].insert_unique(own, place, |place| hash(*place));
    }

    /// Removes a slot from the index.
    pub(crate) fn remove(&mut self, hash: u64, place: SlotIndex) {
        let table = &mut self.tables[table_of(hash)];
        if let Ok(found) = table.find_entry(hash, |other| *other == place) {
            found.remove();
        }
    }
}
