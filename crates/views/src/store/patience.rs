//! Trying again, for a while, what could not have a lock.

use std::time::{Duration, Instant};

use crate::error::ViewsError;

/// How long is waited before the second attempt; before each later one so much longer.
const PAUSE: Duration = Duration::from_millis(20);

/// See the module.
pub struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    /// That ends after so long.
    pub fn new(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: PAUSE,
        }
    }

    /// Whether what failed is to be tried again: a lock was not to be had, and there is time left. Waits a moment then.
    pub async fn has_more_for(&mut self, error: &ViewsError) -> bool {
        if !error.is_busy() || Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause += PAUSE;
        true
    }
}
