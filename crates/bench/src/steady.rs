//! Whether a load has settled: a straight line through the last windows of the warm-up.
//!
//! What is watched is what the server decides: in a closed loop the rate, in an open loop, whose
//! rate is the schedule's, the latency. It has settled when the data show that it changes by
//! little. That they do not show a change is not enough: noise would hide one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long one window of the warm-up is.
pub(crate) const WARMUP_WINDOW: Duration = Duration::from_millis(500);

/// The line goes through at least so many windows: three seconds.
const WINDOWS_MIN: usize = 6;

/// …and through at most so many: half a minute.
const WINDOWS_MAX: usize = 60;

/// A rate that certainly changes by less than this share per second is steady.
pub(crate) const RATE_SLOPE_MAX: f64 = 0.02;

/// The same of a latency, which scatters more.
pub(crate) const LATENCY_SLOPE_MAX: f64 = 0.05;

/// Certainly: with so many standard errors added to the slope.
const STANDARD_ERRORS: f64 = 2.0;

/// Watches a quantity, one value per [`WARMUP_WINDOW`].
#[derive(Debug)]
pub(crate) struct Detector {
    slope_max: f64,
    points: VecDeque<(f64, f64)>,
}

/// A line through values: its slope and the slope's standard error, both as share of the mean per
/// second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    /// The slope itself, as share of the mean per second.
    pub relative: f64,
    /// Standard error of the slope.
    pub standard_error: f64,
}

impl Slope {
    /// The largest change per second that the values leave possible.
    fn largest_possible(&self) -> f64 {
        self.relative.abs() + STANDARD_ERRORS * self.standard_error
    }
}

impl Detector {
    /// What changes by less than `slope_max`, a share per second, will be steady.
    pub(crate) fn new(slope_max: f64) -> Self {
        Self { slope_max, points: VecDeque::new() }
    }

    /// Takes the value of the window that ended at `ended_at` and says whether it is steady.
    ///
    /// The line may begin at any earlier window: the more noise, the longer it must be, and what
    /// was before the load settled does not count.
    pub(crate) fn push(&mut self, ended_at: Duration, value: f64) -> bool {
        if self.points.len() == WINDOWS_MAX {
            self.points.pop_front();
        }
        self.points.push_back((ended_at.as_secs_f64(), value));
        self.slope().is_some_and(|slope| slope.largest_possible() <= self.slope_max)
    }

    /// The line that leaves the smallest change possible, once there are enough windows and
    /// something happened in them.
    pub(crate) fn slope(&self) -> Option<Slope> {
        let longest = self.points.len();
        (WINDOWS_MIN..=longest)
            .filter_map(|length| fit_line(self.points.range(longest - length..).copied()))
            .min_by(|one, other| one.largest_possible().total_cmp(&other.largest_possible()))
    }
}

/// Ordinary least squares; `None` when the mean of the values is zero.
fn fit_line(points: impl ExactSizeIterator<Item = (f64, f64)> + Clone) -> Option<Slope> {
    let count = points.len() as f64;
    let mean_value = points.clone().map(|(_, value)| value).sum::<f64>() / count;
    let mean_time = points.clone().map(|(at, _)| at).sum::<f64>() / count;
    if mean_value <= 0.0 {
        return None;
    }
    let time_variance: f64 = points.clone().map(|(at, _)| (at - mean_time).powi(2)).sum();
    let covariance: f64 =
        points.clone().map(|(at, value)| (at - mean_time) * (value - mean_value)).sum();
    let slope = covariance / time_variance;
    let residual: f64 =
        points.map(|(at, value)| (value - mean_value - slope * (at - mean_time)).powi(2)).sum();
    let standard_error = (residual / (count - 2.0) / time_variance).sqrt();
    Some(Slope { relative: slope / mean_value, standard_error: standard_error / mean_value })
}

/// What the workers tell while they run: how many operations ended, and how long they took.
#[derive(Debug, Default)]
pub(crate) struct RateCounter {
    ended_count: AtomicU64,
    /// Sum of the logarithms of the latencies, in units of [`LOG_UNIT`] microseconds.
    log_latency_sum: AtomicU64,
}

/// One part in ten thousand of a latency.
const LOG_UNIT: f64 = 1e-4;

/// A sample of the counts of a [`RateCounter`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RateSample {
    ended_count: u64,
    log_latency_sum: u64,
}

impl RateCounter {
    /// An operation ended, this long after its intended start.
    pub(crate) fn add(&self, latency: Duration) {
        let micros = (latency.as_secs_f64() * 1e6).max(1.0);
        self.ended_count.fetch_add(1, Ordering::Relaxed);
        self.log_latency_sum.fetch_add((micros.ln() / LOG_UNIT).round() as u64, Ordering::Relaxed);
    }

    /// Counts up to now. The two need not belong together to the last operation.
    pub(crate) fn read(&self) -> RateSample {
        RateSample {
            ended_count: self.ended_count.load(Ordering::Relaxed),
            log_latency_sum: self.log_latency_sum.load(Ordering::Relaxed),
        }
    }
}

impl RateSample {
    /// Number of operations that ended since `before`.
    pub(crate) fn ended_since(&self, before: &Self) -> u64 {
        self.ended_count - before.ended_count
    }

    /// The geometric mean of their latencies in microseconds, which a single slow one hardly moves;
    /// `None` when none ended.
    pub(crate) fn latency_since(&self, before: &Self) -> Option<f64> {
        let ended = self.ended_since(before);
        let logarithms =
            self.log_latency_sum.saturating_sub(before.log_latency_sum) as f64 * LOG_UNIT;
        (ended > 0).then(|| (logarithms / ended as f64).exp())
    }
}

#[cfg(test)]
mod tests;
