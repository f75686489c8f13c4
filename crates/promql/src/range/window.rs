//! The window of a step: the samples that a function of a range is given.

use std::ops::Range;
use std::sync::Arc;

use egret_metrics_model::TimeMs;

use super::super::annotations::{self, Annotations};
use super::super::error::QueryError;
use super::super::histogram::FloatHistogram;
use super::super::row::Point;
use super::super::source::SampleColumns;
use super::super::syntax::Position;

/// The samples a function is given, and what it is given besides. There is at least one sample.
pub(crate) struct RangeWindow<'a> {
    pub times: &'a [TimeMs],
    pub values: &'a [f64],
    pub histogram_times: &'a [TimeMs],
    pub histograms: &'a [Arc<FloatHistogram>],
    /// When counting began, of each number and each histogram; empty where it is known of none.
    pub starts: (&'a [TimeMs], &'a [TimeMs]),
    /// The window is open here…
    pub start: TimeMs,
    /// …and closed at this time.
    pub end: TimeMs,
    /// The time of the step, which is another where there is an offset.
    pub step_time: TimeMs,
    /// The function's other arguments.
    pub arguments: [f64; 2],
    pub series: &'a Context<'a>,
}

/// What is the same for all windows of a series.
pub(crate) struct Context<'a> {
    pub metric: &'a str,
    /// Where the function's first argument stands in the query, which is what annotations point at.
    pub position: Position,
}

impl RangeWindow<'_> {
    /// The numbers alone, which is what many functions know; says when histograms are left out.
    pub(super) fn floats(&self, notes: &mut Annotations) -> Option<&[f64]> {
        if self.values.is_empty() {
            return None;
        }
        if !self.histograms.is_empty() {
            let text = annotations::histograms_ignored_in_mixed_range(self.series.metric);
            notes.info(self.series.position, text);
        }
        Some(self.values)
    }

    /// Whether there are both numbers and histograms; adds a warning if so.
    pub(super) fn is_mixed(&self, notes: &mut Annotations) -> bool {
        let mixed = !self.values.is_empty() && !self.histograms.is_empty();
        if mixed {
            let text = annotations::mixed_floats_histograms(self.series.metric);
            notes.warn(self.series.position, text);
        }
        mixed
    }
}

/// A point of a window, or none.
pub(super) type Outcome = Result<Option<Point>, QueryError>;

pub(super) fn window_starts<'a>(
    columns: &'a SampleColumns,
    floats: &Range<usize>,
    histograms: &Range<usize>,
) -> (&'a [TimeMs], &'a [TimeMs]) {
    let starts_in = |starts: &'a [TimeMs], window: &Range<usize>| {
        starts.get(window.clone()).unwrap_or_default()
    };
    (starts_in(&columns.starts, floats), starts_in(&columns.histogram_starts, histograms))
}

/// Moves a window to the samples after `start` and not after `end`.
pub(super) fn advance_window(
    times: &[TimeMs],
    window: &mut Range<usize>,
    start: TimeMs,
    end: TimeMs,
) {
    while times.get(window.end).is_some_and(|at| *at <= end) {
        window.end += 1;
    }
    while window.start < window.end && times[window.start] <= start {
        window.start += 1;
    }
}
