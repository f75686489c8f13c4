//! Slots of a slab, found by a hash of their rows.

use hashbrown::HashTable;

use super::slab::SlotIndex;

/// Number of tables: a small one rehashes quickly when it grows.
const TABLE_COUNT: usize = 256;

/// The bits of a hash that decide on the table; within a table the lowest and the highest count.
const TABLE_SHIFT: u32 = 40;

/// Index from a hash to slots of a slab.
#[derive(Clone, Debug)]
pub(crate) struct ShardedHashIndex {
    tables: Box<[HashTable<SlotIndex>]>,
}

impl Default for ShardedHashIndex {
    fn default() -> Self {
        Self { tables: (0..TABLE_COUNT).map(|_| HashTable::new()).collect() }
    }
}

fn table_of(hash: u64) -> usize {
    (hash >> TABLE_SHIFT) as usize % TABLE_COUNT
}

impl ShardedHashIndex {
    /// The slot with this hash for which `is_match` holds.
    pub(crate) fn find(
        &self,
        hash: u64,
        is_match: impl Fn(SlotIndex) -> bool,
    ) -> Option<SlotIndex> {
        let table = &self.tables[table_of(hash)];
        table.find(hash, |slot| is_match(*slot)).copied()
    }

    /// Adds a slot that is not in the index; `hash_of` returns the hash of any slot.
    pub(crate) fn insert(&mut self, slot: SlotIndex, hash_of: impl Fn(SlotIndex) -> u64) {
        let slot_hash = hash_of(slot);
        self.tables[table_of(slot_hash)].insert_unique(slot_hash, slot, |place| hash_of(*place));
    }

    /// Removes a slot from the index.
    pub(crate) fn remove(&mut self, hash: u64, slot: SlotIndex) {
        let table = &mut self.tables[table_of(hash)];
        if let Ok(found) = table.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
    }
}
