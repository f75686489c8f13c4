//! `anchored` and `smoothed`: changes between a window's bounds rather than between the samples in it.

use std::ops::Range;

use super::super::annotations::Notes;
use super::super::error::QueryError;
use super::super::row::{Point, Row};
use super::super::smooth::{Remarks, between};
use super::super::source::Columns;
use super::super::syntax::Extension;
use super::extended_histograms::AroundHistograms;
use super::{Context, Outcome, Prepared, Window, advance};
use crate::model::TimeMs;

/// How far beyond a window's bounds samples are looked for, before it and after it.
pub(crate) fn beyond(extension: Extension, lookback_ms: i64) -> (i64, i64) {
    match extension {
        Extension::None => (0, 0),
        Extension::Anchored => (lookback_ms, 0),
        Extension::Smoothed => (lookback_ms, lookback_ms),
    }
}

/// Whether a function knows what to do with samples beyond a window's bounds.
///
/// # Errors
/// When it does not.
pub(super) fn check_use(function: &str, extension: Extension) -> Result<(), QueryError> {
    let allowed: &[&str] = match extension {
        Extension::None => return Ok(()),
        Extension::Anchored => &["changes", "delta", "increase", "rate", "resets"],
        Extension::Smoothed => &["delta", "increase", "rate"],
    };
    if allowed.contains(&function) {
        return Ok(());
    }
    let (word, allowed) = (extension.word(), allowed.join(", "));
    Err(QueryError::execution(format!(
        "{word} modifier can only be used with: {allowed} - not with {function}"
    )))
}

/// Which samples a window's bounds are told by, and those between them: from the newest one not after its start to the
/// last one, or with `is_smoothed` to the first one not before its end. Nothing when none of them is after the start, or
/// none from before the end.
fn around(
    times: &[TimeMs],
    (start, end): (TimeMs, TimeMs),
    is_smoothed: bool,
) -> Option<Range<usize>> {
    let last = times.len().checked_sub(1)?;
    let first = times[..last]
        .partition_point(|time| *time <= start)
        .saturating_sub(1);
    let last = match is_smoothed {
        true => times[..last].partition_point(|time| *time < end),
        false => last,
    };
    let is_beside = times[last] <= start || is_smoothed && times[first] > end;
    (!is_beside).then_some(first..last + 1)
}

/// Samples in a window and next to it. There is at least one after its start.
struct Around<'a> {
    times: &'a [TimeMs],
    values: &'a [f64],
    start: TimeMs,
    end: TimeMs,
    is_smoothed: bool,
}

impl Prepared<'_> {
    /// Fills a row; false when it stays empty.
    pub(super) fn extended_windows(
        &self,
        columns: &Columns,
        row: &mut Row,
        series: &Context<'_>,
        notes: &mut Notes,
    ) -> Result<bool, QueryError> {
        let (back_ms, ahead_ms) = beyond(self.extension, self.env.options.lookback_ms);
        let is_rate = matches!(self.name, "rate" | "increase" | "delta");
        let (mut floats, mut histograms, mut seen) = (0..0, 0..0, false);
        for step in 0..self.grid.count {
            let (start, end) = self.bounds(step);
            let (from, to) = (start - back_ms, end + ahead_ms);
            advance(&columns.times, &mut floats, from, to);
            advance(&columns.histogram_times, &mut histograms, from, to);
            let ranges = (floats.clone(), histograms.clone());
            let window = self.window(columns, ranges, step, series);
            let point = match is_rate {
                true => self.extended_change(&window, notes),
                false => self.anchored_count(window, notes)?,
            };
            if point.is_some() {
                seen = true;
                row.set(step, point);
            }
        }
        Ok(seen)
    }

    /// `changes`, `resets`: from the newest sample not after the window's start, of whichever kind it is.
    fn anchored_count(&self, mut window: Window<'_>, notes: &mut Notes) -> Outcome {
        let until = |times: &[TimeMs]| times.partition_point(|time| *time <= window.start);
        let (floats, histograms) = (until(window.times), until(window.histogram_times));
        if floats == window.times.len() && histograms == window.histogram_times.len() {
            return Ok(None);
        }
        let float_at = floats.checked_sub(1).map(|at| window.times[at]);
        let histogram_at = histograms.checked_sub(1);
        let histogram_at = histogram_at.map(|at| window.histogram_times[at]);
        let (from_float, from_histogram) = match float_at >= histogram_at {
            true => (floats.saturating_sub(1), histograms),
            false => (floats, histograms.saturating_sub(1)),
        };
        window.times = &window.times[from_float..];
        window.values = &window.values[from_float..];
        window.histogram_times = &window.histogram_times[from_histogram..];
        window.histograms = &window.histograms[from_histogram..];
        window.starts = (
            window.starts.0.get(from_float..).unwrap_or_default(),
            window.starts.1.get(from_histogram..).unwrap_or_default(),
        );
        (self.function.apply)(&window, notes)
    }

    /// `rate`, `increase`, `delta`.
    fn extended_change(&self, window: &Window<'_>, notes: &mut Notes) -> Option<Point> {
        if window.is_mixed(notes) {
            return None;
        }
        let is_smoothed = self.extension == Extension::Smoothed;
        let (start, end) = (window.start, window.end);
        let is_counter = self.name != "delta";
        let range_seconds = self.range_ms as f64 / 1000.0;
        if !window.histograms.is_empty() {
            let found = around(window.histogram_times, (start, end), is_smoothed)?;
            let around = AroundHistograms {
                times: &window.histogram_times[found.clone()],
                histograms: &window.histograms[found],
                start,
                end,
                is_smoothed,
            };
            let mut remarks = Remarks {
                metric: window.series.metric,
                position: window.series.position,
                notes,
            };
            let mut change = around.change(is_counter, &mut remarks)?;
            if self.name == "rate" {
                change.divide(range_seconds);
            }
            return Some(Point::Histogram(change.into()));
        }
        let around = Around::new(window.times, window.values, (start, end), is_smoothed)?;
        let change = around.change(is_counter);
        Some(Point::Float(match self.name {
            "rate" => change / range_seconds,
            _ => change,
        }))
    }
}

