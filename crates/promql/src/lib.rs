//! PromQL: a query's text becomes a tree, the tree is evaluated over all steps at once.
//!
//! Nothing here knows a clock, a disk or a runtime: samples come through [`Source`], threads
//! through [`Executor`], deadlines through [`EvalOptions::interrupt`].

mod aggregate;
mod annotations;
mod answer;
mod binary;
mod call;
mod error;
mod eval;
mod histogram;
mod kahan;
mod keys;
mod memory;
mod number;
pub mod promqltest;
mod quick_hash;
mod range;
mod row;
mod select;
mod smooth;
mod source;
mod syntax;

use egret_metrics_model::matcher::Compiler;
use egret_metrics_model::{LabelMatcher, TimeMs, TimeSpan};

pub use answer::{Answer, InstantSample, Result as QueryResult, SampleValue, SeriesPoints};
pub use error::QueryError;
pub use histogram::{FloatHistogram, HistogramConflicts, Incompatible, Side};
pub use memory::MemorySource;
pub use source::{Hints, SampleColumns, Selection, SeriesSet, Source, Spend};

use self::row::Grid;
use self::syntax::ExprNode;

/// A range query has at most so many steps, as in Prometheus.
pub const STEPS_MAX: i64 = 11_000;

/// A query that was parsed: it can be evaluated any number of times.
#[derive(Debug)]
pub struct Query {
    text: Box<str>,
    root: ExprNode,
}

/// Evaluates the part of a query with this index.
pub type EvaluatePart<'a> = dyn Fn(usize) + Sync + 'a;

/// Runs the parts of a query. Into which parts a query is divided depends on how many series it has
/// and on nothing else, and what the parts have found is put together in their order: an answer has
/// the same bits whatever runs them, on however many threads.
pub trait Executor: Sync {
    /// Calls `evaluate_part` once for each of `0..parts`, on any threads, and returns when all
    /// calls have returned.
    fn run(&self, parts: usize, evaluate_part: &EvaluatePart<'_>);
}

/// Runs all parts on the caller's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Executor for Serial {
    fn run(&self, parts: usize, evaluate_part: &EvaluatePart<'_>) {
        (0..parts).for_each(evaluate_part);
    }
}

/// Resource limits of a query. Exceeding one fails the query with an error that names the limit;
/// results are never truncated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Samples read, those of subqueries among them.
    pub samples_max: u64,
    /// Memory of intermediate rows, in bytes.
    pub row_bytes_max: u64,
    /// Points of the answer.
    pub points_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { samples_max: 500_000_000, row_bytes_max: 2 << 30, points_max: 20_000_000 }
    }
}

impl Limits {
    /// Whether an answer may have so many points.
    ///
    /// # Errors
    /// [`QueryError::OverBudget`].
    fn check_points(&self, points: u64) -> Result<(), QueryError> {
        let budget = self.points_max;
        if points > budget {
            Err(QueryError::OverBudget {
                limit: "series.query_points_max",
                budget,
                what: "points in its answer",
            })
        } else {
            Ok(())
        }
    }
}

/// Why a query stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The time allowed has passed.
    TimedOut,
    /// The caller no longer waits for the answer.
    Canceled,
}

/// Options of an evaluation.
#[derive(Clone, Copy)]
pub struct EvalOptions<'a> {
    /// How old the newest sample of a series may be, in milliseconds.
    pub lookback_ms: i64,
    /// The step of subqueries that name none, in milliseconds.
    pub subquery_step_ms: i64,
    /// Limits of what it may use.
    pub limits: Limits,
    /// Runs the parts of the query, on one thread or more.
    pub executor: &'a dyn Executor,
    /// Asked whether to stop, once for each series that is read and each group of series.
    pub interrupt: &'a (dyn Fn() -> Option<Stop> + Sync),
}

impl Default for EvalOptions<'_> {
    fn default() -> Self {
        Self {
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            limits: Limits::default(),
            executor: &Serial,
            interrupt: &|| None,
        }
    }
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// [`QueryError::Parse`] when the text is not PromQL, or is larger than can be evaluated.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let root = syntax::parse(text)?;
        let text = text.into();
        Ok(Self { text, root })
    }

    /// The text that it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As people lay it out: long expressions over several lines. This is what Prometheus's
    /// `format_query` answers.
    pub fn format(&self) -> String {
        syntax::format_pretty(&self.root)
    }

    /// Its tree, in the form in which Prometheus's `parse_query` answers it.
    pub fn tree(&self) -> serde_json::Value {
        syntax::to_json(&self.root)
    }

    /// Evaluates it at one time.
    ///
    /// # Errors
    /// What evaluation or the source says, or a budget that is used up.
    pub fn instant(
        &self,
        source: &dyn Source,
        at: TimeMs,
        options: &EvalOptions<'_>,
    ) -> Result<Answer, QueryError> {
        let at = clamp_time(at);
        let grid = Grid { start: at, step_ms: 0, count: 1, end: at };
        answer::evaluate_instant(self, source, grid, options)
    }

    /// Evaluates it at the start of the span, at every `step_ms` after it, and not after the end.
    ///
    /// # Errors
    /// As of [`Query::instant`]; [`QueryError::Invalid`] when the step is not positive, the end is
    /// before the start, there are more than [`STEPS_MAX`] steps, or the query yields strings or
    /// ranges.
    pub fn range(
        &self,
        source: &dyn Source,
        span: TimeSpan,
        step_ms: i64,
        options: &EvalOptions<'_>,
    ) -> Result<Answer, QueryError> {
        let invalid = |message: &str| {
            let message = message.to_owned();
            Err(QueryError::Invalid { message })
        };
        if step_ms <= 0 {
            return invalid(
                "zero or negative query resolution step widths are not accepted. Try a positive integer",
            );
        }
        if span.end < span.start {
            return invalid("end timestamp must not be before start time");
        }
        let (start, end) = (clamp_time(span.start), clamp_time(span.end));
        let steps = (end - start) / step_ms;
        if steps > STEPS_MAX {
            return invalid(
                "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
            );
        }
        let grid = Grid { start, step_ms, count: steps as usize + 1, end };
        answer::evaluate_range(self, source, grid, options)
    }
}

/// A time that offsets and ranges can be added to and taken from; no sample is beyond these.
fn clamp_time(time: TimeMs) -> TimeMs {
    time.clamp(-syntax::TIME_MAX, syntax::TIME_MAX)
}

/// The matchers of a series selector such as `up{job="a"}`, as `match[]` has them.
///
/// # Errors
/// [`QueryError::Parse`] when the text is no selector.
pub fn parse_selector(text: &str) -> Result<Vec<LabelMatcher>, QueryError> {
    Ok(syntax::parse_selector(text, &mut Compiler::default())?.matchers)
}

/// Parses several selectors of one request, under one compile budget for their regular expressions.
///
/// # Errors
/// [`QueryError::Parse`] when one of the texts is no selector, or their matchers are too much
/// together.
pub fn parse_selectors<'a>(
    texts: impl Iterator<Item = &'a str>,
) -> Result<Vec<Vec<LabelMatcher>>, QueryError> {
    let mut compiler = Compiler::default();
    let parsed = texts.map(|text| Ok(syntax::parse_selector(text, &mut compiler)?.matchers));
    parsed.collect()
}

#[cfg(test)]
mod tests;
