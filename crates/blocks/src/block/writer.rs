//! Writing a block: series in the order of their labels, one after another, in bounded memory.

mod columns;
mod output;
mod terms;

use egret_log::Disk;
use egret_metrics_model::{Labels, SeriesSamples, TimeMs};

use self::columns::TimeColumns;
use self::output::Output;
use self::terms::LabelValues;
use super::error::BlockError;
use crate::core::cut::chunk_ranges;
use crate::core::layout::{FORMAT_VERSION, Footer, Header, PageDirectory};
use crate::core::page::{BODY_INLINE_MAX, Body, ChunkKind, Column, PageBuilder, PageChunk};
use crate::core::{BlockId, BlockMeta, Effort, histograms, ints, names, values};

/// Options of a writer of blocks.
#[derive(Clone, Debug, Default)]
pub struct WriterOptions {
    /// Work done to make the block small.
    pub effort: Effort,
    /// Merge level of the block: see [`BlockMeta::level`].
    pub level: u32,
    /// Blocks that it is made of: see [`BlockMeta::sources`].
    pub sources: Vec<BlockId>,
    /// Rules applied to all of it: see [`BlockMeta::rules`].
    pub rules: Vec<Box<str>>,
}

/// Writes a block to a file that has another name until a catalog takes it in. Dropped before, it
/// removes the file.
pub struct BlockWriter<D: Disk> {
    output: Output<D>,
    effort: Effort,
    meta: BlockMeta,
    columns: TimeColumns,
    page: PageBuilder,
    pages: PageDirectory,
    labels: LabelValues,
    last_labels: Option<Labels>,
    scratch: Vec<u8>,
}

/// A block that is durable, but not yet in a catalog. Dropped, it removes its file.
pub struct NewBlock<D: Disk> {
    pub(crate) output: Output<D>,
    /// Metadata of the block.
    pub meta: BlockMeta,
}

impl<D: Disk> NewBlock<D> {
    /// Size of the file, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.output.position()
    }
}

impl<D: Disk> BlockWriter<D> {
    /// Begins a block in the directory of its catalog, which gave the id.
    ///
    /// # Errors
    /// [`BlockError::Full`] or [`BlockError::Io`].
    pub fn create(disk: &D, id: BlockId, options: WriterOptions) -> Result<Self, BlockError> {
        let mut output = Output::create(disk, id)?;
        output.put(&Header { version: FORMAT_VERSION, id }.encode())?;
        let meta = BlockMeta {
            id,
            min_ms: TimeMs::MAX,
            max_ms: TimeMs::MIN,
            level: options.level,
            sources: options.sources,
            rules: options.rules,
            ..BlockMeta::default()
        };
        Ok(Self {
            output,
            effort: options.effort,
            meta,
            columns: TimeColumns::default(),
            page: PageBuilder::default(),
            pages: PageDirectory::default(),
            labels: LabelValues::default(),
            last_labels: None,
            scratch: Vec::new(),
        })
    }

