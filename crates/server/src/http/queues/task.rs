//! Tasks as responses show them.

use std::collections::BTreeMap;
use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret_base::{CodedError, Timestamp};
use egret_queue::model::{self, TaskId, TaskState};
use egret_queue::{
    AttemptView, EnqueueReceipt, Format, OwnedTask, QueueError, TaskChange, TaskPage, TaskView,
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::answer::to_timestamp;
use super::attachments::Attachment;
use crate::openapi::string_enum;
use crate::problem::error_detail;

/// A task with its attempts. Payload and result are omitted if they are empty or were not
/// requested.
#[derive(Serialize, ToSchema)]
pub(super) struct Task<'a> {
    /// Its id.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    id: TaskId,
    /// Its queue's name.
    queue: &'a str,
    /// The state of the task.
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// The priority, from 0 to 9; 9 is the highest.
    priority: u8,
    /// Its ordering key.
    ordering_key: Option<&'a str>,
    /// When it was enqueued, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When a delayed task becomes ready, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<Timestamp>,
    /// When the lease of a leased task ends, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    lease_until: Option<Timestamp>,
    /// When it ended, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    /// Attempts begun.
    attempts: u16,
    /// Attempts before it is dead.
    max_attempts: u16,
    /// The latest attempts, the oldest first.
    history: Vec<Attempt<'a>>,
    /// The payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The result, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<&'a RawValue>,
    /// The result in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    /// The attachments of the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<Attachment>>)]
    attachments: Vec<Attachment<'a>>,
    /// The error of the last failed attempt.
    error: Option<&'a str>,
    /// Tags by which tasks can be listed.
    tags: &'a [String],
    /// Names and values.
    metadata: &'a BTreeMap<String, String>,
    /// W3C trace context.
    traceparent: Option<&'a str>,
    /// W3C trace context.
    tracestate: Option<&'a str>,
    /// The URL that gets a POST request when the task has ended.
    callback_url: Option<&'a str>,
    /// The tasks that it still waits for.
    after: Vec<String>,
    /// Its unique key.
    unique_key: Option<&'a str>,
}

/// An attempt at a task.
#[derive(Serialize, ToSchema)]
struct Attempt<'a> {
    /// Its number, from 1.
    number: u16,
    /// Name of the worker.
    worker: Option<&'a str>,
    /// When it started, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// When it ended, RFC 3339; null while it runs.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    /// How it ended; null while it runs.
    #[schema(schema_with = outcome_schema)]
    outcome: Option<&'a str>,
    /// The error that the worker reported.
    error: Option<&'a str>,
}

/// A page of tasks, without their payloads and results.
#[derive(Serialize, ToSchema)]
pub(super) struct TaskList<'a> {
    /// The tasks.
    items: Vec<Task<'a>>,
    /// The cursor of the next page; null at the end.
    next_cursor: Option<&'a str>,
    /// Partitions that have failed, whose tasks are missing here; absent when there are none.
    #[serde(skip_serializing_if = "<[usize]>::is_empty")]
    #[schema(value_type = Vec<usize>)]
    unavailable_partitions: &'a [usize],
}

impl<'a> From<&'a TaskPage> for TaskList<'a> {
    fn from(page: &'a TaskPage) -> Self {
        Self {
            items: page.tasks.iter().map(Task::from).collect(),
            next_cursor: page.next.as_deref(),
            unavailable_partitions: &page.unavailable,
        }
    }
}

