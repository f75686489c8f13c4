//! Branches over HTTP: make, look at, query, change and destroy them.
//!
//! The volume and the templates are in `branches/volume.rs`. The caller's token determines the
//! tenant.

use axum::extract::State;
use egret_branches::model::{BranchName, BranchState};
use egret_branches::{Branches, BranchesError, Children, CreateOutcome};
use http::StatusCode;
use serde::Deserialize;
use tracing::Instrument;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::error::RequestError;
use crate::extract::{Json, Nothing, Path, Query};
use crate::problem::Problem;
use crate::request_context::AuditSubject;

mod answer;
mod connection;
mod database;
mod pool;
mod query;
mod request;
mod volume;

use answer::{Branch, BranchList, Proof};
pub use connection::ProxyAddress;
use request::{BranchChange, BranchRequest, ResetRequest, VerifyRequest};

/// The routes of the branches engine, for [`Builder::route`](crate::Builder::route).
pub fn routes(branches: Branches, proxy: ProxyAddress) -> OpenApiRouter {
    let connection = documented_connection().with_state((branches.clone(), proxy));
    documented().with_state(branches).merge(connection)
}

/// The route with its documentation that needs the address of the proxy.
pub(crate) fn documented_connection() -> OpenApiRouter<(Branches, ProxyAddress)> {
    OpenApiRouter::default().routes(routes!(connection::get_connection))
}

/// The other routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<Branches> {
    OpenApiRouter::default()
        .routes(routes!(create_branch, list_branches))
        .routes(routes!(get_branch, change_branch, destroy_branch))
        .routes(routes!(reset_branch))
        .routes(routes!(suspend_branch))
        .routes(routes!(resume_branch))
        .routes(routes!(verify_branch))
        .routes(routes!(query::run_query))
        .merge(pool::routes())
        .merge(volume::routes())
}

/// Create a branch
///
/// The response is sent when the branch accepts connections. The operation is idempotent by name:
/// the same request again returns 200 with the existing branch.
#[utoipa::path(post, path = "/v1/branches", operation_id = "createBranch", tag = "branches",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["branches:write"])), request_body = BranchRequest,
    responses(
        (status = 201, description = "The branch was created.", body = Branch),
        (status = 200, description = "The branch already existed, from the same request.", body = Branch),
        (status = 404, description = "The template or branch to copy does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The name is taken by a different branch, or the source cannot be \
            branched.", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "A limit is reached.", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "The volume has too little free space.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn create_branch(
    State(branches): State<Branches>,
    caller: Caller,
    subject: AuditSubject,
    Json(request): Json<BranchRequest>,
) -> Result<(StatusCode, Json<Branch>), Problem> {
    subject.set_object(request.name.as_str());
    request.require_rights(&caller)?;
    let created = branches.create(request.into_new_branch(caller.tenant())).await?;
    let status = match created {
        CreateOutcome::New(_) => StatusCode::CREATED,
        CreateOutcome::Existing(_) => StatusCode::OK,
    };
    let view = branches.view(created.into_branch());
    Ok((status, Json(view.into())))
}

/// The branches to list. `BranchFilter` parses them, because `label` may be repeated.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only documents the parameters that `Filter` reads")]
struct BranchFilterParams {
    /// List only branches with this label, as `key=value`. The parameter may be repeated.
    label: Option<Vec<String>>,
    /// List only branches in this state.
    state: Option<String>,
}

/// Conditions on the branches of a list.
#[derive(Default)]
struct BranchFilter {
    labels: Vec<(String, String)>,
    state: Option<BranchState>,
}

impl BranchFilter {
    fn parse(parameters: Vec<(String, String)>) -> Result<Self, RequestError> {
        let query_error = |message| RequestError::Parameter { place: "query", message };
        let mut filter = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "label" => {
                    let pair = value.split_once('=');
                    let (key, value) = pair.ok_or_else(|| {
                        query_error(format!("label: `{value}` is not of the form key=value"))
                    })?;
                    filter.labels.push((key.to_owned(), value.to_owned()));
                }
                "state" => {
                    let state = value.parse();
                    filter.state =
                        Some(state.map_err(|text| query_error(format!("state: {text}")))?);
                }
                other => {
                    let text = format!("unknown field `{other}`, expected `label` or `state`");
                    return Err(query_error(text));
                }
            }
        }
        Ok(filter)
    }
}

/// List the branches
///
/// The list has the branches of the caller's tenant, oldest first, without destroyed ones.
#[utoipa::path(get, path = "/v1/branches", operation_id = "listBranches", tag = "branches",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["branches:read"])), params(BranchFilterParams),
    responses((status = 200, description = "The branches.", body = BranchList)))]
