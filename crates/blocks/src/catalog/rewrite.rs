//! Carries out planned jobs: merges blocks into new ones without expired and deleted samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{ControlFlow, Range};

use egret_log::Disk;
use egret_metrics_model::{Labels, SeriesSamples, TimeMs};
use roaring::RoaringBitmap;

use super::Catalog;
use crate::block::{Block, BlockError, BlockWriter, NewBlock, WriterOptions};
use crate::core::merge::{keep_last, merge};
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
        Self {
            block_bytes_max: 16 << 30,
            block_series_max: 4 << 20,
            step_bytes: 4 << 20,
        }
    }
}

/// Changes to the series of a source block.
struct Edits {
    /// Series that are dropped.
    without: RoaringBitmap,
    /// Series reduced to the last sample of each interval, with its length in milliseconds.
    coarsen: Vec<(RoaringBitmap, i64)>,
}

impl<D: Disk> Catalog<D> {
    /// Collects the facts about blocks that planning needs. A block whose index is
    /// found to be damaged is quarantined.
    ///
    /// # Errors
    /// [`BlockError::Io`], or like [`Catalog::record_read_error`].
    pub fn facts(&self, policy: &Policy) -> Result<Vec<Facts>, BlockError> {
        let mut all = Vec::new();
        for block in self.snapshot().blocks() {
            match facts(block, policy) {
                Ok(facts) => all.push(facts),
                Err(error @ BlockError::Corrupt { .. }) => self.note(&error)?,
                Err(error) => return Err(error),
            }
        }
        let damaged = self.damaged();
        for facts in &mut all {
            facts.is_damaged = damaged.contains(&facts.meta.id);
        }
        Ok(all)
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
    pub fn run(
        &self,
        job: &CompactionJob,
        policy: &Policy,
        limits: BlockLimits,
        step: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<Block>, BlockError> {
        let mut sources = self.sources(job)?;
        sources.sort_unstable_by_key(Block::id);
        let results = match &job.by {
            BlockReplacement::Nothing => Vec::new(),
            BlockReplacement::Rewritten { without, coarsen } => {
                let edits = |block| edits(block, policy, without, coarsen);
                let edits = sources.iter().map(edits).collect::<Result<Vec<_>, _>>()?;
                let names = coarsen.iter().map(|place| &*policy.coarsen[*place].name);
                let options = options(&sources, names);
                let results = RewrittenBlocks {
                    catalog: self,
                    // Blocks published meanwhile must have higher ids than the results.
                    ids: self.take_ids(RESULTS_MAX),
                    options,
                    limits,
                    open: None,
                    done: Vec::new(),
                };
                rewrite(&sources, &edits, results, step).or_else(|error| {
                    self.note(&error)?;
                    Err(error)
                })?
            }
        };
        self.replace(&sources, results)
    }
}

/// The series of each retention rule, then all others.
fn kept(block: &Block, policy: &Policy) -> Result<Vec<RoaringBitmap>, BlockError> {
    let mut rest = RoaringBitmap::new();
    rest.insert_range(0..block.series());
    let mut all = Vec::new();
    for rule in &policy.keep {
        let mut selected: RoaringBitmap = block.select(&rule.selector)?.into_iter().collect();
        selected &= &rest;
        rest -= &selected;
        all.push(selected);
    }
    all.push(rest);
    Ok(all)
}

fn facts(block: &Block, policy: &Policy) -> Result<Facts, BlockError> {
    let coarsened = policy
        .coarsen
        .iter()
        .map(|rule| block.count(&rule.selector));
    Ok(Facts {
        meta: block.meta().clone(),
        size_bytes: block.size_bytes(),
        has_tombstones: !block.tombstones().is_empty(),
        is_damaged: false,
        kept: kept(block, policy)?
            .iter()
            .map(RoaringBitmap::len)
            .collect(),
        coarsened: coarsened.collect::<Result<_, _>>()?,
    })
}

fn edits(
    block: &Block,
    policy: &Policy,
    without: &[usize],
    coarsen: &[usize],
) -> Result<Edits, BlockError> {
    let mut edits = Edits {
        without: RoaringBitmap::new(),
        coarsen: Vec::new(),
    };
    let kept = kept(block, policy)?;
    without
        .iter()
        .for_each(|place| edits.without |= &kept[*place]);
    for place in coarsen {
        let rule = &policy.coarsen[*place];
        let selected = block.select(&rule.selector)?.into_iter().collect();
        edits.coarsen.push((selected, rule.interval_ms));
    }
    Ok(edits)
}

fn options<'a>(sources: &[Block], applied: impl Iterator<Item = &'a str>) -> WriterOptions {
    let metas = || sources.iter().map(Block::meta);
    // Rules applied to all sources are applied to the result.
    let in_all = |rule: &str| metas().all(|meta| meta.rules.iter().any(|other| **other == *rule));
    let first = metas().take(1).flat_map(|meta| &meta.rules);
    let mut rules: Vec<Box<str>> = first.filter(|rule| in_all(rule)).cloned().collect();
    rules.extend(applied.map(Box::from));
    rules.sort_unstable();
    rules.dedup();
    WriterOptions {
        effort: Effort::Thorough,
        level: metas()
            .map(|meta| meta.level)
            .max()
            .map_or(0, |level| level + 1),
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
    open: Option<BlockWriter<D>>,
    done: Vec<NewBlock<D>>,
}

impl<D: Disk> RewrittenBlocks<'_, D> {
    fn push(&mut self, labels: &Labels, samples: &SeriesSamples) -> Result<(), BlockError> {
        if samples.is_empty() {
            return Ok(());
        }
        let writer = match &mut self.open {
            Some(writer) => writer,
            None => {
                let id = self.ids.next().expect("the last one is never closed");
                let writer = self.catalog.writer_of(BlockId(id), self.options.clone())?;
                self.open.insert(writer)
            }
        };
        writer.push(labels, samples)?;
        let is_full = writer.size_bytes() >= self.limits.block_bytes_max
            || writer.series() >= self.limits.block_series_max;
        if is_full && !self.ids.is_empty() {
            self.close()
        } else {
            Ok(())
        }
    }

    fn close(&mut self) -> Result<(), BlockError> {
        if let Some(writer) = self.open.take() {
            self.done.push(writer.finish()?);
        }
        Ok(())
    }
}

/// Merges series by series, in the order of their labels: no more than one is in memory.
fn rewrite<D: Disk>(
    sources: &[Block],
    edits: &[Edits],
    mut results: RewrittenBlocks<'_, D>,
    step: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Vec<NewBlock<D>>, BlockError> {
    // The next series of each source; of equal ones the oldest source is first.
    let mut next = BinaryHeap::new();
    for (source, block) in sources.iter().enumerate() {
        if block.series() > 0 {
            next.push(Reverse((block.labels(0)?, source, 0)));
        }
    }
    let mut merged = SeriesSamples::default();
    let mut samples = SeriesSamples::default();
    let mut last: Option<Labels> = None;
    let mut bytes = 0;
    while let Some(Reverse((labels, source, series))) = next.pop() {
        if last.as_ref() != Some(&labels) {
            if let Some(last) = &last {
                results.push(last, &merged)?;
            }
            merged.clear();
            last = Some(labels.clone());
        }
        let block = &sources[source];
        samples.clear();
        read(block, &edits[source], series, &mut samples)?;
        merge(&mut merged, &samples);
        bytes += samples.len() as u64 * SAMPLE_BYTES;
        if bytes >= results.limits.step_bytes && step(std::mem::take(&mut bytes)).is_break() {
            return Err(BlockError::Ended);
        }
        let following = series + 1;
        if following < block.series() {
            let following_labels = block.labels(following)?;
            if following_labels <= labels {
                return Err(block.out_of_order(following));
            }
            next.push(Reverse((following_labels, source, following)));
        }
    }
    if let Some(last) = &last {
        results.push(last, &merged)?;
    }
    results.close()?;
    Ok(results.done)
}

fn read(
    block: &Block,
    edits: &Edits,
    series: u32,
    samples: &mut SeriesSamples,
) -> Result<(), BlockError> {
    if edits.without.contains(series) {
        return Ok(());
    }
    block.read(series, TimeMs::MIN, TimeMs::MAX, samples)?;
    for (selected, interval_ms) in &edits.coarsen {
        if selected.contains(series) {
            keep_last(*interval_ms, samples);
        }
    }
    Ok(())
}
