//! The engine as the loops of rules and targets use it: they append samples and query.

use std::sync::atomic::Ordering;
use std::time::Instant;

use egret_base::lifecycle::BoxFuture;
use egret_metrics_model::{Labels, Matcher, TimeMs, TimeSpan};
use egret_promql::{Answer, Query, QueryError, Stop};

use super::Series;
use super::query::{EvalTimes, QueryOptions};
use super::source::SampleSource;
use crate::core::rules::{Evaluate, NewSample, last_samples};
use crate::metrics::Component;
use crate::worker::{Append, AppendError, AppendResult};

impl Append for Series {
    fn append<'a>(
        &'a self,
        samples: &'a [NewSample],
    ) -> BoxFuture<'a, Result<AppendResult, AppendError>> {
        self.append_scrape(samples, &[])
    }

    fn append_scrape<'a>(
        &'a self,
        samples: &'a [NewSample],
        report: &'a [NewSample],
    ) -> BoxFuture<'a, Result<AppendResult, AppendError>> {
        Box::pin(async move {
            let counts = self
                .append_with_report(samples, report)
                .await
                .map_err(|error| AppendError { message: egret_base::error::chain(&error) })?;
            let refused = counts.rejected.samples;
            Ok(AppendResult { refused, series_limit: counts.without_room })
        })
    }
}

impl Evaluate for Series {
    /// Does not wait for other queries: heavy queries of users must not delay alerts.
    fn instant(&self, query: &Query, at: TimeMs) -> Result<Answer, QueryError> {
        let inner = &self.inner;
        let began = Instant::now();
        let deadline = began + inner.config.query_timeout.duration();
        let stop = || {
            if inner.stopping.load(Ordering::Relaxed) {
                Some(Stop::Canceled)
            } else {
                (Instant::now() >= deadline).then_some(Stop::TimedOut)
            }
        };
        let answer = inner.evaluate(query, EvalTimes::At(at), QueryOptions::default(), &stop);
        inner.metrics.observe_duration(Component::Evaluate, began.elapsed());
        answer
    }

    fn last_samples(
        &self,
        matchers: Vec<Matcher>,
        range: TimeSpan,
    ) -> Result<Vec<(Labels, TimeMs, f64)>, QueryError> {
        last_samples(&SampleSource::new(&self.inner), matchers, range)
    }
}