async fn list_branches(
    State(branches): State<Branches>,
    caller: Caller,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Json<BranchList>, Problem> {
    let filter = BranchFilter::parse(parameters)?;
    let reach = caller.reach("branches", &["read"]);
    let is_match = |branch: &egret_branches::model::Branch| {
        reach.covers(branch.name.as_str())
            && filter.state.is_none_or(|state| branch.state == state)
            && filter.labels.iter().all(|(key, value)| branch.labels.get(key) == Some(value))
    };
    let matching = branches.list(caller.tenant(), is_match).await?;
    Ok(Json(BranchList { items: matching.into_iter().map(Branch::from).collect() }))
}

/// Get a branch by name
#[utoipa::path(get, path = "/v1/branches/{name}", operation_id = "getBranch", tag = "branches",
    security(("token" = ["branches:read"])),
    params(("name" = String, Path, description = "The branch's name.")),
    responses(
        (status = 200, description = "The branch.", body = Branch),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn get_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
) -> Result<Json<Branch>, Problem> {
    Ok(Json(branches.show(caller.tenant(), &name).await?.into()))
}

/// Change a branch
///
/// Protection, lifetime and labels can be changed; absent fields are unchanged.
#[utoipa::path(patch, path = "/v1/branches/{name}", operation_id = "changeBranch", tag = "branches",
    security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name.")), request_body = BranchChange,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn change_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    Json(change): Json<BranchChange>,
) -> Result<Json<Branch>, Problem> {
    let change = change.into_update();
    let (engine, tenant) = (branches.clone(), caller.tenant().to_owned());
    let changing = tokio::task::spawn_blocking(move || engine.update(&tenant, &name, &change));
    let branch = join_task(changing.await)?;
    Ok(Json(branches.view(branch).into()))
}

/// The parameters of a destruction.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Destruction {
    /// Whether branches that were created from this one are destroyed too. Otherwise their
    /// existence is an error.
    #[serde(default)]
    children: bool,
}

/// Destroy a branch
///
/// The response is sent at once: sessions end, the name is free, and files are deleted in the
/// background.
#[utoipa::path(delete, path = "/v1/branches/{name}", operation_id = "destroyBranch", tag = "branches",
    security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name."), Destruction),
    responses(
        (status = 202, description = "The branch is destroyed.", body = Branch),
        (status = 403, description = "The branch has descendants that the scopes of the token do not cover.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The branch is protected or has children.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn destroy_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    Query(destruction): Query<Destruction>,
) -> Result<(StatusCode, Json<Branch>), Problem> {
    let children = if destruction.children { Children::Destroy } else { Children::Refuse };
    let (engine, tenant) = (branches.clone(), caller.tenant().to_owned());
    let reach = caller.reach(request::AREA, &["write"]);
    // A family is destroyed as a whole, even if the caller leaves.
    let destroyed = run_detached(async move {
        let covers = |child: &BranchName| reach.covers(child.as_str());
        engine.destroy(&tenant, &name, children, covers).await
    });
    let branch = destroyed.await?;
    let view = branches.view(branch);
    Ok((StatusCode::ACCEPTED, Json(view.into())))
}

/// Reset a branch
///
/// All changes of the branch are discarded: it is created again from its template, or from another
/// one. Sessions end; the connection string stays the same.
#[utoipa::path(post, path = "/v1/branches/{name}/reset", operation_id = "resetBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name.")),
    request_body = Option<ResetRequest>,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "The branch or the template does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The branch is protected.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn reset_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    request: Option<Json<ResetRequest>>,
) -> Result<Json<Branch>, Problem> {
    let template = request.and_then(|Json(request)| request.to);
    if template.is_some() {
        request::require_all_templates(&caller)?;
    }
    let branch = branches.reset(caller.tenant(), &name, template).await?;
    Ok(Json(branches.view(branch).into()))
}

/// Suspend a branch
///
/// The branch's server is stopped and its files are kept; the next connection resumes it.
#[utoipa::path(post, path = "/v1/branches/{name}/suspend", operation_id = "suspendBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The branch is not running.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn suspend_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    _: Option<Json<Nothing>>,
) -> Result<Json<Branch>, Problem> {
    let branch = branches.suspend(caller.tenant(), &name).await?;
    Ok(Json(branches.view(branch).into()))
}

/// Resume a branch
///
/// A suspended or failed branch is started.
#[utoipa::path(post, path = "/v1/branches/{name}/resume", operation_id = "resumeBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The branch cannot be started.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn resume_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    _: Option<Json<Nothing>>,
) -> Result<Json<Branch>, Problem> {
    let branch = branches.resume(caller.tenant(), &name).await?;
    Ok(Json(branches.view(branch).into()))
}

/// Verify that a branch is isolated from its source
///
/// A marker is written to the branch; the source is checked to lack it and to be unchanged; then
/// the marker is removed.
#[utoipa::path(post, path = "/v1/branches/{name}/verify", operation_id = "verifyBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name.")),
    request_body = Option<VerifyRequest>,
    responses(
        (status = 200, description = "The proof.", body = Proof),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn verify_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    request: Option<Json<VerifyRequest>>,
) -> Result<Json<Proof>, Problem> {
    let requested_database = request.and_then(|Json(request)| request.database);
    let tenant = caller.tenant().to_owned();
    // The marker is removed again, even if the caller leaves.
    let proof = run_detached(async move {
        let database =
            database::choose_database(&branches, &tenant, &name, requested_database).await?;
        branches.verify(&tenant, &name, &database).await
    });
    Ok(Json(proof.await.map_err(query::to_problem)?.into()))
}

/// Runs work to its end, even if its caller disconnects.
async fn run_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, BranchesError>> + Send + 'static,
) -> Result<T, BranchesError> {
    join_task(tokio::spawn(work.in_current_span()).await)
}

fn join_task<T>(
    result: Result<Result<T, BranchesError>, tokio::task::JoinError>,
) -> Result<T, BranchesError> {
    result.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // Only a runtime that shuts down drops a task.
        Err(_) => Err(BranchesError::Stopping),
    })
}
