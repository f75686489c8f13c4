//! What callers ask for, as JSON. What is long or frequent borrows from the body.

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
use crate::queue::{Wanted, invalid};

/// How the delay grows from one failed attempt to the next.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Backoff {
    /// The same each time.
    Fixed,
    /// The first delay times the number of failed attempts.
    Linear,
    /// Doubled with each failed attempt.
    Exponential,
}

/// What chance does to a delay.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Jitter {
    /// Nothing.
    None,
    /// Anything from zero to the delay.
    Full,
    /// Half of it, and up to as much again.
    Equal,
}

/// How long a task waits after a failed attempt. It is taken as a whole: what is absent in it is as in Egret's
/// default, whatever the queue had before.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryRequest {
    /// How the delay grows; `exponential` when absent.
    backoff: Option<Backoff>,
    /// The first delay in milliseconds; 1000 when absent.
    base_ms: Option<u64>,
    /// The longest delay in milliseconds, no shorter than the first; 600000 when absent.
    max_ms: Option<u64>,
    /// What chance does to it; `full` when absent.
    jitter: Option<Jitter>,
}

impl RetryRequest {
    fn policy(self) -> model::RetryPolicy {
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

/// When tasks that have ended are deleted: whichever comes first; zero is unlimited.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retention {
    /// Milliseconds after their end.
    pub(super) age_ms: u64,
    /// How many are kept in each partition of the queue.
    pub(super) count: u64,
}

/// What a queue does unless a task says otherwise; what is absent stays as it is.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueRequest {
    /// Attempts before a task is dead.
    max_attempts: Option<u32>,
    /// How long it waits between them.
    retry: Option<RetryRequest>,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    lease_ms: Option<u64>,
    /// The longest that an attempt may take, in milliseconds; zero: any time.
    timeout_ms: Option<u64>,
    /// Tasks leased at a time; zero: any number.
    concurrency: Option<u32>,
    /// The same for one ordering key.
    key_concurrency: Option<u32>,
    /// Tasks handed out in a second; zero: any number.
    rate_per_second: Option<f64>,
    /// Tasks handed out at once after a pause; zero: a second's worth.
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
    pub(super) fn change(self) -> SettingsChange {
        let kept = |retention: Retention| model::Retention {
            age_ms: retention.age_ms,
            count: retention.count,
        };
        SettingsChange {
            max_attempts: self.max_attempts,
            retry: self.retry.map(RetryRequest::policy),
            lease_ms: self.lease_ms,
            timeout_ms: self.timeout_ms,
            concurrency: self.concurrency,
            key_concurrency: self.key_concurrency,
            rate_per_second: self.rate_per_second,
            rate_burst: self.rate_burst,
            completed: self.completed.map(kept),
            dead: self.dead.map(kept),
            cancelled: self.cancelled.map(kept),
            unique_window_ms: self.unique_window_ms,
            aging_ms: self.aging_ms,
        }
    }
}

