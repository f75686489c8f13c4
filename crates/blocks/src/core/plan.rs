//! Plans the maintenance of blocks: which are expired, merged, rewritten or downsampled.
//!
//! Blocks are merged upward by windows of time, each of which is many of those before: all blocks
//! that lie within one are merged when it is over, so that those of several shards and those of
//! late samples become one.

use std::collections::BTreeMap;

use egret_metrics_model::{LabelMatcher, TimeMs};

use super::meta::{BlockId, BlockMeta};
use super::window::WINDOWS_MS;

const HOUR_MS: i64 = 3_600_000;

/// A block so many times larger than all others of its window together is not rewritten for
/// their merge.
const LOPSIDED_FACTOR: u64 = 16;

/// Blocks are about the same size when the largest is so many times the smallest.
const ALIKE_FACTOR: u64 = 4;

/// A retention rule for some series.
#[derive(Clone, Debug)]
pub struct RetentionRule {
    /// Matchers of its series; the first rule that selects a series applies.
    pub selector: Vec<LabelMatcher>,
    /// Retention time, in milliseconds.
    pub keep_ms: i64,
}

/// Downsampling of some series when they are old: the last sample of each interval is kept.
#[derive(Clone, Debug)]
pub struct DownsampleRule {
    /// Name recorded in the blocks that it was applied to, unique among rules.
    pub name: Box<str>,
    /// Matchers of the series that are downsampled.
    pub selector: Vec<LabelMatcher>,
    /// How old the youngest sample of a block must be, in milliseconds.
    pub after_ms: i64,
    /// Samples of one interval become one, in milliseconds.
    pub interval_ms: i64,
}

/// Retention, size limit and downsampling that jobs are planned by.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Lengths of windows in milliseconds, ascending, each a multiple of the one before.
    pub windows_ms: Vec<i64>,
    /// How long after its end a window is left alone, in milliseconds: late samples come then.
    pub settle_ms: i64,
    /// At most so many blocks are merged at once.
    pub merge_blocks_max: usize,
    /// So many blocks of about the same size are merged before their window is over.
    pub merge_alike_min: usize,
    /// Retention time of series without a rule, in milliseconds.
    pub keep_ms: i64,
    /// Retention rules for other series.
    pub retention_rules: Vec<RetentionRule>,
    /// Total size of all blocks, at most, in bytes.
    pub bytes_max: u64,
    /// Rules of downsampling, for series by selector.
    pub downsample_rules: Vec<DownsampleRule>,
}

impl Policy {
    /// The longest retention time, in milliseconds.
    pub fn keep_max_ms(&self) -> i64 {
        let each = self.retention_rules.iter().map(|keep| keep.keep_ms);
        each.fold(self.keep_ms, i64::max)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            windows_ms: WINDOWS_MS.to_vec(),
            settle_ms: HOUR_MS / 2,
            merge_blocks_max: 128,
            merge_alike_min: 8,
            keep_ms: i64::MAX,
            retention_rules: Vec::new(),
            bytes_max: u64::MAX,
            downsample_rules: Vec::new(),
        }
    }
}

/// Facts about a block that planning needs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Metadata of the block.
    pub meta: BlockMeta,
    /// Size of its file, in bytes.
    pub size_bytes: u64,
    /// Whether something was deleted of it that is still in its file.
    pub has_tombstones: bool,
    /// Whether some of its samples cannot be read: it is left as it is until all of it is over.
    pub is_damaged: bool,
    /// For each of [`Policy::retention_rules`] its number of series, then the number of series
    /// without a rule.
    pub series_by_retention: Vec<u64>,
    /// For each of [`Policy::downsample_rules`] its number of series.
    pub series_by_downsampling: Vec<u64>,
}

/// Why blocks are removed or rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompactionReason {
    /// Their time is over, or that of some of their series.
    Expired,
    /// All together take too much space.
    TooMuch,
    /// They lie in one window and become one block.
    Merge,
    /// They are old enough to be downsampled.
    Coarsen,
    /// Something was deleted of them.
    Clean,
}

/// A job of maintenance. No block is in two jobs at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionJob {
    /// Why the blocks are replaced.
    pub reason: CompactionReason,
    /// The blocks that are replaced, ascending.
    pub sources: Vec<BlockId>,
    /// The result that replaces them.
    pub replacement: BlockReplacement,
}

/// Replacement of the source blocks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockReplacement {
    /// By nothing: the blocks are removed.
    Nothing,
    /// By blocks of the remaining samples.
    Rewritten {
        /// Indexes in [`Policy::retention_rules`] of rules whose series are dropped; one beyond
        /// stands for all other series.
        drop_rules: Vec<usize>,
        /// Indexes in [`Policy::downsample_rules`] of rules that are applied.
        downsample_rules: Vec<usize>,
    },
}

