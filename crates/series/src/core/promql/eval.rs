//! Evaluates a tree over a grid of steps: each series is read once and becomes a row.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::annotations::Notes;
use super::error::QueryError;
use super::range::Workspace;
use super::row::{Grid, Point, Row, Series, Value};
use super::select::Shown;
use super::source::{Columns, Source};
use super::syntax::{Kind, Node, Part};
use super::{Options, Stop};
use crate::model::Labels;

/// Rows as they come, each of a series of its own.
pub(crate) trait Consumer: Send {
    /// Takes a row that is not empty. What it leaves of the row is used again.
    fn take(&mut self, env: &Env<'_>, row: Incoming<'_>) -> Result<(), QueryError>;
}

/// A row on its way.
pub(crate) struct Incoming<'a> {
    pub labels: &'a Labels,
    pub drop_name: bool,
    pub row: &'a mut Row,
    pub notes: &'a mut Notes,
}

/// What one thread reads and computes with, used again for each series.
#[derive(Default)]
pub(crate) struct Scratch {
    pub columns: Columns,
    pub row: Row,
    pub notes: Notes,
    pub work: Workspace,
}

/// A query under way.
pub(crate) struct Env<'a> {
    pub source: &'a dyn Source,
    pub options: &'a Options<'a>,
    /// The steps of the query, whatever those of a subquery are.
    pub query: Grid,
    pub notes: Mutex<Notes>,
    samples: AtomicU64,
    row_bytes: AtomicU64,
}

impl<'a> Env<'a> {
    pub(crate) fn new(source: &'a dyn Source, options: &'a Options<'a>, query: Grid) -> Self {
        Self {
            source,
            options,
            query,
            notes: Mutex::default(),
            samples: AtomicU64::new(0),
            row_bytes: AtomicU64::new(0),
        }
    }

    /// Adds annotations.
    pub(crate) fn note(&self, notes: Notes) {
        if !notes.is_empty() {
            let mut all = self.notes.lock().expect("nobody panics while noting");
            all.merge(notes);
        }
    }

    /// Adds a warning about an expression, without the parentheses around it.
    pub(crate) fn warn(&self, node: &Node, text: impl Into<String>) {
        let mut notes = Notes::default();
        notes.warn(node.bare().position, text);
        self.note(notes);
    }

