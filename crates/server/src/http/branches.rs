//! Branches over HTTP: make, look at, query, change and destroy them.
//!
//! What a branch stands on is in `branches/volume.rs`. Whose branches are meant is told by the
//! caller's token.

use axum::extract::State;
use egret_branches::model::{BranchName, BranchState};
use egret_branches::{Branches, BranchesError, Children, Created};
use http::StatusCode;
use serde::Deserialize;
use tracing::Instrument;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{AuditSubject, Caller};
use crate::error::RequestError;
use crate::extract::{Json, Nothing, Path, Query};
use crate::problem::Problem;

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
    let connection = OpenApiRouter::default()
        .routes(routes!(connection::get_connection))
        .with_state((branches.clone(), proxy));
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
        .with_state(branches)
        .merge(connection)
}

/// Make a branch
///
/// Answers when the branch accepts connections. Idempotent by name: the same request again answers
/// 200 with the branch that exists.
#[utoipa::path(post, path = "/v1/branches", operation_id = "createBranch", tag = "branches",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["branches:write"])), request_body = BranchRequest,
    responses(
        (status = 201, description = "The branch was made.", body = Branch),
        (status = 200, description = "It existed, asked for in the same way.", body = Branch),
        (status = 404, description = "There is no such template or branch to copy.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The name is taken by a different branch, or the source cannot be \
            branched.", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "A limit is reached.", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "The volume has too little room.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn create_branch(
    State(branches): State<Branches>,
    caller: Caller,
    subject: AuditSubject,
    Json(request): Json<BranchRequest>,
) -> Result<(StatusCode, Json<Branch>), Problem> {
    subject.note(request.name.as_str());
    request.require_rights(&caller)?;
    let created = branches.create(request.of(caller.tenant())).await?;
    let status = match created {
        Created::New(_) => StatusCode::CREATED,
        Created::Existing(_) => StatusCode::OK,
    };
    let view = branches.view(created.into_branch());
    Ok((status, Json(view.into())))
}

/// Which branches to list; read by hand, as `label` may come more than once.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it documents what `Filter` reads")]
struct FilterParameters {
    /// Only those with this label, as `key=value`; may be repeated.
    label: Option<Vec<String>>,
    /// Only those in this state.
    state: Option<String>,
}

/// What a branch in a list must have.
#[derive(Default)]
struct Filter {
    labels: Vec<(String, String)>,
    state: Option<BranchState>,
}

impl Filter {
    fn read(parameters: Vec<(String, String)>) -> Result<Self, RequestError> {
        let wrong = |message| RequestError::Parameter {
            place: "query",
            message,
        };
        let mut filter = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "label" => {
                    let pair = value.split_once('=');
                    let (key, value) = pair.ok_or_else(|| {
                        wrong(format!("label: `{value}` is not of the form key=value"))
                    })?;
                    filter.labels.push((key.to_owned(), value.to_owned()));
                }
                "state" => {
                    let state = value.parse();
                    filter.state = Some(state.map_err(|text| wrong(format!("state: {text}")))?);
                }
                other => {
                    let text = format!("unknown field `{other}`, expected `label` or `state`");
                    return Err(wrong(text));
                }
            }
        }
        Ok(filter)
    }
}

/// List the branches
///
/// Those of the caller's tenant, oldest first. Destroyed ones are not in the list.
#[utoipa::path(get, path = "/v1/branches", operation_id = "listBranches", tag = "branches",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["branches:read"])), params(FilterParameters),
    responses((status = 200, description = "The branches.", body = BranchList)))]
async fn list_branches(
    State(branches): State<Branches>,
    caller: Caller,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Json<BranchList>, Problem> {
    let filter = Filter::read(parameters)?;
    let reach = caller.reach("branches", &["read"]);
    let fits = |branch: &egret_branches::model::Branch| {
        reach.covers(branch.name.as_str())
            && filter.state.is_none_or(|state| branch.state == state)
            && filter
                .labels
                .iter()
                .all(|(key, value)| branch.labels.get(key) == Some(value))
    };
    let found = branches.list(caller.tenant(), fits).await?;
    Ok(Json(BranchList {
        items: found.into_iter().map(Branch::from).collect(),
    }))
}

/// Look at a branch
#[utoipa::path(get, path = "/v1/branches/{name}", operation_id = "getBranch", tag = "branches",
    security(("token" = ["branches:read"])),
    params(("name" = String, Path, description = "Its name.")),
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
/// Protection, lifetime and labels; what is not named stays as it is.
#[utoipa::path(patch, path = "/v1/branches/{name}", operation_id = "changeBranch", tag = "branches",
    security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "Its name.")), request_body = BranchChange,
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
    let change = change.into_change();
    let (engine, tenant) = (branches.clone(), caller.tenant().to_owned());
    let changing = tokio::task::spawn_blocking(move || engine.change(&tenant, &name, &change));
    let branch = joined(changing.await)?;
    Ok(Json(branches.view(branch).into()))
}

