//! Cache of decoded parts of indexes and of columns of times that series share: one for all blocks,
//! bounded by bytes.

use std::any::Any;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::error::BlockError;
use crate::metrics::{CacheKind, CacheMetrics};

/// Key of a cached item: its file, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    /// Number of the opened file, unique within the process.
    pub file: u64,
    pub item: CacheItem,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CacheItem {
    /// The names of labels.
    Names,
    /// The directory of pages of series.
    PageDirectory,
    /// A page of series, by its number.
    Page(u32),
    /// A directory of pages of values, by its offset.
    ValuesDirectory(u64),
    /// A page of values, by its offset.
    Values(u64),
    /// A column of times, by its offset.
    Column(u64),
    /// The series that matchers select, by how they are written.
    Selected(Box<str>),
}

impl CacheItem {
    fn kind(&self) -> CacheKind {
        match self {
            Self::Selected(_) => CacheKind::Selections,
            Self::Column(_) => CacheKind::Times,
            _ => CacheKind::Index,
        }
    }
}

/// Memory of an entry beyond its value, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 128;

/// Expected average size of an entry, from which the cache is dimensioned.
const ENTRY_BYTES_EXPECTED: u64 = 8 << 10;

#[derive(Clone, Debug)]
struct CacheEntry {
    value: Arc<dyn Any + Send + Sync>,
    size_bytes: usize,
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<CacheKey, CacheEntry> for BySize {
    fn weight(&self, key: &CacheKey, entry: &CacheEntry) -> u64 {
        let key_bytes = match &key.item {
            CacheItem::Selected(matchers) => matchers.len(),
            _ => 0,
        };
        (entry.size_bytes + key_bytes + ENTRY_OVERHEAD_BYTES) as u64
    }
}

/// A bounded cache for any number of blocks.
#[derive(Debug)]
pub struct BlockCache {
    entries: Cache<CacheKey, CacheEntry, BySize>,
    metrics: CacheMetrics,
}

impl BlockCache {
    /// A cache of at most so many bytes.
    pub fn new(max_bytes: u64) -> Self {
        Self::with_metrics(max_bytes, CacheMetrics::default())
    }

    /// A cache whose look-ups are counted in `metrics`.
    pub fn with_metrics(max_bytes: u64, metrics: CacheMetrics) -> Self {
        let entries_expected = (max_bytes / ENTRY_BYTES_EXPECTED).max(16) as usize;
        Self { entries: Cache::with_weighter(entries_expected, max_bytes, BySize), metrics }
    }

    /// Sets the metric of the cache's size.
    pub fn update_metrics(&self) {
        self.metrics.bytes.set(self.entries.weight() as i64);
    }

    /// The value cached under `key`; if there is none, the one that `load` returns with its size
    /// in bytes, which is cached. All values under one kind of key have one type.
    pub(super) fn get_or_load<T: Any + Send + Sync>(
        &self,
        key: CacheKey,
        load: impl FnOnce() -> Result<(T, usize), BlockError>,
    ) -> Result<Arc<T>, BlockError> {
        let cached = self.entries.get(&key);
        self.metrics.count_lookup(key.item.kind(), cached.is_some());
        if let Some(entry) = cached {
            return Ok(entry.value.downcast().expect("a kind of key has one type"));
        }
        let (value, size_bytes) = load()?;
        let value = Arc::new(value);
        self.entries.insert(key, CacheEntry { value: value.clone(), size_bytes });
        Ok(value)
    }
}
