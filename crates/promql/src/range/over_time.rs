//! What the samples of a window come to: sum, mean, extremes, counts.

use egret_metrics_model::TimeMs;

use super::super::annotations::{self, Annotations};
use super::super::kahan::{self, KahanSum};
use super::window::{Outcome, RangeWindow};
use crate::histogram::{FloatHistogram, HistogramConflicts, Incompatible, ResetConflict, Total};
use crate::row::Point;

pub(super) fn lookup(name: &str) -> Option<fn(&RangeWindow<'_>, &mut Annotations) -> Outcome> {
    Some(match name {
        "sum_over_time" => sum,
        "avg_over_time" => average,
        "count_over_time" => {
            |window, _| float_point((window.values.len() + window.histograms.len()) as f64)
        }
        "present_over_time" | "absent_over_time" => |_, _| float_point(1.0),
        "min_over_time" => |window, notes| find_extreme(window, notes, |now, best| now < best),
        "max_over_time" => |window, notes| find_extreme(window, notes, |now, best| now > best),
        "ts_of_min_over_time" => {
            |window, notes| find_extreme_time(window, notes, |now, best| now <= best)
        }
        "ts_of_max_over_time" => {
            |window, notes| find_extreme_time(window, notes, |now, best| now >= best)
        }
        "last_over_time" => |window, _| Ok(last_point(window).map(|(_, point)| point)),
        "first_over_time" => |window, _| Ok(first_point(window).map(|(_, point)| point)),
        "ts_of_last_over_time" => |window, _| time_point(last_point(window)),
        "ts_of_first_over_time" => |window, _| time_point(first_point(window)),
        "stdvar_over_time" => |window, notes| variance(window, notes, |variance| variance),
        "stddev_over_time" => |window, notes| variance(window, notes, f64::sqrt),
        "quantile_over_time" => quantile,
        "mad_over_time" => median_deviation,
        _ => return None,
    })
}

fn float_point(value: f64) -> Outcome {
    Ok(Some(Point::Float(value)))
}

fn time_point(found: Option<(TimeMs, Point)>) -> Outcome {
    Ok(found.map(|(time, _)| Point::Float(time as f64 / 1000.0)))
}

/// Adds up histograms, for their sum or for their mean; nothing, and a warning, where their bounds
/// are of two kinds.
fn total_histograms(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    add: fn(&mut Total, &FloatHistogram) -> Result<HistogramConflicts, Incompatible>,
) -> Option<Total> {
    let (first, rest) = window.histograms.split_first()?;
    let mut total = Total::from_histogram(first);
    let mut reset_conflict = ResetConflict::default();
    reset_conflict.add(first.counter_reset);
    for histogram in rest {
        reset_conflict.add(histogram.counter_reset);
        match add(&mut total, histogram) {
            Ok(conflicts) => {
                if conflicts.bounds {
                    let text = annotations::bounds_reconciled("aggregation");
                    notes.info(window.series.position, text);
                }
            }
            Err(_) => {
                notes
                    .warn(window.series.position, annotations::mixed_schemas(window.series.metric));
                return None;
            }
        }
    }
    if reset_conflict.is_contradictory() {
        let text = annotations::reset_collision("aggregation");
        notes.warn(window.series.position, text);
    }
    Some(total)
}

fn sum(window: &RangeWindow<'_>, notes: &mut Annotations) -> Outcome {
    if window.is_mixed(notes) {
        return Ok(None);
    }
    if window.values.is_empty() {
        let total = total_histograms(window, notes, Total::add);
        return Ok(total.map(|total| Point::Histogram(total.sum().into())));
    }
    float_point(KahanSum::from_values(window.values).value())
}

fn average(window: &RangeWindow<'_>, notes: &mut Annotations) -> Outcome {
    if window.is_mixed(notes) {
        return Ok(None);
    }
    if window.values.is_empty() {
        let total = total_histograms(window, notes, Total::add_to_mean);
        return Ok(total.map(|total| Point::Histogram(total.mean().into())));
    }
    float_point(kahan::mean(window.values))
}

fn find_extreme(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_better: fn(f64, f64) -> bool,
) -> Outcome {
    Ok(window.floats(notes).map(|values| {
        let take = |best: f64, now: &f64| {
            if is_better(*now, best) || best.is_nan() { *now } else { best }
        };
        Point::Float(values.iter().fold(values[0], take))
    }))
}

