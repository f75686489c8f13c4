//! Views over HTTP: made, looked at, refreshed, checked against their queries, changed and dropped.
//!
//! `request.rs` is what callers ask for, `answer.rs` what they are told, `changes.rs` those who
//! follow views. A query that is refused is a problem with the
//! construct, its position and the advice as members of their own.

mod answer;
pub(crate) mod changes;
mod reach;
mod request;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, State};
use egret_base::Clock;
use egret_views::model::{ViewName, ViewReport};
use egret_views::{Address, Views, ViewsError};
use http::StatusCode;
use http::request::Parts as RequestParts;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::answer::{
    Explanation, Refresh, RefreshList, Verification, View, ViewGrant, ViewList, problem,
};
use self::changes::{__path_follow_view, follow_view};
use self::request::{RefreshRequest, Validation, ViewChange, ViewGrantRequest, ViewRequest};
use crate::access::{AuditSubject, Caller, part_name};
use crate::error::RequestError;
use crate::extract::{Json, Nothing, Path, Query};
use crate::problem::Problem;
use crate::queue::rights;
use crate::tokens::{ADMIN, DEFAULT_TENANT};

/// The routes of the views engine, for [`Builder::route`](crate::Builder::route). By `clock` it is told how far behind
/// a view is. Those who follow views are told until `stopping` is cancelled.
pub fn routes(views: Views, clock: Arc<dyn Clock>, stopping: CancellationToken) -> OpenApiRouter {
    OpenApiRouter::default()
        .routes(routes!(list_views))
        .routes(routes!(create_view))
        .routes(routes!(validate_view))
        .routes(routes!(grant_views))
        .routes(routes!(get_view, change_view, drop_view))
        .routes(routes!(explain_view))
        .routes(routes!(view_history))
        .routes(routes!(refresh_view))
        .routes(routes!(verify_view))
        .routes(routes!(repair_view))
        .routes(routes!(follow_view))
        .with_state(Door {
            views,
            clock,
            stopping,
        })
}

/// What the handlers hold.
#[derive(Clone)]
struct Door {
    views: Views,
    clock: Arc<dyn Clock>,
    stopping: CancellationToken,
}

impl Door {
    /// A view as a caller is shown it.
    fn view(&self, caller: &Caller, report: ViewReport) -> View {
        View::of(reach::shown(caller, report), self.clock.now())
    }
}

impl FromRef<Door> for Views {
    fn from_ref(door: &Door) -> Self {
        door.views.clone()
    }
}

/// A caller whose views these are. They are in the databases of one server, which are the default tenant's.
struct Member(Caller);

impl<S: Sync> FromRequestParts<S> for Member {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut RequestParts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        match caller.tenant() {
            DEFAULT_TENANT => Ok(Self(caller)),
            tenant => Err(RequestError::TenantWithoutViews {
                tenant: tenant.to_owned(),
            }
            .into()),
        }
    }
}

/// In which database to look.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Place {
    /// The database; without it the only one that has such a view.
    database: Option<String>,
}

/// The view that a path names, in the database that the query names.
struct At(Address);

impl<S: Send + Sync> FromRequestParts<S> for At {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut RequestParts, state: &S) -> Result<Self, Problem> {
        let Path(name) = Path::from_request_parts(parts, state).await?;
        let Query(Place { database }) = Query::from_request_parts(parts, state).await?;
        Ok(Self::read(name, database)?)
    }
}

impl At {
    fn read(name: String, database: Option<String>) -> Result<Self, RequestError> {
        let name: Result<ViewName, _> = name.parse();
        let name = name.map_err(|refusal| RequestError::Parameter {
            place: "path",
            message: refusal.to_string(),
        })?;
        Ok(Self(Address { database, name }))
    }
}

/// Runs work to its end though its caller may leave before.
async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T, ViewsError>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(work.in_current_span()).await {
        Ok(done) => done.map_err(problem),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down drops a task.
            Err(_) => Err(Problem::stopping()),
        },
    }
}

/// List the views
///
/// Those of one database, or of all, in order of databases and names.
#[utoipa::path(get, path = "/v1/views", operation_id = "listViews", tag = "views",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["views:read"])),
    params(("database" = Option<String>, Query, description = "Only those of this database.")),
    responses((status = 200, description = "The views.", body = ViewList)))]
async fn list_views(
    State(door): State<Door>,
    Member(caller): Member,
    Query(Place { database }): Query<Place>,
) -> Result<Json<ViewList>, Problem> {
    let found = door.views.list_known(database.as_deref()).await;
    let (items, are_all) = found.map_err(problem)?;
    let reach = caller.reach("views", &["read"]);
    Ok(Json(ViewList {
        incomplete: !are_all,
        items: items
            .into_iter()
            .filter(|report| reach.covers(&part_name("views", &report.name.to_string())))
            .map(|report| door.view(&caller, report))
            .collect(),
    }))
}

