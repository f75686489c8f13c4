//! Metadata of metrics: noted from what senders and targets say, and returned to queries.

use std::sync::{Arc, PoisonError};

use egret_metrics_wire::{WireError, remote_write_v1, remote_write_v2};

use super::Series;
use crate::core::metadata::{Describe, Description, MetadataEntry};
use crate::engine::EngineInner;

/// What is known of one metric: its name, and all that is said of it.
pub type MetricMetadata = (Arc<str>, Vec<Arc<MetadataEntry>>);

/// Descriptions that are stored together: a request of metadata alone may have many.
const TOGETHER: usize = 10_000;

/// What a request says of metrics, until it is noted.
#[derive(Debug, Default)]
pub(super) struct MetadataBatch<'a> {
    all: Vec<Description<'a>>,
    /// Metadata of series before, each at a place that follows from the symbol that is its metric.
    lately: Vec<(usize, &'a [u8])>,
}

/// Metrics of a request that are remembered together; of more, some are noted again.
const LATELY: usize = 256;

impl<'a> MetadataBatch<'a> {
    /// Whether enough was gathered to be noted.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= TOGETHER
    }

    /// Adds what an entry of remote write 1.0 says.
    pub(crate) fn push(&mut self, said: &remote_write_v1::WrittenMetadata<'a>) {
        self.all.push(Description {
            metric: said.metric,
            kind: said.kind,
            unit: said.unit,
            help: said.help,
        });
    }

    /// Adds what a series says of its metric. Most say what one of the same metric said before.
    ///
    /// # Errors
    /// When it is not well formed.
    #[inline]
    pub(crate) fn push_of(
        &mut self,
        series: &remote_write_v2::WrittenSeriesV2<'a, '_>,
    ) -> Result<(), WireError> {
        let Some(raw) = series.raw_metadata() else {
            return Ok(());
        };
        let Some(metric) = series.metric() else {
            return Ok(());
        };
        if self.lately.is_empty() {
            self.lately.resize(LATELY, (usize::MAX, &[]));
        }
        let lately = &mut self.lately[metric % LATELY];
        if *lately == (metric, raw) {
            return Ok(());
        }
        *lately = (metric, raw);
        if let Some(said) = series.metadata()? {
            let metric = series.symbol(metric)?;
            let said = Description::of_series(metric, said.kind, said.unit, said.help);
            self.all.push(said);
        }
        Ok(())
    }
}

impl Describe for Series {
    fn describe(&self, description: Description<'_>) -> Option<Arc<MetadataEntry>> {
        let now_ms = self.inner.now_ms();
        let known = self
            .inner
            .metadata
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.find(description, now_ms) {
            return Some(found);
        }
        drop(known);
        let mut store = self
            .inner
            .metadata
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let added = store.add(description, now_ms);
        self.inner.metrics.metadata_bytes.set(store.bytes() as i64);
        added
    }
}

impl Series {
    /// What is known of one metric, or of all, by name: of at most so many, and at most so much of
    /// each. A restart forgets it; senders and targets say it again.
    pub fn metadata(
        &self,
        metric: Option<&str>,
        limit: usize,
        per_metric: usize,
    ) -> Vec<MetricMetadata> {
        let store = self
            .inner
            .metadata
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        store.list(metric, limit, per_metric)
    }

    /// Whether something was not kept since there is no room for more than
    /// `series.metadata_bytes_max`.
    pub fn lacks_metadata(&self) -> bool {
        let store = self
            .inner
            .metadata
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        store.refused() > 0
    }
}

impl EngineInner {
    /// Keeps what is said, as far as there is room.
    pub(super) fn note(&self, said: &mut MetadataBatch<'_>) {
        let all = &mut said.all;
        if all.is_empty() {
            return;
        }
        let now_ms = self.now_ms();
        {
            let known = self.metadata.read().unwrap_or_else(PoisonError::into_inner);
            all.retain(|one| known.find(*one, now_ms).is_none());
        }
        if all.is_empty() {
            return;
        }
        let mut store = self
            .metadata
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for one in all.drain(..) {
            store.add(one, now_ms);
        }
        self.metrics.metadata_bytes.set(store.bytes() as i64);
    }
}
