//! What was written already and is not written again: columns of times, and whatever has the same bytes. The count of
//! a classic histogram is its bucket `+Inf`, sample by sample.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::core::block::layout::Extent;
use crate::core::block::page::Column;
use crate::model::TimeMs;

/// Beyond so many of a kind they are forgotten, and written again.
const WRITTEN_MAX: usize = 1 << 18;

/// Known by hashes of 128 bits under a key that nobody knows: that two are taken for one is not to be feared, not even
/// of who chooses the samples.
#[derive(Debug)]
pub(super) struct Columns {
    seed: u64,
    /// By their times.
    times: HashMap<u128, Column>,
    /// By their bytes.
    bodies: HashMap<u128, Extent>,
    scratch: Vec<u8>,
}

impl Default for Columns {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0_u64);
        Self {
            seed,
            times: HashMap::new(),
            bodies: HashMap::new(),
            scratch: Vec::new(),
        }
    }
}

impl Columns {
    pub fn key_of_times(&mut self, times_ms: &[TimeMs]) -> u128 {
        self.scratch.clear();
        self.scratch
            .extend(times_ms.iter().flat_map(|time_ms| time_ms.to_le_bytes()));
        xxh3_128_with_seed(&self.scratch, self.seed)
    }

    pub fn key_of_body(&self, bytes: &[u8]) -> u128 {
        xxh3_128_with_seed(bytes, self.seed)
    }

    pub fn times(&self, key: u128) -> Option<&Column> {
        self.times.get(&key)
    }

    pub fn body(&self, key: u128) -> Option<Extent> {
        self.bodies.get(&key).copied()
    }

    pub fn insert_times(&mut self, key: u128, column: Column) {
        insert(&mut self.times, key, column);
    }

    pub fn insert_body(&mut self, key: u128, extent: Extent) {
        insert(&mut self.bodies, key, extent);
    }
}

fn insert<T>(written: &mut HashMap<u128, T>, key: u128, value: T) {
    if written.len() >= WRITTEN_MAX {
        written.clear();
    }
    written.insert(key, value);
}
