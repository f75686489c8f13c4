//! Retries of operations whose lock was not available.

use std::time::{Duration, Instant};

use crate::error::ViewsError;

/// Pause before the first retry; each later pause is longer by the same amount.
const PAUSE_STEP: Duration = Duration::from_millis(20);

/// Bounds the retries by time.
pub struct LockRetryPolicy {
    deadline: Instant,
    pause: Duration,
}

impl LockRetryPolicy {
    /// A policy that allows retries for the duration `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, pause: PAUSE_STEP }
    }

    /// Whether to retry after this error: it is a lock timeout, and there is time left. Pauses
    /// first.
    pub(crate) async fn wait_for_retry(&mut self, error: &ViewsError) -> bool {
        if !error.is_lock_not_available() || Instant::now() >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause += PAUSE_STEP;
        true
    }
}
