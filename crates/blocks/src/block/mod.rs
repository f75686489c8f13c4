//! Blocks: their files, written and read.

mod cache;
mod error;
mod figures;
mod file;
mod select;
mod writer;

use std::ops::Range;
use std::sync::Arc;

use egret_base::codec::{DecodeError, Reader};
use egret_log::Disk;
use egret_metrics_model::{Labels, SeriesSamples, TimeMs};

pub use self::cache::BlockCache;
use self::cache::{CacheItem, CacheKey};
pub(crate) use self::error::io;
pub use self::error::{BlockError, DamageExtent};
pub use self::figures::SeriesFigures;
use self::file::BlockFile;
pub use self::writer::{BlockWriter, NewBlock, WriterOptions};
use crate::core::layout::PageDirectory;
use crate::core::names::{self, Name};
use crate::core::page::{Body, ChunkKind, Column, PageChunk, SeriesPage};
use crate::core::tombstones::Tombstones;
use crate::core::{BlockId, BlockMeta, histograms, ints, values};

/// A block that can be read, by any number of threads. A clone is the same block. Its file stays
/// readable when the catalog has removed it, until the last clone is gone.
#[derive(Clone, Debug)]
pub struct Block {
    inner: Arc<BlockInner>,
    tombstones: Arc<Tombstones>,
}

/// Immutable part of a block.
#[derive(Debug)]
struct BlockInner {
    file: BlockFile,
    meta: BlockMeta,
    cache: Arc<BlockCache>,
}

/// Number of values and series of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFigures {
    /// Name of the label.
    pub name: Box<str>,
    /// Number of values of the label.
    pub values: u64,
    /// Number of series with the label.
    pub series: u32,
}

/// Labels of a series of a block.
#[derive(Clone, Copy, Debug)]
pub struct SeriesName<'page> {
    page: &'page SeriesPage,
    index: usize,
}

impl SeriesName<'_> {
    /// A hash of the labels: the same in every block. That of other labels can be the same.
    pub fn hash(&self) -> u64 {
        self.page.hash(self.index)
    }

    /// Whether these are the labels.
    pub fn has_labels(&self, labels: &Labels) -> bool {
        self.page.has_labels(self.index, labels)
    }

    /// Labels of the series.
    pub fn labels(&self) -> Labels {
        self.page.labels(self.index)
    }

    /// The value of a label; empty when it is not there.
    pub fn label(&self, name: &str) -> &str {
        self.page.label(self.index, name)
    }
}

impl Block {
    /// Opens a block's file: its header, footer and meta are read and checked, its index when it is
    /// needed, its samples whenever they are read.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`], [`BlockError::UnknownVersion`], [`BlockError::Io`].
    pub fn open<D: Disk>(
        disk: &D,
        id: BlockId,
        name: &str,
        cache: &Arc<BlockCache>,
    ) -> Result<Self, BlockError> {
        let (file, meta) = BlockFile::open(disk, name, id)?;
        let inner = BlockInner { file, meta, cache: cache.clone() };
        Ok(Self { inner: Arc::new(inner), tombstones: Arc::default() })
    }

    /// The same block with these tombstones and no others.
    pub(crate) fn with_tombstones(&self, tombstones: Tombstones) -> Self {
        Self { inner: self.inner.clone(), tombstones: Arc::new(tombstones) }
    }

    /// Id of the block.
    pub fn id(&self) -> BlockId {
        self.inner.meta.id
    }

    /// Metadata of the block.
    pub fn meta(&self) -> &BlockMeta {
        &self.inner.meta
    }

