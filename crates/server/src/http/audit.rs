//! The audit log over HTTP.

use std::sync::Arc;

use axum::extract::State;
use egret_base::Timestamp;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::state::RouterState;
use crate::access::Caller;
use crate::audit::{AuditEntry, AuditFilter};
use crate::error::RequestError;
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// Entries of an answer unless the caller says how many.
const LIMIT_DEFAULT: usize = 100;

/// Entries of an answer, at most.
const LIMIT_MAX: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<RouterState>> {
    OpenApiRouter::default().routes(routes!(list_audit_entries))
}

/// The entries to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// List only entries from this time on, RFC 3339.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// List only entries of the token with this id.
    token: Option<String>,
    /// List only entries of this operation.
    operation: Option<String>,
    /// The maximum number of entries; the newest are listed.
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: Option<usize>,
}

/// Entries of the audit log, newest first.
#[derive(Serialize, ToSchema)]
struct AuditEntryList {
    /// The entries.
    items: Vec<AuditEntry>,
}

/// List changes and refused attempts
///
/// The entries are listed newest first. The operator sees all of them, an administrator of another
/// tenant those of that tenant's tokens.
#[utoipa::path(get, path = "/v1/audit", operation_id = "listAuditEntries", tag = "system",
    extensions(("x-egret-tenant-admin" = json!(true))),
    security(("token" = ["admin"])), params(AuditQuery),
    responses(
        (status = 200, description = "The entries.", body = AuditEntryList),
        (status = 409, description = "No audit log is kept.", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The tenant has reached its limit of concurrent audit queries.", body = Problem,
            content_type = "application/problem+json")))]
async fn list_audit_entries(
    State(router_state): State<Arc<RouterState>>,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditEntryList>, Problem> {
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(RequestError::Parameter {
            place: "query",
            message: format!("limit: {limit} is not in the range 1 to {LIMIT_MAX}"),
        }
        .into());
    }
    let Some(audit) = router_state.audit.clone() else {
        let detail = "no audit log is kept: server.audit_log is false".to_owned();
        return Err(Problem::new(StatusCode::CONFLICT, "audit_log_off", detail, false));
    };
    let is_operator = caller.require_operator().is_ok();
    let filter = AuditFilter {
        since: query.since,
        token: query.token,
        operation: query.operation,
        tenant: (!is_operator).then(|| caller.tenant().to_owned()),
        limit,
    };
    let turn = audit.acquire_turn(caller.tenant()).await?;
    let result = tokio::task::spawn_blocking(move || audit.read(&turn, &filter))
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    let items = result.map_err(|error| {
        let detail = format!("the audit log cannot be read: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "audit_unreadable", detail, true)
    })?;
    Ok(Json(AuditEntryList { items }))
}
