//! Pages of series: their labels, and the extents of their samples.
//!
//! - strings: how many; each with its length
//! - columns of times: how many; for each: how many times, the first (signed, from the first of the
//!   column before), the last (from its first), its body
//! - series: how many; for each: the hash of its labels (8 bytes); how many labels, for each the
//!   places of its name and value among the strings; how many chunks, for each twice the place of
//!   its column, and one more when it has histograms, and its body
//!
//! A body is a varint `length << 1 | is_external`, then its bytes if inline, else the signed offset
//! of its checksummed bytes, relative to the end of the previous external body. Numbers are
//! varints.

use std::collections::HashMap;
use std::ops::Range;

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint, unzigzag, zigzag};
use egret_metrics_model::{Labels, TimeMs};

use super::layout::Extent;

const WHAT: &str = "a page of series";

/// Longer bodies are not in the page.
pub(crate) const BODY_INLINE_MAX: usize = 24;

/// Bytes that are in the page, or elsewhere in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Bytes stored in the page itself.
    Inline(Vec<u8>),
    /// In the file, checked; the length is with the checksum.
    At(Extent),
}

/// The times of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Number of timestamps in the page.
    pub count: u32,
    /// Time of the first sample, in milliseconds.
    pub first_ms: TimeMs,
    /// Time of the last sample, in milliseconds.
    pub last_ms: TimeMs,
    /// The column, encoded by `ints`.
    pub body: Body,
}

/// Type of the samples of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// Numbers, encoded by `values`.
    Numbers,
    /// Native histograms, encoded by `histograms`.
    Histograms,
}

/// Samples of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageChunk {
    /// Index of the column of its times in the page.
    pub column: u32,
    /// Type of its samples.
    pub kind: ChunkKind,
    /// The encoded samples of the chunk.
    pub body: Body,
}

/// Hash of labels, the same in every block, whatever version of Egret wrote it: XXH3 of
/// [`Labels::as_key`].
pub fn labels_hash(labels: &Labels) -> u64 {
    xxhash_rust::xxh3::xxh3_64(labels.as_key().as_bytes())
}

/// Collects the series of a page.
#[derive(Debug, Default)]
pub(crate) struct PageBuilder {
    string_indexes: HashMap<Box<str>, u32>,
    strings: Vec<u8>,
    columns: Vec<u8>,
    column_indexes: HashMap<Extent, u32>,
    column_count: u32,
    series: Vec<u8>,
    series_count: usize,
    column_first_ms: TimeMs,
    column_end: u64,
    chunk_end: u64,
}

impl PageBuilder {
    /// Number of series in the page.
    pub(crate) fn len(&self) -> usize {
        self.series_count
    }

    /// Whether the page has no series.
    pub(crate) fn is_empty(&self) -> bool {
        self.series_count == 0
    }

    /// Whether it should be written before another series is added.
    pub(crate) fn is_full(&self) -> bool {
        let bytes = self.strings.len() + self.columns.len() + self.series.len();
        self.series_count >= super::PAGE_SERIES || bytes >= super::PAGE_BYTES
    }

    fn intern(&mut self, text: &str) -> u32 {
        if let Some(index) = self.string_indexes.get(text) {
            return *index;
        }
        let place = self.string_indexes.len() as u32;
        put_bytes(&mut self.strings, text.as_bytes());
        self.string_indexes.insert(text.into(), place);
        place
    }

    /// Adds a column, unless it is there. Returns its index.
    pub(crate) fn add_column(&mut self, column: &Column) -> u32 {
        if let Body::At(extent) = column.body
            && let Some(index) = self.column_indexes.get(&extent)
        {
            return *index;
        }
        let place = self.column_count;
        self.column_count += 1;
        put_varint(&mut self.columns, column.count.into());
        let step = column.first_ms.wrapping_sub(self.column_first_ms);
        self.column_first_ms = column.first_ms;
        put_varint(&mut self.columns, zigzag(step));
        put_varint(&mut self.columns, column.last_ms.wrapping_sub(column.first_ms) as u64);
        put_body(&mut self.columns, &column.body, &mut self.column_end);
        if let Body::At(extent) = column.body {
            self.column_indexes.insert(extent, place);
        }
        place
    }

