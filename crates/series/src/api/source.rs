//! The source of a query's samples: a snapshot of the heads of all shards and of the blocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_blocks::block::{Block, BlockError, SeriesName};
use egret_blocks::catalog::Snapshot;
use egret_blocks::core::page::labels_hash;
use egret_metrics_model::{LabelMatcher, Labels, SeriesSamples, TimeMs, TimeSpan};
use egret_promql::{QueryError, SampleColumns, Selection, SeriesSet, Source, Spend};
use hashbrown::HashTable;

use super::corruption::CorruptionReporter;
use crate::core::head::HeadSeries;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::metrics::{Component, Metrics};
use crate::worker::shard::ShardShared;

/// Samples in heads and blocks. Each `select` takes its own snapshot.
pub(crate) struct SampleSource<'a> {
    inner: &'a EngineInner,
    /// The shortest span that has all times of which samples were selected.
    selected_span: Mutex<Option<TimeSpan>>,
}

impl<'a> SampleSource<'a> {
    pub(super) fn new(inner: &'a EngineInner) -> Self {
        Self { inner, selected_span: Mutex::default() }
    }

    /// The times of which samples were selected, if any were.
    pub(super) fn selected_span(&self) -> Option<TimeSpan> {
        *lock(&self.selected_span)
    }
}

/// A series of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockSeries {
    /// Place of the block in the list of blocks that were selected.
    pub block: u32,
    /// Number of the series in the block.
    pub number: u32,
}

/// A series and where it has samples.
pub(crate) struct MatchedSeries {
    pub labels: Labels,
    /// More than one if the series was removed from the head and created again.
    pub heads: Vec<Arc<HeadSeries>>,
    pub blocks: Vec<BlockSeries>,
}

impl MatchedSeries {
    fn from_head(head: Arc<HeadSeries>) -> Self {
        Self { labels: head.labels.clone(), heads: vec![head], blocks: Vec::new() }
    }
}

/// The matching series. Some may have no samples in the time range.
pub(crate) struct SelectedSeries {
    pub series: Vec<MatchedSeries>,
    blocks: Vec<Block>,
    start: TimeMs,
    end: TimeMs,
    metrics: Option<Arc<Metrics>>,
    /// Reporter of corrupt blocks.
    corruption_reporter: Option<CorruptionReporter>,
    /// Time spent reading, in nanoseconds.
    read_nanos: AtomicU64,
    /// Held while reading: samples are released from heads only when no reader has an earlier list
    /// of blocks.
    _snapshot: Arc<Snapshot>,
}

fn source_error(error: impl std::fmt::Display) -> QueryError {
    QueryError::Source { message: error.to_string() }
}

impl Source for SampleSource<'_> {
    fn select(
        &self,
        selection: &Selection,
        spend: Spend<'_>,
    ) -> Result<Box<dyn SeriesSet + '_>, QueryError> {
        let began = Instant::now();
        let span = TimeSpan { start: selection.start, end: selection.end };
        let mut selected_span = lock(&self.selected_span);
        *selected_span = Some(selected_span.map_or(span, |selected| selected.union(span)));
        drop(selected_span);
        let mut selected =
            self.inner.select(&selection.matchers, span, spend).map_err(|error| match error {
                SeriesError::Query(error) => error,
                error => source_error(error),
            })?;
        selected.metrics = Some(self.inner.metrics.clone());
        self.inner.metrics.observe_duration(Component::Search, began.elapsed());
        Ok(Box::new(selected))
    }
}

impl EngineInner {
    /// The series that match, in heads and in blocks that may have samples in the time from first
    /// to last.
    ///
    /// # Errors
    /// [`SeriesError::Stopping`], [`SeriesError::Block`], and those that `spend` returns.
    pub(crate) fn select(
        &self,
        matchers: &[LabelMatcher],
        span: TimeSpan,
        spend: Spend<'_>,
    ) -> Result<SelectedSeries, SeriesError> {
        // Before the heads are looked at: what they release later is in these blocks.
        let snapshot = self.catalog()?.snapshot();
        let corruption_reporter = self.corruption_reporter()?;
        let mut selected =
            select(self.shards()?, snapshot, matchers, span, spend).inspect_err(|error| {
                if let SeriesError::Block(error) = error {
                    corruption_reporter.report(error);
                }
            })?;
        selected.corruption_reporter = Some(corruption_reporter);
        Ok(selected)
    }
}

