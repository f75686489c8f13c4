//! Value of a series at a step: a pure function, so that any answer of a server can be computed
//! without having kept a sample.
//!
//! Counters rise by varying increments and some begin anew, as those of pods that restart do.
//! Gauges sway with a few periods and some noise. All values have few digits, as measured ones do.

/// Values of a series at each step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Sum of a flow since the last reset.
    Counter { counter: CounterShape, resets: ResetSchedule, per_unit: f64 },
    /// Shares of two flows, since the last begin: one bucket of a histogram, its count or its sum.
    /// Buckets of one histogram have the same flows and differ in the shares, so none is ever above
    /// the next one.
    Mixture { counters: [CounterShape; 2], shares: [f64; 2], resets: ResetSchedule, per_unit: f64 },
    /// Sways about a level.
    Gauge {
        level: f64,
        waves: [PeriodicShape; 2],
        noise: f64,
        /// Noise changes every 2^hold steps.
        hold_bits: u32,
        salt: u64,
        per_unit: f64,
    },
    /// One where a pod is in this phase, else zero.
    Phase { salt: u64, phase: u32 },
}

/// Something that is counted: never less in a later step.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterShape {
    /// On average, each step.
    pub(super) rate: f64,
    wave: PeriodicShape,
    jitter: f64,
    salt: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PeriodicShape {
    amplitude: f64,
    per_step: f64,
    phase: f64,
}

/// Schedule of a counter's resets.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResetSchedule {
    /// Steps of a life less one; 0 for one that never ends.
    mask: u64,
    shift: u64,
}

/// A pod's phase changes at most every so many steps, as a power of two.
const PHASE_HOLD_BITS: u32 = 5;

/// One in so many times a pod is pending, one in so many it has failed.
const PHASE_RARITY: u64 = 64;

/// Largest share of its rate by which a flow swings, and by which it jitters: together less than
/// one, so that it never flows back.
const SWING_SHARE: f64 = 0.5;
const JITTER_SHARE: f64 = 0.4;

impl Shape {
    /// The value at a step.
    pub(super) fn value_at(&self, step: u64) -> f64 {
        match self {
            Self::Counter { counter, resets, per_unit } => {
                truncate_to_unit(counter.increase_since(resets.last_reset(step), step), *per_unit)
            }
            Self::Mixture { counters: [first, second], shares, resets: life, per_unit } => {
                let reset_step = life.last_reset(step);
                let sum = shares[0] * first.increase_since(reset_step, step)
                    + shares[1] * second.increase_since(reset_step, step);
                truncate_to_unit(sum, *per_unit)
            }
            Self::Gauge { level, waves: [one, other], noise, hold_bits, salt, per_unit } => {
                let noise = noise * unit_fraction(mix(*salt, step >> hold_bits));
                truncate_to_unit(
                    level + one.value_at(step) + other.value_at(step) + noise,
                    *per_unit,
                )
            }
            Self::Phase { salt, phase } => {
                let current_phase = match mix(*salt, step >> PHASE_HOLD_BITS) % PHASE_RARITY {
                    0 => 1,
                    1 => 2,
                    _ => 0,
                };
                f64::from(u8::from(current_phase == *phase))
            }
        }
    }
}

impl CounterShape {
    /// A flow of this rate whose course is its own.
    pub(super) fn new(rate: f64, salt: u64) -> Self {
        // From a quarter of an hour to a day.
        let period = 60.0 * 96.0_f64.powf(unit_fraction(mix(salt, 1)));
        Self {
            rate,
            wave: PeriodicShape {
                // The steepest part of the wave rises by 8 a period.
                amplitude: SWING_SHARE * period / 8.0,
                per_step: 1.0 / period,
                phase: unit_fraction(mix(salt, 2)),
            },
            jitter: JITTER_SHARE,
            salt: mix(salt, 3),
        }
    }

    fn smooth_value(&self, step: u64) -> f64 {
        step as f64 + self.wave.value_at(step)
    }

    fn increase_since(&self, begin: u64, step: u64) -> f64 {
        let jitter = self.jitter * unit_fraction(mix(self.salt, step));
        self.rate * (self.smooth_value(step) - self.smooth_value(begin) + jitter)
    }
}

impl PeriodicShape {
    /// A swing of this many steps.
    pub(super) fn new(amplitude: f64, period: f64, salt: u64) -> Self {
        Self { amplitude, per_step: 1.0 / period, phase: unit_fraction(salt) }
    }

    /// Two parabolas that look like a sine and cost less.
    fn value_at(&self, step: u64) -> f64 {
        let periods = step as f64 * self.per_step + self.phase;
        let position = 2.0 * (periods - (periods as u64) as f64) - 1.0;
        self.amplitude * 4.0 * position * (1.0 - position.abs())
    }
}

impl ResetSchedule {
    /// One that never ends.
    pub(super) const ENDLESS: Self = Self { mask: 0, shift: 0 };

    /// Lives of 2^`bits` steps, of which the first may be shorter.
    pub(super) fn from_bits(bits: u32, salt: u64) -> Self {
        let mask = (1 << bits) - 1;
        Self { mask, shift: salt & mask }
    }

    fn last_reset(&self, step: u64) -> u64 {
        match self.mask {
            0 => 0,
            mask => ((step + self.shift) & !mask).saturating_sub(self.shift),
        }
    }
}

/// Cut off to whole parts of which `per_unit` make one.
fn truncate_to_unit(value: f64, per_unit: f64) -> f64 {
    ((value * per_unit) as i64) as f64 / per_unit
}

/// Mixes two numbers into one that looks random: the finalizer of splitmix64.
pub(super) fn mix(seed: u64, number: u64) -> u64 {
    let mut mixed = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number from 0 to less than 1.
pub(super) fn unit_fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
