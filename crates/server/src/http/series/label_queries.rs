//! Look-ups of series, label names and label values, and their cardinality.

use axum::extract::State;
use axum::response::Response;
use egret_base::Timestamp;
use egret_metrics_model::{LabelMatcher, TimeMs, TimeSpan};
use egret_promql::QueryError;
use egret_series::{CardinalityStats, Cost, NameCount, Scope, Series};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::TRUNCATED_WARNING;
use super::json::{append_end, append_labels, append_list, append_text, json};
use super::parameters::{Parameters, invalid_parameter, missing_selector, read_time};
use super::tenant_access::DefaultTenantAccess;
use crate::error::RequestError;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;

/// The largest number of entries of each list of a cardinality report.
pub(super) const ENTRIES_MAX: usize = 10_000;

/// Prefix of a label name that is escaped because the path of a request could not hold it.
const ESCAPED_NAME_PREFIX: &str = "U__";

fn read_scope(parameters: &Parameters) -> Result<Scope, QueryError> {
    let selectors = parameters.selectors()?;
    let selects_all = |selector: &Vec<LabelMatcher>| selector.iter().all(|one| one.matches(""));
    if selectors.iter().any(selects_all) {
        return Err(invalid_parameter(
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

fn list_response<T>(
    series: &Series,
    items: Vec<T>,
    has_more: bool,
    append: impl Fn(T, &mut Vec<u8>),
) -> Response {
    let mut body = b"{\"status\":\"success\",\"data\":".to_vec();
    append_list(items, &mut body, append);
    let mut warnings = series.partial_data_warnings();
    warnings.extend(has_more.then(|| TRUNCATED_WARNING.to_owned()));
    append_end(&warnings, &[], &mut body);
    json(body)
}

fn text_list_response(series: &Series, items: Vec<String>, has_more: bool) -> Response {
    list_response(series, items, has_more, |text, out| append_text(&text, out))
}

/// List series
///
/// The list has the series that match one of the selectors and have samples in the time range.
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/series", operation_id = "listSeries", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("match[]" = Vec<String>, Query, description = "A selector. The parameter may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
        ("limit" = Option<u64>, Query, description = "The maximum number of series; 0 for all."),
    ),
    responses((status = 200, description = "The labels of each series.", content_type = "application/json")))]
pub(super) async fn series(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = read_scope(&parameters)?;
    if scope.selectors.is_empty() {
        return Err(missing_selector().into());
    }
    let (items, has_more) = series.series(scope, parameters.limit()?).await?;
    Ok(list_response(&series, items, has_more, |labels, out| append_labels(&labels, out)))
}

/// List the names of labels
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/labels", operation_id = "listLabels", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("match[]" = Option<Vec<String>>, Query, description = "A selector. The parameter may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
        ("limit" = Option<u64>, Query, description = "The maximum number of names; 0 for all."),
    ),
    responses((status = 200, description = "The names.", content_type = "application/json")))]
pub(super) async fn labels(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = read_scope(&parameters)?;
    let (items, has_more) = series.label_names(scope, parameters.limit()?).await?;
    Ok(text_list_response(&series, items, has_more))
}

/// List the values of a label
#[utoipa::path(get, path = "/prometheus/api/v1/label/{name}/values", operation_id = "listLabelValues",
    tag = "series", security(("token" = ["series:read"])),
    params(
        ("name" = String, Path, description = "The label; with `U__` in front, escaped as Prometheus does."),
        ("match[]" = Option<Vec<String>>, Query, description = "A selector. The parameter may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
        ("limit" = Option<u64>, Query, description = "The maximum number of values; 0 for all."),
    ),
    responses((status = 200, description = "The values.", content_type = "application/json")))]
pub(super) async fn label_values(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    Path(name): Path<String>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = read_scope(&parameters)?;
    let name = unescape_name(&name).unwrap_or(name);
    if name.is_empty() {
        let message = "invalid label name: \"\"".to_owned();
        return Err(QueryError::Invalid { message }.into());
    }
    let (items, has_more) = series.label_values(name, scope, parameters.limit()?).await?;
    Ok(text_list_response(&series, items, has_more))
}

/// Undoes Prometheus's escaping of names: `__` is `_`, and `_2e_` the character with that number.
/// `None` when the name is not escaped.
fn unescape_name(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix(ESCAPED_NAME_PREFIX)?;
    let mut result = String::new();
    while let Some((before, after)) = rest.split_once('_') {
        result.push_str(before);
        let (number, after) = after.split_once('_')?;
        result.push(match number {
            "" => '_',
            number => char::from_u32(u32::from_str_radix(number, 16).ok()?)?,
        });
        rest = after;
    }
    result.push_str(rest);
    Some(result)
}

/// A name or pair, and a number.
#[derive(Serialize, ToSchema)]
pub(super) struct Count {
    /// A metric, a label's name, or `name=value`.
    #[schema(example = "node_cpu_seconds_total")]
    name: String,
    /// The number of series, values or bytes.
    #[schema(example = 64)]
    count: u64,
}

