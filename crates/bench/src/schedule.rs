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

/// The arrivals of one window, ascending, each counted from the window's begin.
///
/// The same seed makes the same schedule on every machine.
///
/// # Panics
/// When `rate` (operations per second) is not positive.
pub fn arrivals(spacing: Spacing, rate: f64, window: Duration, seed: u64) -> Vec<Duration> {
    assert!(rate > 0.0, "a rate is positive");
    let end = window.as_secs_f64();
    match spacing {
        // Multiplied, not summed: rounding errors must not add up over a million arrivals.
        Spacing::Constant => (0u64..)
            .map(|index| index as f64 / rate)
            .take_while(|at| *at < end)
            .map(Duration::from_secs_f64)
            .collect(),
        Spacing::Poisson => {
            let gap = Exp::new(rate).expect("a positive rate is a valid one");
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut at = 0.0;
            std::iter::from_fn(|| {
                at += gap.sample(&mut random);
                (at < end).then(|| Duration::from_secs_f64(at))
            })
            .collect()
        }
    }
}

/// The source of random values for one operation: by its index, so that an operation does the same
/// whichever worker takes it.
pub fn random(seed: u64, index: u64) -> Xoshiro256PlusPlus {
    // Seeding scrambles with SplitMix64, so neighbouring indexes give unrelated streams.
    Xoshiro256PlusPlus::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests;
