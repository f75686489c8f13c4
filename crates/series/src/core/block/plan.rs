//! What is to be done with the blocks there are: which are over, which are merged, rewritten, made coarser.
//!
//! Blocks are merged upward by windows of time, each of which is many of those before: all blocks that lie within one
//! are merged when it is over, so that those of several shards and those of late samples become one.

use std::collections::BTreeMap;

use super::meta::{BlockId, BlockMeta};
use crate::core::promql::LabelMatcher;
use crate::model::TimeMs;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// A block so many times larger than all others of its window together is not written again for their sake.
const LOPSIDED: u64 = 16;

/// How long some series are kept.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Which: the first of several that takes a series counts.
    pub selector: Vec<LabelMatcher>,
    /// How long, in milliseconds.
    pub keep_ms: i64,
}

/// How some series are made coarser when they are old: the last sample of each interval is kept.
#[derive(Clone, Debug)]
pub struct Coarsen {
    /// What it is known by in blocks that it was applied to. Another rule has another name.
    pub name: Box<str>,
    /// Which.
    pub selector: Vec<LabelMatcher>,
    /// How old the youngest sample of a block must be, in milliseconds.
    pub after_ms: i64,
    /// Samples of one interval become one, in milliseconds.
    pub interval_ms: i64,
}

/// What is wanted of the blocks.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Lengths of windows in milliseconds, ascending, each a multiple of the one before.
    pub windows_ms: Vec<i64>,
    /// How long after its end a window is left alone, in milliseconds: late samples come then.
    pub settle_ms: i64,
    /// At most so many blocks are merged at once.
    pub merge_blocks_max: usize,
    /// How long series are kept that no other rule is for, in milliseconds.
    pub keep_ms: i64,
    /// How long others are kept.
    pub keep: Vec<Keep>,
    /// What all blocks may take, in bytes.
    pub bytes_max: u64,
    /// What is made coarser.
    pub coarsen: Vec<Coarsen>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            windows_ms: vec![2 * HOUR_MS, DAY_MS, 30 * DAY_MS],
            settle_ms: HOUR_MS / 2,
            merge_blocks_max: 128,
            keep_ms: i64::MAX,
            keep: Vec::new(),
            bytes_max: u64::MAX,
            coarsen: Vec::new(),
        }
    }
}

/// What is known of a block.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What is in it.
    pub meta: BlockMeta,
    /// How long its file is.
    pub size_bytes: u64,
    /// Whether something was deleted of it that is still in its file.
    pub has_tombstones: bool,
    /// Whether some of its samples cannot be read: it is left as it is until all of it is over.
    pub is_damaged: bool,
    /// For each rule of [`Policy::keep`] how many series it is for, then of how many there is none.
    pub kept: Vec<u64>,
    /// For each rule of [`Policy::coarsen`] how many series it is for.
    pub coarsened: Vec<u64>,
}

/// Why blocks are removed or rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Their time is over, or that of some of their series.
    Expired,
    /// All together take too much space.
    TooMuch,
    /// They lie in one window.
    Merge,
    /// They are old enough to be coarser.
    Coarsen,
    /// Something was deleted of them.
    Clean,
}

/// Something to do. No block is in two at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Why.
    pub why: Why,
    /// The blocks that are replaced, ascending.
    pub sources: Vec<BlockId>,
    /// What by.
    pub by: By,
}

/// What blocks are replaced by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Nothing.
    Nothing,
    /// What is left of them.
    Rewritten {
        /// Places in [`Policy::keep`] of rules whose series are left out; one beyond them stands for all other series.
        without: Vec<usize>,
        /// Places in [`Policy::coarsen`] of rules that are applied.
        coarsen: Vec<usize>,
    },
}

/// What is to be done, the most urgent first.
pub fn plan(blocks: &[Facts], policy: &Policy, now_ms: TimeMs) -> Vec<Job> {
    let mut left: BTreeMap<BlockId, &Facts> =
        blocks.iter().map(|block| (block.meta.id, block)).collect();
    let mut jobs = Vec::new();
    let mut add = |left: &mut BTreeMap<BlockId, &Facts>, job: Job| {
        job.sources.iter().for_each(|id| _ = left.remove(id));
        jobs.push(job);
    };
    for block in blocks {
        if let Some(job) = expired(block, policy, now_ms) {
            add(&mut left, job);
        }
    }
    for job in too_much(&left, policy) {
        add(&mut left, job);
    }
    left.retain(|_, block| !block.is_damaged);
    for window_ms in &policy.windows_ms {
        for job in merges(&left, *window_ms, policy, now_ms) {
            add(&mut left, job);
        }
    }
    let rewrites = left
        .values()
        .filter_map(|block| coarser(block, policy, now_ms).or_else(|| cleaned(block)));
    for job in rewrites.collect::<Vec<_>>() {
        add(&mut left, job);
    }
    jobs.sort_by_key(|job| job.why);
    jobs
}

