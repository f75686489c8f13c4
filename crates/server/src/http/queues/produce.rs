//! Enqueueing, one task or many, each answered by itself.

use std::fmt;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_queue::{BATCH_MAX, QueueError, Queues};
use http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use utoipa::{IntoParams, ToSchema};

use super::request::TaskRequest;
use super::task::{EnqueueOutcome, EnqueueOutcomes, NewTask};
use super::trace::TraceContext;
use crate::access::Caller;
use crate::extract::{Json, JsonText, Path, Query};
use crate::problem::Problem;
use crate::queue::{self, Atomicity};

/// One task, or an array of up to 1,000.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only documents the body that `enqueue` reads")]
pub(super) enum EnqueueRequest<'a> {
    /// One task.
    #[serde(borrow)]
    One(Box<TaskRequest<'a>>),
    /// An array of tasks.
    Several(Vec<TaskRequest<'a>>),
}

/// Parses at most one task more than [`BATCH_MAX`], and skips the rest: such a batch is refused.
struct Tasks<'a>(Vec<TaskRequest<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Tasks<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TaskArrayVisitor;

        impl<'de> Visitor<'de> for TaskArrayVisitor {
            type Value = Vec<TaskRequest<'de>>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an array of tasks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut tasks = Vec::new();
                while tasks.len() <= BATCH_MAX
                    && let Some(task) = from.next_element()?
                {
                    tasks.push(task);
                }
                while from.next_element::<IgnoredAny>()?.is_some() {}
                Ok(tasks)
            }
        }

        from.deserialize_seq(TaskArrayVisitor).map(Self)
    }
}

/// How tasks are enqueued.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EnqueueOptions {
    /// Whether all tasks of the request are enqueued or none.
    #[serde(default)]
    atomic: bool,
}

/// Enqueue tasks
///
/// The body has one task, or an array of up to 1,000 tasks, each with its own outcome. Tasks that
/// refer to each other by `after` are enqueued together or not at all; with `atomic`, all tasks of
/// the request are. Acknowledged tasks are on disk if `queue.durability` is `fsync`, the
/// default.
#[utoipa::path(post, path = "/v1/queues/{queue}/tasks", operation_id = "enqueueTasks", tag = "queue",
    security(("token" = ["queue:produce"]), ("token" = ["queue:write"])),
    params(
        EnqueueOptions,
        ("queue" = String, Path, description = "The queue's name."),
        ("traceparent" = Option<String>, Header, description = "W3C trace context of the tasks."),
        ("tracestate" = Option<String>, Header, description = "W3C trace context of the tasks."),
    ),
    request_body = EnqueueRequest,
    responses(
        (status = 201, description = "The task was enqueued.", body = NewTask),
        (status = 200, description = "For one task: a task with its unique key already existed. \
            For an array: the outcome of each task.", body = EnqueueOutcomes),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The queue is draining.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "A limit is reached.", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "The disk is full.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn enqueue(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    Query(options): Query<EnqueueOptions>,
    trace: TraceContext,
    body: JsonText,
) -> Result<Response, Problem> {
    let atomicity = Atomicity::from_flag(options.atomic);
    if body.is_array() {
        let tasks: Tasks<'_> = body.read()?;
        let inputs = tasks.0.iter().map(|task| task.to_input(&name, &trace));
        let outcomes = queue::enqueue(&queues, &caller, inputs.collect(), atomicity).await?;
        let items = outcomes.into_iter().map(EnqueueOutcome::from).collect();
        return Ok(Json(EnqueueOutcomes { items }).into_response());
    }
    let task: TaskRequest<'_> = body.read()?;
    let input = task.to_input(&name, &trace)?;
    let outcomes = queue::enqueue(&queues, &caller, vec![Ok(input)], atomicity).await?;
    let outcome = outcomes.into_iter().next();
    // An outcome is missing only if the engine has stopped.
    let task = NewTask::from(outcome.unwrap_or(Err(QueueError::Stopping))?);
    let status = if task.replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(task)).into_response())
}
