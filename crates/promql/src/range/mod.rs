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
use self::window::{Context, Outcome, RangeWindow, advance, starts_of};
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
    of_floats: Option<FloatRangeFn>,
    /// Its result is a sample of the series, so that the name stays.
    keeps_name: bool,
}

fn lookup(name: &str) -> Option<RangeFunction> {
    let keeps_name = matches!(name, "last_over_time" | "first_over_time");
    let apply = rates::lookup(name)
        .or_else(|| over_time::lookup(name))
        .or_else(|| regression::lookup(name))?;
    Some(RangeFunction {
        apply,
        of_floats: floats::lookup(name),
        keeps_name,
    })
}

/// A call made ready for one series after the other.
struct RangeCall<'a> {
    env: &'a EvalContext<'a>,
    name: &'static str,
    function: RangeFunction,
    grid: Grid,
    reach: &'a TimeModifiers,
    extension: RangeModifier,
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
        let scalars = call
            .arguments
            .iter()
            .filter(|node| node.kind() == ValueType::Scalar);
        let arguments: Vec<Vec<f64>> = scalars
            .map(|node| self.scalar(node, grid))
            .collect::<Result<_, _>>()?;
        let (reach, range_ms, extension) = match &range.part {
            ExprKind::Range(selector, range) => (&selector.reach, range.ms, selector.extension),
            ExprKind::Subquery(subquery) => {
                (&subquery.reach, subquery.range.ms, RangeModifier::None)
            }
            _ => unreachable!("a range argument is a range or a subquery"),
        };
        let prepared = RangeCall {
            env: self,
            name: call.name(),
            function,
            grid,
            reach,
            extension,
            range_ms,
            arguments,
            position: call.arguments[0].bare().position,
        };
        match &range.part {
            ExprKind::Range(selector, _) => {
                extended::check_use(call.name(), extension)?;
                let (back_ms, ahead_ms) = beyond(extension, self.options.lookback_ms);
                let before = range_ms.saturating_add(back_ms);
                let set = self.select(selector, grid, before, ahead_ms, Some(call.name()))?;
                let set = &*set;
                self.for_each_series(set.len(), consumer, |at, scratch, consumer| {
                    set.read(at, &mut scratch.columns)?;
                    self.charge_samples(scratch.columns.len())?;
                    if selector.compares_resets {
                        scratch.columns.compare_resets();
                    }
                    prepared.one(set.labels(at), false, scratch, consumer)
                })
            }
            ExprKind::Subquery(subquery) => {
                let (inner, series) = self.subquery(subquery, grid)?;
                self.for_each_series(series.len(), consumer, |at, scratch, consumer| {
                    let one = &series[at];
                    into_columns(&one.row, inner, &mut scratch.columns);
                    self.charge_samples(scratch.columns.len())?;
                    prepared.one(&one.labels, one.drop_name, scratch, consumer)
                })
            }
            _ => unreachable!("a range argument is a range or a subquery"),
        }
    }
}

/// A row of a subquery as samples.
fn into_columns(row: &Row, grid: Grid, columns: &mut SampleColumns) {
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
    fn one<C: Consumer>(
        &self,
        labels: &Labels,
        drop_name: bool,
        scratch: &mut Scratch,
        consumer: &mut C,
    ) -> Result<(), QueryError> {
        let Scratch {
            columns,
            row,
            notes,
            work,
        } = scratch;
        columns.drop_stale();
        row.reset(self.grid.count);
        let context = Context {
            metric: labels.metric(),
            position: self.position,
        };
        let quick = self
            .function
            .of_floats
            .filter(|_| columns.histograms.is_empty());
        let seen = match (self.extension, quick) {
            (RangeModifier::None, Some(function)) => {
                self.float_windows(function, columns, row, work)
            }
            (RangeModifier::None, None) => self.windows(columns, row, &context, notes)?,
            _ => self.extended_windows(columns, row, &context, notes)?,
        };
        if !seen {
            return Ok(());
        }
        if quick == Some(FloatRangeFn::Quantile) {
            let shares = self.arguments[0].iter();
            for share in shares.filter(|share| !(0.0..=1.0).contains(*share)) {
                notes.warn(self.position, annotations::invalid_quantile(*share));
            }
        }
        let is_rate = matches!(self.name, "rate" | "increase");
        let has_starts = is_rate && quick.is_some() && !columns.starts.is_empty();
        if has_starts && self.extension == RangeModifier::None && self.overlaps(columns, work) {
            notes.warn(self.position, annotations::start_overlaps(context.metric));
        }
        if is_rate && !context.metric.is_empty() && !is_counter_name(context.metric) {
            let has_floats = (0..self.grid.count).any(|step| row.float(step).is_some());
            if has_floats {
                notes.info(
                    self.position,
                    annotations::possible_non_counter(context.metric),
                );
            }
        }
        let incoming = SeriesRow {
            labels,
            drop_name: drop_name || !self.function.keeps_name,
            row,
            notes,
        };
        consumer.take(self.env, incoming)
    }

    /// Where a step's window is open, and where it is closed.
    fn bounds(&self, step: usize) -> (TimeMs, TimeMs) {
        let end = self.env.target(self.reach, self.grid.time(step));
        (end - self.range_ms, end)
    }

    /// A step's window, with these numbers and histograms.
    fn window<'a>(
        &self,
        columns: &'a SampleColumns,
        floats: Range<usize>,
        histograms: Range<usize>,
        step: usize,
        series: &'a Context<'a>,
    ) -> RangeWindow<'a> {
        let (start, end) = self.bounds(step);
        let argument = |at: usize| {
            let argument = self.arguments.get(at);
            argument.map_or(f64::NAN, |values| values[step])
        };
        RangeWindow {
            starts: starts_of(columns, &floats, &histograms),
            times: &columns.times[floats.clone()],
            values: &columns.values[floats],
            histogram_times: &columns.histogram_times[histograms.clone()],
            histograms: &columns.histograms[histograms],
            start,
            end,
            now: self.grid.time(step),
            arguments: [argument(0), argument(1)],
            series,
        }
    }

    /// Fills a row; false when it stays empty.
    fn windows(
        &self,
        columns: &SampleColumns,
        row: &mut Row,
        series: &Context<'_>,
        notes: &mut Annotations,
    ) -> Result<bool, QueryError> {
        let (mut floats, mut histograms) = (0..0, 0..0);
        let mut seen = false;
        for step in 0..self.grid.count {
            let (start, end) = self.bounds(step);
            advance(&columns.times, &mut floats, start, end);
            advance(&columns.histogram_times, &mut histograms, start, end);
            if floats.is_empty() && histograms.is_empty() {
                continue;
            }
            let window = self.window(columns, floats.clone(), histograms.clone(), step, series);
            if let Some(point) = (self.function.apply)(&window, notes)? {
                seen = true;
                match point {
                    Point::Float(value) => row.values[step] = value,
                    histogram @ Point::Histogram(_) => row.set(step, Some(histogram)),
                }
            }
        }
        Ok(seen)
    }
}

fn is_counter_name(metric: &str) -> bool {
    let mut endings = ["_total", "_sum", "_count", "_bucket"].iter();
    endings.any(|ending| metric.ends_with(ending))
}

pub(crate) use extended_window::{beyond, extended_samples};
pub(crate) use over_time::quantile_of;
pub(crate) use workspace::Workspace;

#[cfg(test)]
mod tests;
