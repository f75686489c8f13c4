//! From rows to an answer: names that are no longer true go, series that are the same become one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use egret_metrics_model::{Labels, TimeMs, is_stale};

use super::annotations::Severity;
use super::error::QueryError;
use super::eval::EvalContext;
use super::histogram::FloatHistogram;
use super::quick_hash::QuickHash;
use super::row::{ExprValue, Grid, LabeledRow, Point, Row, is_metadata};
use super::source::Source;
use super::syntax::{ExprKind, ExprNode, QuerySpan, ValueType};
use super::{EvalOptions, Query};

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Value of the expression.
    pub result: Result,
    /// What is probably wrong with the query or the data.
    pub warnings: Vec<String>,
    /// Info annotations of the query.
    pub infos: Vec<String>,
    /// Whether the query has put its series in an order, by sorting or by rank.
    pub is_ordered: bool,
}

/// Value of a query, by its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Result {
    /// A number, with its evaluation time.
    Scalar(TimeMs, f64),
    /// A string, with its evaluation time.
    Text(TimeMs, String),
    /// A sample of each series, in the order that sorting functions gave them.
    Vector(Vec<InstantSample>),
    /// Samples of each series, by their labels.
    Matrix(Vec<SeriesPoints>),
}

/// A number or a native histogram.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A number, as a float.
    Float(f64),
    /// A native histogram sample.
    Histogram(Arc<FloatHistogram>),
}

/// A sample of an instant query.
#[derive(Clone, Debug, PartialEq)]
pub struct InstantSample {
    /// Labels of the series.
    pub labels: Labels,
    /// Time of the evaluation.
    pub time: TimeMs,
    /// Value of the sample.
    pub value: SampleValue,
}

/// A series of a range query, or of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoints {
    /// Labels of the series.
    pub labels: Labels,
    /// Numbers, ascending by time.
    pub floats: Vec<(TimeMs, f64)>,
    /// Native histograms, by time.
    pub histograms: Vec<(TimeMs, Arc<FloatHistogram>)>,
}

pub(super) fn evaluate_instant(
    query: &Query,
    source: &dyn Source,
    grid: Grid,
    options: &EvalOptions<'_>,
) -> std::result::Result<Answer, QueryError> {
    let root = &*resolve_root(query, grid)?;
    let env = EvalContext::new(source, options, grid);
    let time = grid.start;
    let result = match &root.without_parens().kind {
        ExprKind::Range(selector, range) => {
            let ranges = env.raw_range(selector, range.ms, grid)?.into_iter();
            let series = ranges.map(|(labels, columns)| SeriesPoints {
                labels,
                floats: columns.times.into_iter().zip(columns.values).collect(),
                histograms: columns.histogram_times.into_iter().zip(columns.histograms).collect(),
            });
            sorted_matrix(series.collect())
        }
        ExprKind::Subquery(subquery) => {
            let (inner, series) = env.subquery(subquery, grid)?;
            to_matrix(finish_series(series)?, inner)
        }
        _ => match env.eval(root, grid)? {
            ExprValue::Scalar(values) => Result::Scalar(time, values[0]),
            ExprValue::Text(bytes) => {
                Result::Text(time, String::from_utf8_lossy(&bytes).into_owned())
            }
            ExprValue::Vector(series) => {
                let samples = finish_series(series)?.into_iter().filter_map(|series_row| {
                    let value = match series_row.row.get(0)? {
                        Point::Float(value) => SampleValue::Float(value),
                        Point::Histogram(histogram) => SampleValue::Histogram(histogram),
                    };
                    let labels = series_row.labels;
                    Some(InstantSample { labels, time, value })
                });
                Result::Vector(samples.collect())
            }
        },
    };
    check_points(&result, options)?;
    Ok(into_answer(result, env, query))
}

pub(super) fn evaluate_range(
    query: &Query,
    source: &dyn Source,
    grid: Grid,
    options: &EvalOptions<'_>,
) -> std::result::Result<Answer, QueryError> {
    if matches!(query.root.value_type(), ValueType::Text | ValueType::Matrix) {
        let kind =
            if query.root.value_type() == ValueType::Text { "string" } else { "range vector" };
        return Err(QueryError::Invalid {
            message: format!(
                "invalid expression type {kind:?} for range query, must be Scalar or instant Vector"
            ),
        });
    }
    let root = &*resolve_root(query, grid)?;
    let env = EvalContext::new(source, options, grid);
    let series = match env.eval(root, grid)? {
        ExprValue::Vector(series) => series,
        ExprValue::Scalar(values) => vec![LabeledRow {
            labels: Labels::default(),
            drop_name: false,
            row: Row { values, histograms: Vec::new() },
        }],
        ExprValue::Text(_) => Vec::new(),
    };
    let result = to_matrix(finish_series(series)?, grid);
    check_points(&result, options)?;
    Ok(into_answer(result, env, query))
}

