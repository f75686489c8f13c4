//! Functions of the samples in a window, as PromQL defines them:
//! <https://prometheus.io/docs/prometheus/latest/querying/functions/>.

use super::expression::WindowFunction;

/// A sample: when, in milliseconds, and what.
pub(super) type Point = (i64, f64);

/// From when to when samples were looked for, in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

impl WindowFunction {
    /// What it makes of the points of a window; `None` where they are too few.
    pub(super) fn evaluate(
        self,
        parameter: Option<f64>,
        span: Span,
        points: &[Point],
    ) -> Option<f64> {
        let (first, last) = (points.first()?, points.last()?);
        let values = || points.iter().map(|point| point.1);
        let count = points.len() as f64;
        let pairs = || points.windows(2).map(|two| (two[0].1, two[1].1));
        let count_pairs =
            |test: fn((f64, f64)) -> bool| Some(pairs().filter(|pair| test(*pair)).count() as f64);
        match self {
            Self::Avg => Some(values().sum::<f64>() / count),
            Self::Min => values().reduce(f64::min),
            Self::Max => values().reduce(f64::max),
            Self::Sum => Some(values().sum()),
            Self::Count => Some(count),
            Self::Last => Some(last.1),
            Self::Stddev => Some(standard_deviation(&values().collect::<Vec<_>>())),
            Self::Quantile => Some(quantile(parameter.unwrap_or(0.5), values().collect())),
            Self::Resets => count_pairs(|(previous, next)| next < previous),
            Self::Changes => count_pairs(|(one, next)| next != one),
            _ if points.len() < 2 => None,
            Self::Rate | Self::Increase => {
                let reset_sum: f64 =
                    pairs().map(|(one, next)| if next < one { one } else { 0.0 }).sum();
                let increase = last.1 - first.1 + reset_sum;
                let extrapolated = increase * extrapolation(span, points, Some(increase));
                let seconds = (span.to_ms - span.from_ms) as f64 / 1_000.0;
                Some(if self == Self::Rate { extrapolated / seconds } else { extrapolated })
            }
            Self::Delta => Some((last.1 - first.1) * extrapolation(span, points, None)),
            Self::Irate | Self::Idelta => {
                let (before, last) = (points[points.len() - 2], last);
                let seconds = (last.0 - before.0) as f64 / 1_000.0;
                match self {
                    Self::Idelta => Some(last.1 - before.1),
                    _ if last.1 < before.1 => Some(last.1 / seconds),
                    _ => Some((last.1 - before.1) / seconds),
                }
            }
            Self::Deriv => Some(slope(points)),
        }
    }
}

/// By how much more a window sees than lies between its first and its last point: they are taken to
/// go on to its ends, where those are near; a counter (that has gained so much) not below zero.
fn extrapolation(span: Span, points: &[Point], increase: Option<f64>) -> f64 {
    let (first, last) = (points[0], points[points.len() - 1]);
    let seconds = |ms: i64| ms as f64 / 1_000.0;
    let sampled_seconds = seconds(last.0 - first.0);
    let average_interval = sampled_seconds / (points.len() - 1) as f64;
    let extend_towards = |distance: f64| {
        if distance >= average_interval * 1.1 { average_interval / 2.0 } else { distance }
    };
    let mut start_extension = extend_towards(seconds(first.0 - span.from_ms));
    if let Some(gained) = increase
        && gained > 0.0
        && first.1 >= 0.0
    {
        start_extension = start_extension.min(sampled_seconds * (first.1 / gained));
    }
    (sampled_seconds + start_extension + extend_towards(seconds(span.to_ms - last.0)))
        / sampled_seconds
}

/// Of a straight line through points, per second.
fn slope(points: &[Point]) -> f64 {
    let count = points.len() as f64;
    // Counted from the first, or squares of times would take all digits.
    let seconds = |point: &Point| (point.0 - points[0].0) as f64 / 1_000.0;
    let mean_time = points.iter().map(seconds).sum::<f64>() / count;
    let mean_value = points.iter().map(|point| point.1).sum::<f64>() / count;
    let covariance: f64 =
        points.iter().map(|point| (seconds(point) - mean_time) * (point.1 - mean_value)).sum();
    let time_variance: f64 = points.iter().map(|point| (seconds(point) - mean_time).powi(2)).sum();
    covariance / time_variance
}

/// The standard deviation of all values there are.
pub(super) fn standard_deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / count).sqrt()
}

/// A quantile between the two values next to it.
pub(super) fn quantile(quantile: f64, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = quantile * (values.len() - 1) as f64;
    let lower = rank.floor() as usize;
    let upper = (lower + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}

/// A quantile of a classic histogram: upper bounds and how much is not above them.
pub(super) fn quantile_of_buckets(quantile: f64, mut buckets: Vec<(f64, f64)>) -> f64 {
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let Some((_, total)) = buckets.last().copied().filter(|_| buckets.len() >= 2) else {
        return f64::NAN;
    };
    if total == 0.0 {
        return f64::NAN;
    }
    let mut cumulative = 0.0_f64;
    for (_, count) in &mut buckets {
        cumulative = cumulative.max(*count);
        *count = cumulative;
    }
    let rank = quantile * cumulative;
    let finite_count = buckets.len() - 1;
    let index = buckets[..finite_count].iter().position(|(_, count)| *count >= rank);
    let Some(place) = index else {
        return buckets[finite_count - 1].0;
    };
    let (low, count_below) = match place {
        0 => (0.0, 0.0),
        place => buckets[place - 1],
    };
    let (high, count_at_bound) = buckets[place];
    low + (high - low) * ((rank - count_below) / (count_at_bound - count_below))
}

#[cfg(test)]
mod tests;
