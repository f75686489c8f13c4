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
const KEPT_MS: i64 = 3_600_000;
/// And it is looked for no more often than this, in milliseconds.
const SWEEP_MS: i64 = 10_000;

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
    pub fn of_series(name: &'a str, kind: MetricKind, unit: &'a str, help: &'a str) -> Self {
        let suffixes: &[&str] = match kind {
            MetricKind::Histogram => &["_bucket", "_count", "_sum"],
            MetricKind::GaugeHistogram => &["_bucket", "_gcount", "_gsum"],
            MetricKind::Summary => &["_count", "_sum"],
            _ => &[],
        };
        let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        Self {
            metric: stripped.unwrap_or(name),
            kind,
            unit,
            help,
        }
    }

    /// Whether it has a metric's name and anything about it.
    fn is_any(&self) -> bool {
        let says = self.kind != MetricKind::Unknown || !self.unit.is_empty();
        !self.metric.is_empty() && (says || !self.help.is_empty())
    }

    fn bytes(&self) -> u64 {
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
    said_ms: AtomicI64,
}

impl MetadataEntry {
    /// The metadata as a description.
    pub fn description(&self) -> Description<'_> {
        Description {
            metric: &self.metric,
            kind: self.kind,
            unit: &self.unit,
            help: &self.help,
        }
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
    refused: u64,
}

impl MetadataStore {
    /// Nothing, and room for so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            by_metric: HashMap::new(),
            bytes: 0,
            bytes_max,
            swept_ms: TimeMs::MIN,
            refused: 0,
        }
    }

    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of descriptions not kept for lack of room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What is known already of just what is said, which is of now.
    pub fn find(&self, said: Description<'_>, now_ms: TimeMs) -> Option<Arc<MetadataEntry>> {
        let variants = self.by_metric.get(said.metric)?;
        let found = variants.iter().find(|one| one.description() == said)?;
        found.said_ms.store(now_ms, Ordering::Relaxed);
        Some(found.clone())
    }

    /// Keeps what is said, if there is room.
    pub fn add(&mut self, said: Description<'_>, now_ms: TimeMs) -> Option<Arc<MetadataEntry>> {
        if !said.is_any() {
            return None;
        }
        // Another caller may have added it meanwhile.
        if let Some(found) = self.find(said, now_ms) {
            return Some(found);
        }
        if self.bytes + said.bytes() > self.bytes_max {
            self.sweep(now_ms);
        }
        let name = self.by_metric.get_key_value(said.metric);
        let (name, variants) =
            name.map_or((None, 0), |(name, all)| (Some(name.clone()), all.len()));
        if self.bytes + said.bytes() > self.bytes_max || variants >= VARIANTS_MAX {
            self.refused += 1;
            return None;
        }
        let metric = name.unwrap_or_else(|| said.metric.into());
        let metadata = Arc::new(MetadataEntry {
            metric: metric.clone(),
            kind: said.kind,
            unit: said.unit.into(),
            help: said.help.into(),
            said_ms: now_ms.into(),
        });
        self.bytes += said.bytes();
        let variants = self.by_metric.entry(metric).or_default();
        variants.push(metadata.clone());
        Some(metadata)
    }

    /// Removes metadata that has no holder and has not been said for [`KEPT_MS`].
    fn sweep(&mut self, now_ms: TimeMs) {
        if now_ms < self.swept_ms.saturating_add(SWEEP_MS) {
            return;
        }
        self.swept_ms = now_ms;
        let oldest = now_ms - KEPT_MS;
        let mut bytes = 0;
        self.by_metric.retain(|_, variants| {
            variants.retain(|one| {
                Arc::strong_count(one) > 1 || one.said_ms.load(Ordering::Relaxed) >= oldest
            });
            let left = variants.iter().map(|one| one.description().bytes());
            bytes += left.sum::<u64>();
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
        let some = |variants: &Vec<Arc<MetadataEntry>>| {
            variants.iter().take(per_metric).cloned().collect()
        };
        if let Some(metric) = metric {
            let found = self.by_metric.get_key_value(metric).into_iter().take(limit);
            return found
                .map(|(name, variants)| (name.clone(), some(variants)))
                .collect();
        }
        let mut all: Vec<_> = self.by_metric.iter().collect();
        all.sort_unstable_by(|one, other| one.0.cmp(other.0));
        let first = all.into_iter().take(limit);
        first
            .map(|(name, variants)| (name.clone(), some(variants)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