/// The series that match in the heads of shards and in blocks.
///
/// # Errors
/// Those of blocks, and those that `spend` returns.
pub(crate) fn select(
    shards: &[Arc<ShardShared>],
    snapshot: Arc<Snapshot>,
    matchers: &[LabelMatcher],
    span: TimeSpan,
    spend: Spend<'_>,
) -> Result<SelectedSeries, SeriesError> {
    let mut heads = Vec::new();
    for shard in shards {
        let heads_before = heads.len();
        shard.index.view().select(matchers, &mut heads);
        spend((heads.len() - heads_before) as u64 * HEAD_BYTES)?;
    }
    let blocks: Vec<Block> = snapshot.blocks_overlapping(span.start, span.end).cloned().collect();
    let mut by_labels = ByLabels::default();
    by_labels.series.reserve(heads.len());
    let has_duplicate_series =
        |shard: &Arc<ShardShared>| shard.has_duplicate_series.load(Ordering::Relaxed);
    let needs_lookup = !blocks.is_empty() || shards.iter().any(has_duplicate_series);
    for (index, head) in heads.into_iter().enumerate() {
        if index.is_multiple_of(SERIES_PER_CHECK) {
            spend(0)?;
        }
        if needs_lookup {
            by_labels.add_head(head)
        } else {
            by_labels.series.push(MatchedSeries::from_head(head))
        }
    }
    for (block_index, block) in blocks.iter().enumerate() {
        let matching = block.select(matchers)?;
        for piece in matching.chunks(SERIES_PER_CHECK) {
            block.for_each_name(piece.iter().copied(), |number, name| {
                let block = block_index as u32;
                by_labels.add_block_series(BlockSeries { block, number }, name);
            })?;
            spend(std::mem::take(&mut by_labels.added_bytes))?;
        }
    }
    Ok(SelectedSeries {
        series: by_labels.series,
        blocks,
        start: span.start,
        end: span.end,
        metrics: None,
        corruption_reporter: None,
        read_nanos: AtomicU64::new(0),
        _snapshot: snapshot,
    })
}

/// Number of series between two checks of the query's limits.
const SERIES_PER_CHECK: usize = 4_096;

/// What a series takes, beside its labels, and what one of a head takes: about.
const SERIES_BYTES: u64 = (size_of::<MatchedSeries>() + size_of::<(u64, u32)>() + 16) as u64;
const HEAD_BYTES: u64 = SERIES_BYTES + size_of::<Arc<HeadSeries>>() as u64;

/// Series by their labels, while they are gathered.
#[derive(Default)]
struct ByLabels {
    series: Vec<MatchedSeries>,
    /// What those of blocks take that were added since it was last told.
    added_bytes: u64,
    /// Hash, and index in `series`.
    table: HashTable<(u64, u32)>,
}

impl ByLabels {
    fn add_head(&mut self, head: Arc<HeadSeries>) {
        let labels = &head.labels;
        let hash = labels_hash(labels);
        let series = &self.series;
        let is_same = |(other, index): &(u64, u32)| {
            *other == hash && series[*index as usize].labels == *labels
        };
        if let Some((_, at)) = self.table.find(hash, is_same) {
            self.series[*at as usize].heads.push(head);
            return;
        }
        let at = self.series.len() as u32;
        self.table.insert_unique(hash, (hash, at), |(hash, _)| *hash);
        self.series.push(MatchedSeries::from_head(head));
    }

