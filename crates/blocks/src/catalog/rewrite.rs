//! Carries out planned jobs: merges blocks into new ones without expired and deleted samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{ControlFlow, Range};

use egret_log::Disk;
use egret_metrics_model::{Labels, SeriesSamples, TimeMs};
use roaring::RoaringBitmap;

use super::Catalog;
use crate::block::{Block, BlockError, BlockWriter, NewBlock, WriterOptions};
use crate::core::merge::{keep_last_of_intervals, merge_newer};
use crate::core::plan::{BlockReplacement, CompactionJob, Facts, Policy};
use crate::core::{BlockId, Effort};

/// Size of a sample before compression: its time and its value.
const SAMPLE_BYTES: u64 = 16;

/// Blocks that a job writes, at most: the last one takes the rest.
const RESULTS_MAX: u64 = 1_024;

/// Limits on the size of written blocks, and on the work between two calls of `on_progress`.
#[derive(Clone, Copy, Debug)]
pub struct BlockLimits {
    /// A block is closed when its samples take so many bytes.
    pub block_bytes_max: u64,
    /// A block is closed when it has so many series.
    pub block_series_max: u64,
    /// Bytes of samples, before compression, after which `on_progress` is called.
    pub step_bytes: u64,
}

impl Default for BlockLimits {
    fn default() -> Self {
        Self { block_bytes_max: 16 << 30, block_series_max: 4 << 20, step_bytes: 4 << 20 }
    }
}

/// Changes to the series of a source block.
struct Edits {
    /// Series that are dropped.
    dropped: RoaringBitmap,
    /// Series reduced to the last sample of each interval, with its length in milliseconds.
    downsampled: Vec<(RoaringBitmap, i64)>,
}

impl<D: Disk> Catalog<D> {
    /// Collects the facts about blocks that planning needs. A block whose index is
    /// found to be damaged is quarantined.
    ///
    /// # Errors
    /// [`BlockError::Io`], or like [`Catalog::record_read_error`].
    pub fn collect_facts(&self, policy: &Policy) -> Result<Vec<Facts>, BlockError> {
        let mut all_facts = Vec::new();
        for block in self.snapshot().blocks() {
            match block_facts(block, policy) {
                Ok(facts) => all_facts.push(facts),
                Err(error @ BlockError::Corrupt { .. }) => self.record_read_error(&error)?,
                Err(error) => return Err(error),
            }
        }
        let damaged = self.damaged();
        for facts in &mut all_facts {
            facts.is_damaged = damaged.contains(&facts.meta.id);
        }
        Ok(all_facts)
    }

    /// The sources of a job. No snapshot is held while they are worked on: a flush that publishes
    /// blocks meanwhile waits until no reader has an earlier snapshot.
    fn sources(&self, job: &CompactionJob) -> Result<Vec<Block>, BlockError> {
        let snapshot = self.snapshot();
        let source = |id: &BlockId| {
            let block = snapshot.block(*id);
            block.cloned().ok_or(BlockError::Changed { block: *id })
        };
        job.sources.iter().map(source).collect()
    }

    /// Executes a job planned by this policy. `on_progress` is called regularly with the number of
    /// bytes of samples since the last call, and may wait, to slow the job down, or end it. Of two
    /// samples at one time, the one of the newer block wins.
    ///
    /// # Errors
    /// [`BlockError::Interrupted`] by `on_progress`; [`BlockError::Corrupt`] for an unreadable
    /// source, which is recorded; else like [`Catalog::replace`]. The blocks are unchanged.
    pub fn run_job(
        &self,
        job: &CompactionJob,
        policy: &Policy,
        limits: BlockLimits,
        on_progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<Block>, BlockError> {
        let mut sources = self.sources(job)?;
        sources.sort_unstable_by_key(Block::id);
        let results = match &job.replacement {
            BlockReplacement::Nothing => Vec::new(),
            BlockReplacement::Rewritten { drop_rules, downsample_rules } => {
                let edits = |block| plan_edits(block, policy, drop_rules, downsample_rules);
                let edits = sources.iter().map(edits).collect::<Result<Vec<_>, _>>()?;
                let names =
                    downsample_rules.iter().map(|index| &*policy.downsample_rules[*index].name);
                let options = writer_options(&sources, names);
                let results = RewrittenBlocks {
                    catalog: self,
                    // Blocks published meanwhile must have higher ids than the results.
                    ids: self.allocate_ids(RESULTS_MAX),
                    options,
                    limits,
                    writer: None,
                    finished: Vec::new(),
                };
                merge_blocks(&sources, &edits, results, on_progress).or_else(|error| {
                    self.record_read_error(&error)?;
                    Err(error)
                })?
            }
        };
        self.replace(&sources, results)
    }
}

/// The series of each retention rule, then all others.
fn series_by_rule(block: &Block, policy: &Policy) -> Result<Vec<RoaringBitmap>, BlockError> {
    let mut unmatched = RoaringBitmap::new();
    unmatched.insert_range(0..block.series());
    let mut groups = Vec::new();
    for rule in &policy.retention_rules {
        let mut selected: RoaringBitmap = block.select(&rule.selector)?.into_iter().collect();
        selected &= &unmatched;
        unmatched -= &selected;
        groups.push(selected);
    }
    groups.push(unmatched);
    Ok(groups)
}

fn block_facts(block: &Block, policy: &Policy) -> Result<Facts, BlockError> {
    let downsampled = policy.downsample_rules.iter().map(|rule| block.count_series(&rule.selector));
    Ok(Facts {
        meta: block.meta().clone(),
        size_bytes: block.size_bytes(),
        has_tombstones: !block.tombstones().is_empty(),
        is_damaged: false,
        series_by_retention: series_by_rule(block, policy)?
            .iter()
            .map(RoaringBitmap::len)
            .collect(),
        series_by_downsampling: downsampled.collect::<Result<_, _>>()?,
    })
}

fn plan_edits(
    block: &Block,
    policy: &Policy,
    drop_rules: &[usize],
    downsample_rules: &[usize],
) -> Result<Edits, BlockError> {
    let mut edits = Edits { dropped: RoaringBitmap::new(), downsampled: Vec::new() };
    let groups = series_by_rule(block, policy)?;
    drop_rules.iter().for_each(|place| edits.dropped |= &groups[*place]);
    for index in downsample_rules {
        let rule = &policy.downsample_rules[*index];
        let selected = block.select(&rule.selector)?.into_iter().collect();
        edits.downsampled.push((selected, rule.interval_ms));
    }
    Ok(edits)
}

fn writer_options<'a>(sources: &[Block], applied: impl Iterator<Item = &'a str>) -> WriterOptions {
    let metas = || sources.iter().map(Block::meta);
    // Rules applied to all sources are applied to the result.
    let is_in_all =
        |rule: &str| metas().all(|meta| meta.rules.iter().any(|other| **other == *rule));
    let first = metas().take(1).flat_map(|meta| &meta.rules);
    let mut rules: Vec<Box<str>> = first.filter(|rule| is_in_all(rule)).cloned().collect();
    rules.extend(applied.map(Box::from));
    rules.sort_unstable();
    rules.dedup();
    WriterOptions {
        effort: Effort::Thorough,
        level: metas().map(|meta| meta.level).max().map_or(0, |level| level + 1),
        sources: metas().map(|meta| meta.id).collect(),
        rules,
    }
}