/// Plans the jobs, the most urgent first.
pub fn plan(blocks: &[Facts], policy: &Policy, now_ms: TimeMs) -> Vec<CompactionJob> {
    let mut remaining: BTreeMap<BlockId, &Facts> =
        blocks.iter().map(|block| (block.meta.id, block)).collect();
    let mut jobs = Vec::new();
    let mut add = |left: &mut BTreeMap<BlockId, &Facts>, job: CompactionJob| {
        job.sources.iter().for_each(|id| _ = left.remove(id));
        jobs.push(job);
    };
    for block in blocks {
        if let Some(job) = plan_expiry(block, policy, now_ms) {
            add(&mut remaining, job);
        }
    }
    for job in plan_size_limit(&remaining, policy) {
        add(&mut remaining, job);
    }
    remaining.retain(|_, block| !block.is_damaged);
    let all_blocks = blocks.iter().map(|block| (block.meta.id, block)).collect();
    for window_ms in &policy.windows_ms {
        for job in plan_merges(&remaining, &all_blocks, *window_ms, policy, now_ms) {
            add(&mut remaining, job);
        }
    }
    let rewrites = remaining.values().filter_map(|block| {
        plan_downsampling(block, policy, now_ms).or_else(|| plan_cleanup(block))
    });
    for job in rewrites.collect::<Vec<_>>() {
        add(&mut remaining, job);
    }
    jobs.sort_by_key(|job| job.reason);
    jobs
}

fn plan_expiry(block: &Facts, policy: &Policy, now_ms: TimeMs) -> Option<CompactionJob> {
    let keep_times_ms =
        policy.retention_rules.iter().map(|rule| rule.keep_ms).chain([policy.keep_ms]);
    let is_expired = |keep_ms: i64| block.meta.max_ms < now_ms.saturating_sub(keep_ms);
    let expired_rules: Vec<(usize, bool)> = keep_times_ms.map(is_expired).enumerate().collect();
    let has = |place: usize| block.series_by_retention.get(place).is_some_and(|series| *series > 0);
    let without: Vec<usize> = expired_rules
        .iter()
        .filter(|(place, is_over)| *is_over && has(*place))
        .map(|(place, _)| *place)
        .collect();
    if without.is_empty() {
        return None;
    }
    let is_whole_block = expired_rules.iter().all(|(place, is_over)| *is_over || !has(*place));
    let replacement = if is_whole_block {
        BlockReplacement::Nothing
    } else if block.is_damaged {
        return None;
    } else {
        BlockReplacement::Rewritten { drop_rules: without, downsample_rules: Vec::new() }
    };
    Some(CompactionJob {
        reason: CompactionReason::Expired,
        sources: vec![block.meta.id],
        replacement,
    })
}

/// The oldest blocks, until the rest fits.
fn plan_size_limit(blocks: &BTreeMap<BlockId, &Facts>, policy: &Policy) -> Vec<CompactionJob> {
    let mut oldest: Vec<&&Facts> = blocks.values().collect();
    oldest.sort_by_key(|block| (block.meta.max_ms, block.meta.id));
    let mut bytes: u64 = oldest.iter().map(|block| block.size_bytes).sum();
    let mut jobs = Vec::new();
    for block in oldest {
        if bytes <= policy.bytes_max {
            break;
        }
        bytes -= block.size_bytes;
        jobs.push(CompactionJob {
            reason: CompactionReason::TooMuch,
            sources: vec![block.meta.id],
            replacement: BlockReplacement::Nothing,
        });
    }
    jobs
}

/// Plans merges of the `remaining` blocks among `all_blocks`.
fn plan_merges(
    remaining: &BTreeMap<BlockId, &Facts>,
    all_blocks: &BTreeMap<BlockId, &Facts>,
    window_ms: i64,
    policy: &Policy,
    now_ms: TimeMs,
) -> Vec<CompactionJob> {
    let mut windows: BTreeMap<i64, Vec<&Facts>> = BTreeMap::new();
    for block in remaining.values() {
        let window = block.meta.min_ms.div_euclid(window_ms);
        if block.meta.max_ms < window_end(window, window_ms) {
            windows.entry(window).or_default().push(block);
        }
    }
    let is_smallest = policy.windows_ms.first() == Some(&window_ms);
    let planned = windows.into_iter().filter_map(|(window, blocks)| {
        let settled_at_ms = window_end(window, window_ms).saturating_add(policy.settle_ms);
        if now_ms >= settled_at_ms {
            plan_merge(blocks, all_blocks, policy)
        } else if is_smallest {
            plan_early_merge(&blocks, all_blocks, policy)
        } else {
            None
        }
    });
    planned.collect()
}

fn window_end(window: i64, window_ms: i64) -> TimeMs {
    window.saturating_add(1).saturating_mul(window_ms)
}

