//! `smoothed`: what lies on the line between the samples around a time.

use super::annotations::{self, Notes};
use super::histogram::{FloatHistogram, Incompatible, Reconciled, joined_resets};
use super::row::{Point, Row};
use super::source::Columns;
use super::syntax::Position;
use crate::model::{CounterReset, TimeMs};

/// Says what is to be said of a series' histograms, and where.
pub(crate) struct Remarks<'a> {
    pub metric: &'a str,
    pub position: Position,
    pub notes: &'a mut Notes,
}

impl Remarks<'_> {
    pub(crate) fn warn(&mut self, text: fn(&str) -> String) {
        self.notes.warn(self.position, text(self.metric));
    }

    /// Says that bounds were reconciled; nothing, and a warning, when that could not be done.
    pub(crate) fn reconciled(
        &mut self,
        done: Result<Reconciled, Incompatible>,
        operation: &str,
    ) -> Option<()> {
        match done {
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

/// The number at a time between those of two samples. A counter that fell began anew from zero.
pub(crate) fn between(
    (from_at, mut from): (TimeMs, f64),
    (to_at, to): (TimeMs, f64),
    time: TimeMs,
    is_counter: bool,
) -> f64 {
    if is_counter && to < from {
        from = 0.0;
    }
    from + (to - from) * (time - from_at) as f64 / (to_at - from_at) as f64
}

/// The histogram at a time between those of two samples.
pub(crate) fn between_histograms(
    (from_at, from): (TimeMs, &FloatHistogram),
    (to_at, to): (TimeMs, &FloatHistogram),
    time: TimeMs,
    is_counter: bool,
    remarks: &mut Remarks<'_>,
) -> Option<FloatHistogram> {
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
    remarks.reconciled(subtracted, "subtraction")?;
    result.multiply(share);
    let added = result.add(from);
    remarks.reconciled(added, "addition")?;
    (result.counter_reset, _) = joined_resets(to.counter_reset, from.counter_reset);
    Some(result)
}

/// What lies on the line between the numbers around each step; after the last one, that. False when no step has one.
pub(crate) fn smoothed_floats(
    columns: &Columns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
) -> bool {
    let (mut next, mut seen) = (0, false);
    for (step, value) in row.values.iter_mut().enumerate() {
        let time = target(step);
        while columns.times.get(next).is_some_and(|at| *at <= time) {
            next += 1;
        }
        if next == 0 || columns.times[next - 1] <= time - lookback_ms {
            continue;
        }
        let before = (columns.times[next - 1], columns.values[next - 1]);
        *value = match columns.times.get(next) {
            Some(after) if before.0 < time && *after <= time + lookback_ms => {
                between(before, (*after, columns.values[next]), time, false)
            }
            _ => before.1,
        };
        seen = true;
    }
    seen
}

/// The same for series that have histograms. Where there are numbers near a step, too, there is nothing between.
pub(crate) fn smoothed_histograms(
    columns: &Columns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
    remarks: &mut Remarks<'_>,
) -> bool {
    let mut floats_only = Row::absent(row.values.len());
    smoothed_floats(columns, &mut floats_only, &target, lookback_ms);
    let mut seen = false;
    for step in 0..row.values.len() {
        let time = target(step);
        let near = |times: &[TimeMs]| {
            let from = times.partition_point(|at| *at <= time - lookback_ms);
            from..times
                .partition_point(|at| *at <= time + lookback_ms)
                .max(from)
        };
        let (floats, histograms) = (near(&columns.times), near(&columns.histogram_times));
        let point = match (floats.is_empty(), histograms.is_empty()) {
            (false, false) => {
                remarks.warn(annotations::mixed_floats_histograms);
                None
            }
            (_, true) => floats_only.get(step),
            (true, false) => {
                let times = &columns.histogram_times[histograms.clone()];
                let after = times.partition_point(|at| *at <= time);
                let found = after.checked_sub(1);
                let found = found.map(|before| histograms.start + before);
                let smooth = found.and_then(|before| {
                    let has_next = after < times.len();
                    histogram_after(columns, before, has_next, time, remarks)
                });
                smooth.map(|histogram| Point::Histogram(histogram.into()))
            }
        };
        seen |= point.is_some();
        row.set(step, point);
    }
    seen
}

/// The histogram at a time that is not before the one of that index.
fn histogram_after(
    columns: &Columns,
    before: usize,
    has_next: bool,
    time: TimeMs,
    remarks: &mut Remarks<'_>,
) -> Option<FloatHistogram> {
    let at = |index: usize| (columns.histogram_times[index], &*columns.histograms[index]);
    let (before_at, newest) = at(before);
    if before_at < time && has_next {
        let (_, next) = at(before + 1);
        let is_gauge = |one: &FloatHistogram| one.counter_reset == CounterReset::Gauge;
        let is_counter = !(is_gauge(newest) && is_gauge(next));
        if newest.is_custom() != next.is_custom() {
            remarks.warn(annotations::mixed_schemas);
            return None;
        }
        return between_histograms(at(before), at(before + 1), time, is_counter, remarks);
    }
    let mut carried = newest.clone();
    if before_at < time {
        // It says what came about between two samples, not what is.
        carried.counter_reset = CounterReset::Unknown;
    }
    Some(carried)
}
