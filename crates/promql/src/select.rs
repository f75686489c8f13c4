//! Selectors: which samples a step sees.

use egret_metrics_model::{TimeMs, is_stale};

use super::error::QueryError;
use super::eval::{Consumer, EvalContext, Scratch, SeriesRow};
use super::range::{extend_samples, extra_range_ms};
use super::row::{Grid, LabeledRow, Point, Row};
use super::smooth::{AnnotationSink, smoothed_floats, smoothed_histograms};
use super::source::{Hints, SampleColumns, Selection, SeriesSet};
use super::syntax::{
    AtModifier, Call, ExprKind, ExprNode, RangeModifier, Selector, Subquery, TIME_MAX,
    TimeModifiers,
};

/// Part of the newest sample that is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleSelection {
    Value,
    /// Its time, in seconds.
    Time,
    /// Its start (created) timestamp, in seconds; absent if the series has none.
    Start,
}

impl<'a> EvalContext<'a> {
    /// The time that a step's selector looks at.
    pub(crate) fn target_time(&self, modifiers: &TimeModifiers, time: TimeMs) -> TimeMs {
        let time = match modifiers.at {
            None => time,
            Some(AtModifier::Time(at)) => at,
            Some(AtModifier::Start) => self.query_grid.start,
            Some(AtModifier::End) => self.query_grid.end,
        };
        time.saturating_sub(modifiers.offset.ms)
    }

    pub(crate) fn select(
        &self,
        selector: &Selector,
        grid: Grid,
        range_ms: i64,
        ahead_ms: i64,
        function: Option<&'static str>,
    ) -> Result<Box<dyn SeriesSet + 'a>, QueryError> {
        let first = self.target_time(&selector.time_modifiers, grid.start);
        let selection = Selection {
            matchers: selector.matchers.clone(),
            // Windows are open on the left.
            start: first.saturating_sub(range_ms).saturating_add(1),
            end: self
                .target_time(&selector.time_modifiers, grid.last_time())
                .saturating_add(ahead_ms),
            hints: Hints {
                step_ms: if grid.count > 1 { grid.step_ms } else { 0 },
                range_ms,
                function,
            },
        };
        self.check_stop()?;
        self.source.select(&selection, &|bytes| {
            self.charge_bytes(bytes)?;
            self.check_stop()
        })
    }

    /// Streams the selected part of the newest sample within the look-back at each step.
    pub(crate) fn stream_selector<C: Consumer, F: Fn() -> C + Sync>(
        &self,
        selector: &Selector,
        grid: Grid,
        selection: SampleSelection,
        consumer: &F,
    ) -> Result<Vec<C>, QueryError> {
        let lookback_ms = self.options.lookback_ms;
        let is_smoothed = selector.range_modifier == RangeModifier::Smoothed
            && selection == SampleSelection::Value;
        let ahead_ms = if is_smoothed { lookback_ms } else { 0 };
        let set = self.select(selector, grid, lookback_ms, ahead_ms, None)?;
        let set = &*set;
        let target_times = |step| self.target_time(&selector.time_modifiers, grid.time(step));
        self.for_each_series(set.len(), consumer, |at, scratch, consumer| {
            let Scratch { columns, row, notes, .. } = scratch;
            set.read(at, columns)?;
            self.charge_samples(columns.len())?;
            if selector.detects_resets {
                columns.detect_resets();
            }
            row.reset(grid.count);
            let has_starts = !(columns.starts.is_empty() && columns.histogram_starts.is_empty());
            if selection == SampleSelection::Start && !has_starts {
                return Ok(());
            }
            let has_histograms = !columns.histograms.is_empty();
            if is_smoothed {
                columns.drop_stale();
            }
            let has_points = match (is_smoothed, has_histograms) {
                (true, false) => smoothed_floats(columns, row, target_times, lookback_ms),
                (true, true) => {
                    let mut sink = AnnotationSink {
                        metric: set.labels(at).metric(),
                        position: selector.position,
                        notes,
                    };
                    smoothed_histograms(columns, row, target_times, lookback_ms, &mut sink)
                }
                (_, false) => newest_floats(columns, row, target_times, lookback_ms, selection),
                _ => newest_points(columns, row, target_times, lookback_ms, selection),
            };
            if !has_points {
                return Ok(());
            }
            let series_row = SeriesRow {
                labels: set.labels(at),
                drop_name: selection != SampleSelection::Value,
                row,
                notes,
            };
            consumer.consume(self, series_row)
        })
    }

    /// The samples of a selector's range as they are, at one step: what `up[5m]` shows by itself.
    pub(crate) fn raw_range(
        &self,
        selector: &Selector,
        range_ms: i64,
        grid: Grid,
    ) -> Result<Vec<(egret_metrics_model::Labels, SampleColumns)>, QueryError> {
        let extension = selector.range_modifier;
        let (back_ms, ahead_ms) = extra_range_ms(extension, self.options.lookback_ms);
        let range_back_ms = range_ms.saturating_add(back_ms);
        let set = self.select(selector, grid, range_back_ms, ahead_ms, None)?;
        let end = self.target_time(&selector.time_modifiers, grid.start);
        let (mut result, mut points) = (Vec::new(), 0);
        for index in 0..set.len() {
            let mut columns = SampleColumns::default();
            set.read(index, &mut columns)?;
            self.charge_samples(columns.len())?;
            columns.drop_stale();
            columns.clip(end - range_back_ms, end + ahead_ms);
            if extension != RangeModifier::None {
                extend_samples(&mut columns, end - range_ms, end, extension)?;
            }
            if !columns.is_empty() {
                points += columns.len() as u64;
                self.options.limits.check_points(points)?;
                self.charge_bytes(columns.size_bytes())?;
                result.push((set.labels(index).clone(), columns));
            }
        }
        Ok(result)
    }

    /// The steps of a subquery that the windows of all outer steps need, aligned to its own step.
    pub(crate) fn subquery_grid(&self, subquery: &Subquery, grid: Grid) -> Grid {
        let default = self.options.subquery_step_ms;
        let step_ms = subquery.step.as_ref().map_or(default, |step| step.ms).max(1);
        // The offset and range of each are added to those of the query around it. No sample is as
        // far away as this.
        let clamp_time = |time: TimeMs| time.clamp(-4 * TIME_MAX, 4 * TIME_MAX);
        let first =
            clamp_time(self.target_time(&subquery.time_modifiers, grid.start) - subquery.range.ms);
        let end = clamp_time(self.target_time(&subquery.time_modifiers, grid.last_time()));
        let mut start = first / step_ms * step_ms;
        if start <= first {
            start += step_ms;
        }
        let count = if end < start { 0 } else { (end - start) / step_ms + 1 };
        Grid {
            start,
            step_ms,
            count: count as usize,
            end: clamp_time(self.target_time(&subquery.time_modifiers, grid.end)),
        }
    }

    /// A subquery evaluated over all the steps it needs.
    pub(crate) fn subquery(
        &self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Grid, Vec<LabeledRow>), QueryError> {
        let inner = self.subquery_grid(subquery, grid);
        if inner.count == 0 {
            return Ok((inner, Vec::new()));
        }
        // Rows of absent samples cost as much as others: the steps are paid for before they are
        // made.
        self.charge_bytes((inner.count as u64).saturating_mul(8))?;
        Ok((inner, self.eval_vector(&subquery.inner, inner)?))
    }
}

