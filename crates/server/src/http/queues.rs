//! Queues and their tasks over HTTP.
//!
//! Here are the queues themselves; `produce.rs` enqueues, `work.rs` claims and reports, `tasks.rs` looks
//! at tasks one by one and page by page, `events.rs` tells of their changes, `schedules.rs` has them made
//! by the clock. Whose queues are meant is told by the caller's token.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRef, State};
use egret_queue::model::TaskState;
use egret_queue::{QueueError, Queues};
use http::StatusCode;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::extract::{Json, Nothing, Path, Query};
use crate::problem::Problem;
use crate::queue::{invalid, rights};

mod answer;
mod attachments;
mod callbacks;
mod events;
mod produce;
mod request;
mod schedules;
mod task;
mod tasks;
mod trace;
mod work;

use answer::{CallbackKey, Purged, Queue, QueueList, Requeued};
use request::{PurgeRequest, QueueRequest, RequeueRequest};

/// The routes of the queue engine, for [`Builder::route`](crate::Builder::route). What waits for a task
/// ends when `stopping` is cancelled.
pub fn routes(queues: Queues, stopping: CancellationToken) -> OpenApiRouter {
    OpenApiRouter::default()
        .routes(routes!(list_queues))
        .routes(routes!(put_queue, get_queue, delete_queue))
        .routes(routes!(pause_queue))
        .routes(routes!(resume_queue))
        .routes(routes!(drain_queue))
        .routes(routes!(purge_queue))
        .routes(routes!(requeue_dead))
        .routes(routes!(get_callback_key))
        .routes(routes!(callbacks::list_callbacks))
        .routes(routes!(produce::enqueue, tasks::list_tasks))
        .routes(routes!(work::claim))
        .routes(routes!(work::report))
        .routes(routes!(events::watch_tasks))
        .routes(routes!(tasks::get_task, tasks::delete_task))
        .routes(routes!(tasks::wait_task))
        .routes(routes!(tasks::cancel_task))
        .routes(routes!(tasks::requeue_task))
        .routes(routes!(attachments::list_attachments))
        .routes(routes!(
            attachments::put_attachment,
            attachments::get_attachment
        ))
        .routes(routes!(work::complete_task))
        .routes(routes!(work::fail_task))
        .routes(routes!(work::nack_task))
        .routes(routes!(work::snooze_task))
        .routes(routes!(work::release_task))
        .routes(routes!(work::heartbeat_task))
        .routes(routes!(schedules::list_schedules))
        .routes(routes!(
            schedules::put_schedule,
            schedules::get_schedule,
            schedules::delete_schedule
        ))
        .routes(routes!(schedules::pause_schedule))
        .routes(routes!(schedules::resume_schedule))
        .with_state(Door(Arc::new(Parts { queues, stopping })))
}

/// What the handlers hold: cloned several times for each request.
#[derive(Clone)]
struct Door(Arc<Parts>);

struct Parts {
    queues: Queues,
    stopping: CancellationToken,
}

impl Deref for Door {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl FromRef<Door> for Queues {
    fn from_ref(door: &Door) -> Self {
        door.queues.clone()
    }
}

impl Door {
    /// Waits for something, but not longer than the server runs.
    async fn waiting<T>(
        &self,
        work: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.stopping.cancelled() => Err(QueueError::Stopping),
        }
    }
}

async fn view(queues: &Queues, tenant: &str, name: &str) -> Result<Queue, QueueError> {
    Ok(queues.view_queue(tenant, name).await?.into())
}

/// States by their names.
fn states(names: &[String]) -> Result<Vec<TaskState>, QueueError> {
    let read = |name: &String| name.parse().map_err(|reason| invalid("states", reason));
    names.iter().map(read).collect()
}

/// List the queues
///
/// Those of the caller's tenant that the token may read, in order of names, each with its counts.
#[utoipa::path(get, path = "/v1/queues", operation_id = "listQueues", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:read"])),
    responses((status = 200, description = "The queues.", body = QueueList)))]
async fn list_queues(
    State(queues): State<Queues>,
    caller: Caller,
) -> Result<Json<QueueList>, Problem> {
    let views = queues.list_queues(caller.tenant()).await?;
    let reach = rights::reach(&caller, rights::READ);
    let items = views
        .into_iter()
        .filter(|view| reach.covers(&view.name))
        .map(Queue::from)
        .collect();
    Ok(Json(QueueList { items }))
}

