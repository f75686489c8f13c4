//! Views over HTTP: made, looked at, refreshed, checked against their queries, changed and dropped.
//!
//! `request.rs` reads requests, `answer.rs` builds responses, `changes.rs` streams changes of
//! views. A query that is refused is a problem with the construct, its position and the advice as
//! members of their own.

mod answer;
pub(crate) mod changes;
mod reach;
mod request;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, State};
use egret_base::Clock;
use egret_views::model::{ViewName, ViewReport};
use egret_views::{ViewRef, Views, ViewsError};
use http::StatusCode;
use http::request::Parts as RequestParts;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::answer::{
    Explanation, Refresh, RefreshList, Verification, View, ViewGrant, ViewList, to_problem,
};
use self::changes::{__path_follow_view, follow_view};
use self::request::{RefreshRequest, Validation, ViewChange, ViewGrantRequest, ViewRequest};
use crate::access::{Caller, part_name};
use crate::error::RequestError;
use crate::extract::{Json, Nothing, Path, Query};
use crate::problem::Problem;
use crate::queue::rights;
use crate::request_context::AuditSubject;
use crate::tokens::{ADMIN, DEFAULT_TENANT};

/// The routes of the views engine, for [`Builder::route`](crate::Builder::route). The lag of a view
/// is computed by `clock`. Streams of changes end when `stopping` is cancelled.
pub fn routes(views: Views, clock: Arc<dyn Clock>, stopping: CancellationToken) -> OpenApiRouter {
    documented().with_state(ViewsState { views, clock, stopping })
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<ViewsState> {
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
}

/// State of the handlers.
#[derive(Clone)]
pub(crate) struct ViewsState {
    views: Views,
    clock: Arc<dyn Clock>,
    stopping: CancellationToken,
}

impl ViewsState {
    /// A view, with the parts that the caller may see.
    fn to_view(&self, caller: &Caller, report: ViewReport) -> View {
        View::from_report(reach::visible_report(caller, report), self.clock.now())
    }
}

impl FromRef<ViewsState> for Views {
    fn from_ref(state: &ViewsState) -> Self {
        state.views.clone()
    }
}

/// A caller of the default tenant, to which the databases of the server and their views belong.
struct DefaultTenantCaller(Caller);

impl<S: Sync> FromRequestParts<S> for DefaultTenantCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut RequestParts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        match caller.tenant() {
            DEFAULT_TENANT => Ok(Self(caller)),
            tenant => Err(RequestError::TenantWithoutViews { tenant: tenant.to_owned() }.into()),
        }
    }
}

/// The database of a view.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ViewDatabaseParams {
    /// The database; when absent, the only one that has a view of this name.
    database: Option<String>,
}

/// The view that a path names, in the database that the query names.
struct ViewPath(ViewRef);

impl<S: Send + Sync> FromRequestParts<S> for ViewPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut RequestParts, state: &S) -> Result<Self, Problem> {
        let Path(name) = Path::from_request_parts(parts, state).await?;
        let Query(ViewDatabaseParams { database }) =
            Query::from_request_parts(parts, state).await?;
        Ok(Self::parse(name, database)?)
    }
}

impl ViewPath {
    fn parse(name: String, database: Option<String>) -> Result<Self, RequestError> {
        let name: Result<ViewName, _> = name.parse();
        let name = name.map_err(|refusal| RequestError::Parameter {
            place: "path",
            message: refusal.to_string(),
        })?;
        Ok(Self(ViewRef { database, name }))
    }
}

/// Runs work to its end, even if its caller disconnects.
async fn run_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, ViewsError>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(work.in_current_span()).await {
        Ok(result) => result.map_err(to_problem),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down drops a task.
            Err(_) => Err(Problem::stopping()),
        },
    }
}

/// List the views
///
/// The list has the views of one database, or of all, in order of databases and names.
#[utoipa::path(get, path = "/v1/views", operation_id = "listViews", tag = "views",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["views:read"])),
    params(("database" = Option<String>, Query, description = "List only views of this database.")),
    responses((status = 200, description = "The views.", body = ViewList)))]
async fn list_views(
    State(state): State<ViewsState>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    Query(ViewDatabaseParams { database }): Query<ViewDatabaseParams>,
) -> Result<Json<ViewList>, Problem> {
    let result = state.views.list_with_completeness(database.as_deref()).await;
    let (items, is_complete) = result.map_err(to_problem)?;
    let reach = caller.reach("views", &["read"]);
    Ok(Json(ViewList {
        incomplete: !is_complete,
        items: items
            .into_iter()
            .filter(|report| reach.covers(&part_name("views", &report.name.to_string())))
            .map(|report| state.to_view(&caller, report))
            .collect(),
    }))
}

