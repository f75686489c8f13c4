//! A hash of labels that is quick for a few hundred bytes. Its seed is another in each process, as
//! labels come from anywhere.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Odd, and about as many bits set as not: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(FACTOR));

#[derive(Clone, Copy, Debug)]
pub(crate) struct QuickHash {
    seed: u64,
}

impl Default for QuickHash {
    fn default() -> Self {
        Self { seed: *SEED }
    }
}

impl BuildHasher for QuickHash {
    type Hasher = QuickHasher;

    fn build_hasher(&self) -> QuickHasher {
        QuickHasher { state: self.seed }
    }
}

#[derive(Debug)]
pub(crate) struct QuickHasher {
    state: u64,
}

impl QuickHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(FACTOR);
        self.state = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in chunks.by_ref() {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("it has 8 bytes")));
        }
        let rest = chunks.remainder();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64).rotate_left(56));
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests;
