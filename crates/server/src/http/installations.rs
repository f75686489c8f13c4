//! What Egret keeps in databases, over HTTP: looked at, and removed whole.
//!
//! Each engine takes back its own part; then schema `egret` goes. This is a matter of no engine alone, so it is here.

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
    OpenApiRouter::default()
        .routes(routes!(list_installations))
        .routes(routes!(remove_installation))
        .with_state(Door {
            databases,
            views,
            outbox,
            documents,
        })
}

/// What the handlers hold.
#[derive(Clone)]
struct Door {
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
    /// How many relations and functions of schema `egret` Egret has made.
    #[schema(example = 12)]
    objects: u64,
    /// These, by name.
    #[schema(example = json!(["table egret.view"]))]
    names: Vec<String>,
    /// Views in other schemas that Egret has made.
    #[schema(example = json!(["public.late_by_carrier"]))]
    dependents: Vec<String>,
    /// Objects of users that keep Egret from being removed: they are in schema `egret`, are parts of what Egret has made, as triggers and
    /// columns are, or depend on it.
    obstacles: Vec<Obstacle>,
    /// Indexes that users have made on tables of Egret: they go with these.
    #[schema(example = json!([]))]
    indexes: Vec<String>,
    /// Rows of its outbox that are no tasks; null where there is no outbox.
    #[schema(example = 0)]
    outbox_rows: Option<u64>,
    /// Documents, whosever they are; null where there are no collections.
    #[schema(example = 0)]
    documents: Option<i64>,
}

/// An object of a user's that keeps Egret from being removed.
#[derive(Serialize, ToSchema)]
struct Obstacle {
    /// The object.
    #[schema(example = "table egret.invoices")]
    object: String,
    /// The SQL command that moves it out of schema `egret`, or drops what is a part of something of Egret's: a trigger, a rule, a policy or
    /// a column; null where it is elsewhere, and depends on something of Egret's.
    #[schema(example = "ALTER TABLE egret.invoices SET SCHEMA public")]
    command: Option<String>,
}

impl From<FoundObstacle> for Obstacle {
    fn from(found: FoundObstacle) -> Self {
        Self {
            object: found.object,
            command: found.command,
        }
    }
}

/// The databases in which Egret keeps something, in order of names.
#[derive(Serialize, ToSchema)]
struct InstallationList {
    /// The installations.
    items: Vec<Installation>,
    /// Databases that are not known to have one, or to have none: no session can be opened in them.
    #[schema(example = json!([]))]
    unreachable: Vec<String>,
}

/// List what Egret keeps in databases
///
/// In every database of the embedded server, or in the one database of an external server.
#[utoipa::path(get, path = "/v1/installations", operation_id = "listInstallations", tag = "system",
    security(("token" = ["admin"])),
    responses((status = 200, description = "What is in which database.", body = InstallationList)))]
async fn list_installations(State(door): State<Door>) -> Result<Json<InstallationList>, Problem> {
    let mut items = Vec::new();
    let mut unreachable = door.databases.closed().await?;
    for database in door.databases.names().await? {
        let client = match door.databases.client_of_existing(&database).await {
            Err(PostgresError::NoSession { .. }) => {
                unreachable.push(database);
                continue;
            }
            client => client?,
        };
        let Some(client) = client else {
            continue;
        };
        let Some(found) = installation::inventory(&client).await? else {
            continue;
        };
        let Found {
            objects,
            views,
            obstacles,
            indexes,
        } = found;
        let outbox = door.outbox.show(&database).await?;
        items.push(Installation {
            outbox_rows: outbox.map(|outbox| outbox.waiting + outbox.rejected),
            documents: door.documents.count(&database).await?,
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

/// What a removal takes with it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Removal {
    /// Whether views, rows of the outbox and documents go too; else their existence refuses it.
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
    /// Rows of the outbox that were no tasks.
    #[schema(example = 0)]
    outbox_rows: u64,
    /// Documents.
    #[schema(example = 0)]
    documents: i64,
}

/// Remove everything of Egret from a database
///
/// Its views, its outbox, its documents and schema `egret`. Nothing but these is changed: while an object of a user's is in
/// the way, nothing is removed.
#[utoipa::path(delete, path = "/v1/installations/{database}", operation_id = "removeInstallation", tag = "system",
    security(("token" = ["admin"])),
    params(("database" = String, Path, description = "The database."), Removal),
    responses(
        (status = 200, description = "Nothing of Egret is left in it.", body = Removed),
        (status = 404, description = "There is no such database.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "There are views, rows in the outbox, documents, or objects of users in the way.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn remove_installation(
    State(door): State<Door>,
    caller: Caller,
    Path(database): Path<String>,
    Query(Removal { force }): Query<Removal>,
) -> Result<Json<Removed>, Problem> {
    tracing::info!(
        token = caller.token_id(),
        database,
        force,
        "egret is to be removed from a database"
    );
    let names = door.databases.names().await?;
    if !names.contains(&database) && !door.databases.is_closed(&database).await? {
        let reason = egret_postgres::DatabasesError::Unknown {
            asked: database,
            names,
        };
        let reason = format!("database {}", reason.with_names());
        return Err(PostgresError::DatabaseNotFound { reason }.into());
    }
    let mut client = door.databases.client(&database).await?;
    // Before an engine takes back its part: a removal that is refused changes nothing.
    if let Some(found) = installation::inventory(&client).await? {
        installation::refuse_obstacles(&found)?;
    }
    let documents = door.documents.count(&database).await?.unwrap_or(0);
    if documents > 0 && !force {
        let refused = DocumentsError::DocumentsExist {
            database,
            documents,
        };
        return Err(refused.into());
    }
    let (database, views) = door.views.uninstall(Some(&database), force).await?;
    let outbox_rows = match door.outbox.remove(Some(&database), force).await {
        Ok((_, rows)) => rows,
        Err(QueueError::OutboxNotFound { .. }) => 0,
        Err(error) => return Err(error.into()),
    };
    let documents = door.documents.leave(&database, force).await?;
    installation::uninstall(&mut client, force).await?;
    Ok(Json(Removed {
        database,
        views,
        outbox_rows,
        documents,
    }))
}
