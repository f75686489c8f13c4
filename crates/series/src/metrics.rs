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
    pub acknowledged_samples: Counter,
    /// Samples that came late.
    pub late_samples: Counter,
    /// Samples that were refused.
    pub rejected_samples: Counter,
    /// Samples of replicas that are not listened to.
    pub deduplicated_samples: Counter,
    /// Replicas that were elected.
    pub elections: Counter,
    /// Reads of blocks that met damage.
    pub block_failures: Counter,
    /// Files of blocks that were set aside.
    pub quarantined_blocks: Gauge,
    /// Series that are known.
    pub active_series: Gauge,
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
    pub added_series: Counter,
    /// Queries that were answered.
    pub queries: Counter,
    /// Requests in one append.
    pub append_requests: Histogram,
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
        let duration_histogram = || Histogram::new(exponential_buckets(0.000_001, 2.0, 25));
        let family =
            Family::<ComponentLabels, Histogram, _>::new_with_constructor(duration_histogram);
        let metrics = Self {
            components: Component::ALL.map(|component| {
                let component = component.as_str();
                family.get_or_create(&ComponentLabels { component }).clone()
            }),
            acknowledged_samples: Counter::default(),
            late_samples: Counter::default(),
            rejected_samples: Counter::default(),
            deduplicated_samples: Counter::default(),
            elections: Counter::default(),
            block_failures: Counter::default(),
            quarantined_blocks: Gauge::default(),
            active_series: Gauge::default(),
            head_bytes: Gauge::default(),
            log_bytes: Gauge::default(),
            blocks: Gauge::default(),
            block_bytes: Gauge::default(),
            cache: CacheMetrics::register(registry.sub_registry_with_prefix("egret_series")),
            added_series: Counter::default(),
            queries: Counter::default(),
            append_requests: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
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
            metrics.append_requests.clone(),
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
        let mut register_counter = |name, help, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        register_counter("samples", "Samples acknowledged", &self.acknowledged_samples);
        register_counter(
            "late_samples",
            "Samples older than the newest of their series",
            &self.late_samples,
        );
        register_counter("rejected_samples", "Samples refused", &self.rejected_samples);
        register_counter(
            "deduplicated_samples",
            "Samples dropped because another replica of their cluster is elected",
            &self.deduplicated_samples,
        );
        register_counter("elections", "Replicas elected", &self.elections);
        register_counter(
            "block_failures",
            "Reads of blocks that found damage",
            &self.block_failures,
        );
        register_counter("added_series", "Series added", &self.added_series);
        register_counter("queries", "Queries answered", &self.queries);
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let mut register_gauge =
            |name, help, gauge: &Gauge| registry.register(name, help, gauge.clone());
        register_gauge("active", "Series in memory", &self.active_series);
        register_gauge(
            "head_bytes",
            "Memory for samples that are not in blocks yet",
            &self.head_bytes,
        );
        register_gauge(
            "log_bytes",
            "Size in the logs of samples that are not in blocks yet",
            &self.log_bytes,
        );
        register_gauge("blocks", "Blocks", &self.blocks);
        register_gauge("block_bytes", "Size of blocks on disk", &self.block_bytes);
        register_gauge(
            "quarantined_blocks",
            "Block files that were set aside because they are damaged",
            &self.quarantined_blocks,
        );
    }

    /// A component took so long.
    pub(crate) fn observe_duration(&self, component: Component, duration: Duration) {
        self.components[component as usize].observe(duration.as_secs_f64());
    }
}
