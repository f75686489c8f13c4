//! A partition's time: that of the wall clock, but it never goes back and never stands still.
//!
//! When the wall clock is set back, a partition's time goes on by itself, a little slower, until the wall
//! clock has come up with it: what is due is neither early nor kept waiting for as long as the clock was set
//! back. Also after a start it goes on from the last time in the log.

use std::sync::Arc;
use std::time::Duration;

use egret_base::{Clock, Timestamp};

/// Of so many parts of the time that passes, one is left out while the wall clock is behind.
const SLOWER: u32 = 8;

/// See the module.
pub(crate) struct Steady {
    clock: Arc<dyn Clock>,
    /// The last time told, since 1970. Finer than a timestamp: what is cut off would add up.
    told: Duration,
    /// When that was.
    running: Duration,
}

impl Steady {
    /// Goes on from a time in Unix milliseconds, unless the wall clock is ahead of it.
    pub fn new(clock: Arc<dyn Clock>, from_ms: u64) -> Self {
        Self {
            running: clock.running(),
            clock,
            told: Duration::from_millis(from_ms),
        }
    }

    /// What it goes by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// The time now.
    pub fn now(&mut self) -> Timestamp {
        let running = self.clock.running();
        let passed = running.saturating_sub(self.running);
        let wall = self.clock.now().since(Timestamp::from_micros(0));
        self.told = wall.max(self.told + (passed - passed / SLOWER));
        self.running = running;
        Timestamp::from_micros(i64::try_from(self.told.as_micros()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests;
