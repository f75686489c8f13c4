//! Lines through the samples of a window.

use egret_metrics_model::TimeMs;

use super::super::annotations::{self, Annotations};
use super::super::error::QueryError;
use super::super::kahan::KahanSum;
use super::super::row::Point;
use super::window::{Outcome, RangeWindow};

pub(super) fn lookup(name: &str) -> Option<fn(&RangeWindow<'_>, &mut Annotations) -> Outcome> {
    Some(match name {
        "deriv" => |window, notes| {
            Ok(require_two_numbers(window, notes)
                .map(|()| Point::Float(fit_line(window, window.times[0]).0)))
        },
        "predict_linear" => |window, notes| {
            Ok(require_two_numbers(window, notes).map(|()| {
                let (slope, intercept) = fit_line(window, window.step_time);
                Point::Float(slope * window.arguments[0] + intercept)
            }))
        },
        "double_exponential_smoothing" | "holt_winters" => smooth_exponentially,
        _ => return None,
    })
}

/// Whether there are two numbers at least; says when histograms are left out.
fn require_two_numbers(window: &RangeWindow<'_>, notes: &mut Annotations) -> Option<()> {
    if !window.histograms.is_empty() && !window.values.is_empty() {
        let text = annotations::histograms_ignored_in_mixed_range(window.series.metric);
        notes.info(window.series.position, text);
    }
    (window.values.len() >= 2).then_some(())
}

/// Slope and value at a time of the line that fits best.
fn fit_line(window: &RangeWindow<'_>, origin: TimeMs) -> (f64, f64) {
    let first = window.values[0];
    if window.values.iter().all(|value| *value == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let count = window.values.len() as f64;
    let mut sums = [KahanSum::EMPTY; 4];
    for (time, y) in window.times.iter().zip(window.values) {
        let x = (time - origin) as f64 / 1e3;
        for (sum, value) in sums.iter_mut().zip([x, *y, x * y, x * x]) {
            *sum = sum.plus(value);
        }
    }
    let [sum_x, sum_y, sum_xy, sum_xx] = sums;
    let (sum_x, sum_y) = (sum_x.value(), sum_y.value());
    let (sum_xy, sum_xx) = (sum_xy.value(), sum_xx.value());
    let covariance = sum_xy - sum_x * sum_y / count;
    let variance = sum_xx - sum_x * sum_x / count;
    let slope = covariance / variance;
    (slope, sum_y / count - slope * sum_x / count)
}

/// Holt's double exponential smoothing.
fn smooth_exponentially(window: &RangeWindow<'_>, notes: &mut Annotations) -> Outcome {
    let [smoothing, trending] = window.arguments;
    let factor_error = |what: &str, short: &str, got: f64| {
        QueryError::execution(format!(
            "invalid {what} factor. Expected: 0 < {short} < 1, got: {got:.6}"
        ))
    };
    let is_share = |factor: f64| factor > 0.0 && factor < 1.0;
    if !is_share(smoothing) {
        return Err(factor_error("smoothing", "sf", smoothing));
    }
    if !is_share(trending) {
        return Err(factor_error("trend", "tf", trending));
    }
    if require_two_numbers(window, notes).is_none() {
        return Ok(None);
    }
    let values = window.values;
    let (mut previous_level, mut level, mut trend) = (0.0, values[0], values[1] - values[0]);
    for (index, value) in values.iter().enumerate().skip(1) {
        if index > 1 {
            trend = trending * (level - previous_level) + (1.0 - trending) * trend;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + trend);
        (previous_level, level) = (level, next);
    }
    Ok(Some(Point::Float(level)))
}
