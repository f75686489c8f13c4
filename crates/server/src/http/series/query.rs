//! PromQL over HTTP, as Prometheus answers it.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_promql::{Query, QueryError};
use egret_series::{EvalTimes, QueryOptions, Series, SeriesError};
use http::{StatusCode, header};

use super::answer;
use super::json::{append_end, append_text, json};
use super::parameters::{Parameters, invalid_parameter};
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

/// Evaluate a query at one time
///
/// `query` is PromQL. `time` is the evaluation time (default: now), `timeout` the longest duration,
/// `limit` the maximum number of series, and `lookback_delta` the maximum age of a sample. The
/// parameters may be sent as a form.
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/query", operation_id = "queryInstant", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("query" = String, Query, description = "PromQL."),
        ("time" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("timeout" = Option<String>, Query, description = "The timeout: seconds, or a duration such as `30s`."),
        ("limit" = Option<u64>, Query, description = "The maximum number of series; 0 for all."),
        ("lookback_delta" = Option<String>, Query, description = "Seconds, or a duration."),
    ),
    responses((status = 200, description = "The result in Prometheus's format.",
        content_type = "application/json")))]
pub(super) async fn query(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let at = parameters.time("time")?;
    let times = EvalTimes::At(at.unwrap_or_else(|| series.now_ms()));
    evaluate(&series, &parameters, times).await
}

/// Follow the link of an alert
///
/// `generatorURL` of alerts and links in templates point to Prometheus's page of an expression.
/// Egret has no such page: the link is redirected to the result.
#[utoipa::path(get, path = "/prometheus/graph", operation_id = "followGraphLink", tag = "series",
    security(("token" = ["series:read"])),
    params(("g0.expr" = String, Query, description = "PromQL.")),
    responses((status = 302, description = "A redirect to `api/v1/query` with the expression.",
        headers(("location" = String, description = "The target, relative to this address.")))))]
pub(super) async fn graph(_: DefaultTenantAccess, parameters: Parameters) -> Response {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("query", parameters.text("g0.expr"));
    // A proxy in front of Egret may put more before the path.
    let location = format!("api/v1/query?{}", query.finish());
    (StatusCode::FOUND, [(header::LOCATION, location)]).into_response()
}

/// Evaluate a query over a time range
///
/// The query is evaluated at `start` and every `step` after it until `end`, in at most 11,000
/// steps.
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/query_range", operation_id = "queryRange",
    tag = "series", security(("token" = ["series:read"])),
    params(
        ("query" = String, Query, description = "PromQL."),
        ("start" = String, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = String, Query, description = "Likewise."),
        ("step" = String, Query, description = "Seconds, or a duration such as `5m`."),
        ("timeout" = Option<String>, Query, description = "Seconds, or a duration."),
        ("limit" = Option<u64>, Query, description = "The maximum number of series; 0 for all."),
        ("lookback_delta" = Option<String>, Query, description = "Seconds, or a duration."),
    ),
    responses((status = 200, description = "The result in Prometheus's format.",
        content_type = "application/json")))]
pub(super) async fn query_range(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let start = parameters.required_time("start")?;
    let end = parameters.required_time("end")?;
    let step_ms = parameters.duration_ms("step")?;
    let step_ms = step_ms
        .ok_or_else(|| invalid_parameter("step", "cannot parse \"\" to a valid duration"))?;
    let times = EvalTimes::Range { start, end, step_ms };
    evaluate(&series, &parameters, times).await
}

async fn evaluate(
    series: &Series,
    parameters: &Parameters,
    times: EvalTimes,
) -> Result<Response, Problem> {
    let options = QueryOptions {
        timeout: parameters.duration("timeout")?,
        lookback: read_lookback(parameters)?,
    };
    let limit = parameters.limit()?;
    let result = series.query(parameters.text("query"), times, options).await;
    Ok(answer::respond(result.map_err(attribute_to_query)?, limit))
}

/// The maximum age of a sample; `None`, for the configured one, unless the parameter is positive.
fn read_lookback(parameters: &Parameters) -> Result<Option<Duration>, QueryError> {
    let ms = parameters.duration_ms("lookback_delta")?;
    let ms = ms.and_then(|ms| u64::try_from(ms).ok());
    Ok(ms.filter(|ms| *ms > 0).map(Duration::from_millis))
}

/// Attributes an error of parsing to the parameter `query`.
fn attribute_to_query(error: SeriesError) -> SeriesError {
    match error {
        SeriesError::Query(QueryError::Parse { message }) => {
            let message = invalid_parameter("query", message).to_string();
            QueryError::Parse { message }.into()
        }
        error => error,
    }
}

/// Format a PromQL query
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/format_query", operation_id = "formatQuery",
    tag = "series", security(("token" = ["series:read"])),
    params(("query" = String, Query, description = "PromQL.")),
    responses((status = 200, description = "The query.", content_type = "application/json")))]
pub(super) async fn format_query(
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let query =
        Query::parse(parameters.text("query")).map_err(|error| attribute_to_query(error.into()))?;
    let mut body = b"{\"status\":\"success\",\"data\":".to_vec();
    append_text(&query.format(), &mut body);
    append_end(&[], &[], &mut body);
    Ok(json(body))
}

/// Parse a query
///
/// The response has the syntax tree of the query, in Prometheus's format.
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/parse_query", operation_id = "parseQuery",
    tag = "series", security(("token" = ["series:read"])),
    params(("query" = String, Query, description = "PromQL.")),
    responses((status = 200, description = "The tree.", content_type = "application/json")))]
pub(super) async fn parse_query(
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let query =
        Query::parse(parameters.text("query")).map_err(|error| attribute_to_query(error.into()))?;
    let mut body = b"{\"status\":\"success\",\"data\":".to_vec();
    body.extend_from_slice(query.tree().to_string().as_bytes());
    append_end(&[], &[], &mut body);
    Ok(json(body))
}

/// List exemplars
///
/// The list is always empty: exemplars are parsed and checked, but not stored.
#[utoipa::path(method(get, post), extensions(("x-egret-form" = json!(true))),
    path = "/prometheus/api/v1/query_exemplars", operation_id = "queryExemplars",
    tag = "series", security(("token" = ["series:read"])),
    params(("query" = String, Query, description = "PromQL.")),
    responses((status = 200, description = "An empty list.", content_type = "application/json")))]
pub(super) async fn query_exemplars(_: DefaultTenantAccess) -> Response {
    json(b"{\"status\":\"success\",\"data\":[]}".to_vec())
}