/// The cost of a metric in the time range.
#[derive(Serialize, ToSchema)]
pub(super) struct MetricCost {
    /// The metric.
    #[schema(example = "node_cpu_seconds_total")]
    metric: String,
    /// The number of its series.
    #[schema(example = 64)]
    series: u64,
    /// The number of these series that did not exist in the two hours before.
    #[schema(example = 0)]
    new_series: u64,
    /// The number of its samples, in whole chunks.
    #[schema(example = 368_640)]
    samples: u64,
    /// The size of its values in blocks, in bytes; timestamps are shared by many series.
    #[schema(example = 201_113)]
    disk_bytes: u64,
    /// The size of its samples in memory, in bytes.
    #[schema(example = 34_816)]
    memory_bytes: u64,
}

/// New series of a period.
#[derive(Serialize, ToSchema)]
pub(super) struct Churn {
    /// The start of the period.
    #[schema(value_type = String, format = DateTime, example = "2026-11-22T03:00:00.000000Z")]
    from: Timestamp,
    /// The number of series that were new in the period.
    #[schema(example = 12)]
    new_series: u64,
}

/// The cardinality in a time range, in memory and in blocks. Each list has the largest entries
/// first.
#[derive(Serialize, ToSchema)]
pub(super) struct CardinalityReport {
    /// The number of series.
    #[schema(example = 1_218)]
    series: u64,
    /// The number of these series that did not exist in the two hours before.
    #[schema(example = 12)]
    new_series: u64,
    /// The number of different `name=value` pairs.
    #[schema(example = 634)]
    pairs: u64,
    /// The number of different label names.
    #[schema(example = 41)]
    names: u64,
    /// The number of series by metric.
    series_by_metric: Vec<Count>,
    /// The number of different values by label.
    values_by_name: Vec<Count>,
    /// The bytes of values by label, summed over all series.
    bytes_by_name: Vec<Count>,
    /// The number of series by `name=value` pair.
    series_by_pair: Vec<Count>,
    /// The cost of metrics, those with the most bytes first.
    costs_by_metric: Vec<MetricCost>,
    /// The length of the periods of `churn`: an hour for a range of up to a week, otherwise a day.
    #[schema(example = 3_600_000)]
    period_ms: i64,
    /// The number of new series by period; periods without new series are omitted.
    churn: Vec<Churn>,
}

/// The time range and size of the report.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CardinalityParams {
    /// The maximum number of entries of each list, up to 10,000.
    #[serde(default = "ten")]
    #[param(default = 10, minimum = 1, maximum = 10_000)]
    top: usize,
    /// The start of the range: seconds since 1970, or RFC 3339; when absent, a day before the end.
    start: Option<String>,
    /// The end of the range; when absent, now.
    end: Option<String>,
}

fn ten() -> usize {
    10
}

const DAY_MS: TimeMs = 86_400_000;

/// The requested time span.
fn time_span(params: &CardinalityParams, now_ms: TimeMs) -> Result<TimeSpan, RequestError> {
    let time = |name: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => read_time(text).map(Some).ok_or_else(|| {
            let message = format!("{name}: `{text}` is neither seconds since 1970 nor RFC 3339");
            let place = "query";
            RequestError::Parameter { place, message }
        }),
    };
    let end = time("end", &params.end)?.unwrap_or(now_ms);
    let start = time("start", &params.start)?.unwrap_or_else(|| end.saturating_sub(DAY_MS));
    Ok(TimeSpan { start, end })
}

/// Explore cardinality
///
/// The report has the metrics, labels and values with the most series in a time range, the number
/// of new series, and the cost of metrics.
#[utoipa::path(get, path = "/v1/series/cardinality", operation_id = "getCardinality", tag = "series",
    security(("token" = ["series:read"])), params(CardinalityParams),
    responses((status = 200, description = "The report, with the largest entries of each kind.", body = CardinalityReport)))]
pub(super) async fn cardinality(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    Query(params): Query<CardinalityParams>,
) -> Result<Json<CardinalityReport>, Problem> {
    if !(1..=ENTRIES_MAX).contains(&params.top) {
        let message = format!("top: {} is not in the range 1 to {ENTRIES_MAX}", params.top);
        return Err(RequestError::Parameter { place: "query", message }.into());
    }
    let span = time_span(&params, series.now_ms())?;
    let stats = series.cardinality(span, params.top).await?;
    Ok(Json(to_report(stats)))
}

fn to_report(stats: CardinalityStats) -> CardinalityReport {
    let counts = |all: Vec<NameCount>| {
        let count = |NameCount { name, count }| Count { name, count };
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
    let largest = stats.largest;
    CardinalityReport {
        series: stats.series,
        new_series: stats.new_series,
        pairs: largest.pairs,
        names: largest.names,
        series_by_metric: counts(largest.series_by_metric),
        values_by_name: counts(largest.values_by_name),
        bytes_by_name: counts(largest.bytes_by_name),
        series_by_pair: counts(largest.series_by_pair),
        costs_by_metric: stats.costs.into_iter().map(cost).collect(),
        period_ms: stats.period_ms,
        churn: stats.new_by_period.into_iter().map(churn).collect(),
    }
}

#[cfg(test)]
mod tests;
