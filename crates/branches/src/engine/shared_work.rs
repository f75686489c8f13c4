//! Work that many wait for: it is done by one task at a time, and its result serves those that have
//! waited since before it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Work with a result that can be shared.
pub(crate) struct SharedWork<T> {
    /// How many runs of the work have begun.
    started_count: AtomicU64,
    latest: Arc<Mutex<Option<Outcome<T>>>>,
}

struct Outcome<T> {
    /// Ordinal of the run that had this result.
    number: u64,
    result: T,
}

/// Answer to a task that needs the work done.
pub(crate) enum Work<T> {
    /// The result of another task's work, which began after this one came.
    Shared(T),
    /// The right to do the work itself.
    Turn(Turn<T>),
}

/// The right to do the work; the next turn comes when it is dropped.
pub(crate) struct Turn<T> {
    number: u64,
    latest: OwnedMutexGuard<Option<Outcome<T>>>,
}

impl<T> Default for SharedWork<T> {
    fn default() -> Self {
        Self { started_count: AtomicU64::new(0), latest: Arc::default() }
    }
}

impl<T: Clone> SharedWork<T> {
    /// Waits for a result that serves, or for the turn.
    pub(crate) async fn join(&self) -> Work<T> {
        let started_before = self.started_count.load(Ordering::Acquire);
        let latest = self.latest.clone().lock_owned().await;
        let shared = latest.as_ref().filter(|outcome| outcome.number > started_before);
        match shared.map(|outcome| outcome.result.clone()) {
            Some(result) => Work::Shared(result),
            None => Work::Turn(self.begin_turn(latest)),
        }
    }

    /// Waits for the turn.
    pub(crate) async fn take_turn(&self) -> Turn<T> {
        self.begin_turn(self.latest.clone().lock_owned().await)
    }

    /// The turn, where the work is not being done.
    pub(crate) fn try_take_turn(&self) -> Option<Turn<T>> {
        let latest = self.latest.clone().try_lock_owned().ok()?;
        Some(self.begin_turn(latest))
    }

    /// Whether a task does the work or waits for it.
    pub(crate) fn is_under_way(&self) -> bool {
        Arc::strong_count(&self.latest) > 1
    }

    fn begin_turn(&self, latest: OwnedMutexGuard<Option<Outcome<T>>>) -> Turn<T> {
        let number = self.started_count.fetch_add(1, Ordering::AcqRel) + 1;
        Turn { number, latest }
    }
}

impl<T> Turn<T> {
    /// Leaves the result to those that wait.
    pub(crate) fn finish(mut self, result: T) {
        let number = self.number;
        *self.latest = Some(Outcome { number, result });
    }
}

#[cfg(test)]
mod tests;