    fn add_block_series(&mut self, block_series: BlockSeries, name: SeriesName<'_>) {
        let hash = name.hash();
        let series = &self.series;
        let is_same = |(other, index): &(u64, u32)| {
            *other == hash && name.has_labels(&series[*index as usize].labels)
        };
        if let Some((_, at)) = self.table.find(hash, is_same) {
            self.series[*at as usize].blocks.push(block_series);
            return;
        }
        let at = self.series.len() as u32;
        self.table.insert_unique(hash, (hash, at), |(hash, _)| *hash);
        let labels = name.labels();
        self.added_bytes += SERIES_BYTES + labels.as_key().len() as u64;
        self.series.push(MatchedSeries { labels, heads: Vec::new(), blocks: vec![block_series] });
    }
}

impl SelectedSeries {
    /// Replaces `into` with the samples of a series from first to last time.
    ///
    /// # Errors
    /// Those of blocks.
    pub(crate) fn samples(&self, index: usize, into: &mut SeriesSamples) -> Result<(), BlockError> {
        let result = self.read_samples(index, into);
        match &self.corruption_reporter {
            Some(damage) => damage.check_read(result),
            None => result,
        }
    }

    fn read_samples(&self, index: usize, into: &mut SeriesSamples) -> Result<(), BlockError> {
        into.clear();
        let matched = &self.series[index];
        for block_series in &matched.blocks {
            let block = &self.blocks[block_series.block as usize];
            block.read(block_series.number, self.start, self.end, into)?;
        }
        if matched.blocks.len() > 1 {
            self.sort_samples(matched, into)?;
        }
        for head in &matched.heads {
            head.read(self.start, self.end, into);
        }
        Ok(())
    }

    /// Whether a series may have native histograms from first to last time.
    ///
    /// # Errors
    /// Those of blocks.
    pub(crate) fn has_histograms(&self, index: usize) -> Result<bool, BlockError> {
        let matched = &self.series[index];
        for block_series in &matched.blocks {
            let block = &self.blocks[block_series.block as usize];
            if block.has_histograms(block_series.number, self.start, self.end)? {
                return Ok(true);
            }
        }
        let mut matched_heads = matched.heads.iter();
        Ok(matched_heads.any(|head| head.snapshot().has_histograms(self.start, self.end)))
    }

    /// Brings samples of several blocks into order, where the blocks were not: of two at one time
    /// that of the block that was made later counts.
    fn sort_samples(
        &self,
        matched: &MatchedSeries,
        into: &mut SeriesSamples,
    ) -> Result<(), BlockError> {
        let is_ascending = |times_ms: &[TimeMs]| times_ms.is_sorted_by(|left, right| left < right);
        if is_ascending(&into.times_ms) && is_ascending(&into.histogram_times_ms) {
            return Ok(());
        }
        into.clear();
        let mut blocks = matched.blocks.clone();
        blocks.sort_by_key(|block_series| self.blocks[block_series.block as usize].id());
        for place in blocks {
            let block = &self.blocks[place.block as usize];
            block.read(place.number, self.start, self.end, into)?;
        }
        into.sort_numbers();
        into.sort_histograms();
        Ok(())
    }
}

impl Drop for SelectedSeries {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            let read_time = Duration::from_nanos(*self.read_nanos.get_mut());
            metrics.observe_duration(Component::Read, read_time);
        }
    }
}

impl SeriesSet for SelectedSeries {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, index: usize) -> &Labels {
        &self.series[index].labels
    }

    fn read(&self, index: usize, into: &mut SampleColumns) -> Result<(), QueryError> {
        let began = Instant::now();
        into.clear();
        let mut samples = SeriesSamples {
            times_ms: std::mem::take(&mut into.times),
            values: std::mem::take(&mut into.values),
            ..SeriesSamples::default()
        };
        let result = self.samples(index, &mut samples);
        (into.times, into.values) = (samples.times_ms, samples.values);
        result.map_err(source_error)?;
        for (time_ms, histogram) in samples.histogram_times_ms.iter().zip(&samples.histograms) {
            into.push_histogram(*time_ms, Arc::new(histogram.as_ref().into()));
        }
        let elapsed_nanos = began.elapsed().as_nanos() as u64;
        self.read_nanos.fetch_add(elapsed_nanos, Ordering::Relaxed);
        Ok(())
    }
}
