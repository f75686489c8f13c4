//! Functions of ranges: two indices advance over a series' samples, so that every step gets its window as slices.

mod blocks;
mod extended;
mod extended_histograms;
mod floats;
mod over_time;
mod rates;
mod regression;

use std::ops::Range;
use std::sync::Arc;

use self::floats::OfFloats;
use super::annotations::{self, Notes};
use super::error::QueryError;
use super::eval::{Consumer, Env, Incoming, Scratch};
use super::histogram::FloatHistogram;
use super::row::{Grid, Point, Row};
use super::select::range_argument;
use super::source::Columns;
use super::syntax::{Call, Extension, Kind, Node, Part, Position, Reach};
use crate::model::{CounterReset, Labels, TimeMs};

/// The samples a function is given, and what it is given besides. There is at least one sample.
pub(crate) struct Window<'a> {
    pub times: &'a [TimeMs],
    pub values: &'a [f64],
    pub histogram_times: &'a [TimeMs],
    pub histograms: &'a [Arc<FloatHistogram>],
    /// When counting began, of each number and each histogram; empty where it is known of none.
    pub starts: (&'a [TimeMs], &'a [TimeMs]),
    /// The window is open here…
    pub start: TimeMs,
    /// …and closed here.
    pub end: TimeMs,
    /// The time of the step, which is another where there is an offset.
    pub now: TimeMs,
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

impl Window<'_> {
    /// The numbers alone, which is what many functions know; says when histograms are left out.
    fn floats(&self, notes: &mut Notes) -> Option<&[f64]> {
        if self.values.is_empty() {
            return None;
        }
        if !self.histograms.is_empty() {
            let text = annotations::histograms_ignored_in_mixed_range(self.series.metric);
            notes.info(self.series.position, text);
        }
        Some(self.values)
    }

    /// Whether there are both numbers and histograms, which is said.
    fn is_mixed(&self, notes: &mut Notes) -> bool {
        let mixed = !self.values.is_empty() && !self.histograms.is_empty();
        if mixed {
            let text = annotations::mixed_floats_histograms(self.series.metric);
            notes.warn(self.series.position, text);
        }
        mixed
    }
}

type Outcome = Result<Option<Point>, QueryError>;

/// A function of a range.
#[derive(Clone, Copy)]
struct RangeFunction {
    apply: fn(&Window<'_>, &mut Notes) -> Outcome,
    /// How it is computed of numbers alone, if there is a quicker way.
    of_floats: Option<OfFloats>,
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
struct Prepared<'a> {
    env: &'a Env<'a>,
    name: &'static str,
    function: RangeFunction,
    grid: Grid,
    reach: &'a Reach,
    extension: Extension,
    range_ms: i64,
    arguments: Vec<Vec<f64>>,
    position: Position,
}

impl Env<'_> {
    /// The rows of a function of a range; nothing when it is no such function.
    pub(crate) fn stream_range<C: Consumer>(
        &self,
        call: &Call,
        grid: Grid,
        consumer: &(impl Fn() -> C + Sync),
    ) -> Option<Result<Vec<C>, QueryError>> {
        let function = lookup(call.name())?;
        let (_, range) = range_argument(call)?;
        Some(self.stream_windows(call, function, range, grid, consumer))
    }

    fn stream_windows<C: Consumer>(
        &self,
        call: &Call,
        function: RangeFunction,
        range: &Node,
        grid: Grid,
        consumer: &(impl Fn() -> C + Sync),
    ) -> Result<Vec<C>, QueryError> {
        let scalars = call
            .arguments
            .iter()
            .filter(|node| node.kind() == Kind::Scalar);
        let arguments = scalars.map(|node| self.scalar(node, grid));
        let arguments: Vec<Vec<f64>> = arguments.collect::<Result<_, _>>()?;
        let (reach, range_ms, extension) = match &range.part {
            Part::Range(selector, range) => (&selector.reach, range.ms, selector.extension),
            Part::Subquery(subquery) => (&subquery.reach, subquery.range.ms, Extension::None),
            _ => unreachable!("a range argument is a range or a subquery"),
        };
        let prepared = Prepared {
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
            Part::Range(selector, _) => {
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
            Part::Subquery(subquery) => {
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
fn into_columns(row: &Row, grid: Grid, columns: &mut Columns) {
    columns.clear();
    for step in 0..row.values.len() {
        match row.get(step) {
            Some(Point::Float(value)) => columns.push(grid.time(step), value),
            Some(Point::Histogram(mut histogram)) => {
                // Samples between two steps were left out: what one says of the one before it is not true here.
                if histogram.counter_reset != CounterReset::Gauge {
                    Arc::make_mut(&mut histogram).counter_reset = CounterReset::Unknown;
                }
                columns.push_histogram(grid.time(step), histogram);
            }
            None => {}
        }
    }
}

impl Prepared<'_> {
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
        let quick = self.function.of_floats;
        let quick = quick.filter(|_| columns.histograms.is_empty());
        let seen = match (self.extension, quick) {
            (Extension::None, Some(function)) => self.float_windows(function, columns, row, work),
            (Extension::None, None) => self.windows(columns, row, &context, notes)?,
            _ => self.extended_windows(columns, row, &context, notes)?,
        };
        if !seen {
            return Ok(());
        }
        if quick == Some(OfFloats::Quantile) {
            let shares = self.arguments[0].iter();
            for share in shares.filter(|share| !(0.0..=1.0).contains(*share)) {
                notes.warn(self.position, annotations::invalid_quantile(*share));
            }
        }
        let is_rate = matches!(self.name, "rate" | "increase");
        let has_starts = is_rate && quick.is_some() && !columns.starts.is_empty();
        if has_starts && self.extension == Extension::None && self.overlaps(columns, work) {
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
        let incoming = Incoming {
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
        columns: &'a Columns,
        (floats, histograms): (Range<usize>, Range<usize>),
        step: usize,
        series: &'a Context<'a>,
    ) -> Window<'a> {
        let (start, end) = self.bounds(step);
        let argument = |at: usize| {
            let argument = self.arguments.get(at);
            argument.map_or(f64::NAN, |values| values[step])
        };
        Window {
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
        columns: &Columns,
        row: &mut Row,
        series: &Context<'_>,
        notes: &mut Notes,
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
            let ranges = (floats.clone(), histograms.clone());
            let window = self.window(columns, ranges, step, series);
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

fn starts_of<'a>(
    columns: &'a Columns,
    floats: &Range<usize>,
    histograms: &Range<usize>,
) -> (&'a [TimeMs], &'a [TimeMs]) {
    let of = |starts: &'a [TimeMs], window: &Range<usize>| {
        starts.get(window.clone()).unwrap_or_default()
    };
    (
        of(&columns.starts, floats),
        of(&columns.histogram_starts, histograms),
    )
}

/// Moves a window to the samples after `start` and not after `end`.
fn advance(times: &[TimeMs], window: &mut Range<usize>, start: TimeMs, end: TimeMs) {
    while times.get(window.end).is_some_and(|at| *at <= end) {
        window.end += 1;
    }
    while window.start < window.end && times[window.start] <= start {
        window.start += 1;
    }
}

fn is_counter_name(metric: &str) -> bool {
    let mut endings = ["_total", "_sum", "_count", "_bucket"].iter();
    endings.any(|ending| metric.ends_with(ending))
}

pub(crate) use extended::{beyond, extended_samples};
pub(crate) use floats::Workspace;
pub(crate) use over_time::quantile_of;

#[cfg(test)]
mod tests;
