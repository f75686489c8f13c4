//! Selectors: which samples a step sees.

use super::error::QueryError;
use super::eval::{Consumer, Env, Incoming, Scratch};
use super::row::{Grid, Point, Row, Series};
use super::source::{Columns, Hints, Selection, SeriesSet};
use super::syntax::{At, Call, Extension, Node, Part, Reach, Selector, Subquery};
use crate::model::{TimeMs, is_stale};

impl<'a> Env<'a> {
    /// The time that a step's selector looks at.
    pub(crate) fn target(&self, reach: &Reach, time: TimeMs) -> TimeMs {
        let time = match reach.at {
            None => time,
            Some(At::Time(at)) => at,
            Some(At::Start) => self.query.start,
            Some(At::End) => self.end,
        };
        time.saturating_sub(reach.offset.ms)
    }

    pub(crate) fn select(
        &self,
        selector: &Selector,
        grid: Grid,
        range_ms: i64,
        ahead_ms: i64,
        function: Option<&'static str>,
    ) -> Result<Box<dyn SeriesSet + 'a>, QueryError> {
        let first = self.target(&selector.reach, grid.start);
        let selection = Selection {
            matchers: selector.matchers.clone(),
            // Windows are open on the left.
            start: first.saturating_sub(range_ms).saturating_add(1),
            end: self
                .target(&selector.reach, grid.last())
                .saturating_add(ahead_ms),
            hints: Hints {
                step_ms: if grid.count > 1 { grid.step_ms } else { 0 },
                range_ms,
                function,
            },
        };
        self.check_stop()?;
        self.source.select(&selection)
    }

    /// The newest sample within the look-back, or its time in seconds, at each step.
    pub(crate) fn stream_selector<C: Consumer>(
        &self,
        selector: &Selector,
        grid: Grid,
        wants_time: bool,
        consumer: &(impl Fn() -> C + Sync),
    ) -> Result<Vec<C>, QueryError> {
        let lookback_ms = self.options.lookback_ms;
        let is_smoothed = selector.extension == Extension::Smoothed && !wants_time;
        let ahead_ms = if is_smoothed { lookback_ms } else { 0 };
        let set = self.select(selector, grid, lookback_ms, ahead_ms, None)?;
        let set = &*set;
        let targets = |step| self.target(&selector.reach, grid.time(step));
        self.for_each_series(set.len(), consumer, |at, scratch, consumer| {
            let Scratch {
                columns,
                row,
                notes,
                ..
            } = scratch;
            set.read(at, columns)?;
            self.charge_samples(columns.len())?;
            if selector.compares_resets {
                columns.compare_resets();
            }
            row.reset(grid.count);
            let seen = match columns.histograms.is_empty() {
                _ if is_smoothed => smoothed(columns, row, targets, lookback_ms),
                true => newest_floats(columns, row, targets, lookback_ms, wants_time),
                _ => newest(columns, row, targets, lookback_ms, wants_time),
            };
            if !seen {
                return Ok(());
            }
            let incoming = Incoming {
                labels: set.labels(at),
                drop_name: wants_time,
                row,
                notes,
            };
            consumer.take(self, incoming)
        })
    }

    /// The samples of a selector's range as they are, at one step: what `up[5m]` shows by itself.
    pub(crate) fn raw_range(
        &self,
        selector: &Selector,
        range_ms: i64,
        grid: Grid,
    ) -> Result<Vec<(crate::model::Labels, Columns)>, QueryError> {
        let set = self.select(selector, grid, range_ms, 0, None)?;
        let end = self.target(&selector.reach, grid.start);
        let mut found = Vec::new();
        for at in 0..set.len() {
            let mut columns = Columns::default();
            set.read(at, &mut columns)?;
            self.charge_samples(columns.len())?;
            columns.drop_stale();
            columns.clip(end - range_ms, end);
            if !columns.is_empty() {
                found.push((set.labels(at).clone(), columns));
            }
        }
        Ok(found)
    }

    /// The steps of a subquery that the windows of all outer steps need, aligned to its own step.
    pub(crate) fn subquery_grid(&self, subquery: &Subquery, grid: Grid) -> Grid {
        let default = self.options.subquery_step_ms;
        let step_ms = subquery
            .step
            .as_ref()
            .map_or(default, |step| step.ms)
            .max(1);
        let first = self.target(&subquery.reach, grid.start) - subquery.range.ms;
        let end = self.target(&subquery.reach, grid.last());
        let mut start = first / step_ms * step_ms;
        if start <= first {
            start += step_ms;
        }
        let count = if end < start {
            0
        } else {
            (end - start) / step_ms + 1
        };
        Grid {
            start,
            step_ms,
            count: count as usize,
        }
    }

    /// A subquery evaluated over all the steps it needs.
    pub(crate) fn subquery(
        &self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Grid, Vec<Series>), QueryError> {
        let inner = self.subquery_grid(subquery, grid);
        if inner.count == 0 {
            return Ok((inner, Vec::new()));
        }
        // Rows of absent samples cost as much as others: the steps are paid for before they are made.
        self.charge_bytes((inner.count as u64).saturating_mul(8))?;
        Ok((inner, self.vector(&subquery.inner, inner)?))
    }
}