/// Turns the samples of a range and around it into those of the range and of its bounds.
///
/// # Errors
/// When there are histograms, of which this is not known.
pub(crate) fn extended_samples(
    columns: &mut Columns,
    (start, end): (TimeMs, TimeMs),
    extension: Extension,
) -> Result<(), QueryError> {
    if !columns.histograms.is_empty() {
        let word = extension.word();
        let message = format!("{word} modifier is not supported with histograms");
        return Err(QueryError::execution(message));
    }
    let is_smoothed = extension == Extension::Smoothed;
    let mut extended = Columns::default();
    if let Some(around) = Around::new(&columns.times, &columns.values, (start, end), is_smoothed) {
        extended.push(start, around.left(false));
        let inside = around.times.iter().zip(around.values);
        for (time, value) in inside.filter(|(time, _)| start < **time && **time < end) {
            extended.push(*time, *value);
        }
        extended.push(end, around.right(false));
    }
    *columns = extended;
    Ok(())
}

impl<'a> Around<'a> {
    fn new(
        times: &'a [TimeMs],
        values: &'a [f64],
        (start, end): (TimeMs, TimeMs),
        is_smoothed: bool,
    ) -> Option<Self> {
        let found = around(times, (start, end), is_smoothed)?;
        Some(Self {
            times: &times[found.clone()],
            values: &values[found],
            start,
            end,
            is_smoothed,
        })
    }

    /// The value at the window's start.
    fn left(&self, is_counter: bool) -> f64 {
        match self.is_smoothed && self.times[0] < self.start {
            true => between(self.sample(0), self.sample(1), self.start, is_counter),
            false => self.values[0],
        }
    }

    /// The value at the window's end.
    fn right(&self, is_counter: bool) -> f64 {
        let last = self.times.len() - 1;
        match self.is_smoothed && last > 0 && self.times[last] > self.end {
            true => between(
                self.sample(last - 1),
                self.sample(last),
                self.end,
                is_counter,
            ),
            false => self.values[last],
        }
    }

    fn sample(&self, at: usize) -> (TimeMs, f64) {
        (self.times[at], self.values[at])
    }

    /// The difference between the window's bounds; of a counter, with what it fell by.
    fn change(&self, is_counter: bool) -> f64 {
        let last = self.times.len() - 1;
        let (left, right) = (self.left(is_counter), self.right(is_counter));
        let mut change = right - left;
        if is_counter {
            let from = usize::from(self.times[0] <= self.start);
            let to = last + usize::from(self.times[last] < self.end);
            let inside = self.values.get(from..to).unwrap_or_default();
            let mut before = left;
            for value in inside.iter().copied().chain([right]) {
                if value < before {
                    change += before;
                }
                before = value;
            }
        }
        change
    }
}
