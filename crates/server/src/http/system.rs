//! State of the program: liveness, readiness, status, metrics, profiles.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_base::Timestamp;
use egret_base::condition::{self, ActiveCondition};
use egret_base::lifecycle::{FailedPart, Readiness};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::state::RouterState;
use crate::extract::{Json, Query};
use crate::metrics::Exposition;
use crate::problem::Problem;
use crate::profile::{self, ProfileFormat};

/// What a profile's SVG may do when opened on its own: its script folds and searches its boxes.
const FLAMEGRAPH_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; sandbox allow-scripts";

pub(super) fn routes() -> OpenApiRouter<Arc<RouterState>> {
    OpenApiRouter::default()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
        .routes(routes!(profile))
        .routes(routes!(status))
}

/// The health of the process.
#[derive(Serialize, ToSchema)]
struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Whether the program is ready, by service.
#[derive(Serialize, ToSchema)]
struct ReadyState {
    /// Whether every service accepts requests, even if parts of one have failed.
    ready: bool,
    /// The services in the order of their start.
    services: Vec<ServiceState>,
    /// Services and parts of services that have failed while the others work, each with a remedy.
    failed: Vec<FailedState>,
    /// Names of active conditions: faults that Egret keeps retrying. `/v1/status` has their
    /// details.
    #[schema(value_type = Vec<String>, example = json!(["clock_held"]))]
    conditions: Vec<&'static str>,
}

/// A condition: a lasting fault that Egret keeps retrying, such as a full disk.
#[derive(Serialize, ToSchema)]
struct ConditionState {
    /// The name of the condition.
    #[schema(example = "queue_log_full")]
    name: &'static str,
    /// What the fault concerns, such as a file.
    subject: String,
    /// The latest failure.
    reason: String,
}

/// A service, or a part of one, that has failed while the others work.
#[derive(Serialize, ToSchema)]
struct FailedState {
    /// The service, or the service and its part.
    #[schema(example = "queue/001")]
    part: String,
    /// Why it has failed.
    reason: String,
    /// What to do about the failure.
    remedy: String,
}

/// One service's readiness.
#[derive(Serialize, ToSchema)]
struct ServiceState {
    /// The service's name.
    #[schema(example = "postgres")]
    name: &'static str,
    /// Whether the service is ready.
    ready: bool,
    /// Why the service is not ready; absent if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The status of the program. Each engine adds a section.
#[derive(Serialize, ToSchema)]
struct StatusReport {
    /// The program's version.
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// The git commit that the program was built from, followed by `+dirty` for a changed tree;
    /// `unknown` outside a checkout.
    #[schema(example = "1f0c7a3be0d94f6f0a0f7b7a6a5f0d3e2b1c4d5e")]
    commit: &'static str,
    /// The build profile: `release`, `dev` or another one.
    #[schema(example = "release")]
    build_profile: &'static str,
    /// When it started, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// Milliseconds since then.
    uptime_ms: u64,
    /// The services in the order of their start.
    services: Vec<ServiceState>,
    /// Services and parts of services that have failed while the others work, each with a remedy.
    failed: Vec<FailedState>,
    /// Active conditions: faults that Egret keeps retrying.
    conditions: Vec<ConditionState>,
    /// One section per engine, such as `postgres` or `branches`.
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    sections: Map<String, Value>,
}

fn service_states(router_state: &RouterState) -> Vec<ServiceState> {
    let service_state = |(name, readiness)| {
        let (ready, reason) = match readiness {
            Readiness::Ready => (true, None),
            Readiness::NotReady(reason) | Readiness::Failed(reason) => (false, Some(reason)),
        };
        ServiceState { name, ready, reason }
    };
    router_state.readiness().into_iter().map(service_state).collect()
}

fn failed_states(router_state: &RouterState) -> Vec<FailedState> {
    let failed_state = |failed: FailedPart| FailedState {
        part: failed.part,
        reason: failed.reason,
        remedy: failed.remedy,
    };
    (router_state.failed_parts)().into_iter().map(failed_state).collect()
}

/// The names of active conditions, each once. Callers without a token see no more of them.
fn condition_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> =
        condition::active().into_iter().map(|condition| condition.name).collect();
    names.dedup();
    names
}

fn condition_states() -> Vec<ConditionState> {
    let condition_state = |condition: ActiveCondition| ConditionState {
        name: condition.name,
        subject: condition.subject,
        reason: condition.reason,
    };
    condition::active().into_iter().map(condition_state).collect()
}

