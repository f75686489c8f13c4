//! From rows to an answer: names that are no longer true go, series that are the same become one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::annotations::Gravity;
use super::error::QueryError;
use super::eval::Env;
use super::histogram::FloatHistogram;
use super::quick_hash::QuickHash;
use super::row::{Grid, Point, Row, Series, Value, is_metadata};
use super::source::Source;
use super::syntax::{Kind, Node, Part, Span};
use super::{Options, Query};
use crate::model::{Labels, TimeMs, is_stale};

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What it yields.
    pub result: Result,
    /// What is probably wrong with the query or the data.
    pub warnings: Vec<String>,
    /// What is worth knowing.
    pub infos: Vec<String>,
    /// Whether the query has put its series in an order, by sorting or by rank.
    pub is_ordered: bool,
}

/// What a query yields.
#[derive(Clone, Debug, PartialEq)]
pub enum Result {
    /// A number.
    Scalar(TimeMs, f64),
    /// A string.
    Text(TimeMs, String),
    /// A sample of each series, in the order that sorting functions gave them.
    Vector(Vec<Sample>),
    /// Samples of each series, by their labels.
    Matrix(Vec<SeriesPoints>),
}

/// A number or a native histogram.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<FloatHistogram>),
}

/// A sample of an instant query.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The series.
    pub labels: Labels,
    /// When it was evaluated.
    pub time: TimeMs,
    /// What it is.
    pub value: SampleValue,
}

/// A series of a range query, or of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoints {
    /// The series.
    pub labels: Labels,
    /// Numbers, by time.
    pub floats: Vec<(TimeMs, f64)>,
    /// Native histograms, by time.
    pub histograms: Vec<(TimeMs, Arc<FloatHistogram>)>,
}

pub(super) fn instant(
    query: &Query,
    source: &dyn Source,
    grid: Grid,
    options: &Options<'_>,
) -> std::result::Result<Answer, QueryError> {
    let root = &*resolved(query, grid)?;
    let env = Env::new(source, options, grid);
    let time = grid.start;
    let result = match &root.bare().part {
        Part::Range(selector, range) => {
            let found = env.raw_range(selector, range.ms, grid)?.into_iter();
            let series = found.map(|(labels, columns)| SeriesPoints {
                labels,
                floats: columns.times.into_iter().zip(columns.values).collect(),
                histograms: columns
                    .histogram_times
                    .into_iter()
                    .zip(columns.histograms)
                    .collect(),
            });
            sorted(series.collect())
        }
        Part::Subquery(subquery) => {
            let (inner, series) = env.subquery(subquery, grid)?;
            matrix(finished(series)?, inner)
        }
        _ => match env.eval(root, grid)? {
            Value::Scalar(values) => Result::Scalar(time, values[0]),
            Value::Text(bytes) => Result::Text(time, String::from_utf8_lossy(&bytes).into_owned()),
            Value::Vector(series) => {
                let samples = finished(series)?.into_iter().filter_map(|one| {
                    let value = match one.row.get(0)? {
                        Point::Float(value) => SampleValue::Float(value),
                        Point::Histogram(histogram) => SampleValue::Histogram(histogram),
                    };
                    let labels = one.labels;
                    Some(Sample {
                        labels,
                        time,
                        value,
                    })
                });
                Result::Vector(samples.collect())
            }
        },
    };
    check_points(&result, options)?;
    Ok(with_notes(result, env, query))
}

pub(super) fn range(
    query: &Query,
    source: &dyn Source,
    grid: Grid,
    options: &Options<'_>,
) -> std::result::Result<Answer, QueryError> {
    if matches!(query.root.kind(), Kind::Text | Kind::Matrix) {
        let kind = if query.root.kind() == Kind::Text {
            "string"
        } else {
            "range vector"
        };
        return Err(QueryError::Invalid {
            message: format!(
                "invalid expression type {kind:?} for range query, must be Scalar or instant Vector"
            ),
        });
    }
    let root = &*resolved(query, grid)?;
    let env = Env::new(source, options, grid);
    let series = match env.eval(root, grid)? {
        Value::Vector(series) => series,
        Value::Scalar(values) => vec![Series {
            labels: Labels::default(),
            drop_name: false,
            row: Row {
                values,
                histograms: Vec::new(),
            },
        }],
        Value::Text(_) => Vec::new(),
    };
    let result = matrix(finished(series)?, grid);
    check_points(&result, options)?;
    Ok(with_notes(result, env, query))
}

fn check_points(result: &Result, options: &Options<'_>) -> std::result::Result<(), QueryError> {
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
fn resolved(query: &Query, grid: Grid) -> std::result::Result<Cow<'_, Node>, QueryError> {
    if !query.root.has_sums() {
        return Ok(Cow::Borrowed(&query.root));
    }
    let mut root = query.root.clone();
    root.resolve(Span {
        step_ms: grid.step_ms,
        range_ms: grid.end - grid.start,
    })?;
    Ok(Cow::Owned(root))
}

fn with_notes(result: Result, env: Env<'_>, query: &Query) -> Answer {
    let notes = env.notes.into_inner().expect("nobody panics while noting");
    Answer {
        result,
        warnings: notes.texts(Gravity::Warning, &query.text),
        infos: notes.texts(Gravity::Info, &query.text),
        is_ordered: query.root.is_sorted() || query.root.is_ranked(),
    }
}

fn sorted(mut series: Vec<SeriesPoints>) -> Result {
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    Result::Matrix(series)
}

fn matrix(series: Vec<Series>, grid: Grid) -> Result {
    let points = series.into_iter().map(|one| {
        let present = one.row.values.iter().filter(|value| !is_stale(**value));
        let mut floats = Vec::with_capacity(present.count());
        for (step, value) in one.row.values.iter().enumerate() {
            if !is_stale(*value) {
                floats.push((grid.time(step), *value));
            }
        }
        let histograms = one.row.histograms.into_iter().enumerate();
        let histograms = histograms.filter_map(|(step, one)| Some((grid.time(step), one?)));
        SeriesPoints {
            floats,
            histograms: histograms.collect(),
            labels: one.labels,
        }
    });
    let has_points = |one: &SeriesPoints| !one.floats.is_empty() || !one.histograms.is_empty();
    sorted(points.filter(has_points).collect())
}

/// Takes away names that are no longer true.
fn finished(mut series: Vec<Series>) -> std::result::Result<Vec<Series>, QueryError> {
    for one in &mut series {
        if one.drop_name && one.labels.iter().any(|(name, _)| is_metadata(name)) {
            let kept = one.labels.iter().filter(|(name, _)| !is_metadata(name));
            one.labels = Labels::from_sorted(kept);
        }
    }
    merged(series)
}

/// Puts series together that have the same labels.
///
/// # Errors
/// When two of them have samples at the same step.
pub(crate) fn merged(series: Vec<Series>) -> std::result::Result<Vec<Series>, QueryError> {
    let mut by_labels: HashMap<Labels, usize, QuickHash> =
        HashMap::with_capacity_and_hasher(series.len(), QuickHash::default());
    let mut result: Vec<Series> = Vec::with_capacity(series.len());
    for one in series {
        let at = *by_labels.entry(one.labels.clone()).or_insert(result.len());
        if at == result.len() {
            result.push(one);
            continue;
        }
        let row = &mut result[at].row;
        for step in (0..one.row.values.len()).filter(|step| one.row.has(*step)) {
            if row.has(step) {
                return Err(QueryError::execution(
                    "vector cannot contain metrics with the same labelset",
                ));
            }
            row.set(step, one.row.get(step));
        }
    }
    Ok(result)
}
