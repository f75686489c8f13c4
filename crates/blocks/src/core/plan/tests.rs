//! What is planned for blocks of some days.

use super::*;

const DAY_MS: i64 = 24 * HOUR_MS;
const NOW_MS: TimeMs = 100 * 30 * DAY_MS;

fn block(id: u64, from_ms: i64, to_ms: i64) -> Facts {
    let meta = BlockMeta {
        id: BlockId(id),
        min_ms: from_ms,
        max_ms: to_ms - 1,
        series: 10,
        ..BlockMeta::default()
    };
    Facts {
        meta,
        size_bytes: 100,
        has_tombstones: false,
        is_damaged: false,
        series_by_retention: vec![10],
        series_by_downsampling: Vec::new(),
    }
}

/// A block of so many hours, which began so many hours ago.
fn hours(id: u64, ago: i64, length: i64) -> Facts {
    let from_ms = NOW_MS - ago * HOUR_MS;
    block(id, from_ms, from_ms + length * HOUR_MS)
}

fn check(blocks: &[Facts], policy: &Policy, expected: &str) {
    let jobs = plan(blocks, policy, NOW_MS);
    let ids = |job: &CompactionJob| {
        job.sources.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join("+")
    };
    let shown = |job: &CompactionJob| match &job.replacement {
        BlockReplacement::Nothing => format!("{:?} {}", job.reason, ids(job)),
        BlockReplacement::Rewritten { drop_rules: without, downsample_rules: coarsen }
            if without.is_empty() && coarsen.is_empty() =>
        {
            format!("{:?} {}", job.reason, ids(job))
        }
        BlockReplacement::Rewritten { drop_rules: without, downsample_rules: coarsen } => {
            format!("{:?} {} {without:?} {coarsen:?}", job.reason, ids(job))
        }
    };
    assert_eq!(jobs.iter().map(shown).collect::<Vec<_>>().join(", "), expected);
}

#[test]
fn no_jobs_without_reason() {
    check(&[], &Policy::default(), "");
    check(&[hours(1, 2, 2), hours(2, 4, 2)], &Policy::default(), "");
}

#[test]
fn blocks_of_several_shards_become_one_when_their_window_has_settled() {
    let shards = [hours(1, 4, 2), hours(2, 4, 2), hours(3, 4, 2)];
    check(&shards, &Policy::default(), "Merge 1+2+3");
    check(&[hours(1, 2, 2), hours(2, 2, 2)], &Policy::default(), "");
}

#[test]
fn the_blocks_of_eight_hours_become_one_and_those_of_a_day_and_of_a_month() {
    let of_two_hours: Vec<Facts> = (0..12).map(|at| hours(at + 1, 48 - at as i64 * 2, 2)).collect();
    let thirds = "Merge 1+2+3+4, Merge 5+6+7+8, Merge 9+10+11+12";
    check(&of_two_hours, &Policy::default(), thirds);
    let day: Vec<Facts> = (0..3).map(|at| hours(at + 1, 48 - at as i64 * 8, 8)).collect();
    check(&day, &Policy::default(), "Merge 1+2+3");
    let month: Vec<Facts> = (0..30).map(|at| hours(at + 1, (60 - at as i64) * 24, 24)).collect();
    let jobs = plan(&month, &Policy::default(), NOW_MS);
    assert_eq!((jobs.len(), jobs[0].sources.len()), (1, 30));
}

#[test]
fn late_samples_are_merged_unless_the_rest_is_far_larger() {
    let mut large = hours(1, 48, 24);
    large.size_bytes = 1000;
    check(&[large.clone(), hours(2, 40, 1)], &Policy::default(), "Merge 1+2");
    large.size_bytes = 100_000;
    check(&[large.clone(), hours(2, 40, 1)], &Policy::default(), "");
    check(&[large, hours(2, 40, 1), hours(3, 37, 3)], &Policy::default(), "Merge 2+3");
}

#[test]
fn samples_corrected_by_a_block_in_between_do_not_come_back() {
    // The second is an import of a whole day: it corrects what the first has.
    let day = |id| hours(id, 48, 24);
    let blocks = [hours(1, 40, 1), day(2), hours(3, 40, 1)];
    let mut large = day(2);
    large.size_bytes = 100_000;
    check(&blocks, &Policy::default(), "Merge 1+2+3");
    let blocks = [hours(1, 40, 1), large, hours(3, 40, 1)];
    check(&blocks, &Policy::default(), "");
    let elsewhere = hours(2, 20, 2);
    let blocks = [hours(1, 40, 1), elsewhere, hours(3, 40, 1)];
    check(&blocks, &Policy::default(), "Merge 1+3");
}

#[test]
fn the_parts_of_one_result_are_not_merged_again() {
    let part = |id| {
        let mut part = hours(id, 48, 24);
        part.meta.sources = vec![BlockId(1), BlockId(2)];
        part
    };
    check(&[part(3), part(4)], &Policy::default(), "");
    check(&[part(3), part(4), hours(5, 40, 1)], &Policy::default(), "Merge 3+4+5");
}

