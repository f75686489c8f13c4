//! Changes of the settings of a queue.

use super::new_task::{check_attempts, check_retry};
use super::session::check_lease;
use crate::error::QueueError;
use crate::model::{QueueSettings, Retention, RetryPolicy};

/// Allowed rates of a queue with a rate limit.
pub const RATE_PER_SECOND: std::ops::RangeInclusive<f64> = 0.001..=1e9;

/// Changes of a queue's settings; absent ones stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsChange {
    /// Sets [`QueueSettings::max_attempts`] if present.
    pub max_attempts: Option<u32>,
    /// Sets [`QueueSettings::retry`] if present.
    pub retry: Option<RetryPolicy>,
    /// Sets [`QueueSettings::lease_ms`] if present.
    pub lease_ms: Option<u64>,
    /// Sets [`QueueSettings::timeout_ms`] if present.
    pub timeout_ms: Option<u64>,
    /// Sets [`QueueSettings::concurrency`] if present.
    pub concurrency: Option<u32>,
    /// Sets [`QueueSettings::key_concurrency`] if present.
    pub key_concurrency: Option<u32>,
    /// Sets [`QueueSettings::rate_per_second`] if present.
    pub rate_per_second: Option<f64>,
    /// Sets [`QueueSettings::rate_burst`] if present.
    pub rate_burst: Option<u32>,
    /// Sets [`QueueSettings::completed`] if present.
    pub completed: Option<Retention>,
    /// Sets [`QueueSettings::dead`] if present.
    pub dead: Option<Retention>,
    /// Sets [`QueueSettings::cancelled`] if present.
    pub cancelled: Option<Retention>,
    /// Sets [`QueueSettings::unique_window_ms`] if present.
    pub unique_window_ms: Option<u64>,
    /// Sets [`QueueSettings::aging_ms`] if present.
    pub aging_ms: Option<u64>,
}

impl SettingsChange {
    pub(crate) fn apply(&self, settings: &mut QueueSettings) -> Result<(), QueueError> {
        if let Some(attempts) = self.max_attempts {
            settings.max_attempts = check_attempts(attempts)?;
        }
        if let Some(retry) = self.retry {
            check_retry(&retry)?;
            settings.retry = retry;
        }
        if let Some(lease_ms) = self.lease_ms {
            check_lease(lease_ms)?;
            settings.lease_ms = lease_ms;
        }
        if let Some(rate) = self.rate_per_second {
            if !(rate == 0.0 || RATE_PER_SECOND.contains(&rate)) {
                return Err(QueueError::Invalid {
                    what: "rate_per_second",
                    reason: format!("{rate} is neither 0 nor from 0.001 to 1000000000"),
                });
            }
            settings.rate_per_second = rate;
        }
        fn set<T: Copy>(setting: &mut T, value: Option<T>) {
            if let Some(asked) = value {
                *setting = asked;
            }
        }
        set(&mut settings.timeout_ms, self.timeout_ms);
        set(&mut settings.concurrency, self.concurrency);
        set(&mut settings.key_concurrency, self.key_concurrency);
        set(&mut settings.rate_burst, self.rate_burst);
        set(&mut settings.completed, self.completed);
        set(&mut settings.dead, self.dead);
        set(&mut settings.cancelled, self.cancelled);
        set(&mut settings.unique_window_ms, self.unique_window_ms);
        set(&mut settings.aging_ms, self.aging_ms);
        Ok(())
    }
}
