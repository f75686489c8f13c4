//! Metadata of metrics, as senders and targets say it: kind, unit and help. It is kept in memory
//! only, within a limit.

mod collector;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use egret_metrics_model::TimeMs;
use egret_metrics_wire::MetricKind;

pub(crate) use collector::MetadataLines;

/// What one entry takes beside its texts, about, in bytes.
const ENTRY_BYTES: u64 = 160;
/// Different things that may be said of one metric: programs of many versions say as many.
const VARIANTS_MAX: usize = 64;
/// Age in milliseconds at which unused metadata may be removed to make room.
const RETENTION_MS: i64 = 3_600_000;
/// And it is looked for no more often than this, in milliseconds.
const SWEEP_INTERVAL_MS: i64 = 10_000;

/// Metadata of a metric, as one sender or target says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description<'a> {
    /// Name of the metric, without `_bucket` and the like.
    pub metric: &'a str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Unit of the metric, such as `seconds`.
    pub unit: &'a str,
    /// Help text of the metric.
    pub help: &'a str,
}

impl<'a> Description<'a> {
    /// What is said of a metric with one of its series: the suffixes that a kind gives to its
    /// series are no part of the metric's name.
    pub(crate) fn for_series(
        name: &'a str,
        kind: MetricKind,
        unit: &'a str,
        help: &'a str,
    ) -> Self {
        let suffixes: &[&str] = match kind {
            MetricKind::Histogram => &["_bucket", "_count", "_sum"],
            MetricKind::GaugeHistogram => &["_bucket", "_gcount", "_gsum"],
            MetricKind::Summary => &["_count", "_sum"],
            _ => &[],
        };
        let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        Self { metric: stripped.unwrap_or(name), kind, unit, help }
    }

    /// Whether it has a metric's name and anything about it.
    fn has_content(&self) -> bool {
        let has_kind_or_unit = self.kind != MetricKind::Unknown || !self.unit.is_empty();
        !self.metric.is_empty() && (has_kind_or_unit || !self.help.is_empty())
    }

    fn size_bytes(&self) -> u64 {
        ENTRY_BYTES + (self.metric.len() + self.unit.len() + self.help.len()) as u64
    }
}

/// Metadata of a metric: kind, unit and help.
#[derive(Debug)]
pub struct MetadataEntry {
    metric: Arc<str>,
    kind: MetricKind,
    unit: Box<str>,
    help: Box<str>,
    last_described_ms: AtomicI64,
}

impl MetadataEntry {
    /// The metadata as a description.
    pub fn description(&self) -> Description<'_> {
        Description { metric: &self.metric, kind: self.kind, unit: &self.unit, help: &self.help }
    }
}

/// Keeps what is said of metrics.
pub trait Describe: Send + Sync {
    /// Notes a description and returns the shared entry of equal ones. `None` if the description is
    /// empty, or is not kept for lack of room.
    fn describe(&self, description: Description<'_>) -> Option<Arc<MetadataEntry>>;
}

/// Metadata of all metrics, within a limit of bytes.
#[derive(Debug)]
pub struct MetadataStore {
    by_metric: HashMap<Arc<str>, Vec<Arc<MetadataEntry>>>,
    bytes: u64,
    bytes_max: u64,
    swept_ms: TimeMs,
    refused_count: u64,
}

impl MetadataStore {
    /// Nothing, and room for so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            by_metric: HashMap::new(),
            bytes: 0,
            bytes_max,
            swept_ms: TimeMs::MIN,
            refused_count: 0,
        }
    }

    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of descriptions not kept for lack of room.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// What is known already of just what is said, which is of now.
    pub fn find(&self, description: Description<'_>, now_ms: TimeMs) -> Option<Arc<MetadataEntry>> {
        let variants = self.by_metric.get(description.metric)?;
        let entry = variants.iter().find(|variant| variant.description() == description)?;
        entry.last_described_ms.store(now_ms, Ordering::Relaxed);
        Some(entry.clone())
    }

    /// Keeps what is said, if there is room.
    pub fn add(
        &mut self,
        description: Description<'_>,
        now_ms: TimeMs,
    ) -> Option<Arc<MetadataEntry>> {
        if !description.has_content() {
            return None;
        }
        // Another caller may have added it meanwhile.
        if let Some(entry) = self.find(description, now_ms) {
            return Some(entry);
        }
        if self.bytes + description.size_bytes() > self.bytes_max {
            self.sweep(now_ms);
        }
        let name = self.by_metric.get_key_value(description.metric);
        let (name, variant_count) =
            name.map_or((None, 0), |(name, all)| (Some(name.clone()), all.len()));
        if self.bytes + description.size_bytes() > self.bytes_max || variant_count >= VARIANTS_MAX {
            self.refused_count += 1;
            return None;
        }
        let metric = name.unwrap_or_else(|| description.metric.into());
        let metadata = Arc::new(MetadataEntry {
            metric: metric.clone(),
            kind: description.kind,
            unit: description.unit.into(),
            help: description.help.into(),
            last_described_ms: now_ms.into(),
        });
        self.bytes += description.size_bytes();
        let variants = self.by_metric.entry(metric).or_default();
        variants.push(metadata.clone());
        Some(metadata)
    }

    /// Removes metadata that has no holder and has not been said for [`RETENTION_MS`].
    fn sweep(&mut self, now_ms: TimeMs) {
        if now_ms < self.swept_ms.saturating_add(SWEEP_INTERVAL_MS) {
            return;
        }
        self.swept_ms = now_ms;
        let oldest = now_ms - RETENTION_MS;
        let mut bytes = 0;
        self.by_metric.retain(|_, variants| {
            variants.retain(|one| {
                Arc::strong_count(one) > 1
                    || one.last_described_ms.load(Ordering::Relaxed) >= oldest
            });
            let remaining = variants.iter().map(|entry| entry.description().size_bytes());
            bytes += remaining.sum::<u64>();
            !variants.is_empty()
        });
        self.bytes = bytes;
    }

    /// What is known of one metric, or of all, by name: of at most so many, and at most so much of
    /// each.
    pub fn list(
        &self,
        metric: Option<&str>,
        limit: usize,
        per_metric: usize,
    ) -> Vec<(Arc<str>, Vec<Arc<MetadataEntry>>)> {
        let first_variants = |variants: &Vec<Arc<MetadataEntry>>| {
            variants.iter().take(per_metric).cloned().collect()
        };
        if let Some(metric) = metric {
            let found = self.by_metric.get_key_value(metric).into_iter().take(limit);
            return found
                .map(|(name, variants)| (name.clone(), first_variants(variants)))
                .collect();
        }
        let mut metrics: Vec<_> = self.by_metric.iter().collect();
        metrics.sort_unstable_by(|left, right| left.0.cmp(right.0));
        let first = metrics.into_iter().take(limit);
        first.map(|(name, variants)| (name.clone(), first_variants(variants))).collect()
    }
}

#[cfg(test)]
mod tests;
