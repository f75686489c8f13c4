//! PromQL queries: how many at a time, how long, over what.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::source::Samples;
use super::{Inner, Series};
use crate::core::promql::{Answer, Executor, Limits, Options, Query, QueryError, Serial, Stop};
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::model::TimeMs;

/// When a query is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At one time.
    At(TimeMs),
    /// At `start`, and every `step_ms` after it until `end`.
    Range {
        /// The first time.
        start: TimeMs,
        /// No time after it.
        end: TimeMs,
        /// Milliseconds.
        step_ms: i64,
    },
}

/// What may be said of a query beside its text.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryOptions {
    /// How long it may take, if that is less than `series.query_timeout`.
    pub timeout: Option<Duration>,
    /// How old the newest sample of a series may be; else `series.lookback`.
    pub lookback: Option<Duration>,
}

/// Whoever waits for a query holds it. Dropped, it ends the query.
struct Waiter(Arc<AtomicBool>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Series {
    /// Evaluates a query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] and [`SeriesError::Stopping`].
    pub async fn query(
        &self,
        text: &str,
        when: When,
        options: QueryOptions,
    ) -> Result<Answer, SeriesError> {
        let query = Query::parse(text)?;
        let most = self.inner.config.query_timeout.duration();
        let timeout = options.timeout.map_or(most, |asked| asked.min(most));
        let deadline = Instant::now() + timeout;
        let permit = self.turn(timeout).await?;
        let gone = Arc::new(AtomicBool::new(false));
        let waiter = Waiter(gone.clone());
        let inner = self.inner.clone();
        let evaluated = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let stop = || match gone.load(Ordering::Relaxed) {
                true => Some(Stop::Canceled),
                false => (Instant::now() >= deadline).then_some(Stop::TimedOut),
            };
            let answer = inner.evaluate(&query, when, options, &stop);
            inner.metrics.took(Component::Evaluate, began.elapsed());
            drop(permit);
            answer
        });
        let answer = match evaluated.await {
            Ok(answer) => answer?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(SeriesError::Stopping),
        };
        drop(waiter);
        self.inner.metrics.queries.inc();
        Ok(answer)
    }
}

impl Series {
    /// Waits for a place among the queries, of which only so many are answered at a time.
    ///
    /// # Errors
    /// [`QueryError::TimedOut`] and [`SeriesError::Stopping`].
    pub(super) async fn turn(
        &self,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, SeriesError> {
        let waits = self.inner.queries.clone().acquire_owned();
        match tokio::time::timeout(timeout, waits).await {
            Ok(permit) => permit.map_err(|_| SeriesError::Stopping),
            Err(_) => Err(QueryError::TimedOut.into()),
        }
    }
}

impl Inner {
    fn executor(&self) -> &dyn Executor {
        match self.query_threads.get() {
            Some(query_threads) => query_threads,
            None => &Serial,
        }
    }

    pub(super) fn evaluate(
        &self,
        query: &Query,
        when: When,
        options: QueryOptions,
        interrupt: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<Answer, QueryError> {
        let config = &self.config;
        let lookback = options.lookback.unwrap_or(config.lookback.duration());
        let options = Options {
            lookback_ms: lookback.as_millis() as i64,
            limits: Limits {
                samples_max: config.query_samples_max,
                row_bytes_max: config.query_memory_max.bytes(),
                points_max: config.query_points_max,
            },
            executor: self.executor(),
            interrupt,
            ..Options::default()
        };
        let source = Samples { inner: self };
        match when {
            When::At(at) => query.instant(&source, at, &options),
            When::Range {
                start,
                end,
                step_ms,
            } => query.range(&source, (start, end), step_ms, &options),
        }
    }
}
