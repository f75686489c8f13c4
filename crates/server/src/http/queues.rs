//! Queues and their tasks over HTTP.
//!
//! Here are the queues themselves; `produce.rs` enqueues, `work.rs` claims and reports, `tasks.rs`
//! reads tasks one by one and page by page, `events.rs` streams their changes, `schedules.rs`
//! creates them by cron expressions. The caller's token determines the tenant.

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

/// The routes of the queue engine, for [`Builder::route`](crate::Builder::route). What waits for a
/// task ends when `stopping` is cancelled.
pub fn routes(queues: Queues, stopping: CancellationToken) -> OpenApiRouter {
    documented().with_state(QueuesState(Arc::new(QueuesInner { queues, stopping })))
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<QueuesState> {
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
        .routes(routes!(attachments::put_attachment, attachments::get_attachment))
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
}

/// State of the handlers: cloned several times for each request.
#[derive(Clone)]
pub(crate) struct QueuesState(Arc<QueuesInner>);

pub(crate) struct QueuesInner {
    queues: Queues,
    stopping: CancellationToken,
}

impl Deref for QueuesState {
    type Target = QueuesInner;

    fn deref(&self) -> &QueuesInner {
        &self.0
    }
}

impl FromRef<QueuesState> for Queues {
    fn from_ref(state: &QueuesState) -> Self {
        state.queues.clone()
    }
}

impl QueuesState {
    /// Waits for a future, but not longer than the server runs.
    async fn run_until_stopping<T>(
        &self,
        work: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        tokio::select! {
            biased;
            result = work => result,
            () = self.stopping.cancelled() => Err(QueueError::Stopping),
        }
    }
}

async fn queue_response(queues: &Queues, tenant: &str, name: &str) -> Result<Queue, QueueError> {
    Ok(queues.view_queue(tenant, name).await?.into())
}

/// Parses the names of states.
fn parse_states(names: &[String]) -> Result<Vec<TaskState>, QueueError> {
    let parse = |name: &String| name.parse().map_err(|reason| invalid("states", reason));
    names.iter().map(parse).collect()
}

/// List the queues
///
/// The list has the queues of the caller's tenant that the token may read, in order of names, each
/// with its counts.
#[utoipa::path(get, path = "/v1/queues", operation_id = "listQueues", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:read"])),
    responses((status = 200, description = "The queues.", body = QueueList)))]
async fn list_queues(
    State(queues): State<Queues>,
    caller: Caller,
) -> Result<Json<QueueList>, Problem> {
    let views = queues.list_queues(caller.tenant()).await?;
    let reach = rights::reach(&caller, rights::READ);
    let items =
        views.into_iter().filter(|view| reach.covers(&view.name)).map(Queue::from).collect();
    Ok(Json(QueueList { items }))
}

/// Create or change a queue
///
/// For an existing queue, only the given settings are changed. A name has 1 to 128 letters, digits
/// and `-_.:`, and does not begin with `-`.
#[utoipa::path(put, path = "/v1/queues/{queue}", operation_id = "putQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body = Option<QueueRequest>,
    responses(
        (status = 201, description = "The queue was created.", body = Queue),
        (status = 200, description = "The queue existed, and its settings were changed.", body = Queue),
        (status = 429, description = "The limit `queue.queues_max` is reached.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn put_queue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    request: Option<Json<QueueRequest>>,
) -> Result<(StatusCode, Json<Queue>), Problem> {
    let change = request.map_or_else(QueueRequest::default, |Json(request)| request);
    let status = match queues.find_queue(caller.tenant(), &name) {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    let change = change.into_settings_change();
    queues.put_queue(caller.tenant(), &name, &change).await?;
    Ok((status, Json(queue_response(&queues, caller.tenant(), &name).await?)))
}

/// Get a queue by name
#[utoipa::path(get, path = "/v1/queues/{queue}", operation_id = "getQueue", tag = "queue",
    security(("token" = ["queue:read"])),
    params(("queue" = String, Path, description = "The queue's name.")),
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
    Ok(Json(queue_response(&queues, caller.tenant(), &name).await?))
}

/// The parameters of a deletion.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Deletion {
    /// Whether its tasks are deleted too. Otherwise their existence is an error.
    #[serde(default)]
    force: bool,
}

/// Delete a queue
#[utoipa::path(delete, path = "/v1/queues/{queue}", operation_id = "deleteQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name."), Deletion),
    responses(
        (status = 204, description = "The queue is deleted."),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The queue has tasks.", body = Problem,
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
/// Workers get no tasks of the queue until it is resumed; tasks can still be enqueued.
#[utoipa::path(post, path = "/v1/queues/{queue}/pause", operation_id = "pauseQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
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
    queues.set_queue_flags(tenant, &name, Some(true), None).await?;
    Ok(Json(queue_response(&queues, tenant, &name).await?))
}

/// Resume a queue
///
/// A pause or a drain is ended.
#[utoipa::path(post, path = "/v1/queues/{queue}/resume", operation_id = "resumeQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
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
    let resumed = queues.set_queue_flags(tenant, &name, Some(false), Some(false));
    resumed.await?;
    Ok(Json(queue_response(&queues, tenant, &name).await?))
}

/// Drain a queue
///
/// The queue accepts no tasks until it is resumed; workers still get its tasks.
#[utoipa::path(post, path = "/v1/queues/{queue}/drain", operation_id = "drainQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
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
    queues.set_queue_flags(tenant, &name, None, Some(true)).await?;
    Ok(Json(queue_response(&queues, tenant, &name).await?))
}

/// Delete tasks of a queue
///
/// The tasks in the given states are deleted, except leased ones.
#[utoipa::path(post, path = "/v1/queues/{queue}/purge", operation_id = "purgeQueue", tag = "queue",
    security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body = Option<PurgeRequest>,
    responses(
        (status = 200, description = "The number of deleted tasks.", body = Purged),
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
    let states = parse_states(&request.states)?;
    let deleted = queues.purge(caller.tenant(), &name, &states).await?;
    Ok(Json(Purged { deleted }))
}

/// Requeue dead tasks of a queue
///
/// The oldest tasks are requeued first; they are ready at once, with zero attempts. Tasks that were
/// cancelled because one of them did not complete stay cancelled.
#[utoipa::path(post, path = "/v1/queues/{queue}/requeue-dead", operation_id = "requeueDead",
    tag = "queue", security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body = Option<RequeueRequest>,
    responses(
        (status = 200, description = "The number of requeued tasks.", body = Requeued),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "There is no room for the callback of a task; the tasks before it were requeued.", body = Problem,
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
        return Err(invalid("limit", "0 would requeue no task: omit it to requeue all").into());
    }
    let requeued = queues.requeue_dead(caller.tenant(), &name, limit.unwrap_or(0));
    Ok(Json(Requeued { requeued: requeued.await? }))
}

/// Get the key that signs callbacks
///
/// A receiver checks the header `egret-signature` with this key of the caller's tenant. The
/// operation requires the scope `queue:operate` for all queues, because the key suffices to forge
/// callbacks.
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
