//! Deduplicates columns while a block is written: columns of times, and samples with the same
//! bytes. The count of a classic histogram is its bucket `+Inf`, sample by sample.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use egret_metrics_model::TimeMs;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::core::layout::Extent;
use crate::core::page::Column;

/// Entries of a map, at most: beyond that it is cleared, and columns are written again.
const ENTRIES_MAX: usize = 1 << 18;

/// Columns already written to the block, by 128-bit hashes under a random seed. As the seed is
/// secret, collisions are negligible even if an attacker chooses the samples.
#[derive(Debug)]
pub(super) struct TimeColumns {
    seed: u64,
    times: HashMap<u128, Column>,
    /// Encoded samples, by the hash of their bytes.
    bodies: HashMap<u128, Extent>,
    scratch: Vec<u8>,
}

impl Default for TimeColumns {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0_u64);
        Self { seed, times: HashMap::new(), bodies: HashMap::new(), scratch: Vec::new() }
    }
}

impl TimeColumns {
    pub(crate) fn hash_times(&mut self, times_ms: &[TimeMs]) -> u128 {
        self.scratch.clear();
        self.scratch.extend(times_ms.iter().flat_map(|time_ms| time_ms.to_le_bytes()));
        xxh3_128_with_seed(&self.scratch, self.seed)
    }

    pub(crate) fn hash_body(&self, bytes: &[u8]) -> u128 {
        xxh3_128_with_seed(bytes, self.seed)
    }

    pub(crate) fn find_times(&self, key: u128) -> Option<&Column> {
        self.times.get(&key)
    }

    pub(crate) fn find_body(&self, key: u128) -> Option<Extent> {
        self.bodies.get(&key).copied()
    }

    pub(crate) fn insert_times(&mut self, key: u128, column: Column) {
        insert(&mut self.times, key, column);
    }

    pub(crate) fn insert_body(&mut self, key: u128, extent: Extent) {
        insert(&mut self.bodies, key, extent);
    }
}

fn insert<T>(entries: &mut HashMap<u128, T>, key: u128, value: T) {
    if entries.len() >= ENTRIES_MAX {
        entries.clear();
    }
    entries.insert(key, value);
}
