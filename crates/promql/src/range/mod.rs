//! Functions of ranges: two indices advance over a series' samples, so that every step gets its
//! window as slices.

mod blocks;
mod extended;
mod extended_histograms;
mod extended_window;
mod floats;
mod over_time;
mod rates;
mod regression;
mod window;
mod workspace;

use std::ops::Range;
use std::sync::Arc;

use egret_metrics_model::{CounterReset, Labels, TimeMs};

use self::floats::FloatRangeFn;
use self::window::{Context, Outcome, RangeWindow, advance_window, window_starts};
use super::annotations::{self, Annotations};
use super::error::QueryError;
use super::eval::{Consumer, EvalContext, Scratch, SeriesRow};
use super::row::{Grid, Point, Row};
use super::select::range_argument;
use super::source::SampleColumns;
use super::syntax::{Call, ExprKind, ExprNode, Position, RangeModifier, TimeModifiers, ValueType};

/// A function of a range.
#[derive(Clone, Copy)]
struct RangeFunction {
    apply: fn(&RangeWindow<'_>, &mut Annotations) -> Outcome,
    /// How it is computed of numbers alone, if there is a quicker way.
    float_function: Option<FloatRangeFn>,
    /// Its result is a sample of the series, so that the name stays.
    keeps_name: bool,
}

fn lookup(name: &str) -> Option<RangeFunction> {
    let keeps_name = matches!(name, "last_over_time" | "first_over_time");
    let apply = rates::lookup(name)
        .or_else(|| over_time::lookup(name))
        .or_else(|| regression::lookup(name))?;
    Some(RangeFunction { apply, float_function: floats::lookup(name), keeps_name })
}

/// A call made ready for one series after the other.
struct RangeCall<'a> {
    env: &'a EvalContext<'a>,
    name: &'static str,
    function: RangeFunction,
    grid: Grid,
    time_modifiers: &'a TimeModifiers,
    range_modifier: RangeModifier,
    range_ms: i64,
    arguments: Vec<Vec<f64>>,
    position: Position,
}

impl EvalContext<'_> {
    /// The rows of a function of a range; nothing when it is no such function.
    pub(crate) fn stream_range<C: Consumer, F: Fn() -> C + Sync>(
        &self,
        call: &Call,
        grid: Grid,
        consumer: &F,
    ) -> Option<Result<Vec<C>, QueryError>> {
        let function = lookup(call.name())?;
        let (_, range) = range_argument(call)?;
        Some(self.stream_windows(call, function, range, grid, consumer))
    }

    fn stream_windows<C: Consumer, F: Fn() -> C + Sync>(
        &self,
        call: &Call,
        function: RangeFunction,
        range: &ExprNode,
        grid: Grid,
        consumer: &F,
    ) -> Result<Vec<C>, QueryError> {
        let scalars = call.arguments.iter().filter(|node| node.value_type() == ValueType::Scalar);
        let arguments: Vec<Vec<f64>> =
            scalars.map(|node| self.eval_scalar(node, grid)).collect::<Result<_, _>>()?;
        let (time_modifiers, range_ms, range_modifier) = match &range.kind {
            ExprKind::Range(selector, range) => {
                (&selector.time_modifiers, range.ms, selector.range_modifier)
            }
            ExprKind::Subquery(subquery) => {
                (&subquery.time_modifiers, subquery.range.ms, RangeModifier::None)
            }
            _ => unreachable!("a range argument is a range or a subquery"),
        };
        let range_call = RangeCall {
            env: self,
            name: call.name(),
            function,
            grid,
            time_modifiers,
            range_modifier,
            range_ms,
            arguments,
            position: call.arguments[0].without_parens().position,
        };
        match &range.kind {
            ExprKind::Range(selector, _) => {
                extended::check_modifier(call.name(), range_modifier)?;
                let (back_ms, ahead_ms) = extra_range_ms(range_modifier, self.options.lookback_ms);
                let range_back_ms = range_ms.saturating_add(back_ms);
                let set =
                    self.select(selector, grid, range_back_ms, ahead_ms, Some(call.name()))?;
                let set = &*set;
                self.for_each_series(set.len(), consumer, |index, scratch, consumer| {
                    set.read(index, &mut scratch.columns)?;
                    self.charge_samples(scratch.columns.len())?;
                    if selector.detects_resets {
                        scratch.columns.detect_resets();
                    }
                    range_call.evaluate_series(set.labels(index), false, scratch, consumer)
                })
            }
            ExprKind::Subquery(subquery) => {
                let (inner, series) = self.subquery(subquery, grid)?;
                self.for_each_series(series.len(), consumer, |at, scratch, consumer| {
                    let series_row = &series[at];
                    fill_columns(&series_row.row, inner, &mut scratch.columns);
                    self.charge_samples(scratch.columns.len())?;
                    range_call.evaluate_series(
                        &series_row.labels,
                        series_row.drop_name,
                        scratch,
                        consumer,
                    )
                })
            }
            _ => unreachable!("a range argument is a range or a subquery"),
        }
    }
}