/// Create a view
///
/// The response is sent when the view is filled; the view is created even if the caller
/// disconnects. Its query runs with the rights of its owner; only an admin may name one. An admin
/// is also needed if no owner is named and `egret_views` lacks SELECT on a relation that the query
/// reads.
#[utoipa::path(post, path = "/v1/views", operation_id = "createView", tag = "views",
    extensions(("x-egret-parts" = json!(true)), ("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    request_body = ViewRequest,
    responses(
        (status = 201, description = "The view was created and filled.", body = View),
        (status = 400, description = "A view cannot maintain the query, for the reason in \
            `construct`, `position` (in bytes, from 1) and `advice`; or PostgreSQL refuses it, \
            for the reason in `sqlstate`, `position`, `sql_detail` and `hint`.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The database does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The name is taken.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn create_view(
    State(state): State<ViewsState>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    subject: AuditSubject,
    Json(request): Json<ViewRequest>,
) -> Result<(StatusCode, Json<View>), Problem> {
    if request.owner.is_some() {
        caller.require(ADMIN)?;
    }
    let name = request.name.to_string();
    subject.set_object(&name);
    caller.require_part("views", &part_name("views", &name), &["write"])?;
    if let Some(queue) = &request.on_change_enqueue {
        rights::require(&caller, queue, rights::PRODUCE)?;
    }
    let (database, view) = request.into_new_view(reach::maker_rights(&caller));
    tracing::info!(token = caller.token_id(), view = %view.name, database, "creating a view");
    let views = state.views.clone();
    let created =
        run_detached(async move { views.create(database.as_deref(), view).await }).await?;
    Ok((StatusCode::CREATED, Json(state.to_view(&caller, created))))
}

/// Explain how a view of a query would be maintained
///
/// Nothing is created. A query that a view cannot maintain is refused with the same error as when a
/// view is created.
#[utoipa::path(post, path = "/v1/view-validations", operation_id = "validateView", tag = "views",
    security(("token" = ["views:write"])), request_body = Validation,
    responses(
        (status = 200, description = "A view can maintain the query, in the way described.", body = Explanation),
        (status = 400, description = "A view cannot maintain the query, for the reason in \
            `construct`, `position` (in bytes, from 1) and `advice`; or PostgreSQL refuses it, \
            for the reason in `sqlstate`, `position`, `sql_detail` and `hint`.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn validate_view(
    State(views): State<Views>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    Json(Validation { query, database }): Json<Validation>,
) -> Result<Json<Explanation>, Problem> {
    // Objects that validation creates are removed again, even if the caller disconnects.
    let readable = reach::readable_views(&caller);
    let validation =
        run_detached(async move { views.validate(database.as_deref(), &query, &readable).await });
    Ok(Json(validation.await?.into()))
}

/// Let roles request views from SQL
///
/// The roles may call `egret.create_view`, `egret.drop_view`, `egret.refresh`, `egret.request_done`
/// and `egret.freshness`, each for its own views, whose queries run with its rights. If one of the
/// roles does not exist, nothing is changed.
#[utoipa::path(post, path = "/v1/view-grants", operation_id = "grantViews", tag = "views",
    security(("token" = ["admin"])), request_body = ViewGrantRequest,
    responses(
        (status = 200, description = "They may.", body = ViewGrant),
        (status = 400, description = "A role does not exist.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn grant_views(
    State(views): State<Views>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    Json(ViewGrantRequest { roles, database }): Json<ViewGrantRequest>,
) -> Result<Json<ViewGrant>, Problem> {
    tracing::info!(
        token = caller.token_id(),
        ?roles,
        database,
        "granting roles the right to request views"
    );
    let grant = run_detached(async move {
        let database = views.allow(database.as_deref(), &roles).await?;
        Ok(ViewGrant { database, roles })
    });
    Ok(Json(grant.await?))
}

/// Get a view by name
#[utoipa::path(get, path = "/v1/views/{name}", operation_id = "getView", tag = "views",
    security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    responses(
        (status = 200, description = "The view.", body = View),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn get_view(
    State(state): State<ViewsState>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
) -> Result<Json<View>, Problem> {
    let report = state.views.show(&view_ref).await.map_err(to_problem)?;
    Ok(Json(state.to_view(&caller, report)))
}

/// Change a view
///
/// Mode, schedule and suspension of the view can be changed, among others; absent fields are
/// unchanged.
#[utoipa::path(patch, path = "/v1/views/{name}", operation_id = "changeView", tag = "views",
    security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    request_body = ViewChange,
    responses(
        (status = 200, description = "The view as it is now.", body = View),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn change_view(
    State(state): State<ViewsState>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
    Json(change): Json<ViewChange>,
) -> Result<Json<View>, Problem> {
    if let Some(Some(queue)) = &change.on_change_enqueue {
        rights::require(&caller, queue, rights::PRODUCE)?;
        // The tasks have its rows.
        let view_name = view_ref.name.to_string();
        caller.require_part("views", &part_name("views", &view_name), &["read"])?;
    }
    let (views, readable) = (state.views.clone(), reach::readable_views(&caller));
    let changed = run_detached(async move {
        let change = change.into_alteration();
        let changed = views.alter(&view_ref, change, readable.clone()).await;
        changed.map_err(|error| reach::hide_unreadable_names(&readable, error))
    });
    Ok(Json(state.to_view(&caller, changed.await?)))
}

/// Drop a view
///
/// The triggers and change tables of its sources are dropped too, unless other views need them.
#[utoipa::path(delete, path = "/v1/views/{name}", operation_id = "dropView", tag = "views",
    security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    responses(
        (status = 204, description = "The view was dropped."),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "Other objects depend on the view.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn drop_view(
    State(views): State<Views>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
) -> Result<StatusCode, Problem> {
    tracing::info!(token = caller.token_id(), view = %view_ref.name, database = ?view_ref.database, "dropping a view");
    let readable = reach::readable_views(&caller);
    let dropped = run_detached(async move {
        let dropped = views.drop(&view_ref).await;
        dropped.map_err(|error| reach::hide_unreadable_names(&readable, error))
    });
    dropped.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Explain a view
///
/// The response has the operators of the view, what each stage stores, and the statements that
/// apply changes.
#[utoipa::path(get, path = "/v1/views/{name}/explain", operation_id = "explainView", tag = "views",
    security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    responses(
        (status = 200, description = "How the view is maintained.", body = Explanation),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn explain_view(
    State(views): State<Views>,
    _: DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
) -> Result<Json<Explanation>, Problem> {
    Ok(Json(views.explain(&view_ref).await.map_err(to_problem)?.into()))
}

/// Default number of refreshes in the history of a view.
const REFRESHES_LISTED: u32 = 20;

/// The refreshes to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RefreshListParams {
    /// The database; when absent, the only one that has a view of this name.
    database: Option<String>,
    /// The maximum number of refreshes; `views.history_max` are kept.
    #[serde(default = "listed")]
    #[param(default = 20)]
    limit: u32,
}

fn listed() -> u32 {
    REFRESHES_LISTED
}

/// List the refreshes of a view
///
/// The latest refresh is first. Refreshes that found no changes are not kept.
#[utoipa::path(get, path = "/v1/views/{name}/history", operation_id = "viewHistory", tag = "views",
    security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), RefreshListParams),
    responses(
        (status = 200, description = "Its refreshes.", body = RefreshList),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn view_history(
    State(views): State<Views>,
    _: DefaultTenantCaller,
    Path(name): Path<String>,
    Query(RefreshListParams { database, limit }): Query<RefreshListParams>,
) -> Result<Json<RefreshList>, Problem> {
    let ViewPath(view_ref) = ViewPath::parse(name, database)?;
    let refreshes = views.history(&view_ref, limit).await.map_err(to_problem)?;
    let items = refreshes.into_iter().map(Refresh::from).collect();
    Ok(Json(RefreshList { items }))
}

/// Refresh a view
///
/// The response is sent when the view has everything that was committed before the request. The
/// views that it reads are refreshed too.
#[utoipa::path(post, path = "/v1/views/{name}/refresh", operation_id = "refreshView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    request_body = Option<RefreshRequest>,
    responses(
        (status = 200, description = "The report of the refresh.", body = Refresh),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn refresh_view(
    State(views): State<Views>,
    _: DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
    request: Option<Json<RefreshRequest>>,
) -> Result<Json<Refresh>, Problem> {
    let is_explained = request.is_some_and(|Json(request)| request.explain);
    let refreshed = run_detached(async move {
        if is_explained {
            views.refresh_explained(&view_ref).await
        } else {
            views.refresh(&view_ref).await
        }
    });
    Ok(Json(refreshed.await?.into()))
}

/// Compare a view with its query
///
/// The view is refreshed, and its rows are compared with the result of its query at the same
/// snapshot.
#[utoipa::path(post, path = "/v1/views/{name}/verify", operation_id = "verifyView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The result of the comparison; the rows may differ.", body = Verification),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn verify_view(
    State(views): State<Views>,
    _: DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
    _: Option<Json<Nothing>>,
) -> Result<Json<Verification>, Problem> {
    let verified = run_detached(async move { views.verify(&view_ref).await });
    Ok(Json(verified.await?.into()))
}

/// Repair a view
///
/// The view's storage is rebuilt from its query, and a suspension is ended.
#[utoipa::path(post, path = "/v1/views/{name}/repair", operation_id = "repairView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:write"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewDatabaseParams),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The view as it is now.", body = View),
        (status = 404, description = "No view has this name, or the database does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The view's columns have changed, and objects that depend on it prevent that it is rebuilt.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn repair_view(
    State(state): State<ViewsState>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    ViewPath(view_ref): ViewPath,
    _: Option<Json<Nothing>>,
) -> Result<Json<View>, Problem> {
    let (views, rights) = (state.views.clone(), reach::maker_rights(&caller));
    let repaired = run_detached(async move {
        let repaired = views.repair(&view_ref, &rights).await;
        repaired.map_err(|error| reach::hide_unreadable_names(&rights.readable, error))
    });
    Ok(Json(state.to_view(&caller, repaired.await?)))
}
