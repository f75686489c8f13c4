//! Which series a key on the wire is: by its bytes, and by which key came after which the last
//! time.
//!
//! A sender repeats itself: the key that followed another will mostly follow it again. So each key
//! remembers its successor, and what comes is compared with that first, byte by byte. Only when
//! that fails a hash is made and looked up. Either way all bytes are compared: no two series are
//! taken for one.

use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use egret_metrics_model::Labels;

/// A series in its shard. A number is never used for a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeriesRef {
    /// Number of the shard.
    pub shard: u16,
    /// Number of the series in its shard.
    pub number: u64,
}

/// Index of a key in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(u32);

const NO_KEY: u32 = u32::MAX;

/// Tables by the first bits of the hash: when one grows, only its own entries are moved.
const TABLE_COUNT: usize = 256;

/// Aliases kept for each series; further encodings are parsed in each request.
const ALIASES_MAX: u8 = 8;

/// Bytes by which a series is looked up.
#[derive(Debug)]
enum Bytes {
    /// The canonical bytes, which are those of the labels.
    Canonical(Labels),
    /// Another encoding of the same labels.
    Alias(Box<[u8]>),
}

#[derive(Debug)]
struct SeriesKey {
    bytes: Bytes,
    series_ref: SeriesRef,
    /// The key that came next the last time.
    successor: AtomicU32,
    /// Number of aliases; counted at the canonical key.
    alias_count: u8,
}

/// Table from the keys of series, their label bytes on the wire, to their places.
#[derive(Debug)]
pub(crate) struct SeriesKeyTable {
    keys: Pages,
    /// Places in `keys` that are free.
    free_ids: Vec<u32>,
    /// Hash and place in `keys`.
    tables: Box<[HashTable<(u64, u32)>]>,
    seed: u64,
    series_count: usize,
}

/// Keys in pages, so that none is moved when there are more.
#[derive(Debug, Default)]
struct Pages(Vec<Vec<Option<SeriesKey>>>);

const PAGE_KEYS: usize = 4_096;

impl Pages {
    #[inline]
    fn get(&self, id: u32) -> Option<&SeriesKey> {
        let page = self.0.get(id as usize / PAGE_KEYS)?;
        page.get(id as usize % PAGE_KEYS)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut SeriesKey> {
        let page = self.0.get_mut(id as usize / PAGE_KEYS)?;
        page.get_mut(id as usize % PAGE_KEYS)?.as_mut()
    }

    fn push(&mut self, key: SeriesKey) -> u32 {
        if self.0.last().is_none_or(|page| page.len() == PAGE_KEYS) {
            self.0.push(Vec::with_capacity(PAGE_KEYS));
        }
        let pages = self.0.len();
        let last = &mut self.0[pages - 1];
        last.push(Some(key));
        ((pages - 1) * PAGE_KEYS + last.len() - 1) as u32
    }
}

impl SeriesKey {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Canonical(labels) => labels.as_key().as_bytes(),
            Bytes::Alias(bytes) => bytes,
        }
    }
}

