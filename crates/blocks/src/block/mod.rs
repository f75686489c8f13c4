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
    sealed: Arc<BlockInner>,
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
    place: usize,
}

impl SeriesName<'_> {
    /// A hash of the labels: the same in every block. That of other labels can be the same.
    pub fn hash(&self) -> u64 {
        self.page.hash(self.place)
    }

    /// Whether these are the labels.
    pub fn is(&self, labels: &Labels) -> bool {
        self.page.has_labels(self.place, labels)
    }

    /// Labels of the series.
    pub fn labels(&self) -> Labels {
        self.page.labels(self.place)
    }

    /// The value of a label; empty when it is not there.
    pub fn label(&self, name: &str) -> &str {
        self.page.label(self.place, name)
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
        let sealed = BlockInner {
            file,
            meta,
            cache: cache.clone(),
        };
        Ok(Self {
            sealed: Arc::new(sealed),
            tombstones: Arc::default(),
        })
    }

    /// The same block with these tombstones and no others.
    pub(crate) fn with_tombstones(&self, tombstones: Tombstones) -> Self {
        Self {
            sealed: self.sealed.clone(),
            tombstones: Arc::new(tombstones),
        }
    }

    /// Id of the block.
    pub fn id(&self) -> BlockId {
        self.sealed.meta.id
    }

    /// Metadata of the block.
    pub fn meta(&self) -> &BlockMeta {
        &self.sealed.meta
    }

    /// Size of the file, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.sealed.file.footer.size_bytes
    }

    /// Samples that were deleted but are still in its file.
    pub fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// Number of series. They are numbered from 0 in the order of their labels.
    pub fn series(&self) -> u32 {
        self.sealed.meta.series as u32
    }

    /// The labels of a series.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    ///
    /// # Panics
    /// When there is no such series.
    pub fn labels(&self, series: u32) -> Result<Labels, BlockError> {
        let (page, place) = self.sealed.page(series)?;
        Ok(page.labels(place))
    }

    /// Calls `visit` with the labels of some series, given by ascending numbers.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    ///
    /// # Panics
    /// When there is no such series.
    pub fn names(
        &self,
        series: impl IntoIterator<Item = u32>,
        mut tell: impl FnMut(u32, SeriesName<'_>),
    ) -> Result<(), BlockError> {
        let mut last: Option<(Arc<SeriesPage>, Range<u32>)> = None;
        for series in series {
            let is_in = |(_, range): &(Arc<SeriesPage>, Range<u32>)| range.contains(&series);
            let (page, range) = match last.take_if(|last| is_in(last)) {
                Some(same) => same,
                None => self.sealed.page_of(series)?,
            };
            let place = (series - range.start) as usize;
            tell(series, SeriesName { page: &page, place });
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
        into: &mut SeriesSamples,
    ) -> Result<(), BlockError> {
        let (page, place) = self.sealed.page(series)?;
        let (numbers, histograms) = (into.times_ms.len(), into.histogram_times_ms.len());
        for (chunk, column) in page.chunks(place) {
            if column.last_ms < start_ms || column.first_ms > end_ms {
                continue;
            }
            // Deleted chunks are not read: if they were damaged, the rest is readable again.
            if self
                .tombstones
                .cover(series, column.first_ms, column.last_ms)
            {
                continue;
            }
            if let Err(error) = self
                .sealed
                .read_chunk(chunk, column, start_ms, end_ms, into)
            {
                into.times_ms.truncate(numbers);
                into.values.truncate(numbers);
                into.histogram_times_ms.truncate(histograms);
                into.histograms.truncate(histograms);
                return Err(error);
            }
        }
        self.tombstones.apply(series, numbers, histograms, into);
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
        if self.sealed.meta.histograms == 0 {
            return Ok(false);
        }
        let (page, place) = self.sealed.page(series)?;
        let mut chunks = page.chunks(place);
        Ok(chunks.any(|(chunk, column)| {
            let is_within = column.last_ms >= start_ms && column.first_ms <= end_ms;
            is_within && chunk.kind == ChunkKind::Histograms
        }))
    }

    /// The error of a block whose series are not in the order of their labels.
    pub(crate) fn out_of_order(&self, series: u32) -> BlockError {
        let what = "the order of series";
        self.sealed
            .file
            .malformed(u64::from(series), DecodeError { what })
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
        Ok(self.sealed.names()?.iter().map(figures).collect())
    }
}

impl BlockInner {
    fn key(&self, item: CacheItem) -> CacheKey {
        CacheKey {
            file: self.file.number,
            item,
        }
    }

    /// The page of a series, and its index in the page.
    fn page(&self, series: u32) -> Result<(Arc<SeriesPage>, usize), BlockError> {
        let (page, range) = self.page_of(series)?;
        Ok((page, (series - range.start) as usize))
    }

    /// The page of a series, and the range of series in the page.
    fn page_of(&self, series: u32) -> Result<(Arc<SeriesPage>, Range<u32>), BlockError> {
        assert!(
            u64::from(series) < self.meta.series,
            "series {series} of block {}",
            self.meta.id
        );
        let (number, extent, range) = self.page_directory()?.find(series);
        let page = self
            .cache
            .get(self.key(CacheItem::Page(number as u32)), || {
                let what = "a page of series";
                let page = self.file.frame(extent, what, SeriesPage::decode)?;
                if page.len() != range.len() {
                    return Err(self.file.malformed(extent.offset, DecodeError { what }));
                }
                let size_bytes = page.size_bytes();
                Ok((page, size_bytes))
            })?;
        Ok((page, range))
    }

    fn page_directory(&self) -> Result<Arc<PageDirectory>, BlockError> {
        self.cache.get(self.key(CacheItem::PageDirectory), || {
            let what = "the page directory of a block";
            let decode = |bytes: &[u8]| PageDirectory::decode(bytes, self.meta.series as u32);
            let directory = self.file.frame(self.file.footer.pages, what, decode)?;
            let size_bytes = directory.size_bytes();
            Ok((directory, size_bytes))
        })
    }

    /// The names of labels, sorted.
    fn names(&self) -> Result<Arc<Vec<Name>>, BlockError> {
        self.cache.get(self.key(CacheItem::Names), || {
            let names =
                self.file
                    .frame(self.file.footer.names, "the names of labels", names::decode)?;
            let size_bytes = names
                .iter()
                .map(|name| size_of::<Name>() + name.name.len())
                .sum();
            Ok((names, size_bytes))
        })
    }

    fn read_chunk(
        &self,
        chunk: &PageChunk,
        column: &Column,
        start_ms: TimeMs,
        end_ms: TimeMs,
        into: &mut SeriesSamples,
    ) -> Result<(), BlockError> {
        let times_ms = self.times(column)?;
        let from = times_ms.partition_point(|time_ms| *time_ms < start_ms);
        let to = times_ms
            .partition_point(|time_ms| *time_ms <= end_ms)
            .max(from);
        let count = times_ms.len();
        match chunk.kind {
            ChunkKind::Numbers => {
                into.times_ms.extend_from_slice(&times_ms[from..to]);
                let first = into.values.len();
                self.body(&chunk.body, |bytes| {
                    values::decode(bytes, count, &mut into.values)
                })?;
                into.values.truncate(first + to);
                into.values.drain(first..first + from);
            }
            ChunkKind::Histograms => {
                into.histogram_times_ms
                    .extend_from_slice(&times_ms[from..to]);
                let first = into.histograms.len();
                self.body(&chunk.body, |bytes| {
                    histograms::decode(bytes, count, &mut into.histograms)
                })?;
                into.histograms.truncate(first + to);
                into.histograms.drain(first..first + from);
            }
        }
        Ok(())
    }

    /// The times of a chunk. Columns that other chunks may share are cached.
    fn times(&self, column: &Column) -> Result<Arc<Vec<TimeMs>>, BlockError> {
        let decode = |bytes: &[u8]| {
            let mut times_ms = Vec::new();
            ints::decode(
                &mut Reader::new(bytes, "a column of times"),
                column.count as usize,
                &mut times_ms,
            )?;
            let is_right = times_ms.is_sorted_by(|one, other| one < other)
                && times_ms.first() == Some(&column.first_ms)
                && times_ms.last() == Some(&column.last_ms);
            if is_right {
                Ok(times_ms)
            } else {
                Err(DecodeError {
                    what: "a column of times",
                })
            }
        };
        match &column.body {
            Body::Inline(_) => Ok(Arc::new(self.body(&column.body, decode)?)),
            Body::At(extent) => self
                .cache
                .get(self.key(CacheItem::Column(extent.offset)), || {
                    let times_ms = self.body(&column.body, decode)?;
                    let size_bytes = size_of_val(&*times_ms);
                    Ok((times_ms, size_bytes))
                }),
        }
    }

    fn body<T>(
        &self,
        body: &Body,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, BlockError> {
        match body {
            Body::Inline(bytes) => {
                let error =
                    |error: DecodeError| self.file.damaged(0, error.what, DamageExtent::Samples);
                decode(bytes).map_err(error)
            }
            Body::At(extent) => self.file.checked(*extent, DamageExtent::Samples, decode),
        }
    }
}