    /// Adds a series with its samples; one that has none is left out.
    ///
    /// # Errors
    /// [`BlockError::Full`] or [`BlockError::Io`]: the block cannot be continued.
    ///
    /// # Panics
    /// When the labels are not above those of the series before, or the times do not ascend.
    pub fn push(&mut self, labels: &Labels, samples: &SeriesSamples) -> Result<(), BlockError> {
        assert!(
            self.last_labels.as_ref() < Some(labels),
            "series come in the order of their labels, each once"
        );
        let mut chunks = Vec::new();
        for times_ms in [&samples.times_ms, &samples.histogram_times_ms] {
            assert!(times_ms.is_sorted_by(|one, other| one < other), "times ascend");
        }
        for range in chunk_ranges(&samples.times_ms) {
            let column = self.add_column(&samples.times_ms[range.clone()])?;
            self.scratch.clear();
            values::encode(&samples.values[range], self.effort, &mut self.scratch);
            let body = self.write_body()?;
            chunks.push(PageChunk { column, kind: ChunkKind::Numbers, body });
        }
        for range in chunk_ranges(&samples.histogram_times_ms) {
            let column = self.add_column(&samples.histogram_times_ms[range.clone()])?;
            self.scratch.clear();
            histograms::encode(&samples.histograms[range], &mut self.scratch);
            let body = self.write_body()?;
            chunks.push(PageChunk { column, kind: ChunkKind::Histograms, body });
        }
        if chunks.is_empty() {
            return Ok(());
        }
        self.last_labels = Some(labels.clone());
        self.labels.push(self.meta.series as u32, labels);
        self.page.push(labels, &chunks);
        self.meta.series += 1;
        self.meta.samples += samples.times_ms.len() as u64;
        self.meta.histograms += samples.histogram_times_ms.len() as u64;
        if self.page.is_full() {
            self.close_page()?;
        }
        Ok(())
    }

    /// Number of series written so far.
    pub fn series(&self) -> u64 {
        self.meta.series
    }

    /// Size so far in bytes, without the index of labels.
    pub fn size_bytes(&self) -> u64 {
        self.output.position()
    }

    /// Adds a column of times to the page, unless it is there. Returns its index.
    fn add_column(&mut self, times_ms: &[TimeMs]) -> Result<u32, BlockError> {
        let (first_ms, last_ms) = (times_ms[0], times_ms[times_ms.len() - 1]);
        self.meta.min_ms = self.meta.min_ms.min(first_ms);
        self.meta.max_ms = self.meta.max_ms.max(last_ms);
        let key = self.columns.hash_times(times_ms);
        if let Some(column) = self.columns.find_times(key) {
            return Ok(self.page.add_column(column));
        }
        self.scratch.clear();
        ints::encode(times_ms, self.effort, &mut self.scratch);
        let body = self.write_body()?;
        let column = Column { count: times_ms.len() as u32, first_ms, last_ms, body };
        let index = self.page.add_column(&column);
        self.columns.insert_times(key, column);
        Ok(index)
    }

    /// Stores the bytes in `scratch`: inline, or once in the file, however many chunks have them.
    fn write_body(&mut self) -> Result<Body, BlockError> {
        if self.scratch.len() <= BODY_INLINE_MAX {
            return Ok(Body::Inline(self.scratch.clone()));
        }
        let key = self.columns.hash_body(&self.scratch);
        if let Some(extent) = self.columns.find_body(key) {
            return Ok(Body::At(extent));
        }
        let extent = self.output.put_checked(&self.scratch)?;
        self.columns.insert_body(key, extent);
        Ok(Body::At(extent))
    }

    fn close_page(&mut self) -> Result<(), BlockError> {
        let series = self.page.len();
        let page = self.page.take_page();
        let extent = self.output.put_frame(&page)?;
        self.pages.push(extent, series);
        Ok(())
    }

    /// Writes the rest. The returned block is durable.
    ///
    /// # Errors
    /// [`BlockError::Full`] or [`BlockError::Io`].
    pub fn finish(mut self) -> Result<NewBlock<D>, BlockError> {
        if !self.page.is_empty() {
            self.close_page()?;
        }
        if self.meta.series == 0 {
            (self.meta.min_ms, self.meta.max_ms) = (0, 0);
        }
        let label_names = self.labels.finish(&mut self.output)?;
        let names = self.output.put_frame(&names::encode(&label_names))?;
        let pages = self.output.put_frame(&self.pages.encode())?;
        let meta = self.output.put_frame(&self.meta.encode())?;
        let size_bytes = self.output.position() + Footer::BYTES as u64;
        let footer = Footer { names, pages, meta, size_bytes };
        self.output.put(&footer.encode())?;
        self.output.finish()?;
        Ok(NewBlock { output: self.output, meta: self.meta })
    }
}