/// A row of a subquery as samples.
fn fill_columns(row: &Row, grid: Grid, columns: &mut SampleColumns) {
    columns.clear();
    for step in 0..row.values.len() {
        match row.get(step) {
            Some(Point::Float(value)) => columns.push(grid.time(step), value),
            Some(Point::Histogram(mut histogram)) => {
                // Samples between two steps were left out: what one says of the one before it is
                // not true here.
                if histogram.counter_reset != CounterReset::Gauge {
                    Arc::make_mut(&mut histogram).counter_reset = CounterReset::Unknown;
                }
                columns.push_histogram(grid.time(step), histogram);
            }
            None => {}
        }
    }
}

impl RangeCall<'_> {
    /// Evaluates all steps of one series.
    fn evaluate_series<C: Consumer>(
        &self,
        labels: &Labels,
        drop_name: bool,
        scratch: &mut Scratch,
        consumer: &mut C,
    ) -> Result<(), QueryError> {
        let Scratch { columns, row, notes, workspace } = scratch;
        columns.drop_stale();
        row.reset(self.grid.count);
        let context = Context { metric: labels.metric(), position: self.position };
        let float_function = self.function.float_function.filter(|_| columns.histograms.is_empty());
        let has_points = match (self.range_modifier, float_function) {
            (RangeModifier::None, Some(function)) => {
                self.fill_float_windows(function, columns, row, workspace)
            }
            (RangeModifier::None, None) => self.fill_windows(columns, row, &context, notes)?,
            _ => self.fill_extended_windows(columns, row, &context, notes)?,
        };
        if !has_points {
            return Ok(());
        }
        if float_function == Some(FloatRangeFn::Quantile) {
            let shares = self.arguments[0].iter();
            for share in shares.filter(|share| !(0.0..=1.0).contains(*share)) {
                notes.warn(self.position, annotations::invalid_quantile(*share));
            }
        }
        let is_rate = matches!(self.name, "rate" | "increase");
        let has_starts = is_rate && float_function.is_some() && !columns.starts.is_empty();
        if has_starts
            && self.range_modifier == RangeModifier::None
            && self.has_overlapping_starts(columns, workspace)
        {
            notes.warn(self.position, annotations::start_overlaps(context.metric));
        }
        if is_rate && !context.metric.is_empty() && !is_counter_name(context.metric) {
            let has_floats = (0..self.grid.count).any(|step| row.float(step).is_some());
            if has_floats {
                notes.info(self.position, annotations::possible_non_counter(context.metric));
            }
        }
        let series_row =
            SeriesRow { labels, drop_name: drop_name || !self.function.keeps_name, row, notes };
        consumer.consume(self.env, series_row)
    }

    /// Where a step's window is open, and where it is closed.
    fn window_bounds(&self, step: usize) -> (TimeMs, TimeMs) {
        let end = self.env.target_time(self.time_modifiers, self.grid.time(step));
        (end - self.range_ms, end)
    }

    /// A step's window, with these numbers and histograms.
    fn window_at<'a>(
        &self,
        columns: &'a SampleColumns,
        floats: Range<usize>,
        histograms: Range<usize>,
        step: usize,
        series: &'a Context<'a>,
    ) -> RangeWindow<'a> {
        let (start, end) = self.window_bounds(step);
        let argument = |index: usize| {
            let argument = self.arguments.get(index);
            argument.map_or(f64::NAN, |values| values[step])
        };
        RangeWindow {
            starts: window_starts(columns, &floats, &histograms),
            times: &columns.times[floats.clone()],
            values: &columns.values[floats],
            histogram_times: &columns.histogram_times[histograms.clone()],
            histograms: &columns.histograms[histograms],
            start,
            end,
            step_time: self.grid.time(step),
            arguments: [argument(0), argument(1)],
            series,
        }
    }

    /// Fills a row; false when it stays empty.
    fn fill_windows(
        &self,
        columns: &SampleColumns,
        row: &mut Row,
        series: &Context<'_>,
        notes: &mut Annotations,
    ) -> Result<bool, QueryError> {
        let (mut floats, mut histograms) = (0..0, 0..0);
        let mut has_points = false;
        for step in 0..self.grid.count {
            let (start, end) = self.window_bounds(step);
            advance_window(&columns.times, &mut floats, start, end);
            advance_window(&columns.histogram_times, &mut histograms, start, end);
            if floats.is_empty() && histograms.is_empty() {
                continue;
            }
            let window = self.window_at(columns, floats.clone(), histograms.clone(), step, series);
            if let Some(point) = (self.function.apply)(&window, notes)? {
                has_points = true;
                match point {
                    Point::Float(value) => row.values[step] = value,
                    histogram @ Point::Histogram(_) => row.set(step, Some(histogram)),
                }
            }
        }
        Ok(has_points)
    }
}

fn is_counter_name(metric: &str) -> bool {
    let mut endings = ["_total", "_sum", "_count", "_bucket"].iter();
    endings.any(|ending| metric.ends_with(ending))
}

pub(crate) use extended_window::{extend_samples, extra_range_ms};
pub(crate) use over_time::compute_quantile;
pub(crate) use workspace::Workspace;

#[cfg(test)]
mod tests;
