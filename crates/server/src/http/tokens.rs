//! Tokens over HTTP: make, list, revoke.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::state::RouterState;
use crate::access::Caller;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use crate::request_context::AuditSubject;
use crate::tokens::{NewToken, Token, TokenError, TokenRequest, Tokens};

pub(super) fn routes() -> OpenApiRouter<Arc<RouterState>> {
    OpenApiRouter::default()
        .routes(routes!(create_token, list_tokens))
        .routes(routes!(revoke_token))
}

/// Every token, oldest first.
#[derive(Serialize, ToSchema)]
struct TokenList {
    /// The tokens, without their secrets.
    items: Vec<Token>,
}

/// Create a token
///
/// The response has the token's text, which is not shown again. A token cannot create one with more
/// rights than its own: an administrator of another tenant than `default` can create tokens of that
/// tenant, and a created token expires with its creator at the latest.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "createToken", tag = "tokens",
    extensions(("x-egret-tenant-admin" = json!(true))),
    security(("token" = ["admin"])), request_body = TokenRequest,
    responses((status = 201, description = "The token was created.", body = NewToken)))]
async fn create_token(
    State(router_state): State<Arc<RouterState>>,
    caller: Caller,
    subject: AuditSubject,
    Json(request): Json<TokenRequest>,
) -> Result<(StatusCode, Json<NewToken>), Problem> {
    let request = request.restrict_to_creator(caller.token(), router_state.clock.now())?;
    let made = run_blocking(&router_state, move |tokens| tokens.create(&request)).await?;
    subject.set_object(&made.details.id);
    tracing::info!(id = made.details.id, by = caller.token_id(), "token created");
    Ok((StatusCode::CREATED, Json(made)))
}

/// List tokens
///
/// The list has no revoked tokens; expired ones are listed for 30 days. The operator sees all
/// tokens, an administrator of another tenant those of that tenant.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "listTokens", tag = "tokens",
    extensions(("x-egret-tenant-admin" = json!(true))),
    security(("token" = ["admin"])),
    responses((status = 200, description = "The tokens.", body = TokenList)))]
async fn list_tokens(
    State(router_state): State<Arc<RouterState>>,
    caller: Caller,
) -> Json<TokenList> {
    let mut items = router_state.tokens.list();
    items.retain(|token| may_manage(&caller, &token.tenant));
    Json(TokenList { items })
}

/// Whether a caller administers the tokens of a tenant.
fn may_manage(caller: &Caller, tenant: &str) -> bool {
    caller.require_operator().is_ok() || caller.tenant() == tenant
}

/// The parameters of a revocation.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Revocation {
    /// Whether the token is revoked even if it is the last one of tenant `default` with scope
    /// `admin`. In that case the next start of the server creates a new one.
    #[serde(default)]
    force: bool,
}

/// Revoke a token
///
/// The token is refused from the next request on, and its open streams and waits end within a
/// second. A token may revoke itself.
#[utoipa::path(delete, path = "/v1/tokens/{id}", operation_id = "revokeToken", tag = "tokens",
    extensions(("x-egret-tenant-admin" = json!(true))),
    security(("token" = ["admin"])),
    params(("id" = String, Path, description = "The token's public id, 12 characters."), Revocation),
    responses(
        (status = 204, description = "The token is revoked."),
        (status = 404, description = "No token has this id.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The token is the last one of tenant `default` with scope `admin`.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn revoke_token(
    State(router_state): State<Arc<RouterState>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Revocation { force }): Query<Revocation>,
) -> Result<StatusCode, Problem> {
    let is_own = router_state.tokens.has_token_of_tenant(&id, caller.tenant());
    if !is_own && caller.require_operator().is_err() {
        return Err(TokenError::NotFound { id }.into());
    }
    let revoked_id = id.clone();
    run_blocking(&router_state, move |tokens| tokens.revoke(&revoked_id, force)).await?;
    tracing::info!(id, by = caller.token_id(), "token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Runs work that blocks on the disk, on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    router_state: &RouterState,
    work: impl FnOnce(&Tokens) -> Result<T, TokenError> + Send + 'static,
) -> Result<T, TokenError> {
    let tokens = router_state.tokens.clone();
    tokio::task::spawn_blocking(move || work(&tokens))
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