/// Merges all blocks of a window.
fn plan_merge(
    mut blocks: Vec<&Facts>,
    all_blocks: &BTreeMap<BlockId, &Facts>,
    policy: &Policy,
) -> Option<CompactionJob> {
    blocks.sort_by_key(|block| (block.size_bytes, block.meta.id));
    let mut bytes: u64 = blocks.iter().map(|block| block.size_bytes).sum();
    while let Some(largest) = blocks.last() {
        let others = bytes - largest.size_bytes;
        if largest.size_bytes / LOPSIDED_FACTOR <= others {
            break;
        }
        bytes = others;
        blocks.pop();
    }
    blocks.sort_by_key(|block| block.meta.id);
    let mut longest: &[&Facts] = &[];
    for run in mergeable_runs(&blocks, all_blocks) {
        if run.len() >= longest.len() {
            longest = run;
        }
    }
    merge_job(&longest[..longest.len().min(policy.merge_blocks_max)])
}

/// Runs of blocks by id without another overlapping block in between. Of two samples at one time
/// the newer block's wins: if blocks older and newer than a third one were merged, the samples
/// that the third has corrected would come back.
fn mergeable_runs<'a>(
    blocks: &'a [&'a Facts],
    all_blocks: &BTreeMap<BlockId, &Facts>,
) -> impl Iterator<Item = &'a [&'a Facts]> {
    let min_ms = blocks.iter().map(|block| block.meta.min_ms).min();
    let max_ms = blocks.iter().map(|block| block.meta.max_ms).max();
    let overlaps =
        move |other: &Facts| Some(other.meta.min_ms) <= max_ms && Some(other.meta.max_ms) >= min_ms;
    blocks.chunk_by(move |older, newer| {
        let mut between = all_blocks.range(older.meta.id..newer.meta.id).skip(1);
        !between.any(|(_, other)| overlaps(other))
    })
}

/// Merges blocks of a window that still grows, when there are many of about the same size: when
/// they are written early, because memory or the log is full, there would be any number.
fn plan_early_merge(
    blocks: &[&Facts],
    all_blocks: &BTreeMap<BlockId, &Facts>,
    policy: &Policy,
) -> Option<CompactionJob> {
    mergeable_runs(blocks, all_blocks).find_map(|run| {
        let mut start = 0;
        let (mut smallest, mut largest) = (u64::MAX, 0);
        for (index, block) in run.iter().enumerate() {
            (smallest, largest) = (smallest.min(block.size_bytes), largest.max(block.size_bytes));
            if largest / ALIKE_FACTOR > smallest {
                start = index;
                (smallest, largest) = (block.size_bytes, block.size_bytes);
            }
            if index + 1 - start == policy.merge_alike_min {
                return merge_job(&run[start..=index]);
            }
        }
        None
    })
}

fn merge_job(blocks: &[&Facts]) -> Option<CompactionJob> {
    let first = blocks.first()?;
    // Parts of one result that was too large for one file would only become the same parts again.
    let are_parts = !first.meta.sources.is_empty()
        && blocks.iter().all(|block| block.meta.sources == first.meta.sources);
    if blocks.len() < 2 || are_parts {
        return None;
    }
    Some(CompactionJob {
        reason: CompactionReason::Merge,
        sources: blocks.iter().map(|block| block.meta.id).collect(),
        replacement: BlockReplacement::Rewritten {
            drop_rules: Vec::new(),
            downsample_rules: Vec::new(),
        },
    })
}

fn plan_downsampling(block: &Facts, policy: &Policy, now_ms: TimeMs) -> Option<CompactionJob> {
    let is_due = |rule_index: &usize| {
        let rule = &policy.downsample_rules[*rule_index];
        block.meta.max_ms < now_ms.saturating_sub(rule.after_ms)
            && block.series_by_downsampling.get(*rule_index).is_some_and(|series| *series > 0)
            && block.meta.rules.binary_search(&rule.name).is_err()
    };
    let downsample_rules: Vec<usize> = (0..policy.downsample_rules.len()).filter(is_due).collect();
    if downsample_rules.is_empty() {
        return None;
    }
    let replacement = BlockReplacement::Rewritten { drop_rules: Vec::new(), downsample_rules };
    Some(CompactionJob {
        reason: CompactionReason::Coarsen,
        sources: vec![block.meta.id],
        replacement,
    })
}

fn plan_cleanup(block: &Facts) -> Option<CompactionJob> {
    let replacement =
        BlockReplacement::Rewritten { drop_rules: Vec::new(), downsample_rules: Vec::new() };
    block.has_tombstones.then(|| CompactionJob {
        reason: CompactionReason::Clean,
        sources: vec![block.meta.id],
        replacement,
    })
}

#[cfg(test)]
mod tests;
