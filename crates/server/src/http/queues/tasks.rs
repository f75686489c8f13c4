//! Reading tasks, waiting for them, and operating on them.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_queue::{Detail, Queues, TaskView};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::QueuesState;
use super::task::{Task, TaskList};
use crate::access::Caller;
use crate::extract::{Json, Nothing, Path, Query};
use crate::problem::Problem;
use crate::queue::{self, invalid, rights};

/// How long a wait lasts by default.
const WAIT_MS_DEFAULT: u64 = 30_000;

/// The tasks to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskListParams {
    /// List only tasks in this state.
    state: Option<String>,
    /// List only tasks with this tag.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    tag: String,
    /// The maximum number of tasks in a page.
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    cursor: String,
}

/// List tasks
///
/// The list has the tasks of a queue, without payloads and results. They are ordered by state, then
/// by partition, then by the order in which they entered the state; they are not sorted by time.
#[utoipa::path(get, path = "/v1/queues/{queue}/tasks", operation_id = "listTasks", tag = "queue",
    security(("token" = ["queue:read"])),
    params(("queue" = String, Path, description = "The queue's name."), TaskListParams),
    responses(
        (status = 200, description = "A page of tasks.", body = TaskList),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn list_tasks(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    Query(params): Query<TaskListParams>,
) -> Result<Response, Problem> {
    let state = params.state.map(|state| state.parse()).transpose();
    let state = state.map_err(|reason: String| invalid("state", reason))?;
    let limit = match params.limit {
        Some(0) => return Err(invalid("limit", "it must be at least 1").into()),
        limit => queue::page_limit(limit.unwrap_or(0))?,
    };
    let found =
        queues.tasks(caller.tenant(), &name, state, &params.tag, limit, &params.cursor).await?;
    Ok(Json(TaskList::from(&found)).into_response())
}

fn task_response(view: &TaskView) -> Response {
    Json(Task::from(view)).into_response()
}

/// The parts of a task to return.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskInclude {
    /// Whether to omit payload and result.
    #[serde(default)]
    brief: bool,
}

/// Get a task by id
#[utoipa::path(get, path = "/v1/tasks/{id}", operation_id = "getTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:produce"]), ("token" = ["queue:read"])),
    params(("id" = String, Path, description = "Its id."), TaskInclude),
    responses(
        (status = 200, description = "The task.", body = Task),
        (status = 404, description = "No task has this id.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn get_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    Query(include): Query<TaskInclude>,
) -> Result<Response, Problem> {
    let detail = if include.brief { Detail::Brief } else { Detail::Whole };
    let id = queue::parse_task_id(&id)?;
    rights::require_task(&queues, &caller, id, rights::READ_RESULT).await?;
    let view = queues.task(caller.tenant(), id, detail).await?;
    Ok(task_response(&view))
}

/// The parameters of waiting.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    /// The longest time to wait, in milliseconds.
    #[param(maximum = 60_000, default = 30_000)]
    wait_ms: Option<u64>,
}

/// Wait for a task
///
/// The response is sent when the task has ended or the time is over; it has the task in its present
/// state.
#[utoipa::path(get, path = "/v1/tasks/{id}/wait", operation_id = "waitTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true)), ("x-egret-lasting" = json!(true))),
    security(("token" = ["queue:produce"]), ("token" = ["queue:read"])),
    params(("id" = String, Path, description = "Its id."), WaitParams),
    responses(
        (status = 200, description = "The task.", body = Task),
        (status = 404, description = "No task has this id.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn wait_task(
    State(state): State<QueuesState>,
    caller: Caller,
    Path(id): Path<String>,
    Query(params): Query<WaitParams>,
) -> Result<Response, Problem> {
    let id = queue::parse_task_id(&id)?;
    let timeout = queue::wait_duration(params.wait_ms.unwrap_or(WAIT_MS_DEFAULT))?;
    rights::require_task(&state.queues, &caller, id, rights::READ_RESULT).await?;
    let wait = state.queues.wait(caller.tenant(), id, timeout);
    let view = state.run_until_stopping(wait).await?;
    Ok(task_response(&view))
}

/// Cancel a task
///
/// A task that has not ended is cancelled. A worker that holds it is notified. The response has
/// payload and result only for a token that may read the task.
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", operation_id = "cancelTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "Its id.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The task as it is now.", body = Task),
        (status = 404, description = "No task has this id.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The task has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn cancel_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Response, Problem> {
    let id = queue::parse_task_id(&id)?;
    rights::require_task(&queues, &caller, id, rights::OPERATE).await?;
    queues.cancel(caller.tenant(), id).await?;
    let view = rights::view_changed_task(&queues, &caller, id).await?;
    Ok(task_response(&view))
}

/// Requeue a task
///
/// A dead or cancelled task is ready at once, with zero attempts, and no longer waits for other
/// tasks. Tasks that were cancelled because it did not complete stay cancelled. The response has
/// payload and result only for a token that may read the task.
#[utoipa::path(post, path = "/v1/tasks/{id}/requeue", operation_id = "requeueTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "Its id.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The task as it is now.", body = Task),
        (status = 404, description = "No task has this id.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The task is neither dead nor cancelled.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "There is no room for the callback of the task.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn requeue_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Response, Problem> {
    let id = queue::parse_task_id(&id)?;
    rights::require_task(&queues, &caller, id, rights::OPERATE).await?;
    queues.requeue(caller.tenant(), id).await?;
    let view = rights::view_changed_task(&queues, &caller, id).await?;
    Ok(task_response(&view))
}

/// Delete a task
///
/// A task that no worker holds is deleted, or a callback by its id unless it is being sent.
#[utoipa::path(delete, path = "/v1/tasks/{id}", operation_id = "deleteTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "Its id.")),
    responses(
        (status = 204, description = "The task is deleted."),
        (status = 404, description = "No task has this id.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "A worker holds the task.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = queue::parse_task_id(&id)?;
    rights::require_deletion(&queues, &caller, id).await?;
    queues.delete_task(caller.tenant(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}