/// Make a view
///
/// Answered when it is filled; it is made even if the caller does not wait. Its query has the rights of its owner; to name
/// one takes an admin. Where none is named, and `egret_views` is not granted SELECT on what the query reads, that takes an
/// admin too.
#[utoipa::path(post, path = "/v1/views", operation_id = "createView", tag = "views",
    extensions(("x-egret-parts" = json!(true)), ("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    request_body = ViewRequest,
    responses(
        (status = 201, description = "It is made, and filled.", body = View),
        (status = 400, description = "The query cannot be kept: `construct`, `position` (in bytes, from 1) and `advice` \
            say why; or PostgreSQL refuses it, for the reason in `sqlstate`, `position`, `sql_detail` and `hint`.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such database.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The name is taken.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn create_view(
    State(door): State<Door>,
    Member(caller): Member,
    subject: AuditSubject,
    Json(request): Json<ViewRequest>,
) -> Result<(StatusCode, Json<View>), Problem> {
    if request.owner.is_some() {
        caller.require(ADMIN)?;
    }
    let name = request.name.to_string();
    subject.note(&name);
    caller.require_part("views", &part_name("views", &name), &["write"])?;
    if let Some(queue) = &request.on_change_enqueue {
        rights::require(&caller, queue, rights::PRODUCE)?;
    }
    let (database, view) = request.into_view(reach::maker_rights(&caller));
    tracing::info!(token = caller.token_id(), view = %view.name, database, "a view is to be made");
    let views = door.views.clone();
    let made = finished(async move { views.create(database.as_deref(), view).await }).await?;
    Ok((StatusCode::CREATED, Json(door.view(&caller, made))))
}

/// Say how a view of a query would be kept
///
/// Nothing is made. A query that cannot be kept is refused as when a view of it is made.
#[utoipa::path(post, path = "/v1/view-validations", operation_id = "validateView", tag = "views",
    security(("token" = ["views:write"])), request_body = Validation,
    responses(
        (status = 200, description = "It can be kept, and this is how.", body = Explanation),
        (status = 400, description = "It cannot: `construct`, `position` (in bytes, from 1) and `advice` say why; or \
            PostgreSQL refuses it, for the reason in `sqlstate`, `position`, `sql_detail` and `hint`.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn validate_view(
    State(views): State<Views>,
    Member(caller): Member,
    Json(Validation { query, database }): Json<Validation>,
) -> Result<Json<Explanation>, Problem> {
    // What it makes to look at the query is taken away again, even if the caller leaves.
    let readable = reach::readable(&caller);
    let explained =
        finished(async move { views.validate(database.as_deref(), &query, &readable).await });
    Ok(Json(explained.await?.into()))
}

/// Let roles ask for views from SQL
///
/// They may call `egret.create_view`, `egret.drop_view`, `egret.refresh`, `egret.request_done` and `egret.freshness` from then on: each of them
/// for views of its own, whose queries have its rights. When one of the roles is not there, nothing is changed for any.
#[utoipa::path(post, path = "/v1/view-grants", operation_id = "grantViews", tag = "views",
    security(("token" = ["admin"])), request_body = ViewGrantRequest,
    responses(
        (status = 200, description = "They may.", body = ViewGrant),
        (status = 400, description = "A role is not there.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn grant_views(
    State(views): State<Views>,
    Member(caller): Member,
    Json(ViewGrantRequest { roles, database }): Json<ViewGrantRequest>,
) -> Result<Json<ViewGrant>, Problem> {
    tracing::info!(
        token = caller.token_id(),
        ?roles,
        database,
        "views are to be asked for from SQL"
    );
    let granted = finished(async move {
        let database = views.allow(database.as_deref(), &roles).await?;
        Ok(ViewGrant { database, roles })
    });
    Ok(Json(granted.await?))
}

/// Look at a view
#[utoipa::path(get, path = "/v1/views/{name}", operation_id = "getView", tag = "views",
    security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    responses(
        (status = 200, description = "The view.", body = View),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn get_view(
    State(door): State<Door>,
    Member(caller): Member,
    At(at): At,
) -> Result<Json<View>, Problem> {
    let report = door.views.show(&at).await.map_err(problem)?;
    Ok(Json(door.view(&caller, report)))
}

/// Change a view
///
/// How and when it is refreshed, and whether it is; what is not named stays as it is.
#[utoipa::path(patch, path = "/v1/views/{name}", operation_id = "changeView", tag = "views",
    security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    request_body = ViewChange,
    responses(
        (status = 200, description = "The view as it is now.", body = View),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn change_view(
    State(door): State<Door>,
    Member(caller): Member,
    At(at): At,
    Json(change): Json<ViewChange>,
) -> Result<Json<View>, Problem> {
    if let Some(Some(queue)) = &change.on_change_enqueue {
        rights::require(&caller, queue, rights::PRODUCE)?;
        // The tasks have its rows.
        let part = at.name.to_string();
        caller.require_part("views", &part_name("views", &part), &["read"])?;
    }
    let (views, readable) = (door.views.clone(), reach::readable(&caller));
    let changed = finished(async move {
        let change = change.into_alteration();
        let changed = views.alter(&at, change, readable.clone()).await;
        changed.map_err(|error| reach::without_hidden_names(&readable, error))
    });
    Ok(Json(door.view(&caller, changed.await?)))
}

/// Drop a view
///
/// What its tables were watched by goes too, where no other view needs it.
#[utoipa::path(delete, path = "/v1/views/{name}", operation_id = "dropView", tag = "views",
    security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    responses(
        (status = 204, description = "It is dropped."),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "Other views read it.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn drop_view(
    State(views): State<Views>,
    Member(caller): Member,
    At(at): At,
) -> Result<StatusCode, Problem> {
    tracing::info!(token = caller.token_id(), view = %at.name, database = ?at.database, "a view is to be dropped");
    let readable = reach::readable(&caller);
    let dropped = finished(async move {
        let dropped = views.drop(&at).await;
        dropped.map_err(|error| reach::without_hidden_names(&readable, error))
    });
    dropped.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Explain a view
///
/// Its operators, what is kept of each, and the statements by which changes are applied.
#[utoipa::path(get, path = "/v1/views/{name}/explain", operation_id = "explainView", tag = "views",
    security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    responses(
        (status = 200, description = "How it is kept.", body = Explanation),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn explain_view(
    State(views): State<Views>,
    _: Member,
    At(at): At,
) -> Result<Json<Explanation>, Problem> {
    Ok(Json(views.explain(&at).await.map_err(problem)?.into()))
}

/// Refreshes of a view when none are asked for.
const LISTED: u32 = 20;

/// Which refreshes to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Page {
    /// The database; without it the only one that has such a view.
    database: Option<String>,
    /// How many at most; `views.history_max` are remembered.
    #[serde(default = "listed")]
    #[param(default = 20)]
    limit: u32,
}

fn listed() -> u32 {
    LISTED
}

/// List the refreshes of a view
///
/// The latest first. Those that found nothing changed are not remembered.
#[utoipa::path(get, path = "/v1/views/{name}/history", operation_id = "viewHistory", tag = "views",
    security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Page),
    responses(
        (status = 200, description = "Its refreshes.", body = RefreshList),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn view_history(
    State(views): State<Views>,
    _: Member,
    Path(name): Path<String>,
    Query(Page { database, limit }): Query<Page>,
) -> Result<Json<RefreshList>, Problem> {
    let At(at) = At::read(name, database)?;
    let refreshes = views.history(&at, limit).await.map_err(problem)?;
    let items = refreshes.into_iter().map(Refresh::from).collect();
    Ok(Json(RefreshList { items }))
}

/// Refresh a view
///
/// Answered when it shows everything that was committed before the request; views that it reads are refreshed with it.
#[utoipa::path(post, path = "/v1/views/{name}/refresh", operation_id = "refreshView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    request_body = Option<RefreshRequest>,
    responses(
        (status = 200, description = "What the refresh did.", body = Refresh),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn refresh_view(
    State(views): State<Views>,
    _: Member,
    At(at): At,
    request: Option<Json<RefreshRequest>>,
) -> Result<Json<Refresh>, Problem> {
    let is_explained = request.is_some_and(|Json(request)| request.explain);
    let refreshed = finished(async move {
        match is_explained {
            true => views.refresh_explained(&at).await,
            false => views.refresh(&at).await,
        }
    });
    Ok(Json(refreshed.await?.into()))
}

/// Compare a view with its query
///
/// It is brought up to date, and its rows are compared with those that the query gives at the same snapshot.
#[utoipa::path(post, path = "/v1/views/{name}/verify", operation_id = "verifyView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "How they compare; they may differ.", body = Verification),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn verify_view(
    State(views): State<Views>,
    _: Member,
    At(at): At,
    _: Option<Json<Nothing>>,
) -> Result<Json<Verification>, Problem> {
    let verified = finished(async move { views.verify(&at).await });
    Ok(Json(verified.await?.into()))
}

/// Repair a view
///
/// Makes its storage anew from its query, and ends a suspension.
#[utoipa::path(post, path = "/v1/views/{name}/repair", operation_id = "repairView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Place),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The view as it is now.", body = View),
        (status = 404, description = "No view has this name, or there is no such database.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "Its columns are others now, and objects that depend on it keep it from being made anew.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn repair_view(
    State(door): State<Door>,
    Member(caller): Member,
    At(at): At,
    _: Option<Json<Nothing>>,
) -> Result<Json<View>, Problem> {
    let (views, rights) = (door.views.clone(), reach::maker_rights(&caller));
    let repaired = finished(async move {
        let repaired = views.repair(&at, &rights).await;
        repaired.map_err(|error| reach::without_hidden_names(&rights.readable, error))
    });
    Ok(Json(door.view(&caller, repaired.await?)))
}
