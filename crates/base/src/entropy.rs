//! Randomness as an argument, so that a simulator can repeat a run from its seed.

use std::sync::Mutex;

use crate::sync::lock;

/// Where random bytes come from.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `buffer` with random bytes.
    fn fill(&self, buffer: &mut [u8]);

    /// Ten random bytes, as many as a UUIDv7 needs.
    fn ten_bytes(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        self.fill(&mut bytes);
        bytes
    }
}

/// The operating system's random source, fit for secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer)
            .expect("the kernel's random source works once the system has booted");
    }
}

/// A repeatable generator for tests and simulators; never for secrets.
///
/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub struct SeededEntropy(Mutex<u64>);

impl SeededEntropy {
    /// A generator that repeats itself for the same `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        let mut state = lock(&self.0);
        for chunk in buffer.chunks_mut(8) {
            *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = *state;
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^= word >> 31;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
}
