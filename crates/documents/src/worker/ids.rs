//! Gives new documents their ids.

use std::sync::{Arc, Mutex, PoisonError};

use egret_base::{Clock, Entropy};
use uuid::Uuid;

use crate::model::DocumentId;

/// The four bits of version 7, in the first half of an id.
const VERSION: u64 = 0x7000;

/// What counts within a millisecond.
const COUNTER_BITS: u64 = 0x0fff;

/// UUIDs of version 7 (RFC 9562, 6.2, method 1): the first half of each is larger than that of any before it, in all that one database has.
/// A millisecond has 4,096; where these are used up, the next one begins early.
pub struct Ids {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    last: Mutex<u64>,
}

impl Ids {
    /// By this clock.
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            clock,
            entropy,
            last: Mutex::new(0),
        }
    }

    /// There is a document with this number: the next ones are larger.
    pub fn begin_after(&self, number: i64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(number.unsigned_abs());
    }

    /// The next one.
    pub fn next(&self) -> DocumentId {
        let now = (self.clock.now().as_millis_unsigned() << 16) | VERSION;
        let first = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
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
