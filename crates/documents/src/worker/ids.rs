//! Generator of document ids.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_base::{Clock, Entropy};
use uuid::Uuid;

use crate::model::{DocumentId, DocumentNumber};

/// The four bits of version 7, in the first half of an id.
const VERSION_BITS: u64 = 0x7000;

/// Bits of the first half that count within a millisecond.
const COUNTER_MASK: u64 = 0x0fff;

/// Generates UUIDs of version 7 (RFC 9562, 6.2, method 1). The first half of each is larger than
/// those of all earlier ids of the database. A millisecond has 4,096 values; when they are used up,
/// the timestamp runs ahead of the clock.
pub(crate) struct IdGenerator {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    last_half: Mutex<u64>,
}

impl IdGenerator {
    pub(crate) fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy, last_half: Mutex::new(0) }
    }

    /// Continues after a document number that exists in the database.
    pub(crate) fn continue_after(&self, number: DocumentNumber) {
        let mut last = lock(&self.last_half);
        *last = (*last).max(number.0.unsigned_abs());
    }

    pub(crate) fn next(&self) -> DocumentId {
        let now = (self.clock.now().as_millis_unsigned() << 16) | VERSION_BITS;
        let first_half = {
            let mut last = lock(&self.last_half);
            *last = now.max(next_half(*last));
            *last
        };
        let mut second_half = [0; 8];
        self.entropy.fill(&mut second_half);
        let second = u64::from_be_bytes(second_half) & (u64::MAX >> 2) | (0b10 << 62);
        DocumentId::from_stored(Uuid::from_u64_pair(first_half, second))
    }
}

/// The smallest first half of an id that is larger than another.
fn next_half(half: u64) -> u64 {
    match half & COUNTER_MASK {
        COUNTER_MASK => (((half >> 16) + 1) << 16) | VERSION_BITS,
        _ => half + 1,
    }
}

#[cfg(test)]
mod tests;