/// What a destruction takes with it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Destruction {
    /// Whether branches made of this one are destroyed too; else their existence refuses it.
    #[serde(default)]
    children: bool,
}

/// Destroy a branch
///
/// Acknowledged at once: sessions end, the name is free, files are deleted behind.
#[utoipa::path(delete, path = "/v1/branches/{name}", operation_id = "destroyBranch", tag = "branches",
    security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "Its name."), Destruction),
    responses(
        (status = 202, description = "It is destroyed.", body = Branch),
        (status = 403, description = "It has descendants that the scopes of the token do not cover.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "It is protected or has children.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn destroy_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    Query(destruction): Query<Destruction>,
) -> Result<(StatusCode, Json<Branch>), Problem> {
    let children = if destruction.children {
        Children::Destroy
    } else {
        Children::Refuse
    };
    let (engine, tenant) = (branches.clone(), caller.tenant().to_owned());
    let reach = caller.reach(request::AREA, &["write"]);
    // A family is destroyed as a whole, even if the caller leaves.
    let destroyed = finished(async move {
        let covers = |child: &BranchName| reach.covers(child.as_str());
        engine.destroy(&tenant, &name, children, covers).await
    });
    let branch = destroyed.await?;
    let view = branches.view(branch);
    Ok((StatusCode::ACCEPTED, Json(view.into())))
}

/// Throw a branch's changes away
///
/// It becomes its template again, or another one. Sessions end; the connection string stays.
#[utoipa::path(post, path = "/v1/branches/{name}/reset", operation_id = "resetBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "Its name.")),
    request_body = Option<ResetRequest>,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "No branch or template is named so.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "It is protected.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn reset_branch(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    request: Option<Json<ResetRequest>>,
) -> Result<Json<Branch>, Problem> {
    let to = request.and_then(|Json(request)| request.to);
    if to.is_some() {
        request::require_templates(&caller)?;
    }
    let branch = branches.reset(caller.tenant(), &name, to).await?;
    Ok(Json(branches.view(branch).into()))
}

/// Suspend a branch
///
/// Stops its server and keeps its files; the next connection wakes it.
#[utoipa::path(post, path = "/v1/branches/{name}/suspend", operation_id = "suspendBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "Its name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "It is not running.", body = Problem,
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
/// Starts a suspended branch, or one that failed.
#[utoipa::path(post, path = "/v1/branches/{name}/resume", operation_id = "resumeBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "Its name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The branch as it is now.", body = Branch),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "It cannot run.", body = Problem,
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

/// Prove that a branch is apart from its source
///
/// Writes a marker to the branch, shows that the source has none and did not change, and removes it.
#[utoipa::path(post, path = "/v1/branches/{name}/verify", operation_id = "verifyBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "Its name.")),
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
    let named = request.and_then(|Json(request)| request.database);
    let tenant = caller.tenant().to_owned();
    // The marker is removed again, even if the caller leaves.
    let proof = finished(async move {
        let database = database::choose(&branches, &tenant, &name, named).await?;
        branches.verify(&tenant, &name, &database).await
    });
    Ok(Json(proof.await.map_err(query::problem)?.into()))
}

/// Runs work to its end though its caller may leave before.
async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T, BranchesError>> + Send + 'static,
) -> Result<T, BranchesError> {
    joined(tokio::spawn(work.in_current_span()).await)
}

fn joined<T>(
    ended: Result<Result<T, BranchesError>, tokio::task::JoinError>,
) -> Result<T, BranchesError> {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // Only a runtime that shuts down drops a task.
        Err(_) => Err(BranchesError::Stopping),
    })
}
