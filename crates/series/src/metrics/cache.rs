//! What the cache of blocks counts. Without a registry it counts for nobody.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What is looked up in the cache of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cached {
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

/// Look-ups in the cache of blocks, by what was looked for.
#[derive(Clone, Debug, Default)]
pub struct CacheMetrics {
    hits: [Counter; Cached::ALL.len()],
    misses: [Counter; Cached::ALL.len()],
    /// What is kept, in bytes.
    pub bytes: Gauge,
}

impl Cached {
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
    /// Has them shown.
    pub fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("egret_series");
        let mut by_what = |name, help| {
            let family = Family::<CachedLabels, Counter>::default();
            let each = Cached::ALL.map(|what| {
                let of = what.as_str();
                family.get_or_create(&CachedLabels { of }).clone()
            });
            registry.register(name, help, family);
            each
        };
        let metrics = Self {
            hits: by_what(
                "block_cache_hits",
                "Look-ups in the cache of blocks that found something",
            ),
            misses: by_what(
                "block_cache_misses",
                "Look-ups in the cache of blocks that found nothing",
            ),
            bytes: Gauge::default(),
        };
        registry.register(
            "block_cache_bytes",
            "Memory of what was read of blocks",
            metrics.bytes.clone(),
        );
        metrics
    }

    /// Counts a look-up.
    pub fn looked_up(&self, what: Cached, is_hit: bool) {
        let counters = match is_hit {
            true => &self.hits,
            false => &self.misses,
        };
        counters[what as usize].inc();
    }
}
