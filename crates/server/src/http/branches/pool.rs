//! The pools over HTTP: branches that are made in advance.

use axum::extract::State;
use egret_branches::model::Preset;
use egret_branches::{Branches, PoolStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::preset_schema;
use crate::access::Caller;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<Branches> {
    OpenApiRouter::default().routes(routes!(list_pools)).routes(routes!(resize_pool))
}

/// The branches of one preset that are created in advance.
#[derive(Serialize, ToSchema)]
struct Pool {
    /// The preset of its branches.
    #[schema(schema_with = preset_schema)]
    preset: Preset,
    /// The number of branches that the pool should have.
    #[schema(example = 2)]
    target: u32,
    /// Whether that number was set. Otherwise recent demand determines it, within the configured
    /// bounds.
    chosen: bool,
    /// The number of branches that are ready to be taken.
    #[schema(example = 2)]
    hot: usize,
    /// The number of branches that are being created.
    filling: usize,
    /// The template that they are cloned from; null while there is none.
    template: Option<String>,
}

impl From<PoolStatus> for Pool {
    fn from(status: PoolStatus) -> Self {
        Self {
            preset: status.preset,
            target: status.target,
            chosen: status.chosen,
            hot: status.hot,
            filling: status.filling,
            template: status.template,
        }
    }
}

/// The pools, by preset.
#[derive(Serialize, ToSchema)]
struct PoolList {
    /// The pools.
    items: Vec<Pool>,
}

impl PoolList {
    fn from_statuses(pools: Vec<PoolStatus>) -> Json<Self> {
        Json(Self { items: pools.into_iter().map(Pool::from).collect() })
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct PoolListParams {
    /// Whether to respond only when every pool is filled.
    #[serde(default)]
    filled: bool,
}

/// List the pools
///
/// A request for a branch without special settings takes one from the pool of its preset.
#[utoipa::path(get, path = "/v1/pools", operation_id = "listPools", tag = "branches",
    extensions(("x-egret-operator" = json!(true))),
    security(("token" = ["branches:read"])), params(PoolListParams),
    responses(
        (status = 200, description = "The pools.", body = PoolList),
        (status = 504, description = "The pools were not filled in time.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn list_pools(
    State(branches): State<Branches>,
    Query(params): Query<PoolListParams>,
) -> Result<Json<PoolList>, Problem> {
    let pools =
        if params.filled { branches.await_pools_filled().await? } else { branches.pools()? };
    Ok(PoolList::from_statuses(pools))
}

/// The size of a pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PoolRequest {
    /// The number of branches that the pool should have; null: recent demand determines it.
    #[schema(example = 10, required)]
    // An empty object is more likely a mistake than a request for the default.
    #[serde(deserialize_with = "Option::deserialize")]
    size: Option<u32>,
}

/// Resize a pool
///
/// The size is kept over a restart. The pool is filled or emptied in the background.
#[utoipa::path(put, path = "/v1/pools/{preset}", operation_id = "resizePool", tag = "branches",
    security(("token" = ["admin"])),
    params(("preset" = String, Path, description = "The preset.")), request_body = PoolRequest,
    responses(
        (status = 200, description = "The pools as they are now.", body = PoolList),
        (status = 400, description = "The preset does not exist or has no pool, or the pools would exceed `branches.pool_max` in total.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn resize_pool(
    State(branches): State<Branches>,
    caller: Caller,
    Path(preset): Path<Preset>,
    Json(request): Json<PoolRequest>,
) -> Result<Json<PoolList>, Problem> {
    tracing::info!(token = caller.token_id(), %preset, size = request.size, "resized a pool");
    Ok(PoolList::from_statuses(branches.resize_pool(preset, request.size).await?))
}
