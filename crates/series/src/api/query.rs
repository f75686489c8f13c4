//! Runs PromQL queries with limits on concurrency, time and memory.

use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_blocks::catalog::QuarantinedFile;
use egret_metrics_model::{TimeMs, TimeSpan};
use egret_promql::{Answer, EvalOptions, Executor, Limits, Query, QueryError, Serial, Stop};

use super::Series;
use super::source::SampleSource;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::metrics::Component;

/// Time or times at which a query is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalTimes {
    /// At one point in time.
    At(TimeMs),
    /// At `start`, and every `step_ms` after it until `end`.
    Range {
        /// Time of the first evaluation.
        start: TimeMs,
        /// No time after it.
        end: TimeMs,
        /// Distance of evaluations, in milliseconds.
        step_ms: i64,
    },
}

/// Options of a query beside its text.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryOptions {
    /// How long it may take, if that is less than `series.query_timeout`.
    pub timeout: Option<Duration>,
    /// How old the newest sample of a series may be; else `series.lookback`.
    pub lookback: Option<Duration>,
}

impl Series {
    /// Evaluates a query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] and [`SeriesError::Stopping`].
    pub async fn query(
        &self,
        text: &str,
        times: EvalTimes,
        options: QueryOptions,
    ) -> Result<Answer, SeriesError> {
        let query = Query::parse(text)?;
        let timeout_max = self.query_timeout();
        let timeout = options.timeout.map_or(timeout_max, |requested| requested.min(timeout_max));
        let answer = self
            .run_as_query(Some(timeout), move |inner, budget| {
                let began = Instant::now();
                let answer = inner.evaluate(&query, times, options, &|| budget.stop_reason());
                inner.metrics.observe_duration(Component::Evaluate, began.elapsed());
                Ok(answer?)
            })
            .await?;
        self.inner.metrics.queries.inc();
        Ok(answer)
    }
}

impl Series {
    /// What every answer lacks at this moment, as the warnings that it is to carry.
    pub fn partial_data_warnings(&self) -> Vec<String> {
        self.inner.partial_data_warnings(TimeSpan::ALL)
    }
}

impl EngineInner {
    /// What an answer from samples of a span lacks, as the warnings that it carries: a shard or
    /// block that is not read.
    fn partial_data_warnings(&self, span: TimeSpan) -> Vec<String> {
        let shards = self.shards.get().into_iter().flatten();
        let mut warnings: Vec<String> = shards
            .filter(|shard| matches!(shard.failure.get(), Some(SeriesError::ShardUnusable { .. })))
            .map(|shard| {
                format!(
                    "partial data: shard {} of the series cannot start, its samples since the \
                     last block are missing",
                    shard.number
                )
            })
            .collect();
        warnings.extend(lock(&self.repaired_shards).iter().map(|repaired| {
            format!(
                "partial data: the log of shard {} of the series was damaged and was repaired at \
                 the start, some of its samples since the last block are missing",
                repaired.shard
            )
        }));
        let overlaps = |file: &QuarantinedFile| {
            file.span.is_none_or(|own| own.start <= span.end && own.end >= span.start)
        };
        let files = self.catalog.get().map(|catalog| catalog.quarantined()).unwrap_or_default();
        let set_aside = files.iter().filter(|file| overlaps(file)).count();
        if set_aside > 0 {
            warnings.push(format!(
                "partial data: {set_aside} damaged files of blocks were set aside, their samples are missing"
            ));
        }
        warnings
    }

    fn executor(&self) -> &dyn Executor {
        match self.query_threads.get() {
            Some(query_threads) => query_threads,
            None => &Serial,
        }
    }

    pub(super) fn evaluate(
        &self,
        query: &Query,
        times: EvalTimes,
        options: QueryOptions,
        interrupt: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<Answer, QueryError> {
        let config = &self.config;
        let lookback = options.lookback.unwrap_or(config.lookback.duration());
        let options = EvalOptions {
            lookback_ms: lookback.as_millis() as i64,
            subquery_step_ms: config.evaluation_interval.duration().as_millis() as i64,
            limits: Limits {
                samples_max: config.query_samples_max,
                row_bytes_max: config.query_memory_max.bytes(),
                points_max: config.query_points_max,
            },
            executor: self.executor(),
            interrupt,
        };
        loop {
            let quarantined_before = self.quarantined_count();
            let source = SampleSource::new(self);
            let result = match times {
                EvalTimes::At(at) => query.instant(&source, at, &options),
                EvalTimes::Range { start, end, step_ms } => {
                    query.range(&source, TimeSpan { start, end }, step_ms, &options)
                }
            };
            match result {
                // A block was found damaged and was set aside: the others answer.
                Err(QueryError::Source { .. }) if self.quarantined_count() > quarantined_before => {
                }
                Err(error) => return Err(error),
                Ok(mut answer) => {
                    let span = source.selected_span();
                    let warnings = span.map(|span| self.partial_data_warnings(span));
                    answer.warnings.extend(warnings.into_iter().flatten());
                    return Ok(answer);
                }
            }
        }
    }

    /// Damaged files of blocks that are not read.
    fn quarantined_count(&self) -> usize {
        self.catalog.get().map_or(0, |catalog| catalog.quarantined().len())
    }
}
