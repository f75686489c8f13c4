//! Queues as responses show them.

use egret_base::Timestamp;
use egret_queue::QueueView;
use egret_queue::model::{self, TaskState};
use serde::Serialize;
use utoipa::ToSchema;

use super::request::{Backoff, Jitter, Retention};

/// A named place for tasks.
#[derive(Serialize, ToSchema)]
pub(super) struct Queue {
    /// Its name, unique within the tenant.
    #[schema(example = "emails")]
    name: String,
    /// Whether workers get no tasks of the queue.
    paused: bool,
    /// Whether the queue accepts no tasks.
    draining: bool,
    /// When it was created, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Its tasks by state.
    counts: Counts,
    /// How long the longest-ready task has been ready, in milliseconds, also if its key, a limit or
    /// a pause holds it back; zero without a ready task.
    oldest_ready_ms: u64,
    /// Partitions that have failed, whose tasks are not counted; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unavailable_partitions: Vec<usize>,
    /// The defaults of its tasks, and its limits.
    settings: Settings,
}

/// Tasks by state.
#[derive(Serialize, ToSchema)]
struct Counts {
    /// Tasks that wait until other tasks complete.
    waiting: u64,
    /// Tasks whose time has not come.
    delayed: u64,
    /// Tasks that workers can get, unless a key, a limit or a pause holds them back.
    ready: u64,
    /// Tasks that a worker holds.
    leased: u64,
    /// Tasks that ended successfully.
    completed: u64,
    /// Tasks that failed permanently.
    dead: u64,
    /// Tasks that were cancelled.
    cancelled: u64,
}

/// The settings of a queue: defaults of its tasks, and limits.
#[derive(Serialize, ToSchema)]
struct Settings {
    /// Attempts before a task is dead.
    max_attempts: u16,
    /// How long a task waits between attempts.
    retry: Retry,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    lease_ms: u64,
    /// The longest duration of an attempt, in milliseconds; zero: unlimited.
    timeout_ms: u64,
    /// The maximum number of tasks leased at the same time; zero: unlimited.
    concurrency: u32,
    /// The maximum number of tasks of one ordering key leased at the same time.
    key_concurrency: u32,
    /// The maximum number of tasks leased per second; zero: unlimited.
    rate_per_second: f64,
    /// The maximum number of tasks leased at once after idle time; zero: those of one second.
    rate_burst: u32,
    /// How long completed tasks are kept.
    completed: Retention,
    /// How long dead tasks are kept.
    dead: Retention,
    /// How long cancelled tasks are kept.
    cancelled: Retention,
    /// How long a unique key is remembered, in milliseconds.
    unique_window_ms: u64,
    /// A task that has waited so many milliseconds counts as one priority higher; zero: never.
    aging_ms: u64,
}

/// How long a task waits after a failed attempt.
#[derive(Serialize, ToSchema)]
pub(super) struct Retry {
    /// How the delay grows.
    backoff: Backoff,
    /// The first delay in milliseconds.
    base_ms: u64,
    /// The longest delay in milliseconds.
    max_ms: u64,
    /// How the delay is randomized.
    jitter: Jitter,
}

/// The caller's queues, in order of names.
#[derive(Serialize, ToSchema)]
pub(super) struct QueueList {
    /// The queues.
    pub(super) items: Vec<Queue>,
}

impl From<QueueView> for Queue {
    fn from(view: QueueView) -> Self {
        let count = |state| view.count(state);
        let counts = Counts {
            waiting: count(TaskState::Waiting),
            delayed: count(TaskState::Delayed),
            ready: count(TaskState::Ready),
            leased: count(TaskState::Leased),
            completed: count(TaskState::Completed),
            dead: count(TaskState::Dead),
            cancelled: count(TaskState::Cancelled),
        };
        Self {
            counts,
            name: view.name,
            paused: view.paused,
            draining: view.draining,
            created_at: to_timestamp(view.created_ms),
            oldest_ready_ms: view.oldest_ready_ms,
            unavailable_partitions: view.unavailable,
            settings: view.settings.into(),
        }
    }
}

impl From<model::QueueSettings> for Settings {
    fn from(settings: model::QueueSettings) -> Self {
        let to_retention = |retention: model::Retention| Retention {
            age_ms: retention.age_ms,
            count: retention.count,
        };
        Self {
            max_attempts: settings.max_attempts,
            retry: settings.retry.into(),
            lease_ms: settings.lease_ms,
            timeout_ms: settings.timeout_ms,
            concurrency: settings.concurrency,
            key_concurrency: settings.key_concurrency,
            rate_per_second: settings.rate_per_second,
            rate_burst: settings.rate_burst,
            completed: to_retention(settings.completed),
            dead: to_retention(settings.dead),
            cancelled: to_retention(settings.cancelled),
            unique_window_ms: settings.unique_window_ms,
            aging_ms: settings.aging_ms,
        }
    }
}

impl From<model::RetryPolicy> for Retry {
    fn from(retry: model::RetryPolicy) -> Self {
        Self {
            backoff: match retry.backoff {
                model::Backoff::Fixed => Backoff::Fixed,
                model::Backoff::Linear => Backoff::Linear,
                model::Backoff::Exponential => Backoff::Exponential,
            },
            base_ms: retry.base_ms,
            max_ms: retry.max_ms,
            jitter: match retry.jitter {
                model::Jitter::None => Jitter::None,
                model::Jitter::Full => Jitter::Full,
                model::Jitter::Equal => Jitter::Equal,
            },
        }
    }
}

/// The number of deleted tasks.
#[derive(Serialize, ToSchema)]
pub(super) struct Purged {
    /// Number of tasks.
    pub(super) deleted: u64,
}

/// The number of requeued tasks.
#[derive(Serialize, ToSchema)]
pub(super) struct Requeued {
    /// Number of tasks.
    pub(super) requeued: u64,
}

/// A moment in Unix milliseconds.
pub(super) fn to_timestamp(unix_ms: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(unix_ms.saturating_mul(1_000)).unwrap_or(i64::MAX))
}

/// The key that signs callbacks.
#[derive(Serialize, ToSchema)]
pub(super) struct CallbackKey {
    /// 32 bytes as 64 hexadecimal digits, the key of HMAC-SHA-256 over `<t>.<body>`.
    pub key: String,
}
