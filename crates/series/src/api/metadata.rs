//! Metadata of metrics: noted from what senders and targets say, and returned to queries.

use std::sync::{Arc, PoisonError};

use egret_metrics_wire::{WireError, remote_write_v1, remote_write_v2};

use super::Series;
use crate::core::metadata::{Describe, Description, MetadataEntry};
use crate::engine::EngineInner;

/// What is known of one metric: its name, and all that is said of it.
pub type MetricMetadata = (Arc<str>, Vec<Arc<MetadataEntry>>);

/// Descriptions that are stored together: a request of metadata alone may have many.
const BATCH_ENTRIES_MAX: usize = 10_000;

/// What a request says of metrics, until it is noted.
#[derive(Debug, Default)]
pub(super) struct MetadataBatch<'a> {
    descriptions: Vec<Description<'a>>,
    /// Metadata of series before, each at a place that follows from the symbol that is its metric.
    recent: Vec<(usize, &'a [u8])>,
}

/// Metrics of a request that are remembered together; of more, some are noted again.
const RECENT_ENTRIES: usize = 256;

impl<'a> MetadataBatch<'a> {
    /// Whether enough was gathered to be noted.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.descriptions.len() >= BATCH_ENTRIES_MAX
    }

    /// Adds what an entry of remote write 1.0 says.
    pub(crate) fn push(&mut self, metadata: &remote_write_v1::WrittenMetadata<'a>) {
        self.descriptions.push(Description {
            metric: metadata.metric,
            kind: metadata.kind,
            unit: metadata.unit,
            help: metadata.help,
        });
    }

    /// Adds what a series says of its metric. Most say what one of the same metric said before.
    ///
    /// # Errors
    /// When it is not well formed.
    #[inline]
    pub(crate) fn push_from_series(
        &mut self,
        series: &remote_write_v2::WrittenSeriesV2<'a, '_>,
    ) -> Result<(), WireError> {
        let Some(raw) = series.raw_metadata() else {
            return Ok(());
        };
        let Some(metric) = series.metric_symbol() else {
            return Ok(());
        };
        if self.recent.is_empty() {
            self.recent.resize(RECENT_ENTRIES, (usize::MAX, &[]));
        }
        let slot = &mut self.recent[metric % RECENT_ENTRIES];
        if *slot == (metric, raw) {
            return Ok(());
        }
        *slot = (metric, raw);
        if let Some(metadata) = series.metadata()? {
            let metric = series.symbol(metric)?;
            let description =
                Description::for_series(metric, metadata.kind, metadata.unit, metadata.help);
            self.descriptions.push(description);
        }
        Ok(())
    }
}

impl Describe for Series {
    fn describe(&self, description: Description<'_>) -> Option<Arc<MetadataEntry>> {
        let now_ms = self.inner.now_ms();
        let known = self.inner.metadata.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.find(description, now_ms) {
            return Some(entry);
        }
        drop(known);
        let mut store = self.inner.metadata.write().unwrap_or_else(PoisonError::into_inner);
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
        let store = self.inner.metadata.read().unwrap_or_else(PoisonError::into_inner);
        store.list(metric, limit, per_metric)
    }

    /// Whether something was not kept since there is no room for more than
    /// `series.metadata_bytes_max`.
    pub fn has_refused_metadata(&self) -> bool {
        let store = self.inner.metadata.read().unwrap_or_else(PoisonError::into_inner);
        store.refused_count() > 0
    }
}

impl EngineInner {
    /// Keeps what is said, as far as there is room.
    pub(super) fn store_metadata(&self, batch: &mut MetadataBatch<'_>) {
        let descriptions = &mut batch.descriptions;
        if descriptions.is_empty() {
            return;
        }
        let now_ms = self.now_ms();
        {
            let known = self.metadata.read().unwrap_or_else(PoisonError::into_inner);
            descriptions.retain(|description| known.find(*description, now_ms).is_none());
        }
        if descriptions.is_empty() {
            return;
        }
        let mut store = self.metadata.write().unwrap_or_else(PoisonError::into_inner);
        for one in descriptions.drain(..) {
            store.add(one, now_ms);
        }
        self.metrics.metadata_bytes.set(store.bytes() as i64);
    }
}
