//! Installations of Egret in databases, over HTTP: listed, and removed as a whole.
//!
//! Each engine removes its own objects; then schema `egret` is dropped. That concerns several
//! engines, so it is done here.

use axum::extract::State;
use egret_documents::{Documents, DocumentsError};
use egret_postgres::installation::{self, Installation as Found, Obstacle as FoundObstacle};
use egret_postgres::{Databases, PostgresError};
use egret_queue::{Outbox, QueueError};
use egret_views::Views;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;

/// The routes of installations, for [`Builder::route`](crate::Builder::route).
pub fn routes(
    databases: Databases,
    views: Views,
    outbox: Outbox,
    documents: Documents,
) -> OpenApiRouter {
    documented().with_state(InstallationsState { databases, views, outbox, documents })
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<InstallationsState> {
    OpenApiRouter::default()
        .routes(routes!(list_installations))
        .routes(routes!(remove_installation))
}

/// State of the handlers.
#[derive(Clone)]
pub(crate) struct InstallationsState {
    databases: Databases,
    views: Views,
    outbox: Outbox,
    documents: Documents,
}

/// What Egret keeps in a database.
#[derive(Serialize, ToSchema)]
struct Installation {
    /// The database.
    #[schema(example = "shop")]
    database: String,
    /// The number of relations and functions of schema `egret` that Egret created.
    #[schema(example = 12)]
    objects: u64,
    /// Names of these objects.
    #[schema(example = json!(["table egret.view"]))]
    names: Vec<String>,
    /// Views in other schemas that Egret created.
    #[schema(example = json!(["public.late_by_carrier"]))]
    dependents: Vec<String>,
    /// Objects of users that prevent the removal of Egret: they are in schema `egret`, belong to
    /// objects of Egret, as triggers and columns do, or depend on them.
    obstacles: Vec<Obstacle>,
    /// Indexes that users created on tables of Egret; they are dropped with the tables.
    #[schema(example = json!([]))]
    indexes: Vec<String>,
    /// Rows of its outbox that have not become tasks; null without an outbox.
    #[schema(example = 0)]
    outbox_rows: Option<u64>,
    /// The number of documents of all tenants; null without collections.
    #[schema(example = 0)]
    documents: Option<i64>,
}

/// An object of a user that prevents the removal of Egret.
#[derive(Serialize, ToSchema)]
struct Obstacle {
    /// The object.
    #[schema(example = "table egret.invoices")]
    object: String,
    /// The SQL command that moves the object out of schema `egret`, or that drops it if it belongs
    /// to an object of Egret: a trigger, rule, policy or column. Null for an object elsewhere that
    /// depends on an object of Egret.
    #[schema(example = "ALTER TABLE egret.invoices SET SCHEMA public")]
    command: Option<String>,
}

impl From<FoundObstacle> for Obstacle {
    fn from(found: FoundObstacle) -> Self {
        Self { object: found.object, command: found.command }
    }
}

/// The databases in which Egret has objects, in order of names.
#[derive(Serialize, ToSchema)]
struct InstallationList {
    /// The installations.
    items: Vec<Installation>,
    /// Databases in which no session can be opened, so that it is unknown whether they have an
    /// installation.
    #[schema(example = json!([]))]
    unreachable: Vec<String>,
}

/// List the objects of Egret in databases
///
/// The list has every database of the embedded server, or the one database of an external server.
#[utoipa::path(get, path = "/v1/installations", operation_id = "listInstallations", tag = "system",
    security(("token" = ["admin"])),
    responses((status = 200, description = "The objects of Egret by database.", body = InstallationList)))]
async fn list_installations(
    State(state): State<InstallationsState>,
) -> Result<Json<InstallationList>, Problem> {
    let mut items = Vec::new();
    let mut unreachable = state.databases.closed_names().await?;
    for database in state.databases.names().await? {
        let client = match state.databases.client_if_exists(&database).await {
            Err(PostgresError::NoSession { .. }) => {
                unreachable.push(database);
                continue;
            }
            client => client?,
        };
        let Some(client) = client else {
            continue;
        };
        let Some(inventory) = installation::inventory(&client).await? else {
            continue;
        };
        let Found { objects, views, obstacles, indexes } = inventory;
        let outbox = state.outbox.view(&database).await?;
        items.push(Installation {
            outbox_rows: outbox.map(|outbox| outbox.waiting + outbox.rejected),
            documents: state.documents.count(&database).await?,
            objects: objects.len() as u64,
            names: objects,
            dependents: views,
            obstacles: obstacles.into_iter().map(Obstacle::from).collect(),
            indexes,
            database,
        });
    }
    unreachable.sort();
    Ok(Json(InstallationList { items, unreachable }))
}

/// The parameters of a removal.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct InstallationRemovalParams {
    /// Whether views, rows of the outbox and documents are deleted too. Otherwise their existence
    /// is an error.
    #[serde(default)]
    force: bool,
}

/// What was removed from a database.
#[derive(Serialize, ToSchema)]
struct Removed {
    /// The database.
    #[schema(example = "shop")]
    database: String,
    /// Views that Egret kept.
    #[schema(example = 1)]
    views: u64,
    /// Rows of the outbox that had not become tasks.
    #[schema(example = 0)]
    outbox_rows: u64,
    /// Documents.
    #[schema(example = 0)]
    documents: i64,
}

/// Remove everything of Egret from a database
///
/// Its views, its outbox, its documents and schema `egret` are dropped, and nothing else is
/// changed. If an object of a user prevents that, nothing is removed.
#[utoipa::path(delete, path = "/v1/installations/{database}", operation_id = "removeInstallation", tag = "system",
    security(("token" = ["admin"])),
    params(("database" = String, Path, description = "The database."), InstallationRemovalParams),
    responses(
        (status = 200, description = "Everything of Egret was removed from the database.", body = Removed),
        (status = 404, description = "The database does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The database has views, rows in the outbox or documents, or objects of users prevent the removal.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn remove_installation(
    State(state): State<InstallationsState>,
    caller: Caller,
    Path(database): Path<String>,
    Query(InstallationRemovalParams { force }): Query<InstallationRemovalParams>,
) -> Result<Json<Removed>, Problem> {
    tracing::info!(token = caller.token_id(), database, force, "removing egret from a database");
    let names = state.databases.names().await?;
    if !names.contains(&database) && !state.databases.is_closed(&database).await? {
        let reason = egret_postgres::DatabasesError::Unknown { asked: database, names };
        let reason = format!("database {}", reason.with_names());
        return Err(PostgresError::DatabaseNotFound { reason }.into());
    }
    let mut client = state.databases.client(&database).await?;
    // Before an engine takes back its part: a removal that is refused changes nothing.
    if let Some(inventory) = installation::inventory(&client).await? {
        installation::refuse_obstacles(&inventory)?;
    }
    let documents = state.documents.count(&database).await?.unwrap_or(0);
    if documents > 0 && !force {
        let refused = DocumentsError::DocumentsExist { database, documents };
        return Err(refused.into());
    }
    let (database, views) = state.views.uninstall(Some(&database), force).await?;
    let outbox_rows = match state.outbox.remove(Some(&database), force).await {
        Ok((_, rows)) => rows,
        Err(QueueError::OutboxNotFound { .. }) => 0,
        Err(error) => return Err(error.into()),
    };
    let documents = state.documents.close_database(&database, force).await?;
    installation::uninstall(&mut client, force).await?;
    Ok(Json(Removed { database, views, outbox_rows, documents }))
}
