//! What callers get to see of queues.

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
    /// Whether nothing is handed out.
    paused: bool,
    /// Whether nothing is taken in.
    draining: bool,
    /// When it was made, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Its tasks by state.
    counts: Counts,
    /// For how long the task has been ready that has been so longest, in milliseconds, held back by its
    /// key, a limit or a pause or not; zero without one.
    oldest_ready_ms: u64,
    /// Partitions that have failed, whose tasks are not counted; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unavailable_partitions: Vec<usize>,
    /// What it does unless a task says otherwise.
    settings: Settings,
}

/// Tasks by state.
#[derive(Serialize, ToSchema)]
struct Counts {
    /// Other tasks must complete before.
    waiting: u64,
    /// Their time has not come.
    delayed: u64,
    /// They may be handed out, unless a key, a limit or a pause holds them back.
    ready: u64,
    /// A worker holds them.
    leased: u64,
    /// They have been done.
    completed: u64,
    /// They failed for good.
    dead: u64,
    /// They are not wanted any longer.
    cancelled: u64,
}

/// What a queue does unless a task says otherwise.
#[derive(Serialize, ToSchema)]
struct Settings {
    /// Attempts before a task is dead.
    max_attempts: u16,
    /// How long it waits between them.
    retry: Retry,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    lease_ms: u64,
    /// The longest that an attempt may take, in milliseconds; zero: any time.
    timeout_ms: u64,
    /// Tasks leased at a time; zero: any number.
    concurrency: u32,
    /// The same for one ordering key.
    key_concurrency: u32,
    /// Tasks handed out in a second; zero: any number.
    rate_per_second: f64,
    /// Tasks handed out at once after a pause; zero: a second's worth.
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
    /// What chance does to it.
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
            created_at: at(view.created_ms),
            oldest_ready_ms: view.oldest_ready_ms,
            unavailable_partitions: view.unavailable,
            settings: view.settings.into(),
        }
    }
}

impl From<model::QueueSettings> for Settings {
    fn from(settings: model::QueueSettings) -> Self {
        let kept = |retention: model::Retention| Retention {
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
            completed: kept(settings.completed),
            dead: kept(settings.dead),
            cancelled: kept(settings.cancelled),
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

/// How many tasks were deleted.
#[derive(Serialize, ToSchema)]
pub(super) struct Purged {
    /// So many.
    pub(super) deleted: u64,
}

/// How many tasks were put back.
#[derive(Serialize, ToSchema)]
pub(super) struct Requeued {
    /// So many.
    pub(super) requeued: u64,
}

/// A moment in Unix milliseconds.
pub(super) fn at(unix_ms: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(unix_ms.saturating_mul(1_000)).unwrap_or(i64::MAX))
}

/// What callbacks are signed with.
#[derive(Serialize, ToSchema)]
pub(super) struct CallbackKey {
    /// 32 bytes as 64 hexadecimal digits, the key of HMAC-SHA-256 over `<t>.<body>`.
    pub key: String,
}
