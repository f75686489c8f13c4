//! Schedules of periodic work: each item has a fixed moment of its own within the interval, so that
//! work is spread out, and the same moment after a restart.

use egret_metrics_model::TimeMs;

use super::relabel::md5_hash;

/// An interval, and a phase offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    interval_ms: i64,
    offset_ms: i64,
}

/// When it is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRun {
    /// At which time; when it is past, at once.
    pub at: TimeMs,
    /// How many times it was not done that it should have been.
    pub missed: u64,
}

impl Schedule {
    /// Every so many milliseconds, at a place that the key decides.
    ///
    /// # Panics
    /// When the interval is not positive.
    pub fn new(key: &str, interval_ms: i64) -> Self {
        assert!(interval_ms > 0, "an interval is positive");
        let offset_ms = (md5_hash(key) % interval_ms as u64) as i64;
        Self { interval_ms, offset_ms }
    }

    /// Between two times, in milliseconds.
    pub fn interval_ms(&self) -> i64 {
        self.interval_ms
    }

    /// The first time after now.
    pub(crate) fn first_after(&self, now: TimeMs) -> TimeMs {
        now + self.interval_ms - (now - self.offset_ms).rem_euclid(self.interval_ms)
    }

    /// The time after `last`, now that what was due at `last` is done. The latest one that has
    /// passed, where some have; with a clock that was set back it begins anew.
    pub fn next_run(&self, last: TimeMs, now: TimeMs) -> NextRun {
        let intervals_passed = (now - last) / self.interval_ms;
        if now < last - self.interval_ms {
            let at = self.first_after(now);
            return NextRun { at, missed: 0 };
        }
        NextRun {
            at: last + intervals_passed.max(1) * self.interval_ms,
            missed: intervals_passed.max(1) as u64 - 1,
        }
    }
}

#[cfg(test)]
mod tests;
