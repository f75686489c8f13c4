//! Columns of times that were written already.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::core::block::page::Column;
use crate::model::TimeMs;

/// Beyond so many they are forgotten, and written again.
const COLUMNS_MAX: usize = 1 << 18;

/// Known by a hash of 128 bits under a key that nobody knows: that two are taken for one is not to be feared, not even
/// of who chooses the times.
#[derive(Debug)]
pub(super) struct Columns {
    seed: u64,
    written: HashMap<u128, Column>,
    scratch: Vec<u8>,
}

impl Default for Columns {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0_u64);
        Self {
            seed,
            written: HashMap::new(),
            scratch: Vec::new(),
        }
    }
}

impl Columns {
    pub fn key(&mut self, times_ms: &[TimeMs]) -> u128 {
        self.scratch.clear();
        self.scratch
            .extend(times_ms.iter().flat_map(|time_ms| time_ms.to_le_bytes()));
        xxh3_128_with_seed(&self.scratch, self.seed)
    }

    pub fn get(&self, key: u128) -> Option<&Column> {
        self.written.get(&key)
    }

    pub fn insert(&mut self, key: u128, column: Column) {
        if self.written.len() >= COLUMNS_MAX {
            self.written.clear();
        }
        self.written.insert(key, column);
    }
}
