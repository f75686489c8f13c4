//! Arrival times, fixed before the load begins: what the server does cannot change when the next
//! operation is due.

use std::time::Duration;

use rand::SeedableRng;
use rand::distr::Distribution;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::Exp;

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// One every 1/rate seconds.
    Constant,
    /// Independent: the gaps are exponential with mean 1/rate.
    Poisson,
}

/// The arrivals of one window, ascending, each counted from the window's begin. They are drawn one
/// by one, so that a long window takes no memory.
///
/// The same seed makes the same schedule on every machine.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalSchedule {
    rate: f64,
    end_s: f64,
    kind: ScheduleKind,
}

#[derive(Clone, Debug)]
enum ScheduleKind {
    Constant { index: u64 },
    Poisson { at_s: f64, gap: Exp<f64>, random: Xoshiro256PlusPlus },
}

/// The arrivals of a window of this length.
///
/// # Panics
/// When `rate` (operations per second) is not positive.
pub(crate) fn arrival_schedule(
    spacing: Spacing,
    rate: f64,
    window: Duration,
    seed: u64,
) -> ArrivalSchedule {
    assert!(rate > 0.0, "a rate is positive");
    let kind = match spacing {
        Spacing::Constant => ScheduleKind::Constant { index: 0 },
        Spacing::Poisson => ScheduleKind::Poisson {
            at_s: 0.0,
            gap: Exp::new(rate).expect("a positive rate is a valid one"),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        },
    };
    ArrivalSchedule { rate, end_s: window.as_secs_f64(), kind }
}

impl Iterator for ArrivalSchedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let at_s = match &mut self.kind {
            // Multiplied, not summed: rounding errors must not add up over a million arrivals.
            ScheduleKind::Constant { index } => {
                let at_s = *index as f64 / self.rate;
                *index += 1;
                at_s
            }
            ScheduleKind::Poisson { at_s, gap, random } => {
                *at_s += gap.sample(random);
                *at_s
            }
        };
        (at_s < self.end_s).then(|| Duration::from_secs_f64(at_s))
    }
}

/// The source of random values for one operation: by its index, so that an operation does the same
/// whichever worker takes it.
pub(crate) fn seeded_random(seed: u64, index: u64) -> Xoshiro256PlusPlus {
    // Seeding scrambles with SplitMix64, so neighbouring indexes give unrelated streams.
    Xoshiro256PlusPlus::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests;
