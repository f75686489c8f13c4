//! `smoothed`: what lies on the line between the samples around a time.

use egret_metrics_model::{CounterReset, TimeMs};

use super::annotations::{self, Annotations};
use super::histogram::{FloatHistogram, HistogramConflicts, Incompatible, combine_resets};
use super::row::{Point, Row};
use super::source::SampleColumns;
use super::syntax::Position;

/// Collects annotations about the histograms of a series at a position of the query.
pub(crate) struct AnnotationSink<'a> {
    pub metric: &'a str,
    pub position: Position,
    pub notes: &'a mut Annotations,
}

impl AnnotationSink<'_> {
    pub(crate) fn warn(&mut self, text: fn(&str) -> String) {
        self.notes.warn(self.position, text(self.metric));
    }

    /// Says that bounds were reconciled; nothing, and a warning, when that could not be done.
    pub(crate) fn note_reconciled(
        &mut self,
        result: Result<HistogramConflicts, Incompatible>,
        operation: &str,
    ) -> Option<()> {
        match result {
            Ok(done) if done.bounds => {
                let text = annotations::bounds_reconciled(operation);
                self.notes.info(self.position, text);
            }
            Ok(_) => {}
            Err(Incompatible) => {
                self.warn(annotations::mixed_schemas);
                return None;
            }
        }
        Some(())
    }
}

/// A number or histogram, and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedValue<V> {
    pub time: TimeMs,
    pub value: V,
}

/// The number at a time between those of two samples. A counter that fell began anew from zero.
pub(crate) fn interpolate(
    from: TimedValue<f64>,
    to: TimedValue<f64>,
    time: TimeMs,
    is_counter: bool,
) -> f64 {
    let base = if is_counter && to.value < from.value { 0.0 } else { from.value };
    base + (to.value - base) * (time - from.time) as f64 / (to.time - from.time) as f64
}

/// The histogram at a time between those of two samples.
pub(crate) fn interpolate_histograms(
    from: TimedValue<&FloatHistogram>,
    to: TimedValue<&FloatHistogram>,
    time: TimeMs,
    is_counter: bool,
    sink: &mut AnnotationSink<'_>,
) -> Option<FloatHistogram> {
    let (from_at, from) = (from.time, from.value);
    let (to_at, to) = (to.time, to.value);
    if time == from_at {
        return Some(from.clone());
    }
    let mut result = to.clone();
    if time == to_at {
        return Some(result);
    }
    let share = (time - from_at) as f64 / (to_at - from_at) as f64;
    if is_counter && to.is_reset_since(from) {
        result.multiply(share);
        return Some(result);
    }
    let subtracted = result.subtract(from);
    sink.note_reconciled(subtracted, "subtraction")?;
    result.multiply(share);
    let added = result.add(from);
    sink.note_reconciled(added, "addition")?;
    (result.counter_reset, _) = combine_resets(to.counter_reset, from.counter_reset);
    Some(result)
}

/// What lies on the line between the numbers around each step; after the last one, that. False when
/// no step has one.
pub(crate) fn smoothed_floats(
    columns: &SampleColumns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
) -> bool {
    let (mut next_index, mut has_points) = (0, false);
    for (step, value) in row.values.iter_mut().enumerate() {
        let time = target(step);
        while columns.times.get(next_index).is_some_and(|at| *at <= time) {
            next_index += 1;
        }
        if next_index == 0 || columns.times[next_index - 1] <= time - lookback_ms {
            continue;
        }
        let before = TimedValue {
            time: columns.times[next_index - 1],
            value: columns.values[next_index - 1],
        };
        *value = match columns.times.get(next_index) {
            Some(after_at) if before.time < time && *after_at <= time + lookback_ms => {
                let after = TimedValue { time: *after_at, value: columns.values[next_index] };
                interpolate(before, after, time, false)
            }
            _ => before.value,
        };
        has_points = true;
    }
    has_points
}

/// The same for series that have histograms. Where there are numbers near a step, too, there is
/// nothing between.
pub(crate) fn smoothed_histograms(
    columns: &SampleColumns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
    sink: &mut AnnotationSink<'_>,
) -> bool {
    let mut floats_only = Row::absent(row.values.len());
    smoothed_floats(columns, &mut floats_only, &target, lookback_ms);
    let mut has_points = false;
    for step in 0..row.values.len() {
        let time = target(step);
        let indexes_near = |times: &[TimeMs]| {
            let from = times.partition_point(|at| *at <= time - lookback_ms);
            from..times.partition_point(|at| *at <= time + lookback_ms).max(from)
        };
        let (floats, histograms) =
            (indexes_near(&columns.times), indexes_near(&columns.histogram_times));
        let point = match (floats.is_empty(), histograms.is_empty()) {
            (false, false) => {
                sink.warn(annotations::mixed_floats_histograms);
                None
            }
            (_, true) => floats_only.get(step),
            (true, false) => {
                let times = &columns.histogram_times[histograms.clone()];
                let after = times.partition_point(|at| *at <= time);
                let found = after.checked_sub(1).map(|before| histograms.start + before);
                let smooth = found.and_then(|before| {
                    let has_next = after < times.len();
                    histogram_at_or_after(columns, before, has_next, time, sink)
                });
                smooth.map(|histogram| Point::Histogram(histogram.into()))
            }
        };
        has_points |= point.is_some();
        row.set(step, point);
    }
    has_points
}

/// The histogram at a time that is not before the one of that index.
fn histogram_at_or_after(
    columns: &SampleColumns,
    before: usize,
    has_next: bool,
    time: TimeMs,
    sink: &mut AnnotationSink<'_>,
) -> Option<FloatHistogram> {
    let timed_value = |index: usize| TimedValue {
        time: columns.histogram_times[index],
        value: &*columns.histograms[index],
    };
    let (before_at, newest) = (timed_value(before).time, timed_value(before).value);
    if before_at < time && has_next {
        let next = timed_value(before + 1).value;
        let is_gauge = |one: &FloatHistogram| one.counter_reset == CounterReset::Gauge;
        let is_counter = !(is_gauge(newest) && is_gauge(next));
        if newest.is_custom() != next.is_custom() {
            sink.warn(annotations::mixed_schemas);
            return None;
        }
        return interpolate_histograms(
            timed_value(before),
            timed_value(before + 1),
            time,
            is_counter,
            sink,
        );
    }
    let mut carried = newest.clone();
    if before_at < time {
        // It says what came about between two samples, not what is.
        carried.counter_reset = CounterReset::Unknown;
    }
    Some(carried)
}
