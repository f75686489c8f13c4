//! Whether a rate has settled: a straight line through the last windows of the warm-up.

use std::collections::VecDeque;
use std::time::Duration;

/// How long one window of the warm-up is.
pub const WINDOW: Duration = Duration::from_millis(500);

/// How many windows the line goes through: three seconds.
const WINDOWS: usize = 6;

/// A rate that changes by less than this share per second is steady.
const SLOPE_MAX: f64 = 0.02;

/// A slope within this many standard errors of zero is noise…
const STANDARD_ERRORS: f64 = 2.0;

/// …unless the noise is so strong that it would hide a change of this share per second.
const NOISE_MAX: f64 = 0.10;

/// Watches a rate.
#[derive(Debug, Default)]
pub struct Detector {
    rates: VecDeque<f64>,
}

/// A line through rates: its slope and the slope's standard error, both as share of the mean rate
/// per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The slope.
    pub relative: f64,
    /// How uncertain it is.
    pub standard_error: f64,
}

impl Detector {
    /// Takes the operations completed in one more [`WINDOW`] and says whether the rate is steady.
    pub fn push(&mut self, completed: u64) -> bool {
        if self.rates.len() == WINDOWS {
            self.rates.pop_front();
        }
        self.rates
            .push_back(completed as f64 / WINDOW.as_secs_f64());
        self.slope().is_some_and(|slope| {
            let quiet = slope.standard_error <= NOISE_MAX
                && slope.relative.abs() <= STANDARD_ERRORS * slope.standard_error;
            slope.relative.abs() <= SLOPE_MAX || quiet
        })
    }

    /// The line through the last windows, once there are enough of them and something happened.
    pub fn slope(&self) -> Option<Slope> {
        if self.rates.len() < WINDOWS {
            return None;
        }
        line(self.rates.iter().copied(), WINDOW.as_secs_f64())
    }
}

/// Ordinary least squares over equally spaced values; `None` when their mean is zero.
fn line(values: impl ExactSizeIterator<Item = f64> + Clone, spacing_s: f64) -> Option<Slope> {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    if mean <= 0.0 {
        return None;
    }
    let middle = (count - 1.0) / 2.0;
    let offset = |index: usize| (index as f64 - middle) * spacing_s;
    let of_time: f64 = (0..values.len()).map(|index| offset(index).powi(2)).sum();
    let of_both: f64 = values
        .clone()
        .enumerate()
        .map(|(index, value)| offset(index) * (value - mean))
        .sum();
    let slope = of_both / of_time;
    let left: f64 = values
        .enumerate()
        .map(|(index, value)| (value - mean - slope * offset(index)).powi(2))
        .sum();
    let standard_error = (left / (count - 2.0) / of_time).sqrt();
    Some(Slope {
        relative: slope / mean,
        standard_error: standard_error / mean,
    })
}

#[cfg(test)]
mod tests;
