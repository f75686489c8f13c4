//! A task to be enqueued, as a caller describes it, and the limits of its parts.

use std::collections::BTreeMap;

use egret_base::Limit;

use crate::core::wheel::TIME_MAX_MS;
use crate::error::QueueError;
use crate::model::{RetryPolicy, TaskId, TaskOptions};
use crate::store::content::Format;

/// Tasks in one call.
pub const BATCH_MAX: usize = 1_000;

/// Bytes of a key, a tag, or a name or value of metadata.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// Maximum number of tags, entries of metadata, or tasks to wait for.
pub const LIST_LEN_MAX: usize = 64;

/// The longest delay, window or retention: ten years, in milliseconds.
pub const DURATION_MAX_MS: u64 = 10 * 366 * 86_400_000;

/// Maximum number of attempts of a task.
pub const ATTEMPTS_MAX: u16 = 10_000;

/// A task to be enqueued.
#[derive(Clone, Debug, Default)]
pub struct NewTask<'a> {
    /// Payload of the task.
    pub payload: &'a [u8],
    /// Format of the payload.
    pub format: Format,
    /// 0 to 9; 9 goes first.
    pub priority: Option<u32>,
    /// Ordering key; empty for a task without one.
    pub ordering_key: &'a str,
    /// Earliest start, in Unix milliseconds; zero for immediately.
    pub run_at_ms: u64,
    /// Delay before it is ready, in milliseconds.
    pub delay_ms: u64,
    /// Attempts before it is dead.
    pub max_attempts: Option<u32>,
    /// How long it waits between them.
    pub retry: Option<RetryPolicy>,
    /// The longest that an attempt may take, in milliseconds; zero: the queue's setting.
    pub timeout_ms: u64,
    /// Unique key; empty for a task without one.
    pub unique_key: &'a str,
    /// How long the unique key is remembered, in milliseconds; zero: the queue's setting.
    pub unique_window_ms: u64,
    /// Tags by which tasks can be listed.
    pub tags: &'a [String],
    /// Metadata, as names and values.
    pub metadata: BTreeMap<&'a str, &'a str>,
    /// W3C trace context: `traceparent`.
    pub traceparent: &'a str,
    /// W3C trace context: `tracestate`.
    pub tracestate: &'a str,
    /// URL that is called when the task has ended; empty: none.
    pub callback_url: &'a str,
    /// Tasks that must complete before.
    pub after: &'a [TaskId],
}

pub(crate) fn invalid<T>(what: &'static str, reason: impl Into<String>) -> Result<T, QueueError> {
    Err(QueueError::Invalid { what, reason: reason.into() })
}

pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), QueueError> {
    if text.len() > TEXT_BYTES_MAX {
        let length = text.len();
        return invalid(
            what,
            format!("it has {length} bytes, at most {TEXT_BYTES_MAX} are allowed"),
        );
    }
    Ok(())
}

pub(crate) fn check_list_len(what: &'static str, count: usize) -> Result<(), QueueError> {
    if count > LIST_LEN_MAX {
        return invalid(what, format!("{count} are given, at most {LIST_LEN_MAX} are allowed"));
    }
    Ok(())
}

pub(crate) fn check_duration(what: &'static str, duration_ms: u64) -> Result<(), QueueError> {
    if duration_ms > DURATION_MAX_MS {
        return invalid(what, format!("{duration_ms} ms are more than ten years"));
    }
    Ok(())
}

/// Refuses an inconsistent retry policy.
pub(crate) fn check_retry(retry: &RetryPolicy) -> Result<(), QueueError> {
    check_duration("retry.base_ms", retry.base_ms)?;
    check_duration("retry.max_ms", retry.max_ms)?;
    if retry.max_ms < retry.base_ms {
        return invalid("retry.max_ms", "it is below base_ms");
    }
    Ok(())
}

/// Refuses a number of attempts that is out of range.
pub(crate) fn check_attempts(attempts: u32) -> Result<u16, QueueError> {
    match u16::try_from(attempts) {
        Ok(attempts @ 1..=ATTEMPTS_MAX) => Ok(attempts),
        _ => invalid("max_attempts", format!("{attempts} is not from 1 to {ATTEMPTS_MAX}")),
    }
}

/// Refuses a start time that is out of range.
pub(crate) fn check_start_time(task: &NewTask<'_>) -> Result<(), QueueError> {
    if task.run_at_ms > 0 && task.delay_ms > 0 {
        return invalid("run_at_ms", "it cannot be combined with delay_ms: give one of the two");
    }
    check_duration("delay_ms", task.delay_ms)?;
    if task.run_at_ms > TIME_MAX_MS {
        return invalid("run_at_ms", format!("{} is out of range", task.run_at_ms));
    }
    Ok(())
}

pub(crate) fn task_options(task: &NewTask<'_>) -> Result<TaskOptions, QueueError> {
    if let Some(retry) = &task.retry {
        check_retry(retry)?;
    }
    check_duration("timeout_ms", task.timeout_ms)?;
    Ok(TaskOptions {
        max_attempts: task.max_attempts.map(check_attempts).transpose()?,
        retry: task.retry,
        timeout_ms: (task.timeout_ms > 0).then_some(task.timeout_ms),
    })
}

/// Refuses a batch that is too long.
///
/// # Errors
/// The limit, by name.
pub fn check_batch(count: usize) -> Result<(), QueueError> {
    Ok(Limit::new("queue.batch_max", BATCH_MAX as u64).check(count as u64)?)
}
