//! What the loops that bring samples need: a store for the samples, and the time.

use egret_base::lifecycle::BoxFuture;
use egret_base::{Clock, Timestamp};
use egret_metrics_model::TimeMs;

use crate::core::rules::NewSample;
use crate::core::schedule::Schedule;

/// Outcome of an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendResult {
    /// Samples that were not kept: others of their time are there, they are too old, or their
    /// series has no room.
    pub refused: u64,
    /// How many series of the refused samples have no room, and why, if there are any.
    pub series_limit: Option<String>,
}

/// Why samples were not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("samples cannot be appended: {message}")]
pub struct AppendError {
    /// Description of what failed.
    pub message: String,
}

/// Stores samples of rules and scrapes.
pub trait Append: Send + Sync {
    /// Appends samples. The answer comes when they are kept as durably as the configuration
    /// promises.
    fn append<'a>(
        &'a self,
        samples: &'a [NewSample],
    ) -> BoxFuture<'a, Result<AppendResult, AppendError>>;

    /// Like [`Append::append`], for a scrape. The samples of `report`, which tell how it went, are
    /// written beyond the limit on series.
    fn append_scrape<'a>(
        &'a self,
        samples: &'a [NewSample],
        report: &'a [NewSample],
    ) -> BoxFuture<'a, Result<AppendResult, AppendError>>;
}

pub(super) fn now_ms(clock: &dyn Clock) -> TimeMs {
    clock.now().as_micros().div_euclid(1_000)
}

pub(super) fn timestamp(time: TimeMs) -> Timestamp {
    Timestamp::from_micros(time.saturating_mul(1_000))
}

/// How often the clock is looked at while something waits for it, as an operator may set it.
const CLOCK_CHECK_INTERVAL_MS: u64 = 10_000;

/// Waits until a time of a schedule, and returns it. A clock that was set back far leaves that time
/// too far ahead: it is the schedule's first time from there on then.
pub(super) async fn wait_until(clock: &dyn Clock, schedule: &Schedule, mut due: TimeMs) -> TimeMs {
    loop {
        let now = now_ms(clock);
        if due - now > 2 * schedule.interval_ms() {
            due = schedule.first_after(now);
        }
        let Ok(remaining @ 1..) = u64::try_from(due - now) else {
            return due;
        };
        let pause = remaining.min(CLOCK_CHECK_INTERVAL_MS);
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
    }
}
