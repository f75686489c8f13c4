//! Parameters that calls of HTTP and gRPC share, and their limits.

use std::time::Duration;

use egret_queue::QueueError;
use egret_queue::model::TaskId;

/// The longest that a call waits, in milliseconds.
pub(crate) const WAIT_MS_MAX: u64 = 60_000;

/// Tasks of one claim, and of one page of a list.
pub(crate) const TASKS_MAX: u32 = 1_000;

/// Tasks of a page, if the request names no size.
const PAGE_DEFAULT: u32 = 100;

/// A value that cannot be used.
pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> QueueError {
    QueueError::Invalid { what, reason: reason.into() }
}

/// How long a call may wait.
pub(crate) fn wait_duration(wait_ms: u64) -> Result<Duration, QueueError> {
    if wait_ms > WAIT_MS_MAX {
        let reason = format!("{wait_ms} is more than {WAIT_MS_MAX}");
        return Err(invalid("wait_ms", reason));
    }
    Ok(Duration::from_millis(wait_ms))
}

pub(crate) fn parse_task_id(text: &str) -> Result<TaskId, QueueError> {
    text.parse().map_err(|reason| invalid("id", reason))
}

/// How many tasks a claim may take.
pub(crate) fn claim_max(requested: u32) -> Result<u32, QueueError> {
    match requested {
        1..=TASKS_MAX => Ok(requested),
        other => Err(invalid("max", format!("{other} is not in the range 1 to {TASKS_MAX}"))),
    }
}

/// Tasks of a page; zero selects the default.
pub(crate) fn page_limit(requested: u32) -> Result<usize, QueueError> {
    match requested {
        0 => Ok(PAGE_DEFAULT as usize),
        1..=TASKS_MAX => Ok(requested as usize),
        other => Err(invalid("limit", format!("{other} is more than {TASKS_MAX}"))),
    }
}
