//! How fast values change: counters that may begin anew, gauges, and both as native histograms.

use std::sync::Arc;

use egret_metrics_model::{CounterReset, TimeMs};

use super::super::annotations::{self, Annotations};
use super::super::histogram::{FloatHistogram, is_same};
use super::super::row::Point;
use super::super::smooth::AnnotationSink;
use super::super::source::{SampleStart, is_started_between, overlaps};
use super::window::{Outcome, RangeWindow};

pub(super) fn lookup(name: &str) -> Option<fn(&RangeWindow<'_>, &mut Annotations) -> Outcome> {
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

/// The difference between the window's ends: of the samples in it, extended to its bounds where
/// they are near.
fn extrapolated(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    change: Change,
) -> Option<Point> {
    if window.is_mixed(notes) {
        return None;
    }
    let is_counter = change != Change::Delta;
    let (times, starts) = if window.histograms.is_empty() {
        (window.times, window.starts.0)
    } else {
        (window.histogram_times, window.starts.1)
    };
    let first = *times.first()?;
    let began = starts.first().copied();
    let began = began
        .filter(|began| is_counter && *began != 0 && (window.start + 1..first).contains(began));
    if times.len() < 2 && began.is_none() {
        return None;
    }
    if is_counter && !starts.is_empty() && (1..times.len()).any(|at| overlaps(times, starts, at)) {
        let text = annotations::start_overlaps(window.series.metric);
        notes.warn(window.series.position, text);
    }
    let (mut difference, counter) = if window.histograms.is_empty() {
        float_difference(window, is_counter, began.is_some())
    } else {
        histogram_change(window, notes, is_counter, began.is_some())?
    };
    let bounds = WindowBounds {
        start: window.start,
        began,
        first,
        last: times[times.len() - 1],
        end: window.end,
        samples: times.len(),
    };
    let mut factor = extension(&bounds, is_counter.then_some(counter));
    if change == Change::Rate {
        factor /= (window.end - window.start) as f64 / 1000.0;
    }
    match &mut difference {
        Point::Float(value) => *value *= factor,
        Point::Histogram(histogram) => Arc::make_mut(histogram).multiply(factor),
    }
    Some(difference)
}

/// The difference of a window's numbers, and what is known of the counter: the difference and the
/// first value. With `from_zero` it was zero before the first.
fn float_difference(
    window: &RangeWindow<'_>,
    is_counter: bool,
    from_zero: bool,
) -> (Point, (f64, f64)) {
    let (values, first) = (window.values, window.values[0]);
    let mut difference = values[values.len() - 1] - first;
    if is_counter {
        for at in 1..values.len() {
            if values[at] < values[at - 1] || is_started_after(window.times, window.starts.0, at) {
                difference += values[at - 1];
            }
        }
    }
    if from_zero {
        difference += first;
    }
    (Point::Float(difference), (difference, first))
}

/// The same of its histograms, by their counts.
fn histogram_change(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_counter: bool,
    from_zero: bool,
) -> Option<(Point, (f64, f64))> {
    let first = &window.histograms[0];
    let difference = match window.histograms.len() {
        1 => (**first).clone(),
        _ => {
            let mut difference = histogram_difference(window, notes, is_counter)?;
            if from_zero {
                let mut remarks = AnnotationSink {
                    metric: window.series.metric,
                    position: window.series.position,
                    notes,
                };
                let added = difference.add(first);
                remarks.reconciled(added, "addition")?;
            }
            difference
        }
    };
    let counter = (difference.count, first.count);
    Some((Point::Histogram(Arc::new(difference)), counter))
}

/// Whether counting towards a sample began after the one before it. `starts` may be empty.
fn is_started_after(times: &[TimeMs], starts: &[TimeMs], at: usize) -> bool {
    !starts.is_empty()
        && is_started_between(
            SampleStart::of(times, starts, at - 1),
            SampleStart::of(times, starts, at),
        )
}

/// A window's bounds and its first and last sample.
pub(super) struct WindowBounds {
    pub start: TimeMs,
    /// When counting began, where that is within the window.
    pub began: Option<TimeMs>,
    pub first: TimeMs,
    pub last: TimeMs,
    pub end: TimeMs,
    pub samples: usize,
}

/// By how much the difference of the samples is extended. Of a counter, the difference and the
/// first value are given: it is not extended to where it would have been below zero.
pub(super) fn extension(bounds: &WindowBounds, counter: Option<(f64, f64)>) -> f64 {
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
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_counter: bool,
) -> Option<FloatHistogram> {
    let series = window.series;
    let all = window.histograms;
    let last = &all[all.len() - 1];
    let is_gauge = |histogram: &FloatHistogram| histogram.counter_reset == CounterReset::Gauge;
    if is_counter && all.iter().any(|histogram| is_gauge(histogram)) {
        notes.warn(series.position, annotations::not_a_counter(series.metric));
    }
    if !(is_counter || is_gauge(&all[0]) && is_gauge(last)) {
        notes.warn(series.position, annotations::not_a_gauge(series.metric));
    }
    // What was before a reset has nothing to do with what came after it, not even in its bounds.
    let is_reset = |at: usize| {
        is_started_after(window.histogram_times, window.starts.1, at)
            || all[at].is_reset_since(&all[at - 1])
    };
    let starts_anew = is_counter && is_reset(1);
    let compared = if starts_anew { &all[1..] } else { all };
    // Of a gauge, what lies between the ends is of no interest.
    let looked_at: Vec<_> = if is_counter {
        compared.iter().collect()
    } else {
        vec![&all[0], last]
    };
    if looked_at
        .iter()
        .any(|one| one.is_custom() != last.is_custom())
    {
        notes.warn(series.position, annotations::mixed_schemas(series.metric));
        return None;
    }
    let coarsest = looked_at.iter().map(|one| one.schema).min()?;
    let mut difference = last.with_schema(coarsest);
    let reconciled = |notes: &mut Annotations, bounds: bool, operation: &str| {
        if bounds {
            notes.info(series.position, annotations::bounds_reconciled(operation));
        }
    };
    if !starts_anew {
        let bounds = difference.subtract(&all[0]).ok()?.bounds;
        reconciled(notes, bounds, "subtraction");
    }
    if is_counter {
        let first = all.len() - compared.len() + 1;
        for at in (first..all.len()).filter(|at| is_reset(*at)) {
            let bounds = difference.add(&all[at - 1]).ok()?.bounds;
            reconciled(notes, bounds, "addition");
        }
    }
    difference.counter_reset = CounterReset::Gauge;
    Some(difference)
}

/// A sample with its time and when counting towards it began.
struct TimedPoint {
    time: TimeMs,
    start: TimeMs,
    point: Point,
}

impl TimedPoint {
    fn is_started_after(&self, before: &Self) -> bool {
        is_started_between(before.sample_start(), self.sample_start())
    }

    fn sample_start(&self) -> SampleStart {
        SampleStart {
            time: self.time,
            start: self.start,
        }
    }
}

/// The last samples of both kinds in the order of time, at most so many of each.
fn in_order(window: &RangeWindow<'_>, each_max: usize) -> Vec<TimedPoint> {
    let dated = |times: &[TimeMs], starts: &[TimeMs], at: usize, point: Point| TimedPoint {
        time: times[at],
        start: starts.get(at).copied().unwrap_or(0),
        point,
    };
    let last = |count: usize| count.saturating_sub(each_max)..count;
    let floats = last(window.values.len()).map(|at| {
        let point = Point::Float(window.values[at]);
        dated(window.times, window.starts.0, at, point)
    });
    let histograms = last(window.histograms.len()).map(|at| {
        let point = Point::Histogram(window.histograms[at].clone());
        dated(window.histogram_times, window.starts.1, at, point)
    });
    let mut all: Vec<TimedPoint> = floats.chain(histograms).collect();
    all.sort_by_key(|one| one.time);
    all
}

/// The difference of the last two samples, of a counter for each second.
fn instant(window: &RangeWindow<'_>, notes: &mut Annotations, is_rate: bool) -> Option<Point> {
    let newest = in_order(window, 2);
    let [.., before, last] = &newest[..] else {
        return None;
    };
    let seconds = (last.time - before.time) as f64 / 1000.0;
    if seconds == 0.0 {
        return None;
    }
    let divisor = if is_rate { seconds } else { 1.0 };
    let is_started = last.is_started_after(before);
    match (&before.point, &last.point) {
        (Point::Float(before), Point::Float(last)) => {
            let difference = if is_rate && (last < before || is_started) {
                *last
            } else {
                last - before
            };
            Some(Point::Float(difference / divisor))
        }
        (Point::Histogram(before), Point::Histogram(last)) => {
            let change = InstantChange {
                before,
                last,
                is_rate,
                is_started,
            };
            let mut difference = change.difference(window, notes)?;
            difference.divide(divisor);
            Some(Point::Histogram(difference.into()))
        }
        _ => {
            let text = annotations::mixed_floats_histograms(window.series.metric);
            notes.warn(window.series.position, text);
            None
        }
    }
}

/// Two histograms, one after the other.
struct InstantChange<'a> {
    before: &'a FloatHistogram,
    last: &'a FloatHistogram,
    is_rate: bool,
    /// Counting towards the last began after the one before.
    is_started: bool,
}

