//! What was read of the indexes of blocks, and columns of times that series share: one cache for all blocks, bounded
//! by bytes.

use std::any::Any;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::error::BlockError;

/// What is kept: whose, and what of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Of the opened file; no two have the same in one process.
    pub file: u64,
    pub item: Item,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
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

/// What an entry takes besides itself.
const ENTRY_BYTES: usize = 128;

/// An average one, to begin with.
const ENTRY_BYTES_GUESS: u64 = 8 << 10;

#[derive(Clone, Debug)]
struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    size_bytes: usize,
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<Key, Entry> for BySize {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        let key_bytes = match &key.item {
            Item::Selected(matchers) => matchers.len(),
            _ => 0,
        };
        (entry.size_bytes + key_bytes + ENTRY_BYTES) as u64
    }
}

/// What the cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Look-ups that found something.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Bytes in use, of…
    pub used_bytes: u64,
    /// …so many.
    pub max_bytes: u64,
}

/// A bounded cache for any number of blocks.
#[derive(Debug)]
pub struct BlockCache {
    entries: Cache<Key, Entry, BySize>,
}

impl BlockCache {
    /// One that takes at most so many bytes.
    pub fn new(max_bytes: u64) -> Self {
        let guess = (max_bytes / ENTRY_BYTES_GUESS).max(16) as usize;
        Self {
            entries: Cache::with_weighter(guess, max_bytes, BySize),
        }
    }

    /// What it has done.
    pub fn figures(&self) -> CacheFigures {
        CacheFigures {
            hits: self.entries.hits(),
            misses: self.entries.misses(),
            used_bytes: self.entries.weight(),
            max_bytes: self.entries.capacity(),
        }
    }

    /// What is kept under `key`, or what `load` brings with its size in bytes. All that is kept under one kind of
    /// key is of one type.
    pub(super) fn get<T: Any + Send + Sync>(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<(T, usize), BlockError>,
    ) -> Result<Arc<T>, BlockError> {
        if let Some(entry) = self.entries.get(&key) {
            return Ok(entry.value.downcast().expect("a kind of key has one type"));
        }
        let (value, size_bytes) = load()?;
        let value = Arc::new(value);
        self.entries.insert(
            key,
            Entry {
                value: value.clone(),
                size_bytes,
            },
        );
        Ok(value)
    }
}
