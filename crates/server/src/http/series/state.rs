//! Status of the engine, in Prometheus's format.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ConfigDuration;
use egret_metrics_model::TimeMs;
use egret_series::{NameCount, Series};
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::label_queries::ENTRIES_MAX;
use super::parameters::{Parameters, invalid_parameter};
use super::router_state::SeriesState;
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

/// The version of Prometheus whose API this is: clients choose by it what to ask for.
const API_VERSION: &str = "3.5.0";

/// Entries of each list of `status/tsdb`.
const ENTRIES_DEFAULT: usize = 10;

pub(super) fn success_response(data: &Value) -> Response {
    super::json::json(json!({"status": "success", "data": data}).to_string().into_bytes())
}

/// Get the build information
///
/// `version` is the version of Prometheus whose API this is, `egret` that of the program.
#[utoipa::path(get, path = "/prometheus/api/v1/status/buildinfo", operation_id = "getBuildInfo", tag = "series",
    security(("token" = ["series:read"])),
    responses((status = 200, description = "The versions.", content_type = "application/json")))]
pub(super) async fn buildinfo(
    State(state): State<SeriesState>,
    _: DefaultTenantAccess,
) -> Response {
    let build = state.0.build;
    success_response(&json!({
        "version": API_VERSION,
        "revision": build.commit,
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
        "application": "Egret",
        "egret": build.version,
    }))
}

/// Get the runtime information
#[utoipa::path(get, path = "/prometheus/api/v1/status/runtimeinfo", operation_id = "getRuntimeInfo",
    tag = "series", security(("token" = ["series:read"])),
    responses((status = 200, description = "The time of the start, the present time and the retention.",
        content_type = "application/json")))]
pub(super) async fn runtimeinfo(
    State(state): State<SeriesState>,
    _: DefaultTenantAccess,
) -> Result<Response, Problem> {
    let inner = &state.0;
    let summary = inner.series.summary()?;
    let to_timestamp = |ms: i64| egret_base::Timestamp::from_micros(ms * 1_000);
    let now = to_timestamp(inner.series.now_ms());
    let reloaded = inner.monitor.reload_status();
    Ok(success_response(&json!({
        "startTime": inner.started_at,
        "serverTime": now,
        "reloadConfigSuccess": !reloaded.has_failed,
        "lastConfigTime": reloaded.at_ms.map_or(inner.started_at, to_timestamp),
        "corruptionCount": summary.blocks_set_aside,
        "timeSeriesCount": summary.series,
        "storageRetention": format_retention(inner.series.config().retention),
    })))
}

fn format_retention(span: ConfigDuration) -> String {
    match span.0 {
        0 => "for ever".to_owned(),
        ms => format_duration(ms),
    }
}

/// A duration as PromQL writes it: by the largest unit that it is whole in.
fn format_duration(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let largest_unit = UNITS.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    let (unit, name) = largest_unit.copied().unwrap_or((1, "ms"));
    format!("{}{name}", ms / unit)
}

/// List the settings of queries
///
/// The settings have the names of Prometheus's flags.
#[utoipa::path(get, path = "/prometheus/api/v1/status/flags", operation_id = "getFlags", tag = "series",
    security(("token" = ["series:read"])),
    responses((status = 200, description = "The settings, each with its name and value.", content_type = "application/json")))]
pub(super) async fn flags(State(series): State<Series>, _: DefaultTenantAccess) -> Response {
    let config = series.config();
    success_response(&json!({
        "query.lookback-delta": format_duration(config.lookback.0),
        "query.max-concurrency": config.queries_max.to_string(),
        "query.max-samples": config.query_samples_max.to_string(),
        "query.timeout": format_duration(config.query_timeout.0),
        "storage.tsdb.retention.time": format_retention(config.retention),
    }))
}

/// Get the cardinality in memory
///
/// The response has the number of series that were written to in the last hours, and the `limit`
/// largest entries of each kind. `GET /v1/series/cardinality` includes blocks.
#[utoipa::path(get, path = "/prometheus/api/v1/status/tsdb", operation_id = "getTsdb", tag = "series",
    security(("token" = ["series:read"])),
    params(("limit" = Option<u64>, Query, minimum = 1, maximum = 10_000, description = "The maximum number of entries of each list [default: 10].")),
    responses((status = 200, description = "Series by metric, label and value.",
        content_type = "application/json")))]
pub(super) async fn tsdb(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let limit = match parameters.text("limit") {
        "" => ENTRIES_DEFAULT,
        text => match text.parse() {
            Ok(limit @ 1..=ENTRIES_MAX) => limit,
            Ok(1..) => {
                return Err(invalid_parameter(
                    "limit",
                    format_args!("it is more than {ENTRIES_MAX}"),
                )
                .into());
            }
            _ => return Err(invalid_parameter("limit", "limit must be a positive number").into()),
        },
    };
    let statistics = series.head_statistics(limit).await?;
    // As Prometheus has it when there is nothing.
    let (min_ms, max_ms) =
        statistics.span.map_or((TimeMs::MAX, TimeMs::MIN), |span| (span.start, span.end));
    let largest = &statistics.largest;
    let to_entries = |all: &[NameCount]| -> Vec<Value> {
        let entry = |count: &NameCount| json!({"name": count.name, "value": count.count});
        all.iter().map(entry).collect()
    };
    Ok(success_response(&json!({
        "headStats": {
            "numSeries": statistics.series,
            "numLabelPairs": largest.pairs,
            "chunkCount": statistics.chunks,
            "minTime": min_ms,
            "maxTime": max_ms,
        },
        "seriesCountByMetricName": to_entries(&largest.series_by_metric),
        "labelValueCountByLabelName": to_entries(&largest.values_by_name),
        "memoryInBytesByLabelName": to_entries(&largest.bytes_by_name),
        "seriesCountByLabelValuePair": to_entries(&largest.series_by_pair),
    })))
}

/// Check whether the process is alive
///
/// No token is needed.
#[utoipa::path(get, path = "/prometheus/-/healthy", operation_id = "getSeriesHealth", tag = "series", security(()),
    responses((status = 200, description = "It is.", content_type = "text/plain")))]
pub(super) async fn healthy() -> &'static str {
    "Egret is healthy.\n"
}

/// Check whether samples and queries are accepted
///
/// No token is needed.
#[utoipa::path(get, path = "/prometheus/-/ready", operation_id = "getSeriesReadiness", tag = "series",
    security(()),
    responses(
        (status = 200, description = "They are.", content_type = "text/plain"),
        (status = 503, description = "Samples and queries are not accepted.", body = Problem, content_type = "application/json"),
    ))]
pub(super) async fn ready(State(series): State<Series>) -> Response {
    match series.ready() {
        Readiness::Ready => {
            let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            (kind, "Egret is ready.\n").into_response()
        }
        Readiness::NotReady(reason) | Readiness::Failed(reason) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Problem::new(status, "series_stopping", reason, true).into_response()
        }
    }
}