impl SeriesKeyTable {
    /// An empty table. The seed must stay secret: with it, a sender could make keys whose hashes
    /// collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            keys: Pages::default(),
            free_ids: Vec::new(),
            tables: (0..TABLE_COUNT).map(|_| HashTable::new()).collect(),
            seed,
            series_count: 0,
        }
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed)
    }

    fn find_by_hash(&self, hash: u64, bytes: &[u8]) -> Option<u32> {
        let is_same = |(other, id): &(u64, u32)| {
            let key = || self.keys.get(*id).expect("what is in a table is there");
            *other == hash && key().bytes() == bytes
        };
        let entry = self.tables[hash as usize % TABLE_COUNT].find(hash, is_same);
        entry.map(|(_, id)| *id)
    }

    /// The key of these bytes.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<KeyId> {
        self.find_by_hash(self.hash(bytes), bytes).map(KeyId)
    }

    /// The series of a key that was found in this table, and nothing was taken out of it since.
    #[inline]
    pub(crate) fn series_ref(&self, id: KeyId) -> SeriesRef {
        self.keys.get(id.0).expect("a key that was found is there").series_ref
    }

    /// The labels of a canonical key; `None` for an alias.
    #[inline]
    pub(crate) fn own_labels(&self, id: KeyId) -> Option<&Labels> {
        match &self.keys.get(id.0)?.bytes {
            Bytes::Canonical(labels) => Some(labels),
            Bytes::Alias(_) => None,
        }
    }

    /// The key that came after another the last time, with its bytes.
    #[inline]
    pub(crate) fn successor(&self, id: KeyId) -> Option<(KeyId, &[u8])> {
        let successor = self.keys.get(id.0)?.successor.load(Ordering::Relaxed);
        Some((KeyId(successor), self.keys.get(successor)?.bytes()))
    }

    /// Remembers which key came after another.
    pub(crate) fn set_successor(&self, id: KeyId, successor: KeyId) {
        if let Some(key) = self.keys.get(id.0) {
            key.successor.store(successor.0, Ordering::Relaxed);
        }
    }

    /// The series with these labels.
    pub(crate) fn find_series(&self, labels: &Labels) -> Option<SeriesRef> {
        let id = self.find(labels.as_key().as_bytes())?;
        Some(self.series_ref(id))
    }

    /// Number of series in the table.
    pub(crate) fn len(&self) -> usize {
        self.series_count
    }

    fn insert(&mut self, hash: u64, bytes: Bytes, series_ref: SeriesRef) {
        let key =
            SeriesKey { bytes, series_ref, successor: AtomicU32::new(NO_KEY), alias_count: 0 };
        let id = match self.free_ids.pop() {
            Some(id) => {
                self.keys.0[id as usize / PAGE_KEYS][id as usize % PAGE_KEYS] = Some(key);
                id
            }
            None => self.keys.push(key),
        };
        self.tables[hash as usize % TABLE_COUNT].insert_unique(hash, (hash, id), |(hash, _)| *hash);
    }

    /// Adds a series that is not there.
    pub(crate) fn add_series(&mut self, labels: Labels, series_ref: SeriesRef) {
        let hash = self.hash(labels.as_key().as_bytes());
        self.insert(hash, Bytes::Canonical(labels), series_ref);
        self.series_count += 1;
    }

    /// From here on a series that is there has another number.
    pub(crate) fn renumber(&mut self, labels: &Labels, series_ref: SeriesRef) {
        if let Some(KeyId(id)) = self.find(labels.as_key().as_bytes()) {
            let key = self.keys.get_mut(id).expect("it was found");
            key.series_ref = series_ref;
        }
    }

    /// Remembers another key of a series that is there, unless it has too many.
    pub(crate) fn add_alias(&mut self, labels: &Labels, alias: &[u8]) {
        let hash = self.hash(alias);
        let Some(KeyId(own_id)) = self.find(labels.as_key().as_bytes()) else {
            return;
        };
        if self.find_by_hash(hash, alias).is_some() {
            return;
        }
        let own_key = self.keys.get_mut(own_id).expect("it was found");
        if own_key.alias_count < ALIASES_MAX {
            own_key.alias_count += 1;
            let series_ref = own_key.series_ref;
            self.insert(hash, Bytes::Alias(alias.into()), series_ref);
        }
    }

    /// How many keys there may be: what [`SeriesKeyTable::remove_from_page`] goes through.
    pub(crate) fn capacity(&self) -> usize {
        self.keys.0.len() * PAGE_KEYS
    }

    /// Takes the keys out of series that are gone, among those from `from` on, and returns where to
    /// go on. Looks at one page of keys a call, to bound the pause of the caller.
    pub(crate) fn remove_from_page(
        &mut self,
        first: usize,
        is_removed: impl Fn(SeriesRef) -> bool,
    ) -> usize {
        let end = (first + PAGE_KEYS).min(self.capacity());
        for id in first..end {
            let Some(key) = self.keys.get(id as u32).filter(|key| is_removed(key.series_ref))
            else {
                continue;
            };
            let hash = self.hash(key.bytes());
            self.series_count -= usize::from(matches!(key.bytes, Bytes::Canonical(_)));
            let table = &mut self.tables[hash as usize % TABLE_COUNT];
            let entry = table.find_entry(hash, |(_, other)| *other as usize == id);
            entry.expect("a key that is there is in its table").remove();
            self.keys.0[id / PAGE_KEYS][id % PAGE_KEYS] = None;
            self.free_ids.push(id as u32);
        }
        end
    }
}

#[cfg(test)]
mod tests;
