//! Outboxes over HTTP: `egret.enqueue` installed in databases, looked at and removed.

use std::collections::BTreeMap;

use axum::extract::State;
use egret_queue::{Outbox, OutboxView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::extract::{Json, Path, Query};
use crate::http::sql_text::sql_text;
use crate::problem::Problem;
use crate::request_context::AuditSubject;

/// The routes of outboxes, for [`Builder::route`](crate::Builder::route).
pub fn routes(outbox: Outbox) -> OpenApiRouter {
    documented().with_state(outbox)
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<Outbox> {
    OpenApiRouter::default()
        .routes(routes!(list_outboxes, install_outbox))
        .routes(routes!(remove_outbox))
        .routes(routes!(retry_outbox))
}

/// An outbox: rows of committed transactions that become tasks.
#[derive(Serialize, ToSchema)]
struct OutboxStatus {
    /// The database that it is in.
    #[schema(example = "shop")]
    database: String,
    /// Rows that have not become tasks yet.
    #[schema(example = 0)]
    waiting: u64,
    /// How long the oldest waiting row has waited, in milliseconds; null without waiting rows.
    oldest_ms: Option<u64>,
    /// Rows that the queue rejected permanently; they are in `egret.outbox_rejected`.
    #[schema(example = 0)]
    rejected: u64,
    /// `reading`, or the reason why the outbox is not read.
    #[schema(example = "reading")]
    reader: String,
    /// Queues that accept no tasks at the moment, with the reason; their rows wait.
    held: BTreeMap<String, String>,
}

impl From<OutboxView> for OutboxStatus {
    fn from(view: OutboxView) -> Self {
        Self {
            database: view.database,
            waiting: view.waiting,
            oldest_ms: view.oldest_ms,
            rejected: view.rejected,
            reader: view.reader,
            held: view.held,
        }
    }
}

/// The outboxes, in order of their databases' names.
#[derive(Serialize, ToSchema)]
struct OutboxList {
    /// The outboxes.
    items: Vec<OutboxStatus>,
    /// Whether there may be more outboxes, in databases in which no session can be opened.
    #[schema(example = false)]
    incomplete: bool,
}

/// List the outboxes
///
/// The list has the outboxes of every database of the embedded server, or of the one database of an
/// external server.
#[utoipa::path(get, path = "/v1/outboxes", operation_id = "listOutboxes", tag = "queue",
    security(("token" = ["admin"])),
    responses((status = 200, description = "The outboxes.", body = OutboxList)))]
async fn list_outboxes(State(outbox): State<Outbox>) -> Result<Json<OutboxList>, Problem> {
    let views = outbox.list().await?;
    let outboxes = views.outboxes.into_iter();
    Ok(Json(OutboxList {
        items: outboxes.map(OutboxStatus::from).collect(),
        incomplete: !views.is_complete,
    }))
}

/// Where to install an outbox, and which roles may use it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OutboxRequest {
    /// The database; when absent, the only one.
    #[schema(example = "shop")]
    database: Option<String>,
    /// Roles that may call `egret.enqueue`; `public` is every role.
    #[serde(default, deserialize_with = "sql_text")]
    #[schema(example = json!(["app"]))]
    grant: Vec<String>,
}

/// The database of an outbox.
#[derive(Serialize, ToSchema)]
struct OutboxPlace {
    /// Its name.
    #[schema(example = "shop")]
    database: String,
}

/// Install an outbox
///
/// `egret.enqueue` is created in a database, with all its objects in schema `egret`. For an
/// existing outbox, it is upgraded and the requested privileges are granted.
#[utoipa::path(post, path = "/v1/outboxes", operation_id = "installOutbox", tag = "queue",
    security(("token" = ["admin"])), request_body = OutboxRequest,
    responses(
        (status = 200, description = "The outbox is installed.", body = OutboxPlace),
        (status = 404, description = "The database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn install_outbox(
    State(outbox): State<Outbox>,
    caller: Caller,
    subject: AuditSubject,
    Json(request): Json<OutboxRequest>,
) -> Result<Json<OutboxPlace>, Problem> {
    tracing::info!(token = caller.token_id(), database = ?request.database, "installing an outbox");
    let database = request.database.as_deref();
    let database = outbox.install(database, &request.grant).await?;
    subject.set_object(&database);
    Ok(Json(OutboxPlace { database }))
}

/// Whether to remove rows too.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct OutboxRemovalParams {
    /// Whether to remove an outbox that has rows.
    #[serde(default)]
    force: bool,
}

/// Rows of an outbox.
#[derive(Serialize, ToSchema)]
struct OutboxRows {
    /// Its database.
    #[schema(example = "shop")]
    database: String,
    /// Number of rows concerned.
    #[schema(example = 0)]
    rows: u64,
}

/// Remove an outbox
///
/// The functions and tables of the outbox are dropped; tasks that were created stay.
#[utoipa::path(delete, path = "/v1/outboxes/{database}", operation_id = "removeOutbox", tag = "queue",
    security(("token" = ["admin"])),
    params(("database" = String, Path, description = "Its database."), OutboxRemovalParams),
    responses(
        (status = 200, description = "The outbox was removed, with this number of rows.", body = OutboxRows),
        (status = 404, description = "The database has no outbox, or does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The outbox has rows.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn remove_outbox(
    State(outbox): State<Outbox>,
    caller: Caller,
    Path(database): Path<String>,
    Query(removal): Query<OutboxRemovalParams>,
) -> Result<Json<OutboxRows>, Problem> {
    tracing::info!(token = caller.token_id(), database, "removing an outbox");
    let (database, rows) = outbox.remove(Some(&database), removal.force).await?;
    Ok(Json(OutboxRows { database, rows }))
}

/// Retry rejected rows
///
/// Rejected rows wait again to become tasks, after the reason of their rejection was fixed.
#[utoipa::path(post, path = "/v1/outboxes/{database}/retry", operation_id = "retryOutbox", tag = "queue",
    security(("token" = ["admin"])),
    params(("database" = String, Path, description = "Its database.")),
    responses(
        (status = 200, description = "The number of rows that wait again.", body = OutboxRows),
        (status = 404, description = "The database has no outbox, or does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn retry_outbox(
    State(outbox): State<Outbox>,
    Path(database): Path<String>,
) -> Result<Json<OutboxRows>, Problem> {
    let (database, rows) = outbox.retry_rejected(Some(&database)).await?;
    Ok(Json(OutboxRows { database, rows }))
}