/// Check whether the process is alive
///
/// The operation succeeds as long as the process runs. No token is needed.
#[utoipa::path(get, path = "/healthz", operation_id = "getHealth", tag = "system", security(()),
    responses((status = 200, description = "The process is alive.", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Check whether every service is ready
///
/// The gRPC service `grpc.health.v1.Health` on the same port returns the same. No token is needed.
#[utoipa::path(get, path = "/readyz", operation_id = "getReadiness", tag = "system", security(()),
    responses(
        (status = 200, description = "Every service accepts requests; `failed` lists parts that do not.", body = ReadyState),
        (status = 503, description = "A service is not ready, for the reason given.", body = ReadyState),
    ))]
async fn readyz(State(router_state): State<Arc<RouterState>>) -> Response {
    let services = service_states(&router_state);
    let failed = failed_states(&router_state);
    // One failed partition, shard or block must not take all others out of service.
    let is_whole_service = |failed: &FailedState| !failed.part.contains('/');
    let ready =
        services.iter().all(|service| service.ready) && !failed.iter().any(is_whole_service);
    let report = Json(ReadyState { ready, services, failed, conditions: condition_names() });
    if ready {
        return report.into_response();
    }
    let headers = [(header::RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, report).into_response()
}

/// Get the program's metrics
///
/// The metrics are in OpenMetrics if the `Accept` header asks for it, otherwise in Prometheus's
/// text format.
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "system",
    security(("token" = ["metrics:read"])),
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain")))]
async fn metrics(State(router_state): State<Arc<RouterState>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let exposition = Exposition::from_accept_header(accept.unwrap_or_default());
    let text = router_state.metrics.render(exposition);
    ([(header::CONTENT_TYPE, exposition.content_type())], text).into_response()
}

/// The parameters of a profile.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ProfileRequest {
    /// How long to sample, in seconds; at most `server.profile_duration_max`.
    #[serde(default = "ten")]
    #[param(default = 10, minimum = 1)]
    seconds: u64,
    /// `flamegraph`, an SVG (the default), or `folded`, one line per stack.
    #[serde(default = "flamegraph")]
    #[param(inline)]
    format: ProfileFormat,
}

fn ten() -> u64 {
    10
}

fn flamegraph() -> ProfileFormat {
    ProfileFormat::Flamegraph
}

/// Take a CPU profile
///
/// The whole program is sampled for some seconds. One profile can be taken at a time.
#[utoipa::path(get, path = "/debug/profile", operation_id = "getProfile", tag = "system",
    security(("token" = ["admin"])), params(ProfileRequest),
    responses(
        (status = 200, description = "The profile.", content(
            (String = "image/svg+xml"), (String = "text/plain"))),
        (status = 409, description = "Another profile is being taken.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn profile(
    State(router_state): State<Arc<RouterState>>,
    Query(request): Query<ProfileRequest>,
) -> Result<Response, Problem> {
    let profile =
        profile::take(request.seconds, request.format, router_state.profile_duration_max).await?;
    let content_type = match request.format {
        ProfileFormat::Flamegraph => "image/svg+xml",
        ProfileFormat::Folded => "text/plain; charset=utf-8",
    };
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, FLAMEGRAPH_POLICY),
    ];
    Ok((headers, profile).into_response())
}

/// Get the status of the program and its engines
#[utoipa::path(get, path = "/v1/status", operation_id = "getStatus", tag = "system",
    security(("token" = ["status:read"])),
    responses((status = 200, description = "The status.", body = StatusReport)))]
async fn status(State(router_state): State<Arc<RouterState>>) -> Json<StatusReport> {
    let mut sections = Map::new();
    for (name, section) in &router_state.status_sections {
        sections.insert((*name).to_owned(), section().await);
    }
    let failed = failed_states(&router_state);
    for FailedState { part, reason, .. } in &failed {
        // An engine that could not start says of itself that it is stopping.
        if let Some(error) = sections.get_mut(part).and_then(|section| section.get_mut("error")) {
            *error = reason.as_str().into();
        }
    }
    let uptime = router_state.clock.now().since(router_state.started_at);
    Json(StatusReport {
        version: router_state.build.version,
        commit: router_state.build.commit,
        build_profile: router_state.build.profile,
        started_at: router_state.started_at,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        services: service_states(&router_state),
        failed,
        conditions: condition_states(),
        sections,
    })
}
