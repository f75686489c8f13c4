//! `anchored` and `smoothed`: changes between a window's bounds rather than between the samples in
//! it.

use egret_metrics_model::TimeMs;

use super::super::annotations::Annotations;
use super::super::error::QueryError;
use super::super::row::{Point, Row};
use super::super::smooth::AnnotationSink;
use super::super::source::SampleColumns;
use super::super::syntax::RangeModifier;
use super::RangeCall;
use super::extended_histograms::AroundHistograms;
use super::extended_window::{ExtendedWindow, extended_indexes, extra_range_ms};
use super::window::{Context, Outcome, RangeWindow, advance_window};

/// Whether a function knows what to do with samples beyond a window's bounds.
///
/// # Errors
/// When it does not.
pub(super) fn check_modifier(function: &str, extension: RangeModifier) -> Result<(), QueryError> {
    let allowed: &[&str] = match extension {
        RangeModifier::None => return Ok(()),
        RangeModifier::Anchored => &["changes", "delta", "increase", "rate", "resets"],
        RangeModifier::Smoothed => &["delta", "increase", "rate"],
    };
    if allowed.contains(&function) {
        return Ok(());
    }
    let (word, allowed) = (extension.keyword(), allowed.join(", "));
    Err(QueryError::execution(format!(
        "{word} modifier can only be used with: {allowed} - not with {function}"
    )))
}

impl RangeCall<'_> {
    /// Fills a row; false when it stays empty.
    pub(super) fn fill_extended_windows(
        &self,
        columns: &SampleColumns,
        row: &mut Row,
        series: &Context<'_>,
        notes: &mut Annotations,
    ) -> Result<bool, QueryError> {
        let (back_ms, ahead_ms) = extra_range_ms(self.range_modifier, self.env.options.lookback_ms);
        let is_rate = matches!(self.name, "rate" | "increase" | "delta");
        let (mut floats, mut histograms, mut has_points) = (0..0, 0..0, false);
        for step in 0..self.grid.count {
            let (start, end) = self.window_bounds(step);
            let (from, to) = (start - back_ms, end + ahead_ms);
            advance_window(&columns.times, &mut floats, from, to);
            advance_window(&columns.histogram_times, &mut histograms, from, to);
            let window = self.window_at(columns, floats.clone(), histograms.clone(), step, series);
            let point = if is_rate {
                self.extended_change(&window, notes)
            } else {
                self.evaluate_anchored(window, notes)?
            };
            if point.is_some() {
                has_points = true;
                row.set(step, point);
            }
        }
        Ok(has_points)
    }

    /// `changes`, `resets`: from the newest sample not after the window's start, of whichever kind
    /// it is.
    fn evaluate_anchored(&self, mut window: RangeWindow<'_>, notes: &mut Annotations) -> Outcome {
        let count_until_start =
            |times: &[TimeMs]| times.partition_point(|time| *time <= window.start);
        let (floats, histograms) =
            (count_until_start(window.times), count_until_start(window.histogram_times));
        if floats == window.times.len() && histograms == window.histogram_times.len() {
            return Ok(None);
        }
        let float_at = floats.checked_sub(1).map(|at| window.times[at]);
        let histogram_at = histograms.checked_sub(1).map(|at| window.histogram_times[at]);
        let (from_float, from_histogram) = if float_at >= histogram_at {
            (floats.saturating_sub(1), histograms)
        } else {
            (floats, histograms.saturating_sub(1))
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

    /// Computes `rate`, `increase` or `delta` over an extended window.
    fn extended_change(&self, window: &RangeWindow<'_>, notes: &mut Annotations) -> Option<Point> {
        if window.is_mixed(notes) {
            return None;
        }
        let is_smoothed = self.range_modifier == RangeModifier::Smoothed;
        let (start, end) = (window.start, window.end);
        let is_counter = self.name != "delta";
        let range_seconds = self.range_ms as f64 / 1000.0;
        if !window.histograms.is_empty() {
            let indexes = extended_indexes(window.histogram_times, start, end, is_smoothed)?;
            let extended_histograms = AroundHistograms {
                times: &window.histogram_times[indexes.clone()],
                histograms: &window.histograms[indexes],
                start,
                end,
                is_smoothed,
            };
            let mut sink = AnnotationSink {
                metric: window.series.metric,
                position: window.series.position,
                notes,
            };
            let mut change = extended_histograms.compute_change(is_counter, &mut sink)?;
            if self.name == "rate" {
                change.divide(range_seconds);
            }
            return Some(Point::Histogram(change.into()));
        }
        let extended_window =
            ExtendedWindow::new(window.times, window.values, start, end, is_smoothed)?;
        let change = extended_window.compute_change(is_counter);
        Some(Point::Float(match self.name {
            "rate" => change / range_seconds,
            _ => change,
        }))
    }
}
