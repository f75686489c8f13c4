//! Progress of the writers: readers query acknowledged samples only, and no writer runs far ahead
//! of the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Steps that a writer may be ahead of the slowest: half an hour. Prometheus refuses samples that
/// are an hour older than its newest, and senders of one fleet are not that far apart.
pub(super) const LEAD_MAX: u64 = 120;

/// How often a writer that waits looks whether there is anything left to wait for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Steps that are acknowledged, by writer.
#[derive(Debug)]
pub(super) struct AckedSteps {
    steps: Mutex<Vec<u64>>,
    advanced: Condvar,
    abandoned: AtomicBool,
}

impl AckedSteps {
    pub(super) fn new(writers: usize) -> Self {
        Self {
            steps: Mutex::new(vec![0; writers]),
            advanced: Condvar::new(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// All steps of a writer before `step` are acknowledged.
    pub(super) fn advance(&self, writer: usize, step: u64) {
        self.lock()[writer] = step;
        self.advanced.notify_all();
    }

    /// All steps before this one are acknowledged, by every writer.
    pub(super) fn acknowledged(&self) -> u64 {
        self.lock().iter().copied().min().unwrap_or(0)
    }

    /// Notes that a writer has failed: the others no longer wait for it.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether a writer has failed.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Waits until a writer that is about to send `step` is not too far ahead, or `has_ended` says
    /// that it need not any more.
    pub(super) fn await_others(&self, step: u64, has_ended: impl Fn() -> bool) {
        let mut steps = self.lock();
        let is_too_far_ahead =
            |done: &[u64]| done.iter().copied().min().unwrap_or(0) + LEAD_MAX < step;
        while is_too_far_ahead(&steps) && !self.is_abandoned() && !has_ended() {
            (steps, _) = self
                .advanced
                .wait_timeout(steps, POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        // A vector of numbers is consistent even if another thread panicked meanwhile.
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