impl SampleColumns {
    /// Keeps what is after `start` and not after `end`.
    fn clip(&mut self, start: TimeMs, end: TimeMs) {
        let kept_range = |times: &[TimeMs]| {
            let from = times.partition_point(|time| *time <= start);
            from..times.partition_point(|time| *time <= end).max(from)
        };
        let (floats, histograms) = (kept_range(&self.times), kept_range(&self.histogram_times));
        self.values = self.values[floats.clone()].to_vec();
        self.times = self.times[floats.clone()].to_vec();
        self.histograms = self.histograms[histograms.clone()].to_vec();
        self.histogram_times = self.histogram_times[histograms.clone()].to_vec();
        for (starts, kept) in [(&mut self.starts, floats), (&mut self.histogram_starts, histograms)]
        {
            *starts = starts.get(kept).unwrap_or_default().to_vec();
        }
    }
}

/// When counting towards a sample began, in seconds; 0 where that is not known.
fn start_seconds(starts: &[TimeMs], index: usize) -> f64 {
    starts.get(index).copied().unwrap_or(0) as f64 / 1000.0
}

/// The newest number for each step, or its time; false when no step has one.
fn newest_floats(
    columns: &SampleColumns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
    selection: SampleSelection,
) -> bool {
    let (mut next_index, mut has_points) = (0, false);
    for (step, value) in row.values.iter_mut().enumerate() {
        let time = target(step);
        while columns.times.get(next_index).is_some_and(|at| *at <= time) {
            next_index += 1;
        }
        if next_index > 0 && columns.times[next_index - 1] > time - lookback_ms {
            *value = columns.values[next_index - 1];
            if !is_stale(*value) {
                has_points = true;
                match selection {
                    SampleSelection::Value => {}
                    SampleSelection::Time => *value = columns.times[next_index - 1] as f64 / 1000.0,
                    SampleSelection::Start => {
                        *value = start_seconds(&columns.starts, next_index - 1)
                    }
                }
            }
        }
    }
    has_points
}

/// The newest number or histogram for each step, or its time.
fn newest_points(
    columns: &SampleColumns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
    selection: SampleSelection,
) -> bool {
    let (mut floats, mut histograms, mut has_points) = (0, 0, false);
    for step in 0..row.values.len() {
        let time = target(step);
        while columns.times.get(floats).is_some_and(|at| *at <= time) {
            floats += 1;
        }
        while columns.histogram_times.get(histograms).is_some_and(|at| *at <= time) {
            histograms += 1;
        }
        let float_time = floats.checked_sub(1).map(|at| columns.times[at]);
        let histogram_time = histograms.checked_sub(1).map(|at| columns.histogram_times[at]);
        let newest = float_time.max(histogram_time);
        let Some(newest) = newest.filter(|newest| *newest > time - lookback_ms) else {
            continue;
        };
        let point = if histogram_time > float_time {
            Point::Histogram(columns.histograms[histograms - 1].clone())
        } else if is_stale(columns.values[floats - 1]) {
            continue;
        } else {
            Point::Float(columns.values[floats - 1])
        };
        let point = match (selection, &point) {
            (SampleSelection::Value, _) => point,
            (SampleSelection::Time, _) => Point::Float(newest as f64 / 1000.0),
            (SampleSelection::Start, Point::Histogram(_)) => {
                Point::Float(start_seconds(&columns.histogram_starts, histograms - 1))
            }
            (SampleSelection::Start, Point::Float(_)) => {
                Point::Float(start_seconds(&columns.starts, floats - 1))
            }
        };
        row.set(step, Some(point));
        has_points = true;
    }
    has_points
}

/// The range among a function's arguments: where it stands, and the selector or subquery.
pub(crate) fn range_argument(call: &Call) -> Option<(usize, &ExprNode)> {
    let arguments = call.arguments.iter().map(ExprNode::without_parens).enumerate();
    let mut ranges = arguments
        .filter(|(_, node)| matches!(node.kind, ExprKind::Range(..) | ExprKind::Subquery(_)));
    ranges.next()
}
