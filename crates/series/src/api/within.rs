//! What the loops of rules and targets do with the engine: append samples, and ask.

use std::sync::atomic::Ordering;
use std::time::Instant;

use egret_base::lifecycle::BoxFuture;

use super::Series;
use super::query::{QueryOptions, When};
use super::source::Samples;
use crate::core::promql::{Answer, Query, QueryError, Stop};
use crate::core::rules::{Evaluate, NewSample, last_samples};
use crate::metrics::Component;
use crate::model::{Labels, Matcher, TimeMs};
use crate::worker::{Append, AppendError, Appended};

impl Append for Series {
    fn append<'a>(
        &'a self,
        samples: &'a [NewSample],
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        Box::pin(async move {
            let labelled = samples
                .iter()
                .map(|sample| (sample.labels.clone(), sample.time_ms, sample.value));
            let written = Series::append(self, labelled).await;
            let written = written.map_err(|error| AppendError {
                message: egret_base::error::chain(&error),
            })?;
            Ok(Appended {
                refused: written.rejected.samples,
            })
        })
    }
}

impl Evaluate for Series {
    /// It waits for no other query: users who ask too much do not hold alerts up.
    fn instant(&self, query: &Query, at: TimeMs) -> Result<Answer, QueryError> {
        let inner = &self.inner;
        let began = Instant::now();
        let deadline = began + inner.config.query_timeout.duration();
        let stop = || match inner.stopping.load(Ordering::Relaxed) {
            true => Some(Stop::Canceled),
            false => (Instant::now() >= deadline).then_some(Stop::TimedOut),
        };
        let answer = inner.evaluate(query, When::At(at), QueryOptions::default(), &stop);
        inner.metrics.took(Component::Evaluate, began.elapsed());
        answer
    }

    fn last(
        &self,
        matchers: Vec<Matcher>,
        range: (TimeMs, TimeMs),
    ) -> Result<Vec<(Labels, TimeMs, f64)>, QueryError> {
        last_samples(&Samples { inner: &self.inner }, matchers, range)
    }
}
