//! What changes the whole store: deleting series, giving their space back, snapshots. Prometheus
//! answers these when it was started with `--web.enable-admin-api`; here they are there for tokens
//! with scope `admin`, as no sender needs them.

use axum::extract::State;
use axum::response::Response;
use egret_metrics_model::{TimeMs, TimeSpan};
use egret_series::{Series, SnapshotOf};
use http::StatusCode;
use serde_json::json;

use super::parameters::{Parameters, invalid_parameter, missing_selector};
use super::state::success_response;
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

/// Delete samples
///
/// The samples from `start` to `end` of every series that matches one of the selectors are deleted
/// permanently, in-order and out-of-order ones. Samples that are written afterwards are kept,
/// whatever their time. The space is freed when blocks are merged, or by `clean_tombstones`.
#[utoipa::path(method(post, put),
    extensions(("x-egret-form" = json!(true)), ("x-egret-lasting" = json!(true))),
    path = "/prometheus/api/v1/admin/tsdb/delete_series", operation_id = "deleteSeries", tag = "series",
    security(("token" = ["admin"])),
    params(
        ("match[]" = Vec<String>, Query, description = "A selector. The parameter may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339. Without \
            it, from the first sample."),
        ("end" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339. Without it, to the last sample."),
    ),
    responses((status = 204, description = "The samples are deleted.")))]
pub(super) async fn delete_series(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<StatusCode, Problem> {
    let selectors = parameters.selectors()?;
    if selectors.is_empty() {
        return Err(missing_selector().into());
    }
    let start = parameters.time("start")?.unwrap_or(TimeMs::MIN);
    let end = parameters.time("end")?.unwrap_or(TimeMs::MAX);
    if end < start {
        return Err(invalid_parameter("end", "end timestamp must not be before start time").into());
    }
    series.delete(selectors, TimeSpan { start, end }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Free the space of deleted samples
///
/// Blocks with deleted samples are rewritten without them.
#[utoipa::path(method(post, put), extensions(("x-egret-lasting" = json!(true))),
    path = "/prometheus/api/v1/admin/tsdb/clean_tombstones", operation_id = "cleanTombstones", tag = "series",
    security(("token" = ["admin"])),
    responses((status = 204, description = "The space is freed.")))]
pub(super) async fn clean_tombstones(
    State(series): State<Series>,
    _: DefaultTenantAccess,
) -> Result<StatusCode, Problem> {
    series.clean_tombstones().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Create a snapshot
///
/// A snapshot of all samples is created in the directory `series/snapshots/<name>` of the data
/// directory; files are hard links rather than copies. Writes and queries are served meanwhile. An
/// Egret whose data directory has the snapshot as `series` starts with all samples that were
/// acknowledged before the request.
#[utoipa::path(method(post, put),
    extensions(("x-egret-form" = json!(true)), ("x-egret-lasting" = json!(true))),
    path = "/prometheus/api/v1/admin/tsdb/snapshot", operation_id = "snapshotSeries", tag = "series",
    security(("token" = ["admin"])),
    params(("skip_head" = Option<bool>, Query, description = "Whether to leave out samples that \
        are in no block yet, mostly those of the last hours.")),
    responses((status = 200, description = "The snapshot's name.", content_type = "application/json")))]
pub(super) async fn snapshot(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let contents =
        if parameters.flag("skip_head")? { SnapshotOf::Blocks } else { SnapshotOf::Everything };
    let name = series.snapshot(contents).await?;
    Ok(success_response(&json!({ "name": name })))
}
