//! Metrics of the cache of blocks. Without a registry they are counted and not shown; the prefix of
//! their names is that of the registry.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Kind of an item in the cache of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheKind {
    /// Which series matchers select: look-ups of values and intersections of their postings.
    Selections,
    /// Parts of indexes: names, values, labels of series.
    Index,
    /// Columns of times that series share.
    Times,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CachedLabels {
    of: &'static str,
}

/// Look-ups in the cache of blocks, by kind.
#[derive(Clone, Debug, Default)]
pub struct CacheMetrics {
    hits: [Counter; CacheKind::ALL.len()],
    misses: [Counter; CacheKind::ALL.len()],
    /// Size of the cache, in bytes.
    pub bytes: Gauge,
}

impl CacheKind {
    const ALL: [Self; 3] = [Self::Selections, Self::Index, Self::Times];

    fn as_str(self) -> &'static str {
        match self {
            Self::Selections => "selections",
            Self::Index => "index",
            Self::Times => "times",
        }
    }
}

impl CacheMetrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let mut register_by_kind = |name, help| {
            let family = Family::<CachedLabels, Counter>::default();
            let each = CacheKind::ALL.map(|kind| {
                let of = kind.as_str();
                family.get_or_create(&CachedLabels { of }).clone()
            });
            registry.register(name, help, family);
            each
        };
        let metrics = Self {
            hits: register_by_kind("block_cache_hits", "Hits of the block cache"),
            misses: register_by_kind("block_cache_misses", "Misses of the block cache"),
            bytes: Gauge::default(),
        };
        registry.register("block_cache_bytes", "Memory of the block cache", metrics.bytes.clone());
        metrics
    }

    /// Counts a look-up, as a hit or a miss.
    pub(crate) fn count_lookup(&self, kind: CacheKind, is_hit: bool) {
        let counters = if is_hit { &self.hits } else { &self.misses };
        counters[kind as usize].inc();
    }
}
