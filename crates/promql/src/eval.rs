//! Evaluates a tree over a grid of steps: each series is read once and becomes a row.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use egret_base::sync::lock;
use egret_metrics_model::Labels;

use super::annotations::Annotations;
use super::error::QueryError;
use super::range::Workspace;
use super::row::{ExprValue, Grid, LabeledRow, Point, Row};
use super::select::SampleSelection;
use super::source::{SampleColumns, Source};
use super::syntax::{ExprKind, ExprNode, ValueType};
use super::{EvalOptions, Stop};

/// Receives the evaluated rows, one per series.
pub(crate) trait Consumer: Send {
    /// Consumes a non-empty row. It may take the row's buffers; those that it leaves are reused.
    fn consume(&mut self, env: &EvalContext<'_>, row: SeriesRow<'_>) -> Result<(), QueryError>;
}

/// A row that is passed to a consumer, with its series.
pub(crate) struct SeriesRow<'a> {
    pub labels: &'a Labels,
    pub drop_name: bool,
    pub row: &'a mut Row,
    pub notes: &'a mut Annotations,
}

/// What one thread reads and computes with, used again for each series.
#[derive(Default)]
pub(crate) struct Scratch {
    pub columns: SampleColumns,
    pub row: Row,
    pub notes: Annotations,
    pub workspace: Workspace,
}

/// A query under way.
pub(crate) struct EvalContext<'a> {
    pub source: &'a dyn Source,
    pub options: &'a EvalOptions<'a>,
    /// The steps of the query, whatever those of a subquery are.
    pub query_grid: Grid,
    pub notes: Mutex<Annotations>,
    samples: AtomicU64,
    row_bytes: AtomicU64,
}

