//! The pools: branches that are ready before anybody asks for them.

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
    OpenApiRouter::default()
        .routes(routes!(list_pools))
        .routes(routes!(resize_pool))
}

/// The branches of one preset that are ready before anybody asks for them.
#[derive(Serialize, ToSchema)]
struct Pool {
    /// The preset of its branches.
    #[schema(schema_with = preset_schema)]
    preset: Preset,
    /// How many branches it should have.
    #[schema(example = 2)]
    target: u32,
    /// Whether somebody chose that number; else recent demand does, within the configured bounds.
    chosen: bool,
    /// Branches that a create can take now.
    #[schema(example = 2)]
    hot: usize,
    /// Branches that are being made.
    filling: usize,
    /// The template that they are clones of; null while there is none.
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
    fn of(pools: Vec<PoolStatus>) -> Json<Self> {
        Json(Self {
            items: pools.into_iter().map(Pool::from).collect(),
        })
    }
}

/// When to answer.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct When {
    /// Whether to answer only when every pool has what it should have.
    #[serde(default)]
    filled: bool,
}

/// Look at the pools
///
/// A create without wishes of its own takes a branch from the pool of its preset.
#[utoipa::path(get, path = "/v1/pools", operation_id = "listPools", tag = "branches",
    extensions(("x-egret-operator" = json!(true))),
    security(("token" = ["branches:read"])), params(When),
    responses(
        (status = 200, description = "The pools.", body = PoolList),
        (status = 504, description = "They were not filled in time.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn list_pools(
    State(branches): State<Branches>,
    Query(when): Query<When>,
) -> Result<Json<PoolList>, Problem> {
    let pools = if when.filled {
        branches.pools_filled().await?
    } else {
        branches.pools()?
    };
    Ok(PoolList::of(pools))
}

/// The size of a pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PoolRequest {
    /// How many branches it should have; null leaves it to recent demand.
    #[schema(example = 10, required)]
    // An empty object is a slip and no wish.
    #[serde(deserialize_with = "Option::deserialize")]
    size: Option<u32>,
}

/// Resize a pool
///
/// Holds over a restart. The pool is filled or emptied behind.
#[utoipa::path(put, path = "/v1/pools/{preset}", operation_id = "resizePool", tag = "branches",
    security(("token" = ["admin"])),
    params(("preset" = String, Path, description = "The preset.")), request_body = PoolRequest,
    responses(
        (status = 200, description = "The pools as they are now.", body = PoolList),
        (status = 400, description = "No such preset, one that is not pooled, or more than `branches.pool_max` in all.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn resize_pool(
    State(branches): State<Branches>,
    caller: Caller,
    Path(preset): Path<Preset>,
    Json(request): Json<PoolRequest>,
) -> Result<Json<PoolList>, Problem> {
    tracing::info!(token = caller.token_id(), %preset, size = request.size, "a pool is resized");
    Ok(PoolList::of(
        branches.resize_pool(preset, request.size).await?,
    ))
}