    /// Counts samples that were read, and asks whether to go on.
    pub(crate) fn charge_samples(&self, samples: usize) -> Result<(), QueryError> {
        let before = self.samples.fetch_add(samples as u64, Ordering::Relaxed);
        let budget = self.options.limits.samples_max;
        if before.saturating_add(samples as u64) > budget {
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
        let before = self.row_bytes.fetch_add(bytes, Ordering::Relaxed);
        let budget = self.options.limits.row_bytes_max;
        if before.saturating_add(bytes) > budget {
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

    /// Does something for each of so many series, in parts that may run at once, each with a consumer of its own.
    /// The consumers come back in the order of their series.
    pub(crate) fn for_each_series<C: Send>(
        &self,
        count: usize,
        consumer: impl Fn() -> C + Sync,
        each: impl Fn(usize, &mut Scratch, &mut C) -> Result<(), QueryError> + Sync,
    ) -> Result<Vec<C>, QueryError> {
        let executor = self.options.executor;
        let parts = parts_of(count);
        let slots: Vec<Mutex<Option<Result<C, QueryError>>>> =
            (0..parts).map(|_| Mutex::new(None)).collect();
        executor.run(parts, &|part| {
            let (mut scratch, mut consumer) = (Scratch::default(), consumer());
            let mut series = count * part / parts..count * (part + 1) / parts;
            let done = series.try_for_each(|at| each(at, &mut scratch, &mut consumer));
            self.note(scratch.notes);
            let mut slot = slots[part].lock().expect("each part has its own slot");
            *slot = Some(done.map(|()| consumer));
        });
        let results = slots.into_iter().map(|slot| {
            let filled = slot
                .into_inner()
                .expect("nobody panics while filling a slot");
            filled.expect("an executor runs every part")
        });
        results.collect()
    }

    /// The value of an expression. What cannot change is evaluated for the first step only.
    pub(crate) fn eval(&self, node: &Node, grid: Grid) -> Result<Value, QueryError> {
        if node.constant && grid.count > 1 && node.kind() != Kind::Text {
            return match self.eval(node, grid.first())? {
                Value::Scalar(values) => Ok(Value::Scalar(vec![values[0]; grid.count])),
                Value::Vector(mut series) => {
                    for one in &mut series {
                        one.row.broadcast(grid.count);
                        self.charge_bytes(one.row.size_bytes())?;
                    }
                    Ok(Value::Vector(series))
                }
                text => Ok(text),
            };
        }
        match &node.part {
            Part::Number(number, _) => Ok(Value::Scalar(vec![*number; grid.count])),
            Part::Text(text) => Ok(Value::Text(text.clone())),
            Part::Paren(inner) => self.eval(inner, grid),
            Part::Sign(inner, false) => self.eval(inner, grid),
            Part::Sign(inner, true) => Ok(negated(self.eval(inner, grid)?)),
            Part::Binary(binary) => self.binary(node, binary, grid),
            Part::Aggregate(aggregate) => self.aggregate(node, aggregate, grid).map(Value::Vector),
            Part::Call(call) => self.call(node, call, grid),
            Part::Selector(_) => Ok(Value::Vector(self.collected(node, grid)?)),
            Part::Range(..) | Part::Subquery(_) => Err(QueryError::execution(
                "a range of samples is no value by itself: give it to a function",
            )),
        }
    }

    /// The value of an expression that the grammar says is a vector.
    pub(crate) fn vector(&self, node: &Node, grid: Grid) -> Result<Vec<Series>, QueryError> {
        match self.eval(node, grid)? {
            Value::Vector(series) => Ok(series),
            _ => Err(QueryError::execution("expected an instant vector")),
        }
    }

    /// The value of an expression that the grammar says is a scalar.
    pub(crate) fn scalar(&self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        match self.eval(node, grid)? {
            Value::Scalar(values) => Ok(values),
            _ => Err(QueryError::execution("expected a scalar")),
        }
    }

    /// The rows of an expression one after the other, without keeping those that need not be kept.
    pub(crate) fn stream<C: Consumer>(
        &self,
        node: &Node,
        grid: Grid,
        consumer: impl Fn() -> C + Sync,
    ) -> Result<Vec<C>, QueryError> {
        let node = node.bare();
        let once = node.constant && grid.count > 1;
        if !once && let Some(streamed) = self.stream_series(node, grid, &consumer) {
            return streamed;
        }
        let (mut consumer, mut notes) = (consumer(), Notes::default());
        for mut series in self.vector(node, grid)? {
            let incoming = Incoming {
                labels: &series.labels,
                drop_name: series.drop_name,
                row: &mut series.row,
                notes: &mut notes,
            };
            consumer.take(self, incoming)?;
        }
        self.note(notes);
        Ok(vec![consumer])
    }

    /// Selectors, and functions of their ranges, series by series; nothing for other expressions.
    fn stream_series<C: Consumer>(
        &self,
        node: &Node,
        grid: Grid,
        consumer: &(impl Fn() -> C + Sync),
    ) -> Option<Result<Vec<C>, QueryError>> {
        match &node.part {
            Part::Selector(selector) => {
                Some(self.stream_selector(selector, grid, Shown::Value, consumer))
            }
            // That is one series, whatever its range has.
            Part::Call(call) if call.name() == "absent_over_time" => None,
            Part::Call(call) => self.stream_range(call, grid, consumer),
            _ => None,
        }
    }

    /// All rows of an expression that is streamed.
    pub(crate) fn collected(&self, node: &Node, grid: Grid) -> Result<Vec<Series>, QueryError> {
        match self.stream_series(node, grid, &Collected::default) {
            Some(parts) => Ok(parts?.into_iter().flat_map(|part| part.series).collect()),
            None => Err(QueryError::execution("expected series")),
        }
    }
}

/// Into how many parts the work on so many series is divided. What a part costs besides its series, above all in an
/// aggregation, is paid for each of them.
fn parts_of(series: usize) -> usize {
    const SERIES_MIN: usize = 256;
    const PARTS_MAX: usize = 16;
    (series / SERIES_MIN).clamp(1, PARTS_MAX)
}

/// Keeps rows.
#[derive(Default)]
pub(crate) struct Collected {
    pub series: Vec<Series>,
}

impl Consumer for Collected {
    fn take(&mut self, env: &Env<'_>, incoming: Incoming<'_>) -> Result<(), QueryError> {
        env.charge_bytes(incoming.row.size_bytes())?;
        self.series.push(Series {
            labels: incoming.labels.clone(),
            drop_name: incoming.drop_name,
            row: std::mem::take(incoming.row),
        });
        Ok(())
    }
}

fn negated(value: Value) -> Value {
    match value {
        Value::Scalar(mut values) => {
            values.iter_mut().for_each(|value| *value = -*value);
            Value::Scalar(values)
        }
        Value::Vector(mut series) => {
            for one in &mut series {
                one.drop_name = true;
                one.row.map(|_, point| {
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
            Value::Vector(series)
        }
        Value::Text(text) => Value::Text(text),
    }
}