    /// Size of the file, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.inner.file.footer.size_bytes
    }

    /// Samples that were deleted but are still in its file.
    pub fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// Number of series. They are numbered from 0 in the order of their labels.
    pub fn series(&self) -> u32 {
        self.inner.meta.series as u32
    }

    /// The labels of a series.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    ///
    /// # Panics
    /// When there is no such series.
    pub fn labels(&self, series: u32) -> Result<Labels, BlockError> {
        let (page, index) = self.inner.find_page(series)?;
        Ok(page.labels(index))
    }

    /// Calls `visit` with the labels of some series, given by ascending numbers.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    ///
    /// # Panics
    /// When there is no such series.
    pub fn for_each_name(
        &self,
        series: impl IntoIterator<Item = u32>,
        mut visit: impl FnMut(u32, SeriesName<'_>),
    ) -> Result<(), BlockError> {
        let mut last: Option<(Arc<SeriesPage>, Range<u32>)> = None;
        for series in series {
            let is_in = |(_, range): &(Arc<SeriesPage>, Range<u32>)| range.contains(&series);
            let (page, range) = match last.take_if(|last| is_in(last)) {
                Some(same) => same,
                None => self.inner.read_page(series)?,
            };
            let index = (series - range.start) as usize;
            visit(series, SeriesName { page: &page, index });
            last = Some((page, range));
        }
        Ok(())
    }

    /// Appends the samples of a series from `start_ms` to `end_ms`, both included.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`]: nothing is appended.
    ///
    /// # Panics
    /// When there is no such series.
    pub fn read(
        &self,
        series: u32,
        start_ms: TimeMs,
        end_ms: TimeMs,
        samples: &mut SeriesSamples,
    ) -> Result<(), BlockError> {
        let (page, index) = self.inner.find_page(series)?;
        let (number_count, histogram_count) =
            (samples.times_ms.len(), samples.histogram_times_ms.len());
        for (chunk, column) in page.chunks(index) {
            if column.last_ms < start_ms || column.first_ms > end_ms {
                continue;
            }
            // Deleted chunks are not read: if they were damaged, the rest is readable again.
            if self.tombstones.covers(series, column.first_ms, column.last_ms) {
                continue;
            }
            if let Err(error) = self.inner.read_chunk(chunk, column, start_ms, end_ms, samples) {
                samples.times_ms.truncate(number_count);
                samples.values.truncate(number_count);
                samples.histogram_times_ms.truncate(histogram_count);
                samples.histograms.truncate(histogram_count);
                return Err(error);
            }
        }
        self.tombstones.remove_deleted_samples(series, number_count, histogram_count, samples);
        Ok(())
    }

    /// Whether a series may have native histograms from `start_ms` to `end_ms`, both included. No
    /// samples are read.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    ///
    /// # Panics
    /// When there is no such series.
    pub fn has_histograms(
        &self,
        series: u32,
        start_ms: TimeMs,
        end_ms: TimeMs,
    ) -> Result<bool, BlockError> {
        if self.inner.meta.histograms == 0 {
            return Ok(false);
        }
        let (page, index) = self.inner.find_page(series)?;
        let mut chunks = page.chunks(index);
        Ok(chunks.any(|(chunk, column)| {
            let is_within = column.last_ms >= start_ms && column.first_ms <= end_ms;
            is_within && chunk.kind == ChunkKind::Histograms
        }))
    }

    /// The error of a block whose series are not in the order of their labels.
    pub(crate) fn order_error(&self, series: u32) -> BlockError {
        let what = "the order of series";
        self.inner.file.malformed(u64::from(series), DecodeError { what })
    }

    /// The labels that occur, sorted by name, and how much each is used.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn label_figures(&self) -> Result<Vec<LabelFigures>, BlockError> {
        let figures = |name: &Name| LabelFigures {
            name: name.name.clone(),
            values: name.values,
            series: name.series,
        };
        Ok(self.inner.read_names()?.iter().map(figures).collect())
    }
}

impl BlockInner {
    fn cache_key(&self, item: CacheItem) -> CacheKey {
        CacheKey { file: self.file.number, item }
    }

    /// The page of a series, and its index in the page.
    fn find_page(&self, series: u32) -> Result<(Arc<SeriesPage>, usize), BlockError> {
        let (page, range) = self.read_page(series)?;
        Ok((page, (series - range.start) as usize))
    }

    /// The page of a series, and the range of series in the page.
    fn read_page(&self, series: u32) -> Result<(Arc<SeriesPage>, Range<u32>), BlockError> {
        assert!(u64::from(series) < self.meta.series, "series {series} of block {}", self.meta.id);
        let (number, extent, range) = self.read_page_directory()?.find(series);
        let page =
            self.cache.get_or_load(self.cache_key(CacheItem::Page(number as u32)), || {
                let what = "a page of series";
                let page = self.file.read_frame(extent, what, SeriesPage::decode)?;
                if page.len() != range.len() {
                    return Err(self.file.malformed(extent.offset, DecodeError { what }));
                }
                let size_bytes = page.size_bytes();
                Ok((page, size_bytes))
            })?;
        Ok((page, range))
    }

