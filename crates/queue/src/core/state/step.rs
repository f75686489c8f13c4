//! A step of the clock: shifts the partition's time without affecting elapsed times.
//!
//! Delays, leases, timeouts, windows of unique keys, the grace of an epoch and the ages of ended
//! tasks move with the time, so that as much of each is left as before. Times of day (`run_at`,
//! ticks of schedules) stay. A step visits every task; it happens when an operator releases the
//! clock, or at a start after which the time differs.

use super::machine::State;
use crate::core::entry::{Entry, TaskState, flag};
use crate::core::slab::Row;
use crate::core::wheel::Wheel;

impl State {
    /// Moves the partition's time by so many milliseconds, in either direction.
    pub fn step_clock(&mut self, by_ms: i64) {
        let shift = |ms: u64| shift_ms(ms, by_ms);
        self.now_ms = shift(self.now_ms);
        self.grace_until_ms = shift(self.grace_until_ms);
        // The sorts are stable: timers that become due at the same time keep their order.
        let mut timed = self.timers.waiting_rows(&self.entries);
        timed.sort_by_key(|slot| self.entries.get(*slot).at_ms);
        for place in 0..self.entries.extent() {
            if !self.entries.get(place).is_free() {
                step_entry(self.entries.get_mut(place), shift);
            }
        }
        timed.sort_by_key(|place| self.entries.get(*place).at_ms);
        self.timers = Wheel::new(self.now_ms);
        for place in timed {
            self.timers.insert(&mut self.entries, place);
        }
        let timed_uniques = self.unique_timers.waiting_rows(&self.uniques);
        self.unique_timers = Wheel::new(self.now_ms);
        for place in timed_uniques {
            let unique = self.uniques.get_mut(place);
            unique.until_ms = shift(unique.until_ms);
            self.unique_timers.insert(&mut self.uniques, place);
        }
        for place in 0..self.past_attempts.extent() {
            if !self.past_attempts.get(place).is_free() {
                let past = self.past_attempts.get_mut(place);
                (past.started_ms, past.ended_ms) = (shift(past.started_ms), shift(past.ended_ms));
            }
        }
        let checks = std::mem::take(&mut self.retention_checks).into_iter();
        self.retention_checks =
            checks.map(|(due_ms, queue, state)| (shift(due_ms), queue, state)).collect();
    }
}

/// Shifts a time; zero (none) and the end of time stay.
fn shift_ms(ms: u64, by_ms: i64) -> u64 {
    if ms == 0 || ms == u64::MAX { ms } else { ms.saturating_add_signed(by_ms).max(1) }
}

fn step_entry(entry: &mut Entry, shift: impl Fn(u64) -> u64) {
    let is_pending = matches!(entry.state, TaskState::Waiting | TaskState::Delayed);
    if !(is_pending && entry.has_flag(flag::RUN_AT)) {
        entry.at_ms = shift(entry.at_ms);
    }
    entry.started_ms = shift(entry.started_ms.get()).into();
}
