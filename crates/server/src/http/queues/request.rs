//! Request bodies of queues, as JSON. Long or frequent values borrow from the body.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret_base::Timestamp;
use egret_queue::{Format, NewTask, QueueError, SettingsChange, model};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::trace::TraceContext;
use crate::queue::{TaskInput, invalid};

/// How the delay grows from one failed attempt to the next.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Backoff {
    /// The same delay each time.
    Fixed,
    /// The first delay times the number of failed attempts.
    Linear,
    /// The delay is doubled with each failed attempt.
    Exponential,
}

/// How a delay is randomized.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Jitter {
    /// The delay is not randomized.
    None,
    /// A random delay from zero to the full delay.
    Full,
    /// Half of the delay, plus a random part of the other half.
    Equal,
}

/// How long a task waits after a failed attempt. The policy is replaced as a whole: absent fields
/// have Egret's defaults, whatever the queue had before.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryRequest {
    /// How the delay grows; `exponential` when absent.
    backoff: Option<Backoff>,
    /// The first delay in milliseconds; 1000 when absent.
    base_ms: Option<u64>,
    /// The longest delay in milliseconds, no shorter than the first; 600000 when absent.
    max_ms: Option<u64>,
    /// How the delay is randomized; `full` when absent.
    jitter: Option<Jitter>,
}

impl RetryRequest {
    fn into_policy(self) -> model::RetryPolicy {
        let defaults = model::RetryPolicy::default();
        let base_ms = self.base_ms.unwrap_or(defaults.base_ms);
        model::RetryPolicy {
            backoff: match self.backoff {
                Some(Backoff::Fixed) => model::Backoff::Fixed,
                Some(Backoff::Linear) => model::Backoff::Linear,
                Some(Backoff::Exponential) | None => model::Backoff::Exponential,
            },
            jitter: match self.jitter {
                Some(Jitter::None) => model::Jitter::None,
                Some(Jitter::Equal) => model::Jitter::Equal,
                Some(Jitter::Full) | None => model::Jitter::Full,
            },
            base_ms,
            max_ms: self.max_ms.unwrap_or(defaults.max_ms.max(base_ms)),
        }
    }
}

/// When ended tasks are deleted: by age or by number, whichever comes first; zero is unlimited.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retention {
    /// The maximum age after their end, in milliseconds.
    pub(super) age_ms: u64,
    /// The maximum number in each partition of the queue.
    pub(super) count: u64,
}

/// The settings of a queue: defaults of its tasks, and limits; absent fields are unchanged.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueRequest {
    /// Attempts before a task is dead.
    max_attempts: Option<u32>,
    /// How long a task waits between attempts.
    retry: Option<RetryRequest>,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    lease_ms: Option<u64>,
    /// The longest duration of an attempt, in milliseconds; zero: unlimited.
    timeout_ms: Option<u64>,
    /// The maximum number of tasks leased at the same time; zero: unlimited.
    concurrency: Option<u32>,
    /// The maximum number of tasks of one ordering key leased at the same time.
    key_concurrency: Option<u32>,
    /// The maximum number of tasks leased per second; zero: unlimited.
    rate_per_second: Option<f64>,
    /// The maximum number of tasks leased at once after idle time; zero: those of one second.
    rate_burst: Option<u32>,
    /// How long completed tasks are kept.
    completed: Option<Retention>,
    /// How long dead tasks are kept.
    dead: Option<Retention>,
    /// How long cancelled tasks are kept.
    cancelled: Option<Retention>,
    /// How long a unique key is remembered, in milliseconds.
    unique_window_ms: Option<u64>,
    /// A task that has waited so many milliseconds counts as one priority higher; zero: never.
    aging_ms: Option<u64>,
}

impl QueueRequest {
    pub(super) fn into_settings_change(self) -> SettingsChange {
        let to_retention = |retention: Retention| model::Retention {
            age_ms: retention.age_ms,
            count: retention.count,
        };
        SettingsChange {
            max_attempts: self.max_attempts,
            retry: self.retry.map(RetryRequest::into_policy),
            lease_ms: self.lease_ms,
            timeout_ms: self.timeout_ms,
            concurrency: self.concurrency,
            key_concurrency: self.key_concurrency,
            rate_per_second: self.rate_per_second,
            rate_burst: self.rate_burst,
            completed: self.completed.map(to_retention),
            dead: self.dead.map(to_retention),
            cancelled: self.cancelled.map(to_retention),
            unique_window_ms: self.unique_window_ms,
            aging_ms: self.aging_ms,
        }
    }
}