fn find_extreme_time(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_better: fn(f64, f64) -> bool,
) -> Outcome {
    let Some(values) = window.floats(notes) else {
        return Ok(None);
    };
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if is_better(*value, values[best]) || values[best].is_nan() {
            best = index;
        }
    }
    float_point(window.times[best] as f64 / 1000.0)
}

fn last_point(window: &RangeWindow<'_>) -> Option<(TimeMs, Point)> {
    let float = window.times.last().zip(window.values.last());
    let histogram = window.histogram_times.last().zip(window.histograms.last());
    match (float, histogram) {
        (Some((time, value)), other) if other.is_none_or(|(later, _)| later < time) => {
            Some((*time, Point::Float(*value)))
        }
        (_, other) => other.map(|(time, histogram)| (*time, Point::Histogram(histogram.clone()))),
    }
}

fn first_point(window: &RangeWindow<'_>) -> Option<(TimeMs, Point)> {
    let float = window.times.first().zip(window.values.first());
    let histogram = window.histogram_times.first().zip(window.histograms.first());
    match (float, histogram) {
        (Some((time, value)), other) if other.is_none_or(|(later, _)| later > time) => {
            Some((*time, Point::Float(*value)))
        }
        (_, other) => other.map(|(time, histogram)| (*time, Point::Histogram(histogram.clone()))),
    }
}

fn variance(window: &RangeWindow<'_>, notes: &mut Annotations, finish: fn(f64) -> f64) -> Outcome {
    match window.floats(notes) {
        Some(values) => float_point(finish(compute_variance(values))),
        None => Ok(None),
    }
}

/// The mean of the squared differences from the mean. What rounding the mean has left is taken out
/// afterwards; values that are all the same have no variance at all.
pub(super) fn compute_variance(values: &[f64]) -> f64 {
    let (first, count) = (values[0], values.len() as f64);
    let [from_first] = KahanSum::from_items(values, |value| [value - first]);
    let mean = first + from_first.value() / count;
    let [differences, squares] = KahanSum::from_items(values, |value| {
        let difference = value - mean;
        [difference, difference * difference]
    });
    let rest = differences.value();
    let variance = (squares.value() - rest * rest / count) / count;
    if !variance.is_finite() {
        return kahan::running_variance(values);
    }
    if variance < 0.0 { 0.0 } else { variance }
}

fn quantile(window: &RangeWindow<'_>, notes: &mut Annotations) -> Outcome {
    let q = window.arguments[0];
    let Some(values) = window.floats(notes) else {
        return Ok(None);
    };
    if !(0.0..=1.0).contains(&q) {
        notes.warn(window.series.position, annotations::invalid_quantile(q));
    }
    float_point(compute_quantile(q, &mut values.to_vec()))
}

fn median_deviation(window: &RangeWindow<'_>, notes: &mut Annotations) -> Outcome {
    let Some(values) = window.floats(notes) else {
        return Ok(None);
    };
    // There is no median of what has no order.
    if values.iter().any(|value| value.is_nan()) {
        return float_point(f64::NAN);
    }
    let median = compute_quantile(0.5, &mut values.to_vec());
    let mut deviations: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    float_point(compute_quantile(0.5, &mut deviations))
}

/// The value below which a share of the values lies, interpolated between two of them. NaN is below
/// all others. The values are put in another order.
pub(crate) fn compute_quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let mut nan_count = 0;
    for index in 0..values.len() {
        if values[index].is_nan() {
            values.swap(nan_count, index);
            nan_count += 1;
        }
    }
    let rank = q * (values.len() - 1) as f64;
    let lower = rank.floor() as usize;
    let weight = rank - rank.floor();
    let last = values.len() - 1;
    let (below, above) = if lower < nan_count {
        let numbers = values[nan_count..].iter().copied();
        let next = if lower + 1 < nan_count || nan_count > last {
            f64::NAN
        } else {
            numbers.fold(f64::INFINITY, f64::min)
        };
        (f64::NAN, next)
    } else {
        let numbers = &mut values[nan_count..];
        let (_, below, rest) = numbers.select_nth_unstable_by(lower - nan_count, f64::total_cmp);
        let above = rest.iter().copied().min_by(f64::total_cmp);
        (*below, above.unwrap_or(*below))
    };
    below * (1.0 - weight) + above * weight
}