#[test]
fn expired_blocks_are_removed() {
    let policy = Policy { keep_ms: DAY_MS, ..Policy::default() };
    check(&[hours(1, 27, 4), hours(2, 28, 2), hours(3, 4, 2)], &policy, "Expired 2");
}

#[test]
fn the_oldest_go_when_all_take_too_much() {
    let policy = Policy { bytes_max: 250, ..Policy::default() };
    check(&[hours(9, 8, 2), hours(2, 6, 2), hours(3, 4, 2)], &policy, "TooMuch 9");
}

#[test]
fn series_with_their_own_time_go_alone() {
    let rule = |keep_ms| RetentionRule { selector: Vec::new(), keep_ms };
    let policy =
        Policy { keep_ms: 365 * DAY_MS, retention_rules: vec![rule(DAY_MS)], ..Policy::default() };
    let with = |kept: [u64; 2], id| {
        let mut block = hours(id, 30, 2);
        block.series_by_retention = kept.to_vec();
        block
    };
    check(&[with([3, 7], 1)], &policy, "Expired 1 [0] []");
    check(&[with([3, 0], 1)], &policy, "Expired 1");
    check(&[with([0, 7], 1)], &policy, "");
    let longer =
        Policy { keep_ms: DAY_MS, retention_rules: vec![rule(365 * DAY_MS)], ..Policy::default() };
    check(&[with([3, 7], 1)], &longer, "Expired 1 [1] []");
    check(&[with([0, 7], 1)], &longer, "Expired 1");
}

#[test]
fn old_blocks_become_coarser_once() {
    let rule = DownsampleRule {
        name: "5m".into(),
        selector: Vec::new(),
        after_ms: DAY_MS,
        interval_ms: 300_000,
    };
    let policy = Policy { downsample_rules: vec![rule], ..Policy::default() };
    let with = |id, ago, series| {
        let mut block = hours(id, ago, 2);
        block.series_by_downsampling = vec![series];
        block
    };
    check(&[with(1, 30, 5), with(2, 20, 5), with(3, 50, 0)], &policy, "Coarsen 1 [] [0]");
    let mut done = with(1, 30, 5);
    done.meta.rules = vec!["5m".into()];
    check(&[done], &policy, "");
}

#[test]
fn deleted_samples_are_cleaned_away_last() {
    let mut deleted = hours(1, 4, 2);
    deleted.has_tombstones = true;
    check(&[deleted.clone()], &Policy::default(), "Clean 1");
    check(&[deleted, hours(2, 4, 2)], &Policy::default(), "Merge 1+2");
}

#[test]
fn a_damaged_block_is_left_alone_until_all_of_it_is_over() {
    let mut damaged = hours(1, 4, 2);
    (damaged.is_damaged, damaged.has_tombstones) = (true, true);
    let others = [damaged, hours(2, 4, 2), hours(3, 4, 2)];
    check(&others, &Policy::default(), "Merge 2+3");
    let policy = Policy { keep_ms: HOUR_MS, ..Policy::default() };
    check(&others, &policy, "Expired 1, Expired 2, Expired 3");
}

#[test]
fn no_block_is_in_two_jobs_and_the_edges_of_time_are_no_matter() {
    let policy = Policy { keep_ms: DAY_MS, bytes_max: 300, ..Policy::default() };
    let mut blocks: Vec<Facts> = (0..20).map(|id| hours(id, 10 + id as i64 * 2, 2)).collect();
    blocks.push(block(90, i64::MIN, i64::MAX));
    blocks.push(block(91, i64::MAX - 1, i64::MAX));
    let jobs = plan(&blocks, &policy, NOW_MS);
    let mut all: Vec<BlockId> = jobs.iter().flat_map(|job| job.sources.clone()).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn blocks_that_were_written_early_are_merged_when_many_are_alike() {
    let mut blocks: Vec<Facts> = (1..=7).map(|id| hours(id, 2, 2)).collect();
    check(&blocks, &Policy::default(), "");
    blocks.push(hours(8, 2, 2));
    check(&blocks, &Policy::default(), "Merge 1+2+3+4+5+6+7+8");
    blocks[3].size_bytes = 801;
    check(&blocks, &Policy::default(), "");
    blocks.extend((9..=12).map(|id| hours(id, 2, 2)));
    check(&blocks, &Policy::default(), "Merge 5+6+7+8+9+10+11+12");
}

#[test]
fn merges_skip_no_newer_block_in_between() {
    let mut blocks: Vec<Facts> = (1..=6).map(|id| hours(id, 4, 2)).collect();
    blocks[2].size_bytes = 100_000;
    check(&blocks, &Policy::default(), "Merge 4+5+6");
}
