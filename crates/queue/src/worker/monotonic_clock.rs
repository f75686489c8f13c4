//! A partition's clock, which follows the program's clock and counts elapsed time by itself.
//!
//! The program's clock follows the wall clock within bounds (see `egret_base::clock::model`), so
//! that the two agree except for moments. They diverge when an operator releases the clock, and at
//! a start after which the program's clock is behind the partition's last time. The partition then
//! makes one *step*: its time becomes that of the clock, and elapsed times move with it.

use std::sync::Arc;
use std::time::Duration;

use egret_base::{Clock, Timestamp};

/// While the program's clock is slightly behind, one of so many parts of the elapsed time is
/// dropped.
const SLOWDOWN_DIVISOR: u32 = 8;

/// Smallest difference that is corrected by a step.
const STEP_MIN: Duration = Duration::from_secs(1);

pub(crate) struct MonotonicClock {
    clock: Arc<dyn Clock>,
    /// The last time given out, since 1970. Finer than a timestamp: what is cut off would add up.
    last_time: Duration,
    last_running: Duration,
    /// Shift by which the time would match the clock again, in milliseconds; zero: none.
    step_ms: i64,
}

/// A shift of a partition's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    /// Shift in milliseconds; negative: back.
    pub by_ms: i64,
    /// The time after it.
    pub now: Timestamp,
}

impl MonotonicClock {
    /// Goes on from a time in Unix milliseconds.
    pub(crate) fn new(clock: Arc<dyn Clock>, from_ms: u64) -> Self {
        Self {
            last_running: clock.monotonic(),
            clock,
            last_time: Duration::from_millis(from_ms),
            step_ms: 0,
        }
    }

    /// The clock of the whole program.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// The present time, before a step that is due. It does not go back.
    pub(crate) fn now(&mut self) -> Timestamp {
        let (clock, running) = self.clock.now_and_monotonic();
        let clock = clock.since(Timestamp::from_micros(0));
        let elapsed = running.saturating_sub(self.last_running);
        self.last_running = running;
        let expected = self.last_time + elapsed;
        self.step_ms = 0;
        self.last_time = if clock.abs_diff(expected) > STEP_MIN {
            let ms = i64::try_from(clock.abs_diff(expected).as_millis()).unwrap_or(i64::MAX);
            self.step_ms = if clock > expected { ms } else { -ms };
            expected
        } else {
            clock.max(expected - elapsed / SLOWDOWN_DIVISOR)
        };
        timestamp(self.last_time)
    }

    /// Whether [`MonotonicClock::take_step`] has a step to make.
    pub(crate) fn is_step_due(&self) -> bool {
        self.step_ms != 0
    }

    /// Makes the step that [`MonotonicClock::now`] has found to be due.
    pub(crate) fn take_step(&mut self) -> Option<ClockStep> {
        let by_ms = std::mem::take(&mut self.step_ms);
        if by_ms == 0 {
            return None;
        }
        let distance = Duration::from_millis(by_ms.unsigned_abs());
        self.last_time = if by_ms > 0 {
            self.last_time + distance
        } else {
            self.last_time.saturating_sub(distance)
        };
        Some(ClockStep { by_ms, now: timestamp(self.last_time) })
    }
}

fn timestamp(since_1970: Duration) -> Timestamp {
    Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
