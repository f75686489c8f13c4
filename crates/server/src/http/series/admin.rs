//! What changes the whole store: deleting series, giving their space back, snapshots. Prometheus answers these when it
//! was started with `--web.enable-admin-api`; here they are there for tokens with scope `admin`, as no sender needs them.

use axum::extract::State;
use axum::response::Response;
use egret_series::model::TimeMs;
use egret_series::{Series, SnapshotOf};
use http::StatusCode;
use serde_json::json;

use super::Member;
use super::parameters::{Parameters, invalid, without_selector};
use super::state::success;
use crate::problem::Problem;

/// Delete samples
///
/// Those from `start` to `end` of every series that one of the selectors takes, in order and out of order, for good. What
/// is written afterwards is kept, whatever its time. Their space is given back when blocks are merged, or by
/// `clean_tombstones`.
#[utoipa::path(method(post, put),
    extensions(("x-egret-form" = json!(true)), ("x-egret-lasting" = json!(true))),
    path = "/prometheus/api/v1/admin/tsdb/delete_series", operation_id = "deleteSeries", tag = "series",
    security(("token" = ["admin"])),
    params(
        ("match[]" = Vec<String>, Query, description = "A selector; may be repeated."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339; from the first sample \
            without."),
        ("end" = Option<String>, Query, description = "Likewise; to the last sample without."),
    ),
    responses((status = 204, description = "They are deleted.")))]
pub(super) async fn delete_series(
    State(series): State<Series>,
    _: Member,
    parameters: Parameters,
) -> Result<StatusCode, Problem> {
    let selectors = parameters.selectors()?;
    if selectors.is_empty() {
        return Err(without_selector().into());
    }
    let start = parameters.time("start")?.unwrap_or(TimeMs::MIN);
    let end = parameters.time("end")?.unwrap_or(TimeMs::MAX);
    if end < start {
        return Err(invalid("end", "end timestamp must not be before start time").into());
    }
    series.delete(selectors, (start, end)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give back the space of deleted samples
///
/// Blocks with deleted samples are written anew without them.
#[utoipa::path(method(post, put), extensions(("x-egret-lasting" = json!(true))),
    path = "/prometheus/api/v1/admin/tsdb/clean_tombstones", operation_id = "cleanTombstones", tag = "series",
    security(("token" = ["admin"])),
    responses((status = 204, description = "It is given back.")))]
pub(super) async fn clean_tombstones(
    State(series): State<Series>,
    _: Member,
) -> Result<StatusCode, Problem> {
    series.clean_tombstones().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Make a snapshot
///
/// A copy of all samples in the directory `series/snapshots/<name>` of the data directory, where files are linked rather
/// than copied. Samples come in and queries are answered meanwhile. An Egret whose data directory has it as `series`
/// begins with all that was acknowledged before the snapshot was asked for.
#[utoipa::path(method(post, put),
    extensions(("x-egret-form" = json!(true)), ("x-egret-lasting" = json!(true))),
    path = "/prometheus/api/v1/admin/tsdb/snapshot", operation_id = "snapshotSeries", tag = "series",
    security(("token" = ["admin"])),
    params(("skip_head" = Option<bool>, Query, description = "Leave out what is in no block yet: the last hours, \
        mostly.")),
    responses((status = 200, description = "Its name.", content_type = "application/json")))]
pub(super) async fn snapshot(
    State(series): State<Series>,
    _: Member,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let of = match parameters.flag("skip_head")? {
        true => SnapshotOf::Blocks,
        false => SnapshotOf::Everything,
    };
    let name = series.snapshot(of).await?;
    Ok(success(&json!({ "name": name })))
}