fn check_points(result: &Result, options: &EvalOptions<'_>) -> std::result::Result<(), QueryError> {
    let points = match result {
        Result::Scalar(..) | Result::Text(..) => 1,
        Result::Vector(samples) => samples.len(),
        Result::Matrix(series) => {
            let each = |one: &SeriesPoints| one.floats.len() + one.histograms.len();
            series.iter().map(each).sum()
        }
    };
    options.limits.check_points(points as u64)
}

/// The tree with the lengths of time that only a query's step and range tell.
fn resolve_root(query: &Query, grid: Grid) -> std::result::Result<Cow<'_, ExprNode>, QueryError> {
    if !query.root.has_duration_exprs() {
        return Ok(Cow::Borrowed(&query.root));
    }
    let mut root = query.root.clone();
    root.resolve_durations(QuerySpan { step_ms: grid.step_ms, range_ms: grid.end - grid.start })?;
    Ok(Cow::Owned(root))
}

fn into_answer(result: Result, env: EvalContext<'_>, query: &Query) -> Answer {
    let notes = env.notes.into_inner().expect("no holder of this lock can panic");
    Answer {
        result,
        warnings: notes.texts(Severity::Warning, &query.text),
        infos: notes.texts(Severity::Info, &query.text),
        is_ordered: query.root.is_sorted() || query.root.is_ranked(),
    }
}

fn sorted_matrix(mut series: Vec<SeriesPoints>) -> Result {
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    Result::Matrix(series)
}

fn to_matrix(series: Vec<LabeledRow>, grid: Grid) -> Result {
    let points = series.into_iter().map(|series_row| {
        let present = series_row.row.values.iter().filter(|value| !is_stale(**value));
        let mut floats = Vec::with_capacity(present.count());
        for (step, value) in series_row.row.values.iter().enumerate() {
            if !is_stale(*value) {
                floats.push((grid.time(step), *value));
            }
        }
        let histograms = series_row
            .row
            .histograms
            .into_iter()
            .enumerate()
            .filter_map(|(step, one)| Some((grid.time(step), one?)));
        SeriesPoints { floats, histograms: histograms.collect(), labels: series_row.labels }
    });
    let has_points = |one: &SeriesPoints| !one.floats.is_empty() || !one.histograms.is_empty();
    sorted_matrix(points.filter(has_points).collect())
}

/// Takes away names that are no longer true.
fn finish_series(mut series: Vec<LabeledRow>) -> std::result::Result<Vec<LabeledRow>, QueryError> {
    for series_row in &mut series {
        if series_row.drop_name && series_row.labels.iter().any(|(name, _)| is_metadata(name)) {
            let kept_labels = series_row.labels.iter().filter(|(name, _)| !is_metadata(name));
            series_row.labels = Labels::from_sorted(kept_labels);
        }
    }
    merge_by_labels(series)
}

/// Puts series together that have the same labels.
///
/// # Errors
/// When two of them have samples at the same step.
pub(crate) fn merge_by_labels(
    series: Vec<LabeledRow>,
) -> std::result::Result<Vec<LabeledRow>, QueryError> {
    let mut by_labels: HashMap<Labels, usize, QuickHash> =
        HashMap::with_capacity_and_hasher(series.len(), QuickHash::default());
    let mut result: Vec<LabeledRow> = Vec::with_capacity(series.len());
    for series_row in series {
        let index = *by_labels.entry(series_row.labels.clone()).or_insert(result.len());
        if index == result.len() {
            result.push(series_row);
            continue;
        }
        let row = &mut result[index].row;
        for step in (0..series_row.row.values.len()).filter(|step| series_row.row.has_sample(*step))
        {
            if row.has_sample(step) {
                return Err(QueryError::execution(
                    "vector cannot contain metrics with the same labelset",
                ));
            }
            row.set(step, series_row.row.get(step));
        }
    }
    Ok(result)
}