    /// Adds a series with its chunks, numbers before histograms, each kind in the order of time.
    pub(crate) fn push(&mut self, labels: &Labels, chunks: &[PageChunk]) {
        self.series.extend_from_slice(&labels_hash(labels).to_le_bytes());
        put_varint(&mut self.series, labels.iter().count() as u64);
        for (name, value) in labels.iter() {
            for text in [name, value] {
                let index = self.intern(text);
                put_varint(&mut self.series, index.into());
            }
        }
        put_varint(&mut self.series, chunks.len() as u64);
        for chunk in chunks {
            let kind = u64::from(chunk.kind == ChunkKind::Histograms);
            put_varint(&mut self.series, u64::from(chunk.column) << 1 | kind);
            put_body(&mut self.series, &chunk.body, &mut self.chunk_end);
        }
        self.series_count += 1;
    }

    /// Returns the page, and begins another.
    pub(crate) fn take_page(&mut self) -> Vec<u8> {
        let page = std::mem::take(self);
        let mut out = Vec::new();
        put_varint(&mut out, page.string_indexes.len() as u64);
        out.extend_from_slice(&page.strings);
        put_varint(&mut out, page.column_count.into());
        out.extend_from_slice(&page.columns);
        put_varint(&mut out, page.series_count as u64);
        out.extend_from_slice(&page.series);
        out
    }
}

fn put_body(out: &mut Vec<u8>, body: &Body, end: &mut u64) {
    match body {
        Body::Inline(bytes) => {
            put_varint(out, (bytes.len() as u64) << 1);
            out.extend_from_slice(bytes);
        }
        Body::At(extent) => {
            put_varint(out, u64::from(extent.length) << 1 | 1);
            put_varint(out, zigzag(extent.offset.wrapping_sub(*end) as i64));
            *end = extent.offset + u64::from(extent.length);
        }
    }
}

fn take_body(reader: &mut Reader<'_>, end: &mut u64) -> Result<Body, DecodeError> {
    let head = reader.varint()?;
    let length = u32::try_from(head >> 1).map_err(|_| DecodeError { what: WHAT })?;
    if head & 1 == 0 {
        return Ok(Body::Inline(reader.take(length as usize)?.to_vec()));
    }
    let offset = end.wrapping_add(unzigzag(reader.varint()?) as u64);
    *end = offset.wrapping_add(length.into());
    Ok(Body::At(Extent { offset, length }))
}

#[derive(Debug)]
struct PageEntry {
    hash: u64,
    labels: Range<u32>,
    chunks: Range<u32>,
}

/// A page that was read.
#[derive(Debug, Default)]
pub(crate) struct SeriesPage {
    strings: String,
    /// End of each string in `strings`.
    string_ends: Vec<u32>,
    columns: Vec<Column>,
    /// Indexes of names and values among the strings.
    labels: Vec<(u32, u32)>,
    chunks: Vec<PageChunk>,
    series: Vec<PageEntry>,
}

