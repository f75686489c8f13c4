//! Generator of document ids.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_base::{Clock, Entropy};
use uuid::Uuid;

use crate::model::{DocumentId, DocumentNumber};

/// The four bits of version 7, in the first half of an id.
const VERSION: u64 = 0x7000;

/// Bits of the first half that count within a millisecond.
const COUNTER_BITS: u64 = 0x0fff;

/// Generates UUIDs of version 7 (RFC 9562, 6.2, method 1). The first half of each is larger than
/// those of all earlier ids of the database. A millisecond has 4,096 values; when they are used up,
/// the timestamp runs ahead of the clock.
pub(crate) struct IdGenerator {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    last: Mutex<u64>,
}

impl IdGenerator {
    pub(crate) fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            clock,
            entropy,
            last: Mutex::new(0),
        }
    }

    /// Continues after a document number that exists in the database.
    pub(crate) fn begin_after(&self, number: DocumentNumber) {
        let mut last = lock(&self.last);
        *last = (*last).max(number.0.unsigned_abs());
    }

    pub(crate) fn next(&self) -> DocumentId {
        let now = (self.clock.now().as_millis_unsigned() << 16) | VERSION;
        let first = {
            let mut last = lock(&self.last);
            *last = now.max(after(*last));
            *last
        };
        let mut second = [0; 8];
        self.entropy.fill(&mut second);
        let second = u64::from_be_bytes(second) & (u64::MAX >> 2) | (0b10 << 62);
        DocumentId::stored(Uuid::from_u64_pair(first, second))
    }
}

/// The smallest first half of an id that is larger than another.
fn after(first: u64) -> u64 {
    match first & COUNTER_BITS {
        COUNTER_BITS => (((first >> 16) + 1) << 16) | VERSION,
        _ => first + 1,
    }
}

#[cfg(test)]
mod tests;