/// Make a queue, or change one
///
/// Of a queue that exists, the settings that are given change. The name has 1 to 128 letters, digits and
/// `-_.:`, not `-` first.
#[utoipa::path(put, path = "/v1/queues/{queue}", operation_id = "putQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name.")),
    request_body = Option<QueueRequest>,
    responses(
        (status = 201, description = "The queue was made.", body = Queue),
        (status = 200, description = "It existed, and is as given now.", body = Queue),
        (status = 429, description = "There are `queue.queues_max` queues.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn put_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    request: Option<Json<QueueRequest>>,
) -> Result<(StatusCode, Json<Queue>), Problem> {
    let change = request.map_or_else(QueueRequest::default, |Json(request)| request);
    let status = match queues.known_queue(caller.tenant(), &name) {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    let change = change.change();
    queues.put_queue(caller.tenant(), &name, &change).await?;
    Ok((status, Json(view(&queues, caller.tenant(), &name).await?)))
}

/// Look at a queue
#[utoipa::path(get, path = "/v1/queues/{queue}", operation_id = "getQueue", tag = "queue",
    security(("token" = ["queue:read"])),
    params(("queue" = String, Path, description = "Its name.")),
    responses(
        (status = 200, description = "The queue.", body = Queue),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn get_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Queue>, Problem> {
    Ok(Json(view(&queues, caller.tenant(), &name).await?))
}

/// What a deletion takes with it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Deletion {
    /// Whether its tasks are deleted too; else their existence refuses it.
    #[serde(default)]
    force: bool,
}

/// Delete a queue
#[utoipa::path(delete, path = "/v1/queues/{queue}", operation_id = "deleteQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name."), Deletion),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "It has tasks.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn delete_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    Query(deletion): Query<Deletion>,
) -> Result<StatusCode, Problem> {
    let deleted = queues.delete_queue(caller.tenant(), &name, deletion.force);
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a queue
///
/// Nothing is handed out until it is resumed; enqueues go on.
#[utoipa::path(post, path = "/v1/queues/{queue}/pause", operation_id = "pauseQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The queue as it is now.", body = Queue),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn pause_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Json<Queue>, Problem> {
    let tenant = caller.tenant();
    queues.set_flow(tenant, &name, Some(true), None).await?;
    Ok(Json(view(&queues, tenant, &name).await?))
}

/// Resume a queue
///
/// Ends a pause or a drain.
#[utoipa::path(post, path = "/v1/queues/{queue}/resume", operation_id = "resumeQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The queue as it is now.", body = Queue),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn resume_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Json<Queue>, Problem> {
    let tenant = caller.tenant();
    let resumed = queues.set_flow(tenant, &name, Some(false), Some(false));
    resumed.await?;
    Ok(Json(view(&queues, tenant, &name).await?))
}

/// Drain a queue
///
/// Nothing more is enqueued until it is resumed; work goes on.
#[utoipa::path(post, path = "/v1/queues/{queue}/drain", operation_id = "drainQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The queue as it is now.", body = Queue),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn drain_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Json<Queue>, Problem> {
    let tenant = caller.tenant();
    queues.set_flow(tenant, &name, None, Some(true)).await?;
    Ok(Json(view(&queues, tenant, &name).await?))
}

/// Delete tasks of a queue
///
/// Those in the states given. A task that is leased is left alone.
#[utoipa::path(post, path = "/v1/queues/{queue}/purge", operation_id = "purgeQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name.")),
    request_body = Option<PurgeRequest>,
    responses(
        (status = 200, description = "How many were deleted.", body = Purged),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn purge_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    request: Option<Json<PurgeRequest>>,
) -> Result<Json<Purged>, Problem> {
    let request = request.map_or_else(PurgeRequest::default, |Json(request)| request);
    let states = states(&request.states)?;
    let deleted = queues.purge(caller.tenant(), &name, &states).await?;
    Ok(Json(Purged { deleted }))
}

/// Put dead tasks of a queue back
///
/// The oldest first, ready at once, with their attempts at zero. Tasks that were cancelled because one of
/// them did not complete stay cancelled.
#[utoipa::path(post, path = "/v1/queues/{queue}/requeue-dead", operation_id = "requeueDead",
    tag = "queue", security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "Its name.")),
    request_body = Option<RequeueRequest>,
    responses(
        (status = 200, description = "How many were put back.", body = Requeued),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "There is no room for the callback of a task; those before it are back.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn requeue_dead(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    request: Option<Json<RequeueRequest>>,
) -> Result<Json<Requeued>, Problem> {
    let limit = request.and_then(|Json(request)| request.limit);
    if limit == Some(0) {
        return Err(invalid("limit", "0 would put none back: leave it out for all").into());
    }
    let requeued = queues.requeue_dead(caller.tenant(), &name, limit.unwrap_or(0));
    Ok(Json(Requeued {
        requeued: requeued.await?,
    }))
}

/// Show what callbacks are signed with
///
/// The key of the caller's tenant, with which a receiver checks the header `egret-signature`. It takes
/// the scope `queue:operate` of all queues: whoever has it can forge callbacks.
#[utoipa::path(get, path = "/v1/callback-key", operation_id = "getCallbackKey", tag = "queue",
    security(("token" = ["queue:operate"])),
    responses((status = 200, description = "The key.", body = CallbackKey)))]
async fn get_callback_key(
    State(queues): State<Queues>,
    caller: Caller,
) -> Result<Json<CallbackKey>, Problem> {
    let key = queues.callback_key(caller.tenant())?;
    Ok(Json(CallbackKey { key }))
}