/// A task to be enqueued.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskRequest<'a> {
    /// What is to be worked on: any JSON. Without it and `payload_base64` the task has no payload.
    #[serde(borrow, default, deserialize_with = "raw")]
    #[schema(value_type = Option<serde_json::Value>, example = json!({"to": "ada@example.com"}))]
    payload: Option<&'a RawValue>,
    /// The same where it is bytes, in base64.
    #[serde(default, deserialize_with = "base64")]
    #[schema(value_type = String)]
    payload_base64: Option<Vec<u8>>,
    /// 0 to 9; 9 goes first.
    #[schema(default = 5)]
    priority: Option<u32>,
    /// Tasks with the same key are worked on one at a time (`key_concurrency` of the queue), a higher
    /// priority first, those of one priority in the order in which they were enqueued. One that is delayed
    /// or waits for others takes its place when it becomes ready.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    ordering_key: Cow<'a, str>,
    /// Not before this time, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<Timestamp>,
    /// Not before so many milliseconds have passed.
    #[serde(default)]
    delay_ms: u64,
    /// Attempts before it is dead; as the queue says when absent.
    max_attempts: Option<u32>,
    /// How long it waits between them, in place of the queue's whole policy; as the queue says when absent.
    retry: Option<RetryRequest>,
    /// The longest that an attempt may take, in milliseconds; zero: as the queue says.
    #[serde(default)]
    timeout_ms: u64,
    /// A second task with this key (and ordering key) within the window is not enqueued: the answer
    /// is the first one, with `replayed`, also when that one is dead, has ended otherwise or was deleted.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    unique_key: Cow<'a, str>,
    /// How long the unique key is remembered, in milliseconds; zero: as the queue says.
    #[serde(default)]
    unique_window_ms: u64,
    /// For people to find it by.
    #[serde(default)]
    tags: Vec<String>,
    /// Names and values, handed to the worker.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// W3C trace context, handed to the worker; the header of this name when absent.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    traceparent: Cow<'a, str>,
    /// W3C trace context, handed to the worker; the header of this name when `traceparent` is absent.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    tracestate: Cow<'a, str>,
    /// Told by POST when the task has ended. Unless `queue.callback_private` is set, an address that is not
    /// public is refused here; a name is looked up when the callback is sent.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    callback_url: Cow<'a, str>,
    /// Ids of tasks that must complete before, or this one is cancelled; `#0`, `#1` … name tasks at that
    /// place of the same array.
    #[serde(default)]
    after: Vec<String>,
    /// The queue, where it is not the one of the path.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    queue: Cow<'a, str>,
}

impl TaskRequest<'_> {
    /// The task for the engine; `queue` is the path's.
    pub(super) fn wanted<'s>(
        &'s self,
        queue: &'s str,
        trace: &'s TraceContext,
    ) -> Result<Wanted<'s>, QueueError> {
        let (payload, format) = content("payload", self.payload, self.payload_base64.as_deref())?;
        let (traceparent, tracestate) = match &*self.traceparent {
            "" if self.tracestate.is_empty() => trace.texts(),
            own => (own, &*self.tracestate),
        };
        let pairs = self.metadata.iter();
        Ok(Wanted {
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
                run_at_ms: self.run_at.map_or(Ok(0), moment)?,
                delay_ms: self.delay_ms,
                max_attempts: self.max_attempts,
                retry: self.retry.map(RetryRequest::policy),
                timeout_ms: self.timeout_ms,
                unique_key: &self.unique_key,
                unique_window_ms: self.unique_window_ms,
                tags: &self.tags,
                metadata: pairs.map(|(name, value)| (&**name, &**value)).collect(),
                traceparent,
                tracestate,
                callback_url: &self.callback_url,
                after: &[],
            },
        })
    }
}

fn moment(at: Timestamp) -> Result<u64, QueueError> {
    match at.as_micros() {
        1_000.. => Ok(at.as_millis_unsigned()),
        _ => Err(invalid("run_at", "it is before 1970")),
    }
}

/// What somebody sends as JSON or as base64.
pub(super) fn content<'s>(
    what: &'static str,
    json: Option<&'s RawValue>,
    bytes: Option<&'s [u8]>,
) -> Result<(&'s [u8], Format), QueueError> {
    match (json, bytes) {
        (Some(_), Some(_)) => Err(invalid(
            what,
            format!("it is given as JSON and as {what}_base64: give one of them"),
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

/// Which tasks to delete.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PurgeRequest {
    /// Their states; every state but `leased` when empty.
    #[serde(default)]
    #[schema(example = json!(["completed", "cancelled"]))]
    pub(super) states: Vec<String>,
}

/// Which dead tasks to put back.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequeueRequest {
    /// How many, the oldest first; all when absent.
    #[schema(minimum = 1)]
    pub(super) limit: Option<u64>,
}

/// How to take tasks.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimRequest<'a> {
    /// How many at most.
    #[schema(default = 1)]
    pub(super) max: Option<u32>,
    /// Who works, for people to read.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    pub(super) worker: Cow<'a, str>,
    /// How long the leases last without a heartbeat, in milliseconds; as the queue says when absent.
    pub(super) lease_ms: Option<u64>,
    /// How long to wait for the first task, in milliseconds.
    #[serde(default)]
    #[schema(default = 0)]
    pub(super) wait_ms: u64,
}
