//! Egret's clock over HTTP: how it follows the machine's, and its release after a jump.

use std::sync::Arc;

use axum::extract::State;
use egret_base::clock::ClockStatus;
use egret_base::clock::model::ClockState;
use egret_base::{SteadyClock, Timestamp};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::extract::Json;
use crate::problem::Problem;
use crate::tokens::{ADMIN, DEFAULT_TENANT, TokenError};

/// The routes of the clock, for [`Builder::route`](crate::Builder::route).
pub fn routes(clock: Arc<SteadyClock>) -> OpenApiRouter {
    documented().with_state(clock)
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<Arc<SteadyClock>> {
    OpenApiRouter::default().routes(routes!(show_clock)).routes(routes!(release_clock))
}

/// How Egret's time follows the machine's wall clock.
#[derive(Serialize, ToSchema)]
#[schema(as = Clock)]
struct ClockReport {
    /// `following`, or `held`: the wall clock has jumped further than `clock.jump_max` or
    /// `clock.start_jump_max`, and Egret's time advances by elapsed time only.
    #[schema(example = "following")]
    state: &'static str,
    /// Egret's time, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    accepted_at: Timestamp,
    /// The machine's wall clock, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    wall_at: Timestamp,
    /// Milliseconds by which the wall clock is ahead; negative: behind.
    #[schema(example = 0)]
    offset_ms: i64,
}

impl From<ClockStatus> for ClockReport {
    fn from(status: ClockStatus) -> Self {
        Self {
            state: match status.state {
                ClockState::Following => "following",
                ClockState::Held => "held",
            },
            accepted_at: status.accepted,
            wall_at: status.wall,
            offset_ms: status.offset_us / 1_000,
        }
    }
}

/// The result of releasing the clock.
#[derive(Serialize, ToSchema)]
struct ClockRelease {
    /// Milliseconds by which Egret's time has moved; negative: back.
    #[schema(example = 31_536_000_000_i64)]
    moved_ms: i64,
    /// The clock after it.
    clock: ClockReport,
}

/// Show how Egret's time follows the wall clock
#[utoipa::path(get, path = "/v1/clock", operation_id = "getClock", tag = "system",
    security(("token" = ["status:read"])),
    responses((status = 200, description = "The clock.", body = ClockReport)))]
async fn show_clock(State(clock): State<Arc<SteadyClock>>) -> Json<ClockReport> {
    Json(clock.status().into())
}

/// Accept the machine's wall clock
///
/// Egret's time is set to the wall clock, forwards or backwards. Everything that is due at a time
/// of day (`run_at`, schedules, the expiry of tokens and branches) follows it; delays, leases and
/// retention of tasks keep counting elapsed time. The operation requires an admin token of tenant
/// `default`.
#[utoipa::path(post, path = "/v1/clock/release", operation_id = "releaseClock", tag = "system",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "The wall clock is accepted.", body = ClockRelease),
        (status = 500, description = "The wall clock is accepted until the next start, but the clock's record could not be written.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn release_clock(
    State(clock): State<Arc<SteadyClock>>,
    caller: Caller,
) -> Result<Json<ClockRelease>, Problem> {
    if caller.tenant() != DEFAULT_TENANT {
        let scope = format!("{ADMIN} of tenant {DEFAULT_TENANT}");
        return Err(TokenError::ScopeMissing { scope }.into());
    }
    let released = tokio::task::spawn_blocking(move || clock.release()).await;
    let outcome = released
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
        .map_err(|error| {
            let detail = format!(
                "the wall clock is accepted until the next start, but the clock's record cannot be written: {error}"
            );
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "clock_record", detail, true)
        })?;
    tracing::warn!(
        by = caller.token_id(),
        moved_seconds = outcome.moved_us as f64 / 1e6,
        accepted = %outcome.status.accepted,
        "clock released: the wall clock is accepted"
    );
    Ok(Json(ClockRelease { moved_ms: outcome.moved_us / 1_000, clock: outcome.status.into() }))
}
