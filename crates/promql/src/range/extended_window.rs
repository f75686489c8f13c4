//! Samples in a window and next to it, of which its bounds get their values.

use std::ops::Range;

use egret_metrics_model::TimeMs;

use super::super::error::QueryError;
use super::super::smooth::{TimedValue, interpolate};
use super::super::source::SampleColumns;
use super::super::syntax::RangeModifier;

/// How far beyond a window's bounds samples are looked for, before it and after it.
pub(crate) fn extra_range_ms(extension: RangeModifier, lookback_ms: i64) -> (i64, i64) {
    match extension {
        RangeModifier::None => (0, 0),
        RangeModifier::Anchored => (lookback_ms, 0),
        RangeModifier::Smoothed => (lookback_ms, lookback_ms),
    }
}

/// Which samples a window's bounds are told by, and those between them: from the newest one not
/// after its start to the last one, or with `is_smoothed` to the first one not before its end.
/// Nothing when none of them is after the start, or none from before the end.
pub(super) fn extended_indexes(
    times: &[TimeMs],
    start: TimeMs,
    end: TimeMs,
    is_smoothed: bool,
) -> Option<Range<usize>> {
    let last = times.len().checked_sub(1)?;
    let first = times[..last].partition_point(|time| *time <= start).saturating_sub(1);
    let last = if is_smoothed { times[..last].partition_point(|time| *time < end) } else { last };
    let is_outside = times[last] <= start || is_smoothed && times[first] > end;
    (!is_outside).then_some(first..last + 1)
}

/// Samples in a window and next to it. There is at least one after its start.
pub(super) struct ExtendedWindow<'a> {
    times: &'a [TimeMs],
    values: &'a [f64],
    start: TimeMs,
    end: TimeMs,
    is_smoothed: bool,
}

/// Turns the samples of a range and around it into those of the range and of its bounds.
///
/// # Errors
/// When there are histograms, of which this is not known.
pub(crate) fn extend_samples(
    columns: &mut SampleColumns,
    start: TimeMs,
    end: TimeMs,
    extension: RangeModifier,
) -> Result<(), QueryError> {
    if !columns.histograms.is_empty() {
        let word = extension.keyword();
        let message = format!("{word} modifier is not supported with histograms");
        return Err(QueryError::execution(message));
    }
    let is_smoothed = extension == RangeModifier::Smoothed;
    let mut extended = SampleColumns::default();
    if let Some(window) =
        ExtendedWindow::new(&columns.times, &columns.values, start, end, is_smoothed)
    {
        extended.push(start, window.start_value(false));
        let inside = window.times.iter().zip(window.values);
        for (time, value) in inside.filter(|(time, _)| start < **time && **time < end) {
            extended.push(*time, *value);
        }
        extended.push(end, window.end_value(false));
    }
    *columns = extended;
    Ok(())
}

impl<'a> ExtendedWindow<'a> {
    pub(super) fn new(
        times: &'a [TimeMs],
        values: &'a [f64],
        start: TimeMs,
        end: TimeMs,
        is_smoothed: bool,
    ) -> Option<Self> {
        let indexes = extended_indexes(times, start, end, is_smoothed)?;
        Some(Self {
            times: &times[indexes.clone()],
            values: &values[indexes],
            start,
            end,
            is_smoothed,
        })
    }

    /// The value at the window's start.
    fn start_value(&self, is_counter: bool) -> f64 {
        if self.is_smoothed && self.times[0] < self.start {
            interpolate(self.sample(0), self.sample(1), self.start, is_counter)
        } else {
            self.values[0]
        }
    }

    /// The value at the window's end.
    fn end_value(&self, is_counter: bool) -> f64 {
        let last = self.times.len() - 1;
        if self.is_smoothed && last > 0 && self.times[last] > self.end {
            interpolate(self.sample(last - 1), self.sample(last), self.end, is_counter)
        } else {
            self.values[last]
        }
    }

    fn sample(&self, index: usize) -> TimedValue<f64> {
        TimedValue { time: self.times[index], value: self.values[index] }
    }

    /// The difference between the window's bounds; of a counter, with what it fell by.
    pub(super) fn compute_change(&self, is_counter: bool) -> f64 {
        let last = self.times.len() - 1;
        let (left, right) = (self.start_value(is_counter), self.end_value(is_counter));
        let mut change = right - left;
        if is_counter {
            let from = usize::from(self.times[0] <= self.start);
            let to = last + usize::from(self.times[last] < self.end);
            let inside = self.values.get(from..to).unwrap_or_default();
            let mut previous = left;
            for value in inside.iter().copied().chain([right]) {
                if value < previous {
                    change += previous;
                }
                previous = value;
            }
        }
        change
    }
}
