//! Which series there are, and what they are called.

use axum::extract::State;
use axum::response::Response;
use egret_base::Timestamp;
use egret_series::core::promql::{LabelMatcher, QueryError};
use egret_series::model::TimeMs;
use egret_series::{Cardinality, Cost, Counted, Scope, Series};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::TRUNCATED;
use super::json::{append_end, append_labels, append_list, append_text};
use super::parameters::{Parameters, invalid, read_time, without_selector};
use super::{Member, json};
use crate::error::RequestError;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;

/// The most entries of a list of what takes how much.
pub(super) const LISTED_MAX: usize = 10_000;

/// How the name of a label begins that is escaped because the address of a request could not hold it.
const ESCAPED: &str = "U__";

fn scope(parameters: &Parameters) -> Result<Scope, QueryError> {
    let selectors = parameters.selectors()?;
    let selects_all = |selector: &Vec<LabelMatcher>| selector.iter().all(|one| one.matches(""));
    if selectors.iter().any(selects_all) {
        return Err(invalid(
            "match[]",
            "match[] must contain at least one non-empty matcher",
        ));
    }
    Ok(Scope {
        selectors,
        start: parameters.time("start")?.unwrap_or(TimeMs::MIN),
        end: parameters.time("end")?.unwrap_or(TimeMs::MAX),
    })
}

fn listed<T>(
    series: &Series,
    (items, more): (Vec<T>, bool),
    append: impl Fn(T, &mut Vec<u8>),
) -> Response {
    let mut body = b"{\"status\":\"success\",\"data\":".to_vec();
    append_list(items, &mut body, append);
    let mut warnings = series.partial_data();
    warnings.extend(more.then(|| TRUNCATED.to_owned()));
    append_end(&warnings, &[], &mut body);
    json(body)
}

fn texts(series: &Series, found: (Vec<String>, bool)) -> Response {
    listed(series, found, |text, out| append_text(&text, out))
}

/// List series
///
/// Those that one of the selectors takes, with samples in the span of time.
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/series", operation_id = "listSeries", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("match[]" = Vec<String>, Query, description = "A selector; may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
        ("limit" = Option<u64>, Query, description = "Series wanted; 0 for all."),
    ),
    responses((status = 200, description = "The labels of each.", content_type = "application/json")))]
pub(super) async fn series(
    State(series): State<Series>,
    _: Member,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = scope(&parameters)?;
    if scope.selectors.is_empty() {
        return Err(without_selector().into());
    }
    let found = series.series(scope, parameters.limit()?).await?;
    Ok(listed(&series, found, |labels, out| {
        append_labels(&labels, out)
    }))
}

/// List the names of labels
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/labels", operation_id = "listLabels", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("match[]" = Option<Vec<String>>, Query, description = "A selector; may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
        ("limit" = Option<u64>, Query, description = "Names wanted; 0 for all."),
    ),
    responses((status = 200, description = "The names.", content_type = "application/json")))]
pub(super) async fn labels(
    State(series): State<Series>,
    _: Member,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = scope(&parameters)?;
    let found = series.label_names(scope, parameters.limit()?).await?;
    Ok(texts(&series, found))
}

/// List the values of a label
#[utoipa::path(get, path = "/prometheus/api/v1/label/{name}/values", operation_id = "listLabelValues",
    tag = "series", security(("token" = ["series:read"])),
    params(
        ("name" = String, Path, description = "The label; with `U__` in front, escaped as Prometheus does."),
        ("match[]" = Option<Vec<String>>, Query, description = "A selector; may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
        ("limit" = Option<u64>, Query, description = "Values wanted; 0 for all."),
    ),
    responses((status = 200, description = "The values.", content_type = "application/json")))]
pub(super) async fn label_values(
    State(series): State<Series>,
    _: Member,
    Path(name): Path<String>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = scope(&parameters)?;
    let name = unescaped(&name).unwrap_or(name);
    if name.is_empty() {
        let message = "invalid label name: \"\"".to_owned();
        return Err(QueryError::Invalid { message }.into());
    }
    let found = series
        .label_values(name, scope, parameters.limit()?)
        .await?;
    Ok(texts(&series, found))
}

/// Undoes Prometheus's escaping of names: `__` is `_`, and `_2e_` the character with that number. `None` when the
/// name is not escaped.
fn unescaped(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix(ESCAPED)?;
    let mut whole = String::new();
    while let Some((before, after)) = rest.split_once('_') {
        whole.push_str(before);
        let (number, after) = after.split_once('_')?;
        whole.push(match number {
            "" => '_',
            number => char::from_u32(u32::from_str_radix(number, 16).ok()?)?,
        });
        rest = after;
    }
    whole.push_str(rest);
    Some(whole)
}

/// Something and how many series have it.
#[derive(Serialize, ToSchema)]
pub(super) struct Count {
    /// A metric, a label's name, or `name=value`.
    #[schema(example = "node_cpu_seconds_total")]
    name: String,
    /// How many.
    #[schema(example = 64)]
    count: u64,
}