impl SeriesPage {
    /// Reads a page.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is not a page.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut page = Self::default();
        let mut reader = Reader::new(bytes, WHAT);
        for _ in 0..reader.varint()? {
            page.strings.push_str(reader.text()?);
            page.string_ends.push(page.strings.len() as u32);
        }
        let (mut first_ms, mut column_end) = (0_i64, 0);
        for _ in 0..reader.varint()? {
            let count = reader.varint_as()?;
            first_ms = first_ms.wrapping_add(unzigzag(reader.varint()?));
            let last_ms = first_ms.wrapping_add(reader.varint()? as i64);
            let body = take_body(&mut reader, &mut column_end)?;
            if count as usize > super::CHUNK_SAMPLES_MAX {
                return Err(reader.malformed());
            }
            page.columns.push(Column { count, first_ms, last_ms, body });
        }
        let mut chunk_end = 0;
        for _ in 0..reader.varint()? {
            page.decode_series(&mut reader, &mut chunk_end)?;
        }
        match reader.rest() {
            [] => Ok(page),
            _ => Err(reader.malformed()),
        }
    }

    fn decode_series(
        &mut self,
        reader: &mut Reader<'_>,
        chunk_end: &mut u64,
    ) -> Result<(), DecodeError> {
        let hash = reader.u64()?;
        let first_label = self.labels.len();
        for _ in 0..reader.varint()? {
            let (name, value) = (reader.varint_as()?, reader.varint_as()?);
            let is_known = self.string_ends.len() > u32::max(name, value) as usize;
            let is_sorted = || {
                let last = self.labels[first_label..].last();
                last.is_none_or(|(last, _)| self.string(*last) < self.string(name))
            };
            if !is_known || !is_sorted() {
                return Err(reader.malformed());
            }
            self.labels.push((name, value));
        }
        let first_chunk = self.chunks.len();
        for _ in 0..reader.varint()? {
            let head: u64 = reader.varint()?;
            let column = u32::try_from(head >> 1).map_err(|_| DecodeError { what: WHAT })?;
            if column as usize >= self.columns.len() {
                return Err(reader.malformed());
            }
            let kind = match head & 1 {
                0 => ChunkKind::Numbers,
                _ => ChunkKind::Histograms,
            };
            let body = take_body(reader, chunk_end)?;
            self.chunks.push(PageChunk { column, kind, body });
        }
        self.series.push(PageEntry {
            hash,
            labels: first_label as u32..self.labels.len() as u32,
            chunks: first_chunk as u32..self.chunks.len() as u32,
        });
        Ok(())
    }

    fn string(&self, index: u32) -> &str {
        let place = index as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.string_ends[before]);
        &self.strings[start as usize..self.string_ends[place] as usize]
    }

    /// Number of series in the pages.
    pub(crate) fn len(&self) -> usize {
        self.series.len()
    }

    /// The hash of a series' labels: see [`labels_hash`].
    pub(crate) fn hash(&self, index: usize) -> u64 {
        self.series[index].hash
    }

    fn label_pairs(&self, index: usize) -> impl Iterator<Item = (&str, &str)> + Clone {
        let range = &self.series[index].labels;
        let labels = &self.labels[range.start as usize..range.end as usize];
        labels.iter().map(|(name, value)| (self.string(*name), self.string(*value)))
    }

    /// Whether a series has these labels.
    pub(crate) fn has_labels(&self, index: usize, labels: &Labels) -> bool {
        self.label_pairs(index).eq(labels.iter())
    }

    /// The labels of a series.
    pub(crate) fn labels(&self, index: usize) -> Labels {
        Labels::from_sorted(self.label_pairs(index))
    }

    /// The value of a label of a series; empty when it is not there.
    pub(crate) fn label(&self, index: usize, name: &str) -> &str {
        let found = self.label_pairs(index).find(|(other, _)| *other == name);
        found.map_or("", |(_, value)| value)
    }

    /// The chunks of a series, each with its times.
    pub(crate) fn chunks(&self, index: usize) -> impl Iterator<Item = (&PageChunk, &Column)> {
        let range = &self.series[index].chunks;
        let chunks = &self.chunks[range.start as usize..range.end as usize];
        chunks.iter().map(|chunk| (chunk, &self.columns[chunk.column as usize]))
    }

    /// Memory of the page, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let inline_bytes = |body: &Body| match body {
            Body::Inline(bytes) => bytes.capacity(),
            Body::At(_) => 0,
        };
        let bodies = self
            .columns
            .iter()
            .map(|column| inline_bytes(&column.body))
            .chain(self.chunks.iter().map(|chunk| inline_bytes(&chunk.body)));
        self.strings.capacity()
            + self.string_ends.capacity() * size_of::<u32>()
            + self.columns.capacity() * size_of::<Column>()
            + self.labels.capacity() * size_of::<(u32, u32)>()
            + self.chunks.capacity() * size_of::<PageChunk>()
            + self.series.capacity() * size_of::<PageEntry>()
            + bodies.sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
