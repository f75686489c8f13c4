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
#[expect(dead_code, reason = "it documents what `enqueue` reads")]
pub(super) enum EnqueueRequest<'a> {
    /// One.
    #[serde(borrow)]
    One(Box<TaskRequest<'a>>),
    /// Several.
    Several(Vec<TaskRequest<'a>>),
}

/// At most one more than may be: of what is refused no more is kept.
struct Tasks<'a>(Vec<TaskRequest<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Tasks<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Several;

        impl<'de> Visitor<'de> for Several {
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

        from.deserialize_seq(Several).map(Self)
    }
}

/// How tasks are enqueued.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EnqueueOptions {
    /// Whether all tasks of the call are made or none.
    #[serde(default)]
    atomic: bool,
}

/// Enqueue tasks
///
/// One, or an array of up to 1,000 of which each is answered by itself. Those that refer to each other by
/// `after` are made together or not at all; with `atomic` all of the call are. What is acknowledged is on disk,
/// unless `queue.durability` says otherwise.
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
        (status = 200, description = "Of one task: there was such a task already. Of an array: what became \
            of each.", body = EnqueueOutcomes),
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
    let atomicity = Atomicity::of(options.atomic);
    if body.is_array() {
        let tasks: Tasks<'_> = body.read()?;
        let wanted = tasks.0.iter().map(|task| task.wanted(&name, &trace));
        let outcomes = queue::enqueue(&queues, &caller, wanted.collect(), atomicity).await?;
        let items = outcomes.into_iter().map(EnqueueOutcome::from).collect();
        return Ok(Json(EnqueueOutcomes { items }).into_response());
    }
    let task: TaskRequest<'_> = body.read()?;
    let wanted = task.wanted(&name, &trace)?;
    let outcomes = queue::enqueue(&queues, &caller, vec![Ok(wanted)], atomicity).await?;
    let outcome = outcomes.into_iter().next();
    // An outcome is missing only where the engine is gone.
    let task = NewTask::from(outcome.unwrap_or(Err(QueueError::Stopping))?);
    let status = match task.replayed {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    Ok((status, Json(task)).into_response())
}
