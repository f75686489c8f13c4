//! How fast values change: counters that may begin anew, gauges, and both as native histograms.

use std::sync::Arc;

use super::super::annotations::{self, Notes};
use super::super::histogram::{FloatHistogram, is_same};
use super::super::row::Point;
use super::{Outcome, Window};
use crate::model::{CounterReset, TimeMs};

pub(super) fn lookup(name: &str) -> Option<fn(&Window<'_>, &mut Notes) -> Outcome> {
    Some(match name {
        "rate" => |window, notes| Ok(extrapolated(window, notes, Change::Rate)),
        "increase" => |window, notes| Ok(extrapolated(window, notes, Change::Increase)),
        "delta" => |window, notes| Ok(extrapolated(window, notes, Change::Delta)),
        "irate" => |window, notes| Ok(instant(window, notes, true)),
        "idelta" => |window, notes| Ok(instant(window, notes, false)),
        "changes" => |window, _| Ok(Some(Point::Float(changes(window)))),
        "resets" => |window, _| Ok(Some(Point::Float(resets(window)))),
        _ => return None,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Rate,
    Increase,
    Delta,
}

/// The difference between the window's ends: of the samples in it, extended to its bounds where they are near.
fn extrapolated(window: &Window<'_>, notes: &mut Notes, change: Change) -> Option<Point> {
    if window.is_mixed(notes) {
        return None;
    }
    let is_counter = change != Change::Delta;
    let (times, mut difference, first) = if window.histograms.len() > 1 {
        let difference = histogram_difference(window, notes, is_counter)?;
        let count = difference.count;
        let first = window.histograms[0].count;
        let difference = Point::Histogram(Arc::new(difference));
        (window.histogram_times, difference, (count, first))
    } else if window.values.len() > 1 {
        let first = window.values[0];
        let mut difference = window.values[window.values.len() - 1] - first;
        if is_counter {
            let pairs = window.values.windows(2);
            let drops = pairs.filter(|pair| pair[1] < pair[0]);
            difference = drops.fold(difference, |sum, pair| sum + pair[0]);
        }
        (window.times, Point::Float(difference), (difference, first))
    } else {
        return None;
    };
    let bounds = Bounds {
        start: window.start,
        began: None,
        first: times[0],
        last: times[times.len() - 1],
        end: window.end,
        samples: times.len(),
    };
    let mut factor = extension(&bounds, is_counter.then_some(first));
    if change == Change::Rate {
        factor /= (window.end - window.start) as f64 / 1000.0;
    }
    match &mut difference {
        Point::Float(value) => *value *= factor,
        Point::Histogram(histogram) => Arc::make_mut(histogram).multiply(factor),
    }
    Some(difference)
}

/// A window's bounds and its first and last sample.
pub(super) struct Bounds {
    pub start: TimeMs,
    /// When counting began, where that is within the window.
    pub began: Option<TimeMs>,
    pub first: TimeMs,
    pub last: TimeMs,
    pub end: TimeMs,
    pub samples: usize,
}

/// By how much the difference of the samples is extended. Of a counter, the difference and the first value are
/// given: it is not extended to where it would have been below zero.
pub(super) fn extension(bounds: &Bounds, counter: Option<(f64, f64)>) -> f64 {
    let seconds = |from: TimeMs, to: TimeMs| (to - from) as f64 / 1000.0;
    let mut to_start = seconds(bounds.start, bounds.first);
    let mut to_end = seconds(bounds.last, bounds.end);
    let mut sampled = seconds(bounds.first, bounds.last);
    let apart = match bounds.samples {
        1 => 0.0,
        samples => sampled / (samples - 1) as f64,
    };
    let near = apart * 1.1;
    if to_start >= near {
        to_start = apart / 2.0;
    }
    if let Some((difference, first)) = counter
        && difference > 0.0
        && first >= 0.0
    {
        let to_zero = sampled * (first / difference);
        to_start = to_start.min(to_zero);
    }
    if let Some(began) = bounds.began {
        // There is nothing before, and what came then was counted.
        sampled = seconds(began, bounds.last);
        to_start = 0.0;
    }
    if to_end >= near {
        to_end = apart / 2.0;
    }
    (sampled + to_start + to_end) / sampled
}

fn histogram_difference(
    window: &Window<'_>,
    notes: &mut Notes,
    is_counter: bool,
) -> Option<FloatHistogram> {
    let series = window.series;
    let all = window.histograms;
    let last = &all[all.len() - 1];
    let is_gauge = |histogram: &FloatHistogram| histogram.counter_reset == CounterReset::Gauge;
    if is_counter && all.iter().any(|histogram| is_gauge(histogram)) {
        notes.warn(series.range, annotations::not_a_counter(series.metric));
    }
    if !(is_counter || is_gauge(&all[0]) && is_gauge(last)) {
        notes.warn(series.range, annotations::not_a_gauge(series.metric));
    }
    // What was before a reset has nothing to do with what came after it, not even in its bounds.
    let starts_anew = is_counter && all[1].is_reset_since(&all[0]);
    let compared = if starts_anew { &all[1..] } else { all };
    // Of a gauge, what lies between the ends is of no interest.
    let looked_at: Vec<_> = match is_counter {
        true => compared.iter().collect(),
        false => vec![&all[0], last],
    };
    if looked_at
        .iter()
        .any(|one| one.is_custom() != last.is_custom())
    {
        notes.warn(series.range, annotations::mixed_schemas(series.metric));
        return None;
    }
    let coarsest = looked_at.iter().map(|one| one.schema).min()?;
    let mut difference = last.with_schema(coarsest);
    let reconciled = |notes: &mut Notes, bounds: bool, operation: &str| {
        if bounds {
            notes.info(series.range, annotations::bounds_reconciled(operation));
        }
    };
    if !starts_anew {
        let bounds = difference.subtract(&all[0]).ok()?.bounds;
        reconciled(notes, bounds, "subtraction");
    }
    if is_counter {
        for pair in compared.windows(2) {
            if pair[1].is_reset_since(&pair[0]) {
                let bounds = difference.add(&pair[0]).ok()?.bounds;
                reconciled(notes, bounds, "addition");
            }
        }
    }
    difference.counter_reset = CounterReset::Gauge;
    Some(difference)
}

/// The newest samples of a window in the order of time, at most two.
fn newest_two(window: &Window<'_>) -> Vec<(TimeMs, Point)> {
    let floats = window.times.iter().zip(window.values).rev().take(2);
    let floats = floats.map(|(time, value)| (*time, Point::Float(*value)));
    let histograms = window
        .histogram_times
        .iter()
        .zip(window.histograms)
        .rev()
        .take(2);
    let histograms = histograms.map(|(time, value)| (*time, Point::Histogram(value.clone())));
    let mut newest: Vec<_> = floats.chain(histograms).collect();
    newest.sort_by_key(|(time, _)| *time);
    newest.split_off(newest.len().saturating_sub(2))
}

/// The difference of the last two samples, of a counter for each second.
fn instant(window: &Window<'_>, notes: &mut Notes, is_rate: bool) -> Option<Point> {
    let newest = newest_two(window);
    let [(before_at, before), (last_at, last)] = &newest[..] else {
        return None;
    };
    let seconds = (last_at - before_at) as f64 / 1000.0;
    if seconds == 0.0 {
        return None;
    }
    let divisor = if is_rate { seconds } else { 1.0 };
    match (before, last) {
        (Point::Float(before), Point::Float(last)) => {
            let difference = if is_rate && last < before {
                *last
            } else {
                last - before
            };
            Some(Point::Float(difference / divisor))
        }
        (Point::Histogram(before), Point::Histogram(last)) => {
            let mut difference = instant_difference(window, notes, before, last, is_rate)?;
            difference.divide(divisor);
            Some(Point::Histogram(difference.into()))
        }
        _ => {
            let text = annotations::mixed_floats_histograms(window.series.metric);
            notes.warn(window.series.range, text);
            None
        }
    }
}

fn instant_difference(
    window: &Window<'_>,
    notes: &mut Notes,
    before: &FloatHistogram,
    last: &FloatHistogram,
    is_rate: bool,
) -> Option<FloatHistogram> {
    let series = window.series;
    let is_gauge = |histogram: &FloatHistogram| histogram.counter_reset == CounterReset::Gauge;
    if is_rate && (is_gauge(before) || is_gauge(last)) {
        notes.warn(series.range, annotations::not_a_counter(series.metric));
    }
    if !(is_rate || is_gauge(before) && is_gauge(last)) {
        notes.warn(series.range, annotations::not_a_gauge(series.metric));
    }
    let mut difference = last.clone();
    if !is_rate || !last.is_reset_since(before) {
        match difference.subtract(before) {
            Ok(reconciled) if reconciled.bounds => {
                notes.info(series.range, annotations::bounds_reconciled("subtraction"));
            }
            Ok(_) => {}
            Err(_) => {
                notes.warn(series.range, annotations::mixed_schemas(series.metric));
                return None;
            }
        }
    }
    difference.counter_reset = CounterReset::Gauge;
    Some(difference)
}

/// Samples of both kinds in the order of time.
fn in_order(window: &Window<'_>) -> Vec<Point> {
    let floats = window.times.iter().zip(window.values);
    let floats = floats.map(|(time, value)| (*time, Point::Float(*value)));
    let histograms = window.histogram_times.iter().zip(window.histograms);
    let histograms = histograms.map(|(time, value)| (*time, Point::Histogram(value.clone())));
    let mut all: Vec<_> = floats.chain(histograms).collect();
    all.sort_by_key(|(time, _)| *time);
    all.into_iter().map(|(_, point)| point).collect()
}

fn changes(window: &Window<'_>) -> f64 {
    let differ = |before: f64, now: f64| now != before && !(now.is_nan() && before.is_nan());
    if window.histograms.is_empty() {
        let pairs = window.values.windows(2);
        return pairs.filter(|pair| differ(pair[0], pair[1])).count() as f64;
    }
    let points = in_order(window);
    let changed = |pair: &&[Point]| match (&pair[0], &pair[1]) {
        (Point::Float(before), Point::Float(now)) => differ(*before, *now),
        (Point::Histogram(before), Point::Histogram(now)) => !is_same(before, now),
        _ => true,
    };
    points.windows(2).filter(changed).count() as f64
}

fn resets(window: &Window<'_>) -> f64 {
    if window.histograms.is_empty() {
        let pairs = window.values.windows(2);
        return pairs.filter(|pair| pair[1] < pair[0]).count() as f64;
    }
    let points = in_order(window);
    let reset = |pair: &&[Point]| match (&pair[0], &pair[1]) {
        (Point::Float(before), Point::Float(now)) => now < before,
        (Point::Histogram(before), Point::Histogram(now)) => now.is_reset_since(before),
        _ => true,
    };
    points.windows(2).filter(reset).count() as f64
}
