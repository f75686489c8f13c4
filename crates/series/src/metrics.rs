//! Metrics of the series engine: `egret_series_<noun>_<unit>`. The time spent in each component is
//! a histogram of its own, so that a slow one is seen from outside.

mod monitor;

use std::time::Duration;

use egret_blocks::metrics::CacheMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

pub use monitor::{NoticeMetrics, RuleMetrics, ScrapeMetrics};

/// A part of the work of which the time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// Decompressing the body of a request.
    Decompress,
    /// Reading a request, and finding its series.
    Resolve,
    /// Waiting for the shards that a request goes to.
    Wait,
    /// Laying samples out for the log.
    Encode,
    /// The log's write and its flush.
    Log,
    /// Adding samples to the head.
    Append,
    /// Adding new series under their numbers.
    Insert,
    /// Finding the series of a query.
    Search,
    /// Reading the samples of a query.
    Read,
    /// Evaluating a query, reading samples included.
    Evaluate,
    /// Waiting to look at which series are known.
    Lock,
    /// Writing the samples of a shard to blocks.
    Flush,
    /// Merging blocks into larger ones.
    Merge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComponentLabels {
    component: &'static str,
}

/// Metrics of the engine.
pub(crate) struct Metrics {
    components: [Histogram; Component::ALL.len()],
    /// Samples that were acknowledged.
    pub samples: Counter,
    /// Samples that came late.
    pub late: Counter,
    /// Samples that were refused.
    pub rejected: Counter,
    /// Samples of replicas that are not listened to.
    pub duplicates: Counter,
    /// Replicas that were elected.
    pub elections: Counter,
    /// Reads of blocks that met damage.
    pub damage: Counter,
    /// Files of blocks that were set aside.
    pub quarantined: Gauge,
    /// Series that are known.
    pub series: Gauge,
    /// Memory of samples that are not in blocks.
    pub head_bytes: Gauge,
    /// What they take in the logs.
    pub log_bytes: Gauge,
    /// Blocks that are in use.
    pub blocks: Gauge,
    /// What they take on disk.
    pub block_bytes: Gauge,
    /// Metrics of the cache of blocks.
    pub cache: CacheMetrics,
    /// Series that were added.
    pub added: Counter,
    /// Queries that were answered.
    pub queries: Counter,
    /// Requests in one append.
    pub requests: Histogram,
    /// What is kept of what metrics are.
    pub metadata_bytes: Gauge,
}

impl Component {
    const ALL: [Self; 13] = [
        Self::Decompress,
        Self::Resolve,
        Self::Wait,
        Self::Encode,
        Self::Log,
        Self::Append,
        Self::Insert,
        Self::Search,
        Self::Read,
        Self::Evaluate,
        Self::Lock,
        Self::Flush,
        Self::Merge,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Decompress => "decompress",
            Self::Resolve => "resolve",
            Self::Wait => "wait",
            Self::Encode => "encode",
            Self::Log => "log",
            Self::Append => "append",
            Self::Insert => "insert",
            Self::Search => "search",
            Self::Read => "read",
            Self::Evaluate => "evaluate",
            Self::Lock => "lock",
            Self::Flush => "flush",
            Self::Merge => "merge",
        }
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From a microsecond to about half a minute.
        let times = || Histogram::new(exponential_buckets(0.000_001, 2.0, 25));
        let family = Family::<ComponentLabels, Histogram, _>::new_with_constructor(times);
        let metrics = Self {
            components: Component::ALL.map(|component| {
                let component = component.as_str();
                family.get_or_create(&ComponentLabels { component }).clone()
            }),
            samples: Counter::default(),
            late: Counter::default(),
            rejected: Counter::default(),
            duplicates: Counter::default(),
            elections: Counter::default(),
            damage: Counter::default(),
            quarantined: Gauge::default(),
            series: Gauge::default(),
            head_bytes: Gauge::default(),
            log_bytes: Gauge::default(),
            blocks: Gauge::default(),
            block_bytes: Gauge::default(),
            cache: CacheMetrics::register(registry.sub_registry_with_prefix("egret_series")),
            added: Counter::default(),
            queries: Counter::default(),
            requests: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            metadata_bytes: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("egret_series");
        registry.register_with_unit(
            "component",
            "Time spent in each component of the series engine",
            Unit::Seconds,
            family,
        );
        metrics.register_counters(registry);
        metrics.register_gauges(registry);
        registry.register(
            "append_requests",
            "Requests in one append to a log",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "metadata",
            "Memory for metadata of metrics: type, unit, help",
            Unit::Bytes,
            metrics.metadata_bytes.clone(),
        );
        metrics
    }

    fn register_counters(&self, registry: &mut Registry) {
        let mut count = |name, help, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        count("samples", "Samples acknowledged", &self.samples);
        count(
            "late_samples",
            "Samples older than the newest of their series",
            &self.late,
        );
        count("rejected_samples", "Samples refused", &self.rejected);
        count(
            "deduplicated_samples",
            "Samples dropped because another replica of their cluster is elected",
            &self.duplicates,
        );
        count("elections", "Replicas elected", &self.elections);
        count(
            "block_failures",
            "Reads of blocks that found damage",
            &self.damage,
        );
        count("added_series", "Series added", &self.added);
        count("queries", "Queries answered", &self.queries);
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let mut amount = |name, help, gauge: &Gauge| registry.register(name, help, gauge.clone());
        amount("active", "Series in memory", &self.series);
        amount(
            "head_bytes",
            "Memory for samples that are not in blocks yet",
            &self.head_bytes,
        );
        amount(
            "log_bytes",
            "Size in the logs of samples that are not in blocks yet",
            &self.log_bytes,
        );
        amount("blocks", "Blocks", &self.blocks);
        amount("block_bytes", "Size of blocks on disk", &self.block_bytes);
        amount(
            "quarantined_blocks",
            "Block files that were set aside because they are damaged",
            &self.quarantined,
        );
    }

    /// A component took so long.
    pub(crate) fn took(&self, component: Component, time: Duration) {
        self.components[component as usize].observe(time.as_secs_f64());
    }
}
