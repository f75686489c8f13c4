//! How fast values change: counters that may begin anew, gauges, and both as native histograms.

use std::sync::Arc;

use egret_metrics_model::{CounterReset, TimeMs};

use super::super::annotations::{self, Annotations};
use super::super::histogram::{FloatHistogram, is_equal_ignoring_reset};
use super::super::row::Point;
use super::super::smooth::AnnotationSink;
use super::super::source::{SampleStart, has_overlapping_start, is_started_between};
use super::window::{Outcome, RangeWindow};

pub(super) fn lookup(name: &str) -> Option<fn(&RangeWindow<'_>, &mut Annotations) -> Outcome> {
    Some(match name {
        "rate" => |window, notes| Ok(extrapolate(window, notes, Change::Rate)),
        "increase" => |window, notes| Ok(extrapolate(window, notes, Change::Increase)),
        "delta" => |window, notes| Ok(extrapolate(window, notes, Change::Delta)),
        "irate" => |window, notes| Ok(instant_change(window, notes, true)),
        "idelta" => |window, notes| Ok(instant_change(window, notes, false)),
        "changes" => |window, _| Ok(Some(Point::Float(count_changes(window)))),
        "resets" => |window, _| Ok(Some(Point::Float(count_resets(window)))),
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
fn extrapolate(window: &RangeWindow<'_>, notes: &mut Annotations, change: Change) -> Option<Point> {
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
    let counting_start = starts.first().copied();
    let began = counting_start
        .filter(|began| is_counter && *began != 0 && (window.start + 1..first).contains(began));
    if times.len() < 2 && began.is_none() {
        return None;
    }
    if is_counter
        && !starts.is_empty()
        && (1..times.len()).any(|at| has_overlapping_start(times, starts, at))
    {
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
        counting_start: began,
        first,
        last: times[times.len() - 1],
        end: window.end,
        samples: times.len(),
    };
    let mut factor = extension_factor(&bounds, is_counter.then_some(counter));
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
/// first value. With `starts_at_zero` it was zero before the first.
fn float_difference(
    window: &RangeWindow<'_>,
    is_counter: bool,
    starts_at_zero: bool,
) -> (Point, (f64, f64)) {
    let (values, first) = (window.values, window.values[0]);
    let mut difference = values[values.len() - 1] - first;
    if is_counter {
        for index in 1..values.len() {
            if values[index] < values[index - 1]
                || is_started_after(window.times, window.starts.0, index)
            {
                difference += values[index - 1];
            }
        }
    }
    if starts_at_zero {
        difference += first;
    }
    (Point::Float(difference), (difference, first))
}

/// The same of its histograms, by their counts.
fn histogram_change(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_counter: bool,
    starts_at_zero: bool,
) -> Option<(Point, (f64, f64))> {
    let first = &window.histograms[0];
    let difference = match window.histograms.len() {
        1 => (**first).clone(),
        _ => {
            let mut difference = histogram_difference(window, notes, is_counter)?;
            if starts_at_zero {
                let mut sink = AnnotationSink {
                    metric: window.series.metric,
                    position: window.series.position,
                    notes,
                };
                let added = difference.add(first);
                sink.note_reconciled(added, "addition")?;
            }
            difference
        }
    };
    let counter = (difference.count, first.count);
    Some((Point::Histogram(Arc::new(difference)), counter))
}

/// Whether counting towards a sample began after the one before it. `starts` may be empty.
fn is_started_after(times: &[TimeMs], starts: &[TimeMs], index: usize) -> bool {
    !starts.is_empty()
        && is_started_between(
            SampleStart::at_index(times, starts, index - 1),
            SampleStart::at_index(times, starts, index),
        )
}

/// A window's bounds and its first and last sample.
pub(super) struct WindowBounds {
    pub start: TimeMs,
    /// When counting began, where that is within the window.
    pub counting_start: Option<TimeMs>,
    pub first: TimeMs,
    pub last: TimeMs,
    pub end: TimeMs,
    pub samples: usize,
}

/// By how much the difference of the samples is extended. Of a counter, the difference and the
/// first value are given: it is not extended to where it would have been below zero.
pub(super) fn extension_factor(bounds: &WindowBounds, counter: Option<(f64, f64)>) -> f64 {
    let seconds = |from: TimeMs, to: TimeMs| (to - from) as f64 / 1000.0;
    let mut to_start = seconds(bounds.start, bounds.first);
    let mut to_end = seconds(bounds.last, bounds.end);
    let mut sampled = seconds(bounds.first, bounds.last);
    let average_interval = match bounds.samples {
        1 => 0.0,
        samples => sampled / (samples - 1) as f64,
    };
    let extrapolation_threshold = average_interval * 1.1;
    if to_start >= extrapolation_threshold {
        to_start = average_interval / 2.0;
    }
    if let Some((difference, first)) = counter
        && difference > 0.0
        && first >= 0.0
    {
        let to_zero = sampled * (first / difference);
        to_start = to_start.min(to_zero);
    }
    if let Some(counting_start) = bounds.counting_start {
        // There is nothing before, and what came then was counted.
        sampled = seconds(counting_start, bounds.last);
        to_start = 0.0;
    }
    if to_end >= extrapolation_threshold {
        to_end = average_interval / 2.0;
    }
    (sampled + to_start + to_end) / sampled
}

fn histogram_difference(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_counter: bool,
) -> Option<FloatHistogram> {
    let series = window.series;
    let histograms = window.histograms;
    let last = &histograms[histograms.len() - 1];
    let is_gauge = |histogram: &FloatHistogram| histogram.counter_reset == CounterReset::Gauge;
    if is_counter && histograms.iter().any(|histogram| is_gauge(histogram)) {
        notes.warn(series.position, annotations::not_a_counter(series.metric));
    }
    if !(is_counter || is_gauge(&histograms[0]) && is_gauge(last)) {
        notes.warn(series.position, annotations::not_a_gauge(series.metric));
    }
    // What was before a reset has nothing to do with what came after it, not even in its bounds.
    let is_reset = |index: usize| {
        is_started_after(window.histogram_times, window.starts.1, index)
            || histograms[index].is_reset_since(&histograms[index - 1])
    };
    let begins_with_reset = is_counter && is_reset(1);
    let compared = if begins_with_reset { &histograms[1..] } else { histograms };
    // Of a gauge, what lies between the ends is of no interest.
    let considered: Vec<_> =
        if is_counter { compared.iter().collect() } else { vec![&histograms[0], last] };
    if considered.iter().any(|one| one.is_custom() != last.is_custom()) {
        notes.warn(series.position, annotations::mixed_schemas(series.metric));
        return None;
    }
    let coarsest = considered.iter().map(|one| one.schema).min()?;
    let mut difference = last.with_schema(coarsest);
    let note_reconciled = |notes: &mut Annotations, bounds: bool, operation: &str| {
        if bounds {
            notes.info(series.position, annotations::bounds_reconciled(operation));
        }
    };
    if !begins_with_reset {
        let bounds = difference.subtract(&histograms[0]).ok()?.bounds;
        note_reconciled(notes, bounds, "subtraction");
    }
    if is_counter {
        let first = histograms.len() - compared.len() + 1;
        for at in (first..histograms.len()).filter(|at| is_reset(*at)) {
            let bounds = difference.add(&histograms[at - 1]).ok()?.bounds;
            note_reconciled(notes, bounds, "addition");
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
    fn is_started_after(&self, previous: &Self) -> bool {
        is_started_between(previous.sample_start(), self.sample_start())
    }

    fn sample_start(&self) -> SampleStart {
        SampleStart { time: self.time, start: self.start }
    }
}

/// The last samples of both kinds in the order of time, at most so many of each.
fn latest_in_order(window: &RangeWindow<'_>, each_max: usize) -> Vec<TimedPoint> {
    let timed_point = |times: &[TimeMs], starts: &[TimeMs], index: usize, point: Point| {
        TimedPoint { time: times[index], start: starts.get(index).copied().unwrap_or(0), point }
    };
    let last = |count: usize| count.saturating_sub(each_max)..count;
    let floats = last(window.values.len()).map(|at| {
        let point = Point::Float(window.values[at]);
        timed_point(window.times, window.starts.0, at, point)
    });
    let histograms = last(window.histograms.len()).map(|at| {
        let point = Point::Histogram(window.histograms[at].clone());
        timed_point(window.histogram_times, window.starts.1, at, point)
    });
    let mut points: Vec<TimedPoint> = floats.chain(histograms).collect();
    points.sort_by_key(|one| one.time);
    points
}

/// The difference of the last two samples, of a counter for each second.
fn instant_change(
    window: &RangeWindow<'_>,
    notes: &mut Annotations,
    is_rate: bool,
) -> Option<Point> {
    let newest = latest_in_order(window, 2);
    let [.., previous, last] = &newest[..] else {
        return None;
    };
    let seconds = (last.time - previous.time) as f64 / 1000.0;
    if seconds == 0.0 {
        return None;
    }
    let divisor = if is_rate { seconds } else { 1.0 };
    let is_started = last.is_started_after(previous);
    match (&previous.point, &last.point) {
        (Point::Float(before), Point::Float(last)) => {
            let difference =
                if is_rate && (last < before || is_started) { *last } else { last - before };
            Some(Point::Float(difference / divisor))
        }
        (Point::Histogram(before), Point::Histogram(last)) => {
            let change = InstantChange { previous: before, last, is_rate, is_started };
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
    previous: &'a FloatHistogram,
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
        let (previous, last, is_rate) = (self.previous, self.last, self.is_rate);
        let mut sink = AnnotationSink {
            metric: window.series.metric,
            position: window.series.position,
            notes,
        };
        let is_gauge = |histogram: &FloatHistogram| histogram.counter_reset == CounterReset::Gauge;
        if is_rate && (is_gauge(previous) || is_gauge(last)) {
            sink.warn(annotations::not_a_counter);
        }
        if !(is_rate || is_gauge(previous) && is_gauge(last)) {
            sink.warn(annotations::not_a_gauge);
        }
        let mut difference = last.clone();
        if !is_rate || !(self.is_started || last.is_reset_since(previous)) {
            let subtracted = difference.subtract(previous);
            sink.note_reconciled(subtracted, "subtraction")?;
        }
        difference.counter_reset = CounterReset::Gauge;
        Some(difference)
    }
}

fn count_changes(window: &RangeWindow<'_>) -> f64 {
    let is_change = |before: f64, now: f64| now != before && !(now.is_nan() && before.is_nan());
    if window.histograms.is_empty() {
        let pairs = window.values.windows(2);
        return pairs.filter(|pair| is_change(pair[0], pair[1])).count() as f64;
    }
    let points = latest_in_order(window, usize::MAX);
    let is_changed_pair = |pair: &&[TimedPoint]| match (&pair[0].point, &pair[1].point) {
        (Point::Float(before), Point::Float(now)) => is_change(*before, *now),
        (Point::Histogram(before), Point::Histogram(now)) => !is_equal_ignoring_reset(before, now),
        _ => true,
    };
    points.windows(2).filter(is_changed_pair).count() as f64
}

fn count_resets(window: &RangeWindow<'_>) -> f64 {
    let points = latest_in_order(window, usize::MAX);
    let is_reset_pair = |pair: &&[TimedPoint]| {
        let is_reset = match (&pair[0].point, &pair[1].point) {
            (Point::Float(before), Point::Float(now)) => now < before,
            (Point::Histogram(before), Point::Histogram(now)) => now.is_reset_since(before),
            _ => return true,
        };
        is_reset || pair[1].is_started_after(&pair[0])
    };
    points.windows(2).filter(is_reset_pair).count() as f64
}