/// A task to be enqueued.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskRequest<'a> {
    /// The payload, any JSON. Without it and `payload_base64`, the task has no payload.
    #[serde(borrow, default, deserialize_with = "raw")]
    #[schema(value_type = Option<serde_json::Value>, example = json!({"to": "ada@example.com"}))]
    payload: Option<&'a RawValue>,
    /// The payload as bytes, in base64.
    #[serde(default, deserialize_with = "base64")]
    #[schema(value_type = String)]
    payload_base64: Option<Vec<u8>>,
    /// The priority, from 0 to 9; 9 is the highest.
    #[schema(default = 5)]
    priority: Option<u32>,
    /// Tasks with the same key are processed one at a time (`key_concurrency` of the queue), by
    /// priority and then in the order in which they were enqueued. A task that is delayed or waits
    /// for others gets its place when it becomes ready.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    ordering_key: Cow<'a, str>,
    /// The time at which the task becomes ready, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<Timestamp>,
    /// The delay until the task becomes ready, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
    /// Attempts before the task is dead; the queue's setting when absent.
    max_attempts: Option<u32>,
    /// How long the task waits between attempts, which replaces the queue's whole policy; the
    /// queue's policy when absent.
    retry: Option<RetryRequest>,
    /// The longest duration of an attempt, in milliseconds; zero: the queue's setting.
    #[serde(default)]
    timeout_ms: u64,
    /// A second task with this key (and ordering key) within the window is not enqueued: the
    /// response has the id of the first one, with `replayed`, also if that one is dead, has ended
    /// otherwise or was deleted.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    unique_key: Cow<'a, str>,
    /// How long the unique key is remembered, in milliseconds; zero: the queue's setting.
    #[serde(default)]
    unique_window_ms: u64,
    /// Tags by which tasks can be listed.
    #[serde(default)]
    tags: Vec<String>,
    /// Names and values that are passed to the worker.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// W3C trace context that is passed to the worker; the header of this name when absent.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    traceparent: Cow<'a, str>,
    /// W3C trace context that is passed to the worker; the header of this name when `traceparent`
    /// is absent.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    tracestate: Cow<'a, str>,
    /// The URL that gets a POST request when the task has ended. Unless `queue.callback_private` is
    /// set, an address that is not public is refused here; a host name is resolved when the
    /// callback is sent.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    callback_url: Cow<'a, str>,
    /// Ids of tasks that must complete before this one; if one does not complete, this task is
    /// cancelled. `#0`, `#1` … refer to tasks of the same array by index.
    #[serde(default)]
    after: Vec<String>,
    /// The queue, if it is not the one of the path.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    queue: Cow<'a, str>,
}

impl TaskRequest<'_> {
    /// The task for the engine; `queue` is the path's.
    pub(super) fn to_input<'s>(
        &'s self,
        queue: &'s str,
        trace: &'s TraceContext,
    ) -> Result<TaskInput<'s>, QueueError> {
        let (payload, format) =
            parse_content("payload", self.payload, self.payload_base64.as_deref())?;
        let (traceparent, tracestate) = match &*self.traceparent {
            "" if self.tracestate.is_empty() => trace.header_values(),
            own => (own, &*self.tracestate),
        };
        let metadata = self.metadata.iter();
        Ok(TaskInput {
            queue: match &*self.queue {
                "" => queue,
                own => own,
            },
            after: self.after.iter().map(String::as_str).collect(),
            task: NewTask {
                payload,
                format,
                priority: self.priority,
                ordering_key: &self.ordering_key,
                run_at_ms: self.run_at.map_or(Ok(0), to_run_at_ms)?,
                delay_ms: self.delay_ms,
                max_attempts: self.max_attempts,
                retry: self.retry.map(RetryRequest::into_policy),
                timeout_ms: self.timeout_ms,
                unique_key: &self.unique_key,
                unique_window_ms: self.unique_window_ms,
                tags: &self.tags,
                metadata: metadata.map(|(name, value)| (&**name, &**value)).collect(),
                traceparent,
                tracestate,
                callback_url: &self.callback_url,
                after: &[],
            },
        })
    }
}

fn to_run_at_ms(at: Timestamp) -> Result<u64, QueueError> {
    match at.as_micros() {
        1_000.. => Ok(at.as_millis_unsigned()),
        _ => Err(invalid("run_at", "it is before 1970")),
    }
}

/// A payload or result with its format: JSON, or bytes that were sent in base64. Not both.
pub(super) fn parse_content<'s>(
    field: &'static str,
    json: Option<&'s RawValue>,
    bytes: Option<&'s [u8]>,
) -> Result<(&'s [u8], Format), QueueError> {
    match (json, bytes) {
        (Some(_), Some(_)) => Err(invalid(
            field,
            format!("it cannot be combined with {field}_base64: give one of the two"),
        )),
        (Some(json), None) => Ok((json.get().as_bytes(), Format::Json)),
        (None, bytes) => Ok((bytes.unwrap_or_default(), Format::Bytes)),
    }
}

/// Reads JSON that is kept as it is; null is JSON as well.
pub(super) fn raw<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads bytes in base64.
pub(super) fn base64<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?;
    let decoded = text.map(|text| STANDARD.decode(text.as_bytes()));
    let wrong = |error| serde::de::Error::custom(format_args!("it is not base64: {error}"));
    decoded.transpose().map_err(wrong)
}

/// The tasks to delete.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PurgeRequest {
    /// Their states; every state but `leased` when empty.
    #[serde(default)]
    #[schema(example = json!(["completed", "cancelled"]))]
    pub(super) states: Vec<String>,
}

/// The dead tasks to requeue.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequeueRequest {
    /// The maximum number of tasks, the oldest first; all when absent.
    #[schema(minimum = 1)]
    pub(super) limit: Option<u64>,
}

/// A request for tasks.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimRequest<'a> {
    /// The maximum number of tasks.
    #[schema(default = 1)]
    pub(super) max: Option<u32>,
    /// The name of the worker, shown in the history of tasks.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    pub(super) worker: Cow<'a, str>,
    /// How long the leases last without a heartbeat, in milliseconds; the queue's setting when
    /// absent.
    pub(super) lease_ms: Option<u64>,
    /// How long to wait for the first task, in milliseconds.
    #[serde(default)]
    #[schema(default = 0)]
    pub(super) wait_ms: u64,
}