/// The blocks that a job writes, one after another.
struct RewrittenBlocks<'catalog, D: Disk> {
    catalog: &'catalog Catalog<D>,
    /// Ids for the results.
    ids: Range<u64>,
    options: WriterOptions,
    limits: BlockLimits,
    writer: Option<BlockWriter<D>>,
    finished: Vec<NewBlock<D>>,
}

impl<D: Disk> RewrittenBlocks<'_, D> {
    fn push(&mut self, labels: &Labels, samples: &SeriesSamples) -> Result<(), BlockError> {
        if samples.is_empty() {
            return Ok(());
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let id = self.ids.next().expect("the last one is never closed");
                let writer = self.catalog.create_writer(BlockId(id), self.options.clone())?;
                self.writer.insert(writer)
            }
        };
        writer.push(labels, samples)?;
        let is_full = writer.size_bytes() >= self.limits.block_bytes_max
            || writer.series() >= self.limits.block_series_max;
        if is_full && !self.ids.is_empty() { self.finish_block() } else { Ok(()) }
    }

    fn finish_block(&mut self) -> Result<(), BlockError> {
        if let Some(writer) = self.writer.take() {
            self.finished.push(writer.finish()?);
        }
        Ok(())
    }
}

/// Merges series by series, in the order of their labels: no more than one is in memory.
fn merge_blocks<D: Disk>(
    sources: &[Block],
    edits: &[Edits],
    mut results: RewrittenBlocks<'_, D>,
    on_progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Vec<NewBlock<D>>, BlockError> {
    // The next series of each source; of equal ones the oldest source is first.
    let mut queue = BinaryHeap::new();
    for (source, block) in sources.iter().enumerate() {
        if block.series() > 0 {
            queue.push(Reverse((block.labels(0)?, source, 0)));
        }
    }
    let mut merged = SeriesSamples::default();
    let mut samples = SeriesSamples::default();
    let mut last: Option<Labels> = None;
    let mut bytes = 0;
    while let Some(Reverse((labels, source, series))) = queue.pop() {
        if last.as_ref() != Some(&labels) {
            if let Some(last) = &last {
                results.push(last, &merged)?;
            }
            merged.clear();
            last = Some(labels.clone());
        }
        let block = &sources[source];
        samples.clear();
        read_edited(block, &edits[source], series, &mut samples)?;
        merge_newer(&mut merged, &samples);
        bytes += samples.len() as u64 * SAMPLE_BYTES;
        if bytes >= results.limits.step_bytes && on_progress(std::mem::take(&mut bytes)).is_break()
        {
            return Err(BlockError::Interrupted);
        }
        let next_series = series + 1;
        if next_series < block.series() {
            let next_labels = block.labels(next_series)?;
            if next_labels <= labels {
                return Err(block.order_error(next_series));
            }
            queue.push(Reverse((next_labels, source, next_series)));
        }
    }
    if let Some(last) = &last {
        results.push(last, &merged)?;
    }
    results.finish_block()?;
    Ok(results.finished)
}

fn read_edited(
    block: &Block,
    edits: &Edits,
    series: u32,
    samples: &mut SeriesSamples,
) -> Result<(), BlockError> {
    if edits.dropped.contains(series) {
        return Ok(());
    }
    block.read(series, TimeMs::MIN, TimeMs::MAX, samples)?;
    for (selected, interval_ms) in &edits.downsampled {
        if selected.contains(series) {
            keep_last_of_intervals(*interval_ms, samples);
        }
    }
    Ok(())
}