impl InstantChange<'_> {
    fn difference(
        &self,
        window: &RangeWindow<'_>,
        notes: &mut Annotations,
    ) -> Option<FloatHistogram> {
        let (before, last, is_rate) = (self.before, self.last, self.is_rate);
        let mut remarks = AnnotationSink {
            metric: window.series.metric,
            position: window.series.position,
            notes,
        };
        let is_gauge = |histogram: &FloatHistogram| histogram.counter_reset == CounterReset::Gauge;
        if is_rate && (is_gauge(before) || is_gauge(last)) {
            remarks.warn(annotations::not_a_counter);
        }
        if !(is_rate || is_gauge(before) && is_gauge(last)) {
            remarks.warn(annotations::not_a_gauge);
        }
        let mut difference = last.clone();
        if !is_rate || !(self.is_started || last.is_reset_since(before)) {
            let subtracted = difference.subtract(before);
            remarks.reconciled(subtracted, "subtraction")?;
        }
        difference.counter_reset = CounterReset::Gauge;
        Some(difference)
    }
}

fn changes(window: &RangeWindow<'_>) -> f64 {
    let differ = |before: f64, now: f64| now != before && !(now.is_nan() && before.is_nan());
    if window.histograms.is_empty() {
        let pairs = window.values.windows(2);
        return pairs.filter(|pair| differ(pair[0], pair[1])).count() as f64;
    }
    let points = in_order(window, usize::MAX);
    let changed = |pair: &&[TimedPoint]| match (&pair[0].point, &pair[1].point) {
        (Point::Float(before), Point::Float(now)) => differ(*before, *now),
        (Point::Histogram(before), Point::Histogram(now)) => !is_same(before, now),
        _ => true,
    };
    points.windows(2).filter(changed).count() as f64
}

fn resets(window: &RangeWindow<'_>) -> f64 {
    let points = in_order(window, usize::MAX);
    let reset = |pair: &&[TimedPoint]| {
        let is_reset = match (&pair[0].point, &pair[1].point) {
            (Point::Float(before), Point::Float(now)) => now < before,
            (Point::Histogram(before), Point::Histogram(now)) => now.is_reset_since(before),
            _ => return true,
        };
        is_reset || pair[1].is_started_after(&pair[0])
    };
    points.windows(2).filter(reset).count() as f64
}