/// What a metric costs in the span.
#[derive(Serialize, ToSchema)]
pub(super) struct MetricCost {
    /// The metric.
    #[schema(example = "node_cpu_seconds_total")]
    metric: String,
    /// Its series.
    #[schema(example = 64)]
    series: u64,
    /// Of these, those that were not there in the two hours before.
    #[schema(example = 0)]
    new_series: u64,
    /// Its samples, in whole chunks.
    #[schema(example = 368_640)]
    samples: u64,
    /// What its values take in blocks, in bytes; times are shared by many series.
    #[schema(example = 201_113)]
    disk_bytes: u64,
    /// What its samples take in memory, in bytes.
    #[schema(example = 34_816)]
    memory_bytes: u64,
}

/// New series of a period.
#[derive(Serialize, ToSchema)]
pub(super) struct Churn {
    /// When the period begins.
    #[schema(value_type = String, format = DateTime, example = "2026-11-22T03:00:00.000000Z")]
    from: Timestamp,
    /// Series that came in it.
    #[schema(example = 12)]
    new_series: u64,
}

/// What takes how much in a span of time, in memory and in blocks. Each list has the largest first.
#[derive(Serialize, ToSchema)]
pub(super) struct CardinalityReport {
    /// Series.
    #[schema(example = 1_218)]
    series: u64,
    /// Of these, those that were not there in the two hours before.
    #[schema(example = 12)]
    new_series: u64,
    /// Different `name=value`.
    #[schema(example = 634)]
    pairs: u64,
    /// Different names of labels.
    #[schema(example = 41)]
    names: u64,
    /// Series by metric.
    series_by_metric: Vec<Count>,
    /// Different values by label.
    values_by_name: Vec<Count>,
    /// Bytes of values by label, of all series together.
    bytes_by_name: Vec<Count>,
    /// Series by `name=value`.
    series_by_pair: Vec<Count>,
    /// What metrics cost, those with the most bytes first.
    costs_by_metric: Vec<MetricCost>,
    /// How long the periods of `churn` are: an hour, of a span of up to a week, else a day.
    #[schema(example = 3_600_000)]
    period_ms: i64,
    /// When new series came, by time; periods without any are left out.
    churn: Vec<Churn>,
}

/// How much of each is wanted, and of what.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Entries of each list, at most 10,000.
    #[serde(default = "ten")]
    #[param(default = 10, minimum = 1, maximum = 10_000)]
    top: usize,
    /// Where the span begins: seconds since 1970, or RFC 3339. A day before the end without.
    start: Option<String>,
    /// Where it ends. Now without.
    end: Option<String>,
}

fn ten() -> usize {
    10
}

const DAY_MS: TimeMs = 86_400_000;

/// The span that is wanted.
fn span(wanted: &Wanted, now_ms: TimeMs) -> Result<(TimeMs, TimeMs), RequestError> {
    let time = |name: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => read_time(text).map(Some).ok_or_else(|| {
            let message = format!("{name}: `{text}` is neither seconds since 1970 nor RFC 3339");
            let place = "query";
            RequestError::Parameter { place, message }
        }),
    };
    let end = time("end", &wanted.end)?.unwrap_or(now_ms);
    let start = time("start", &wanted.start)?.unwrap_or_else(|| end.saturating_sub(DAY_MS));
    Ok((start, end))
}

/// Explore cardinality
///
/// Which metrics, labels and values there are most series of in a span of time, which series are new, and what metrics
/// cost.
#[utoipa::path(get, path = "/v1/series/cardinality", operation_id = "getCardinality", tag = "series",
    security(("token" = ["series:read"])), params(Wanted),
    responses((status = 200, description = "The largest of each kind.", body = CardinalityReport)))]
pub(super) async fn cardinality(
    State(series): State<Series>,
    _: Member,
    Query(wanted): Query<Wanted>,
) -> Result<Json<CardinalityReport>, Problem> {
    if !(1..=LISTED_MAX).contains(&wanted.top) {
        let message = format!("top: {} is not from 1 to {LISTED_MAX}", wanted.top);
        return Err(RequestError::Parameter {
            place: "query",
            message,
        }
        .into());
    }
    let span = span(&wanted, series.now_ms())?;
    let found = series.cardinality(span, wanted.top).await?;
    Ok(Json(report(found)))
}

fn report(found: Cardinality) -> CardinalityReport {
    let counts = |all: Vec<Counted>| {
        let count = |Counted { name, count }| Count { name, count };
        all.into_iter().map(count).collect()
    };
    let cost = |cost: Cost| MetricCost {
        metric: cost.metric,
        series: cost.series,
        new_series: cost.new_series,
        samples: cost.samples,
        disk_bytes: cost.disk_bytes,
        memory_bytes: cost.memory_bytes,
    };
    let churn = |(from_ms, new_series): (TimeMs, u64)| Churn {
        from: Timestamp::from_micros(from_ms.saturating_mul(1_000)),
        new_series,
    };
    let largest = found.largest;
    CardinalityReport {
        series: found.series,
        new_series: found.new_series,
        pairs: largest.pairs,
        names: largest.names,
        series_by_metric: counts(largest.series_by_metric),
        values_by_name: counts(largest.values_by_name),
        bytes_by_name: counts(largest.bytes_by_name),
        series_by_pair: counts(largest.series_by_pair),
        costs_by_metric: found.costs.into_iter().map(cost).collect(),
        period_ms: found.period_ms,
        churn: found.new_by_period.into_iter().map(churn).collect(),
    }
}

#[cfg(test)]
mod tests;