impl Columns {
    /// Keeps what is after `start` and not after `end`.
    fn clip(&mut self, start: TimeMs, end: TimeMs) {
        let keep = |times: &[TimeMs]| {
            let from = times.partition_point(|time| *time <= start);
            from..times.partition_point(|time| *time <= end).max(from)
        };
        let (floats, histograms) = (keep(&self.times), keep(&self.histogram_times));
        self.values = self.values[floats.clone()].to_vec();
        self.times = self.times[floats].to_vec();
        self.histograms = self.histograms[histograms.clone()].to_vec();
        self.histogram_times = self.histogram_times[histograms].to_vec();
    }
}

/// The newest number for each step, or its time; false when no step has one.
fn newest_floats(
    columns: &Columns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
    wants_time: bool,
) -> bool {
    let (mut next, mut seen) = (0, false);
    for (step, value) in row.values.iter_mut().enumerate() {
        let time = target(step);
        while columns.times.get(next).is_some_and(|at| *at <= time) {
            next += 1;
        }
        if next > 0 && columns.times[next - 1] > time - lookback_ms {
            *value = columns.values[next - 1];
            if !is_stale(*value) {
                seen = true;
                if wants_time {
                    *value = columns.times[next - 1] as f64 / 1000.0;
                }
            }
        }
    }
    seen
}

/// What lies on the line between the numbers around each step; after the last one, that.
fn smoothed(
    columns: &mut Columns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
) -> bool {
    columns.drop_stale();
    let (mut next, mut seen) = (0, false);
    for (step, value) in row.values.iter_mut().enumerate() {
        let time = target(step);
        while columns.times.get(next).is_some_and(|at| *at <= time) {
            next += 1;
        }
        if next == 0 || columns.times[next - 1] <= time - lookback_ms {
            continue;
        }
        let (before_at, before) = (columns.times[next - 1], columns.values[next - 1]);
        *value = match columns.times.get(next) {
            Some(after_at) if before_at < time && *after_at <= time + lookback_ms => {
                let share = (time - before_at) as f64 / (after_at - before_at) as f64;
                before + (columns.values[next] - before) * share
            }
            _ => before,
        };
        seen = true;
    }
    seen
}

/// The newest number or histogram for each step, or its time.
fn newest(
    columns: &Columns,
    row: &mut Row,
    target: impl Fn(usize) -> TimeMs,
    lookback_ms: i64,
    wants_time: bool,
) -> bool {
    let (mut floats, mut histograms, mut seen) = (0, 0, false);
    for step in 0..row.values.len() {
        let time = target(step);
        while columns.times.get(floats).is_some_and(|at| *at <= time) {
            floats += 1;
        }
        while columns
            .histogram_times
            .get(histograms)
            .is_some_and(|at| *at <= time)
        {
            histograms += 1;
        }
        let float_time = floats.checked_sub(1).map(|at| columns.times[at]);
        let histogram_time = histograms
            .checked_sub(1)
            .map(|at| columns.histogram_times[at]);
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
        let point = if wants_time {
            Point::Float(newest as f64 / 1000.0)
        } else {
            point
        };
        row.set(step, Some(point));
        seen = true;
    }
    seen
}

/// The range among a function's arguments: where it stands, and the selector or subquery.
pub(crate) fn range_argument(call: &Call) -> Option<(usize, &Node)> {
    let arguments = call.arguments.iter().map(Node::bare).enumerate();
    let mut ranges =
        arguments.filter(|(_, node)| matches!(node.part, Part::Range(..) | Part::Subquery(_)));
    ranges.next()
}