impl<'a> From<&'a TaskView> for Task<'a> {
    fn from(view: &'a TaskView) -> Self {
        let (payload, payload_base64) = encode_content(&view.payload, view.format);
        let (result, result_base64) = encode_content(&view.result, view.result_format);
        Self {
            id: view.id,
            queue: &view.queue,
            state: view.state.as_str(),
            priority: view.priority,
            ordering_key: non_empty(&view.ordering_key),
            created_at: to_timestamp(view.id.created_ms()),
            run_at: optional_timestamp(view.run_at_ms),
            lease_until: optional_timestamp(view.lease_until_ms),
            ended_at: optional_timestamp(view.ended_ms),
            attempts: view.attempts,
            max_attempts: view.max_attempts,
            history: view.history.iter().map(Attempt::from).collect(),
            payload,
            payload_base64,
            result,
            result_base64,
            attachments: view.attachments.iter().map(Attachment::from).collect(),
            error: non_empty(&view.error),
            tags: &view.tags,
            metadata: &view.metadata,
            traceparent: non_empty(&view.traceparent),
            tracestate: non_empty(&view.tracestate),
            callback_url: non_empty(&view.callback_url),
            after: view.after.iter().map(ToString::to_string).collect(),
            unique_key: non_empty(&view.unique_key),
        }
    }
}

impl<'a> From<&'a AttemptView> for Attempt<'a> {
    fn from(attempt: &'a AttemptView) -> Self {
        Self {
            number: attempt.number,
            worker: non_empty(&attempt.worker),
            started_at: to_timestamp(attempt.started_ms),
            ended_at: optional_timestamp(attempt.ended_ms),
            outcome: non_empty(attempt.outcome),
            error: non_empty(&attempt.error),
        }
    }
}

/// A task that is leased to the caller.
#[derive(Serialize, ToSchema)]
pub(super) struct LeasedTask<'a> {
    /// Its id.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    id: TaskId,
    /// Its queue's name.
    queue: &'a str,
    /// The lease, which every report about the task must carry.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String, example = "0a1700000000002a0000000300000007")]
    lease: model::Lease,
    /// When the lease ends unless there is a heartbeat, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    lease_until: Timestamp,
    /// The duration of the lease, in milliseconds; send a heartbeat after a third of it.
    lease_ms: u64,
    /// The longest duration of the attempt, regardless of heartbeats, in milliseconds; zero:
    /// unlimited.
    timeout_ms: u64,
    /// The number of the attempt, from 1.
    attempt: u16,
    /// Attempts before it is dead.
    max_attempts: u16,
    /// The priority, from 0 to 9; 9 is the highest.
    priority: u8,
    /// When it was enqueued, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// Its ordering key.
    ordering_key: Option<&'a str>,
    /// Tags by which tasks can be listed.
    tags: Vec<&'a str>,
    /// Names and values.
    metadata: BTreeMap<&'a str, &'a str>,
    /// W3C trace context.
    traceparent: Option<&'a str>,
    /// W3C trace context.
    tracestate: Option<&'a str>,
}

/// The leased tasks; none if no task was ready.
#[derive(Serialize, ToSchema)]
pub(super) struct LeasedTasks<'a> {
    /// The tasks.
    pub(super) items: Vec<LeasedTask<'a>>,
}

impl<'a> LeasedTask<'a> {
    pub(super) fn from_owned_task(task: &'a OwnedTask) -> Result<Self, QueueError> {
        let task_content = task.parse_content()?;
        let (payload, payload_base64) = encode_content(task_content.payload, task_content.format);
        Ok(Self {
            id: task.id,
            queue: &task.queue,
            lease: task.lease,
            lease_until: to_timestamp(task.lease_until_ms),
            lease_ms: task.lease_ms,
            timeout_ms: task.timeout_ms,
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            priority: task.priority,
            created_at: to_timestamp(task.id.created_ms()),
            payload,
            payload_base64,
            ordering_key: non_empty(task_content.ordering_key),
            tags: task.tags().collect(),
            metadata: task_content.metadata,
            traceparent: non_empty(task_content.traceparent),
            tracestate: non_empty(task_content.tracestate),
        })
    }
}

/// A task that was enqueued.
#[derive(Serialize, ToSchema)]
pub(super) struct NewTask {
    /// Its id.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    id: TaskId,
    /// Whether a task with this unique key already existed: the id is that of the first one, which
    /// may be dead, have ended otherwise, or be deleted.
    pub(super) replayed: bool,
}

