//! The clock model: how Egret's time follows a wall clock that may jump, decided without any I/O.
//!
//! Two clocks are read together. The *wall clock* says what time it is and can be set by an
//! operator, a time server or a damaged battery. The *elapsed clock* only counts: it is never set,
//! and goes on while the machine is suspended. *Accepted time*, which every engine goes by, is the
//! last accepted time plus what has elapsed since, corrected towards the wall clock within bounds:
//!
//! - The wall clock is ahead by no more than the *allowance*: it is accepted at once. The allowance
//!   is [`ClockPolicy::jump_max`] and is used up by each correction; it comes back within an hour,
//!   so that many small jumps are bounded like one large jump.
//! - The wall clock is ahead by more: accepted time is *held*. It goes on with the elapsed clock
//!   alone until the wall clock is set right or an operator releases the clock.
//! - The wall clock is behind by no more than `jump_max`: accepted time runs slower, by one part in
//!   [`SLEW_DIVISOR`], until both agree. It does not go back.
//! - The wall clock is behind by more: accepted time is held.
//!
//! Between two runs of Egret on one boot of the machine the elapsed clock goes on, so the same
//! rules hold. Across boots nothing counts what has passed: a wall clock ahead of the last accepted
//! time by at most [`ClockPolicy::start_jump_max`] is believed, everything else follows the rules
//! above.

use std::time::Duration;

use super::Timestamp;

/// While the wall clock is a little behind, one of so many parts of the elapsed time is left out.
pub(crate) const SLEW_DIVISOR: i64 = 8;

/// How long it takes until a used-up allowance has come back, in microseconds.
const ALLOWANCE_PERIOD_US: i64 = 3_600_000_000;

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// Time of the wall clock.
    pub wall: Timestamp,
    /// The elapsed clock; its zero is the boot of the machine.
    pub elapsed: Duration,
}

/// The bounds of corrections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPolicy {
    /// The largest correction while the elapsed clock counts.
    pub jump_max: Duration,
    /// The longest time between two boots that the wall clock alone is believed for.
    pub start_jump_max: Duration,
}

/// Stored state of a clock between two runs of Egret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClockRecord {
    /// The accepted time when the record was made.
    pub accepted: Timestamp,
    /// The elapsed clock at that time.
    pub elapsed: Duration,
    /// The boot of the machine that the elapsed clock counts from.
    pub boot: String,
}

/// How accepted time follows the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// Accepted time agrees with the wall clock, or approaches it.
    Following,
    /// The wall clock is too far from accepted time, which goes on with the elapsed clock.
    Held,
}

/// The state from which accepted time is computed.
#[derive(Clone, Debug)]
pub(crate) struct ClockModel {
    jump_max_us: i64,
    allowance_us: i64,
    /// Remainder of the allowance after integer division, in parts of [`ALLOWANCE_PERIOD_US`].
    allowance_remainder: i128,
    /// Elapsed microseconds that have not slowed accepted time yet, fewer than [`SLEW_DIVISOR`].
    slew_remainder_us: i64,
    accepted_us: i64,
    elapsed_us: i64,
    /// By how much the wall clock was ahead of accepted time when both were last compared.
    offset_us: i64,
    state: ClockState,
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl ClockModel {
    /// Begins at the wall clock: nothing is known of the time before.
    pub(crate) fn begin(reading: ClockReading, policy: ClockPolicy) -> Self {
        let jump_max_us = micros(policy.jump_max);
        Self {
            jump_max_us,
            allowance_us: jump_max_us,
            allowance_remainder: 0,
            slew_remainder_us: 0,
            accepted_us: reading.wall.as_micros(),
            elapsed_us: micros(reading.elapsed),
            offset_us: 0,
            state: ClockState::Following,
        }
    }

    /// Continues from the record of an earlier run. `boot` is the present boot of the machine.
    pub(crate) fn resume(
        record: &ClockRecord,
        boot: &str,
        reading: ClockReading,
        policy: ClockPolicy,
    ) -> Self {
        let mut model = Self::begin(reading, policy);
        let is_same_boot =
            !boot.is_empty() && record.boot == boot && record.elapsed <= reading.elapsed;
        let downtime = reading.wall.since(record.accepted);
        if is_same_boot {
            model.elapsed_us = micros(record.elapsed);
            model.accepted_us = record.accepted.as_micros();
        } else if reading.wall < record.accepted || downtime > policy.start_jump_max {
            model.accepted_us = record.accepted.as_micros();
        }
        model.observe(reading);
        model
    }

    /// Accepted time at this reading. It never goes back.
    pub(crate) fn observe(&mut self, reading: ClockReading) -> Timestamp {
        let elapsed_us = micros(reading.elapsed).max(self.elapsed_us);
        let passed_us = elapsed_us - self.elapsed_us;
        self.elapsed_us = elapsed_us;
        self.recover_allowance(passed_us);
        let expected_us = self.accepted_us.saturating_add(passed_us);
        let gap_us = reading.wall.as_micros().saturating_sub(expected_us);
        self.accepted_us = if gap_us > self.allowance_us || gap_us < -self.jump_max_us {
            self.state = ClockState::Held;
            expected_us
        } else {
            self.state = ClockState::Following;
            if gap_us >= 0 {
                self.allowance_us -= gap_us;
                expected_us + gap_us
            } else {
                let owed_us = passed_us + self.slew_remainder_us;
                self.slew_remainder_us = owed_us % SLEW_DIVISOR;
                expected_us - (owed_us / SLEW_DIVISOR).min(-gap_us).min(passed_us)
            }
        };
        self.offset_us = reading.wall.as_micros().saturating_sub(self.accepted_us);
        Timestamp::from_micros(self.accepted_us)
    }

    fn recover_allowance(&mut self, passed_us: i64) {
        let scaled =
            i128::from(self.jump_max_us) * i128::from(passed_us) + self.allowance_remainder;
        self.allowance_remainder = scaled % i128::from(ALLOWANCE_PERIOD_US);
        let recovered = scaled / i128::from(ALLOWANCE_PERIOD_US);
        let recovered = i64::try_from(recovered).unwrap_or(i64::MAX);
        self.allowance_us = self.allowance_us.saturating_add(recovered).min(self.jump_max_us);
    }

    /// Accepts the wall clock, wherever it is: the one way in which accepted time goes back.
    /// Returns by how many microseconds accepted time has moved.
    pub(crate) fn release(&mut self, reading: ClockReading) -> i64 {
        let before_us = self.observe(reading).as_micros();
        self.accepted_us = reading.wall.as_micros();
        self.allowance_us = self.jump_max_us;
        self.offset_us = 0;
        self.state = ClockState::Following;
        self.accepted_us.saturating_sub(before_us)
    }

    /// How accepted time follows the wall clock.
    pub(crate) fn state(&self) -> ClockState {
        self.state
    }

    /// By how many microseconds the wall clock was ahead of accepted time at the last reading.
    pub(crate) fn offset_us(&self) -> i64 {
        self.offset_us
    }

    /// State from which a later run continues.
    pub(crate) fn record(&self, boot: &str) -> ClockRecord {
        ClockRecord {
            accepted: Timestamp::from_micros(self.accepted_us),
            elapsed: Duration::from_micros(self.elapsed_us.unsigned_abs()),
            boot: boot.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