    fn read_page_directory(&self) -> Result<Arc<PageDirectory>, BlockError> {
        self.cache.get_or_load(self.cache_key(CacheItem::PageDirectory), || {
            let what = "the page directory of a block";
            let decode = |bytes: &[u8]| PageDirectory::decode(bytes, self.meta.series as u32);
            let directory = self.file.read_frame(self.file.footer.pages, what, decode)?;
            let size_bytes = directory.size_bytes();
            Ok((directory, size_bytes))
        })
    }

    /// The names of labels, sorted.
    fn read_names(&self) -> Result<Arc<Vec<Name>>, BlockError> {
        self.cache.get_or_load(self.cache_key(CacheItem::Names), || {
            let names = self.file.read_frame(
                self.file.footer.names,
                "the names of labels",
                names::decode,
            )?;
            let size_bytes = names.iter().map(|name| size_of::<Name>() + name.name.len()).sum();
            Ok((names, size_bytes))
        })
    }

    fn read_chunk(
        &self,
        chunk: &PageChunk,
        column: &Column,
        start_ms: TimeMs,
        end_ms: TimeMs,
        samples: &mut SeriesSamples,
    ) -> Result<(), BlockError> {
        let times_ms = self.read_times(column)?;
        let start = times_ms.partition_point(|time_ms| *time_ms < start_ms);
        let end = times_ms.partition_point(|time_ms| *time_ms <= end_ms).max(start);
        let count = times_ms.len();
        match chunk.kind {
            ChunkKind::Numbers => {
                samples.times_ms.extend_from_slice(&times_ms[start..end]);
                let first = samples.values.len();
                self.read_body(&chunk.body, |bytes| {
                    values::decode(bytes, count, &mut samples.values)
                })?;
                samples.values.truncate(first + end);
                samples.values.drain(first..first + start);
            }
            ChunkKind::Histograms => {
                samples.histogram_times_ms.extend_from_slice(&times_ms[start..end]);
                let first = samples.histograms.len();
                self.read_body(&chunk.body, |bytes| {
                    histograms::decode(bytes, count, &mut samples.histograms)
                })?;
                samples.histograms.truncate(first + end);
                samples.histograms.drain(first..first + start);
            }
        }
        Ok(())
    }

    /// The times of a chunk. Columns that other chunks may share are cached.
    fn read_times(&self, column: &Column) -> Result<Arc<Vec<TimeMs>>, BlockError> {
        let decode = |bytes: &[u8]| {
            let mut times_ms = Vec::new();
            ints::decode(
                &mut Reader::new(bytes, "a column of times"),
                column.count as usize,
                &mut times_ms,
            )?;
            let is_valid = times_ms.is_sorted_by(|one, other| one < other)
                && times_ms.first() == Some(&column.first_ms)
                && times_ms.last() == Some(&column.last_ms);
            if is_valid { Ok(times_ms) } else { Err(DecodeError { what: "a column of times" }) }
        };
        match &column.body {
            Body::Inline(_) => Ok(Arc::new(self.read_body(&column.body, decode)?)),
            Body::At(extent) => {
                self.cache.get_or_load(self.cache_key(CacheItem::Column(extent.offset)), || {
                    let times_ms = self.read_body(&column.body, decode)?;
                    let size_bytes = size_of_val(&*times_ms);
                    Ok((times_ms, size_bytes))
                })
            }
        }
    }

    fn read_body<T>(
        &self,
        body: &Body,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, BlockError> {
        match body {
            Body::Inline(bytes) => {
                let error = |error: DecodeError| {
                    self.file.corrupt_error(0, error.what, DamageExtent::Samples)
                };
                decode(bytes).map_err(error)
            }
            Body::At(extent) => self.file.read_checked(*extent, DamageExtent::Samples, decode),
        }
    }
}