impl From<EnqueueReceipt> for NewTask {
    fn from(enqueued: EnqueueReceipt) -> Self {
        Self { id: enqueued.id, replayed: enqueued.replayed }
    }
}

/// The outcome of one task of several: it was enqueued, or there is an error.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum EnqueueOutcome {
    /// The task was enqueued.
    Enqueued(NewTask),
    /// The task was not enqueued.
    Refused {
        /// Why the task was not enqueued.
        error: Refusal,
    },
}

/// The outcomes of several tasks, in the order of the request.
#[derive(Serialize, ToSchema)]
pub(super) struct EnqueueOutcomes {
    /// The outcomes.
    pub(super) items: Vec<EnqueueOutcome>,
}

impl From<Result<EnqueueReceipt, QueueError>> for EnqueueOutcome {
    fn from(outcome: Result<EnqueueReceipt, QueueError>) -> Self {
        match outcome {
            Ok(enqueued) => Self::Enqueued(enqueued.into()),
            Err(error) => Self::Refused { error: Refusal::from(&error) },
        }
    }
}

/// The outcome of one report.
#[derive(Serialize, ToSchema)]
pub(super) struct ReportOutcome {
    /// Whether the report was accepted.
    accepted: bool,
    /// Why the report was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

/// The outcomes of several reports, in the order of the request.
#[derive(Serialize, ToSchema)]
pub(super) struct ReportOutcomes {
    /// The outcomes.
    pub(super) items: Vec<ReportOutcome>,
}

impl From<Result<(), QueueError>> for ReportOutcome {
    fn from(outcome: Result<(), QueueError>) -> Self {
        Self { accepted: outcome.is_ok(), error: outcome.as_ref().err().map(Refusal::from) }
    }
}

/// Why one item of several was refused.
#[derive(Serialize, ToSchema)]
pub(super) struct Refusal {
    /// Stable identifier of the error, to be matched by programs.
    #[schema(example = "lease_lost")]
    code: &'static str,
    /// What failed, with which value, and what to do.
    detail: String,
    /// Whether the same item may succeed later without changes.
    retryable: bool,
}

impl From<&QueueError> for Refusal {
    fn from(error: &QueueError) -> Self {
        Self { code: error.code(), detail: error_detail(error), retryable: error.retryable() }
    }
}

/// A change of a task's state.
#[derive(Serialize, ToSchema)]
pub(super) struct Change<'a> {
    /// Id of the task.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    id: TaskId,
    /// Its queue's name.
    queue: &'a str,
    /// The new state of the task.
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// Time of the change, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Attempts begun.
    attempt: u16,
}

impl<'a> From<&'a TaskChange> for Change<'a> {
    fn from(change: &'a TaskChange) -> Self {
        Self {
            id: change.id,
            queue: &change.queue,
            state: change.state.as_str(),
            at: to_timestamp(change.at_ms),
            attempt: change.attempt,
        }
    }
}

/// JSON as it is, else base64; neither where there is nothing.
pub(super) fn encode_content(bytes: &[u8], format: Format) -> (Option<&RawValue>, Option<String>) {
    if bytes.is_empty() {
        return (None, None);
    }
    let json = match format {
        Format::Json => serde_json::from_slice(bytes).ok(),
        Format::Bytes => None,
    };
    match json {
        Some(json) => (Some(json), None),
        None => (None, Some(STANDARD.encode(bytes))),
    }
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(super) fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

pub(super) fn optional_timestamp(unix_ms: u64) -> Option<Timestamp> {
    (unix_ms > 0).then(|| to_timestamp(unix_ms))
}

pub(super) fn state_schema() -> Object {
    string_enum(&TaskState::TEXTS, "The state of the task.")
}

fn outcome_schema() -> Object {
    const OUTCOMES: [&str; 8] = [
        "completed",
        "failed",
        "nack",
        "snoozed",
        "released",
        "lease_expired",
        "timed_out",
        "cancelled",
    ];
    string_enum(&OUTCOMES, "How the attempt ended; null while it runs.")
}