fn expired(block: &Facts, policy: &Policy, now_ms: TimeMs) -> Option<Job> {
    let keeps = policy
        .keep
        .iter()
        .map(|rule| rule.keep_ms)
        .chain([policy.keep_ms]);
    let is_over = |keep_ms: i64| block.meta.max_ms < now_ms.saturating_sub(keep_ms);
    let over: Vec<(usize, bool)> = keeps.map(is_over).enumerate().collect();
    let has = |place: usize| block.kept.get(place).is_some_and(|series| *series > 0);
    let without: Vec<usize> = over
        .iter()
        .filter(|(place, is_over)| *is_over && has(*place))
        .map(|(place, _)| *place)
        .collect();
    if without.is_empty() {
        return None;
    }
    let is_all = over.iter().all(|(place, is_over)| *is_over || !has(*place));
    let by = match is_all {
        true => By::Nothing,
        false if block.is_damaged => return None,
        false => By::Rewritten {
            without,
            coarsen: Vec::new(),
        },
    };
    Some(Job {
        why: Why::Expired,
        sources: vec![block.meta.id],
        by,
    })
}

/// The oldest blocks, until the rest fits.
fn too_much(blocks: &BTreeMap<BlockId, &Facts>, policy: &Policy) -> Vec<Job> {
    let mut oldest: Vec<&&Facts> = blocks.values().collect();
    oldest.sort_by_key(|block| (block.meta.max_ms, block.meta.id));
    let mut bytes: u64 = oldest.iter().map(|block| block.size_bytes).sum();
    let mut jobs = Vec::new();
    for block in oldest {
        if bytes <= policy.bytes_max {
            break;
        }
        bytes -= block.size_bytes;
        jobs.push(Job {
            why: Why::TooMuch,
            sources: vec![block.meta.id],
            by: By::Nothing,
        });
    }
    jobs
}

fn merges(
    blocks: &BTreeMap<BlockId, &Facts>,
    window_ms: i64,
    policy: &Policy,
    now_ms: TimeMs,
) -> Vec<Job> {
    let mut windows: BTreeMap<i64, Vec<&Facts>> = BTreeMap::new();
    for block in blocks.values() {
        let window = block.meta.min_ms.div_euclid(window_ms);
        let end_ms = window.saturating_add(1).saturating_mul(window_ms);
        let is_over = now_ms >= end_ms.saturating_add(policy.settle_ms);
        if block.meta.max_ms < end_ms && is_over {
            windows.entry(window).or_default().push(block);
        }
    }
    windows
        .into_values()
        .filter_map(|blocks| merge(blocks, policy))
        .collect()
}

fn merge(mut blocks: Vec<&Facts>, policy: &Policy) -> Option<Job> {
    blocks.sort_by_key(|block| (block.size_bytes, block.meta.id));
    let mut bytes: u64 = blocks.iter().map(|block| block.size_bytes).sum();
    while let Some(largest) = blocks.last() {
        let others = bytes - largest.size_bytes;
        if largest.size_bytes / LOPSIDED <= others {
            break;
        }
        bytes = others;
        blocks.pop();
    }
    blocks.truncate(policy.merge_blocks_max);
    let first = blocks.first()?;
    // Parts of one result that was too large for one file would only become the same parts again.
    let are_parts = !first.meta.sources.is_empty()
        && blocks
            .iter()
            .all(|block| block.meta.sources == first.meta.sources);
    if blocks.len() < 2 || are_parts {
        return None;
    }
    let mut sources: Vec<BlockId> = blocks.iter().map(|block| block.meta.id).collect();
    sources.sort_unstable();
    let by = By::Rewritten {
        without: Vec::new(),
        coarsen: Vec::new(),
    };
    Some(Job {
        why: Why::Merge,
        sources,
        by,
    })
}

fn coarser(block: &Facts, policy: &Policy, now_ms: TimeMs) -> Option<Job> {
    let is_due = |place: &usize| {
        let rule = &policy.coarsen[*place];
        block.meta.max_ms < now_ms.saturating_sub(rule.after_ms)
            && block
                .coarsened
                .get(*place)
                .is_some_and(|series| *series > 0)
            && block.meta.rules.binary_search(&rule.name).is_err()
    };
    let coarsen: Vec<usize> = (0..policy.coarsen.len()).filter(is_due).collect();
    if coarsen.is_empty() {
        return None;
    }
    let by = By::Rewritten {
        without: Vec::new(),
        coarsen,
    };
    Some(Job {
        why: Why::Coarsen,
        sources: vec![block.meta.id],
        by,
    })
}

fn cleaned(block: &Facts) -> Option<Job> {
    let by = By::Rewritten {
        without: Vec::new(),
        coarsen: Vec::new(),
    };
    block.has_tombstones.then(|| Job {
        why: Why::Clean,
        sources: vec![block.meta.id],
        by,
    })
}

#[cfg(test)]
mod tests;
