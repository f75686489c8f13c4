//! Limits of a query: its turn, its time and its memory. A query stops when its caller has gone.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use egret_promql::{QueryError, Stop};

use super::Series;
use crate::engine::EngineInner;
use crate::error::SeriesError;

pub(super) struct Budget {
    deadline: Option<Instant>,
    canceled: Arc<AtomicBool>,
    bytes_max: u64,
}

/// Held by the caller of a query. Dropping it cancels the query.
struct Waiter(Arc<AtomicBool>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Budget {
    pub(crate) fn new(
        deadline: Option<Instant>,
        canceled: Arc<AtomicBool>,
        bytes_max: u64,
    ) -> Self {
        Self { deadline, canceled, bytes_max }
    }

    /// Why the query must stop: its caller has gone, or its time is over.
    pub(crate) fn stop_reason(&self) -> Option<Stop> {
        if self.canceled.load(Ordering::Relaxed) {
            return Some(Stop::Canceled);
        }
        let is_past_deadline = self.deadline.is_some_and(|at| Instant::now() >= at);
        is_past_deadline.then_some(Stop::TimedOut)
    }

    /// Whether it may go on, with so many bytes of memory in use.
    ///
    /// # Errors
    /// [`QueryError::TimedOut`], [`QueryError::Canceled`] and [`QueryError::OverBudget`].
    pub(crate) fn check(&self, bytes: u64) -> Result<(), QueryError> {
        match self.stop_reason() {
            Some(Stop::TimedOut) => return Err(QueryError::TimedOut),
            Some(Stop::Canceled) => return Err(QueryError::Canceled),
            None => {}
        }
        if bytes > self.bytes_max {
            Err(QueryError::OverBudget {
                limit: "series.query_memory_max",
                budget: self.bytes_max,
                what: "bytes of memory",
            })
        } else {
            Ok(())
        }
    }

    /// A closure that adds up memory and checks the sum as [`Budget::check`] does. The memory is
    /// freed all at once.
    pub(crate) fn memory_counter(&self) -> impl Fn(u64) -> Result<(), QueryError> {
        let spent = Cell::new(0_u64);
        move |bytes| {
            spent.set(spent.get().saturating_add(bytes));
            self.check(spent.get())
        }
    }
}

impl Series {
    /// Runs `work` on a blocking thread, under the concurrency limit of queries. Waits for a permit
    /// as long as queries do; `timeout`, if any, includes the wait.
    ///
    /// # Errors
    /// [`SeriesError::Query`] when its turn does not come in time, [`SeriesError::Stopping`], and
    /// those of `work`.
    pub(super) async fn run_as_query<T: Send + 'static>(
        &self,
        timeout: Option<Duration>,
        work: impl FnOnce(&EngineInner, &Budget) -> Result<T, SeriesError> + Send + 'static,
    ) -> Result<T, SeriesError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let acquire = self.inner.query_permits.clone().acquire_owned();
        let wait_max = timeout.unwrap_or_else(|| self.query_timeout());
        let Ok(permit) = tokio::time::timeout(wait_max, acquire).await else {
            return Err(QueryError::TimedOut.into());
        };
        let permit = permit.map_err(|_| SeriesError::Stopping)?;
        let waiter = Waiter(Arc::default());
        let bytes_max = self.inner.config.query_memory_max.bytes();
        let budget = Budget::new(deadline, waiter.0.clone(), bytes_max);
        let inner = self.inner.clone();
        let running = tokio::task::spawn_blocking(move || {
            let result = work(&inner, &budget);
            drop(permit);
            result
        });
        let done = match running.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(SeriesError::Stopping),
        };
        drop(waiter);
        done
    }

    /// Time limit of a query.
    pub(super) fn query_timeout(&self) -> Duration {
        self.inner.config.query_timeout.duration()
    }
}