impl<'a> EvalContext<'a> {
    pub(crate) fn new(source: &'a dyn Source, options: &'a EvalOptions<'a>, query: Grid) -> Self {
        Self {
            source,
            options,
            query_grid: query,
            notes: Mutex::default(),
            samples: AtomicU64::new(0),
            row_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn add_annotations(&self, notes: Annotations) {
        if !notes.is_empty() {
            let mut annotations = lock(&self.notes);
            annotations.merge(notes);
        }
    }

    /// Adds a warning about an expression, without the parentheses around it.
    pub(crate) fn warn(&self, node: &ExprNode, text: impl Into<String>) {
        let mut notes = Annotations::default();
        notes.warn(node.without_parens().position, text);
        self.add_annotations(notes);
    }

    /// Counts samples that were read, and asks whether to go on.
    pub(crate) fn charge_samples(&self, samples: usize) -> Result<(), QueryError> {
        let samples_before = self.samples.fetch_add(samples as u64, Ordering::Relaxed);
        let budget = self.options.limits.samples_max;
        if samples_before.saturating_add(samples as u64) > budget {
            return Err(QueryError::OverBudget {
                limit: "series.query_samples_max",
                budget,
                what: "samples",
            });
        }
        self.check_stop()
    }

    /// Counts the memory of rows that are kept.
    pub(crate) fn charge_bytes(&self, bytes: u64) -> Result<(), QueryError> {
        let bytes_before = self.row_bytes.fetch_add(bytes, Ordering::Relaxed);
        let budget = self.options.limits.row_bytes_max;
        if bytes_before.saturating_add(bytes) > budget {
            return Err(QueryError::OverBudget {
                limit: "series.query_memory_max",
                budget,
                what: "bytes of intermediate rows",
            });
        }
        Ok(())
    }

    pub(crate) fn check_stop(&self) -> Result<(), QueryError> {
        match (self.options.interrupt)() {
            None => Ok(()),
            Some(Stop::TimedOut) => Err(QueryError::TimedOut),
            Some(Stop::Canceled) => Err(QueryError::Canceled),
        }
    }

    /// Does something for each of so many series, in parts that may run at once, each with a
    /// consumer of its own. The consumers come back in the order of their series.
    pub(crate) fn for_each_series<C: Send>(
        &self,
        count: usize,
        consumer: impl Fn() -> C + Sync,
        visit: impl Fn(usize, &mut Scratch, &mut C) -> Result<(), QueryError> + Sync,
    ) -> Result<Vec<C>, QueryError> {
        let executor = self.options.executor;
        let parts = part_count(count);
        let slots: Vec<Mutex<Option<Result<C, QueryError>>>> =
            (0..parts).map(|_| Mutex::new(None)).collect();
        executor.run(parts, &|part| {
            let (mut scratch, mut consumer) = (Scratch::default(), consumer());
            let mut series = count * part / parts..count * (part + 1) / parts;
            let result = series.try_for_each(|index| visit(index, &mut scratch, &mut consumer));
            self.add_annotations(scratch.notes);
            let mut slot = lock(&slots[part]);
            *slot = Some(result.map(|()| consumer));
        });
        let results = slots.into_iter().map(|slot| {
            let filled = slot.into_inner().expect("no holder of this lock can panic");
            filled.expect("an executor runs every part")
        });
        results.collect()
    }

    /// Evaluates an expression. One that is constant over time is evaluated once and broadcast.
    pub(crate) fn eval(&self, node: &ExprNode, grid: Grid) -> Result<ExprValue, QueryError> {
        if node.is_constant && grid.count > 1 && node.value_type() != ValueType::Text {
            return match self.eval(node, grid.first_step())? {
                ExprValue::Scalar(values) => Ok(ExprValue::Scalar(vec![values[0]; grid.count])),
                ExprValue::Vector(mut series) => {
                    for series_row in &mut series {
                        series_row.row.broadcast(grid.count);
                        self.charge_bytes(series_row.row.size_bytes())?;
                    }
                    Ok(ExprValue::Vector(series))
                }
                text => Ok(text),
            };
        }
        match &node.kind {
            ExprKind::Number(number, _) => Ok(ExprValue::Scalar(vec![*number; grid.count])),
            ExprKind::Text(text) => Ok(ExprValue::Text(text.clone())),
            ExprKind::Paren(inner) => self.eval(inner, grid),
            ExprKind::Sign(inner, false) => self.eval(inner, grid),
            ExprKind::Sign(inner, true) => Ok(negate(self.eval(inner, grid)?)),
            ExprKind::Binary(binary) => self.binary(node, binary, grid),
            ExprKind::Aggregate(aggregate) => {
                self.aggregate(node, aggregate, grid).map(ExprValue::Vector)
            }
            ExprKind::Call(call) => self.call(node, call, grid),
            ExprKind::Selector(_) => Ok(ExprValue::Vector(self.collect_series(node, grid)?)),
            ExprKind::Range(..) | ExprKind::Subquery(_) => Err(QueryError::execution(
                "a range of samples is not a value by itself: pass it to a function",
            )),
        }
    }

    /// The value of an expression that the grammar says is a vector.
    pub(crate) fn eval_vector(
        &self,
        node: &ExprNode,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        match self.eval(node, grid)? {
            ExprValue::Vector(series) => Ok(series),
            _ => Err(QueryError::execution("expected an instant vector")),
        }
    }

    /// The value of an expression that the grammar says is a scalar.
    pub(crate) fn eval_scalar(&self, node: &ExprNode, grid: Grid) -> Result<Vec<f64>, QueryError> {
        match self.eval(node, grid)? {
            ExprValue::Scalar(values) => Ok(values),
            _ => Err(QueryError::execution("expected a scalar")),
        }
    }

    /// The rows of an expression one after the other, without keeping those that need not be kept.
    pub(crate) fn stream_rows<C: Consumer>(
        &self,
        node: &ExprNode,
        grid: Grid,
        consumer: impl Fn() -> C + Sync,
    ) -> Result<Vec<C>, QueryError> {
        let node = node.without_parens();
        let evaluates_once = node.is_constant && grid.count > 1;
        if !evaluates_once && let Some(streamed) = self.stream_series(node, grid, &consumer) {
            return streamed;
        }
        let (mut consumer, mut notes) = (consumer(), Annotations::default());
        for mut series in self.eval_vector(node, grid)? {
            let series_row = SeriesRow {
                labels: &series.labels,
                drop_name: series.drop_name,
                row: &mut series.row,
                notes: &mut notes,
            };
            consumer.consume(self, series_row)?;
        }
        self.add_annotations(notes);
        Ok(vec![consumer])
    }

    /// Selectors, and functions of their ranges, series by series; nothing for other expressions.
    fn stream_series<C: Consumer, F: Fn() -> C + Sync>(
        &self,
        node: &ExprNode,
        grid: Grid,
        consumer: &F,
    ) -> Option<Result<Vec<C>, QueryError>> {
        match &node.kind {
            ExprKind::Selector(selector) => {
                Some(self.stream_selector(selector, grid, SampleSelection::Value, consumer))
            }
            // That is one series, whatever its range has.
            ExprKind::Call(call) if call.name() == "absent_over_time" => None,
            ExprKind::Call(call) => self.stream_range(call, grid, consumer),
            _ => None,
        }
    }

    /// All rows of an expression that is streamed.
    pub(crate) fn collect_series(
        &self,
        node: &ExprNode,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        match self.stream_series(node, grid, &SeriesCollector::default) {
            Some(parts) => Ok(parts?.into_iter().flat_map(|part| part.series).collect()),
            None => Err(QueryError::execution("expected series")),
        }
    }
}

/// Into how many parts the work on so many series is divided. What a part costs besides its series,
/// above all in an aggregation, is paid for each of them.
fn part_count(series: usize) -> usize {
    const SERIES_MIN: usize = 256;
    const PARTS_MAX: usize = 16;
    (series / SERIES_MIN).clamp(1, PARTS_MAX)
}

#[derive(Default)]
pub(crate) struct SeriesCollector {
    pub series: Vec<LabeledRow>,
}

impl Consumer for SeriesCollector {
    fn consume(
        &mut self,
        env: &EvalContext<'_>,
        series_row: SeriesRow<'_>,
    ) -> Result<(), QueryError> {
        env.charge_bytes(series_row.row.size_bytes())?;
        self.series.push(LabeledRow {
            labels: series_row.labels.clone(),
            drop_name: series_row.drop_name,
            row: std::mem::take(series_row.row),
        });
        Ok(())
    }
}

fn negate(value: ExprValue) -> ExprValue {
    match value {
        ExprValue::Scalar(mut values) => {
            values.iter_mut().for_each(|value| *value = -*value);
            ExprValue::Scalar(values)
        }
        ExprValue::Vector(mut series) => {
            for series_row in &mut series {
                series_row.drop_name = true;
                series_row.row.map(|_, point| {
                    Some(match point {
                        Point::Float(value) => Point::Float(-value),
                        Point::Histogram(histogram) => {
                            let mut negative = (*histogram).clone();
                            negative.multiply(-1.0);
                            Point::Histogram(negative.into())
                        }
                    })
                });
            }
            ExprValue::Vector(series)
        }
        ExprValue::Text(text) => ExprValue::Text(text),
    }
}
