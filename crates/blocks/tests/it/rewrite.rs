//! Planned work, on a real directory and a simulated one.

use std::ops::ControlFlow;

use egret_blocks::block::BlockError;
use egret_blocks::catalog::{BlockLimits, Catalog};
use egret_blocks::core::plan::{DownsampleRule, Policy, RetentionRule, plan};
use egret_log::simulated::SimulatedDisk;
use egret_log::{Directory, Disk};
use egret_metrics_model::{Labels, MatchOp, TimeMs};

use super::{Content, content, matcher, open, publish};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// One sample a minute for each job, its value the hour and the shard.
fn hours(from: i64, to: i64, shard: u64) -> Content {
    let mut all = Content::new();
    for job in ["debug", "node"] {
        let shard_name = shard.to_string();
        let labels = Labels::new([("__name__", "up"), ("job", job), ("shard", &shard_name)]);
        let times_ms = (from * 60..to * 60).map(|minute| minute * 60_000);
        all.insert(labels, times_ms.map(|time_ms| (time_ms, shard)).collect());
    }
    all
}

/// Does what is planned until nothing is, and answers why each was done.
fn settle<D: Disk>(catalog: &Catalog<D>, policy: &Policy, now_ms: TimeMs) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let jobs = plan(&catalog.collect_facts(policy).expect("they are whole"), policy, now_ms);
        if jobs.is_empty() {
            return done;
        }
        assert!(done.len() < 100, "it comes to an end: {done:?}");
        for job in jobs {
            catalog
                .run_job(&job, policy, BlockLimits::default(), &mut |_| ControlFlow::Continue(()))
                .expect("the disk works");
            done.push(format!("{:?} {}", job.reason, job.sources.len()));
        }
    }
}

fn all<D: Disk>(catalog: &Catalog<D>) -> Content {
    let mut all = Content::new();
    for block in catalog.snapshot().blocks() {
        for (labels, samples) in content(block).expect("it is whole") {
            all.entry(labels).or_default().extend(samples);
        }
    }
    all
}

#[test]
fn a_day_of_two_shards_becomes_one_block_on_a_real_disk() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let disk = Directory::open(home.path()).expect("it opens");
    let catalog = open(&disk).expect("it opens");
    let mut expected = Content::new();
    for from in (0..24).step_by(2) {
        for shard in 0..2 {
            let content = hours(from, from + 2, shard);
            publish(&catalog, &content).expect("there is space");
            for (labels, samples) in content {
                expected.entry(labels).or_default().extend(samples);
            }
        }
    }
    let before = catalog.snapshot();
    let done = settle(&catalog, &Policy::default(), 2 * DAY_MS);
    assert_eq!(done.len(), 16, "each window of two hours, of eight, then the day: {done:?}");
    assert_eq!(all(&catalog), expected);
    assert_eq!(before.blocks().len(), 24);
    for block in before.blocks() {
        content(block).expect("what was replaced is still read");
    }
    let catalog = open(&disk).expect("it opens");
    assert_eq!(all(&catalog), expected);
    let snapshot = catalog.snapshot();
    assert_eq!((snapshot.blocks().len(), snapshot.blocks()[0].meta().level), (1, 3));
    assert_eq!(disk.list().expect("the disk works").len(), 1);
}

#[test]
fn some_series_are_kept_shorter_and_others_become_coarser() {
    let disk = SimulatedDisk::new(8 << 20);
    let catalog = open(&disk).expect("it opens");
    publish(&catalog, &hours(0, 2, 0)).expect("there is space");
    let debug = vec![matcher("job", MatchOp::Equal, "debug")];
    let policy = Policy {
        keep_ms: 365 * DAY_MS,
        retention_rules: vec![RetentionRule { selector: debug, keep_ms: DAY_MS }],
        downsample_rules: vec![DownsampleRule {
            name: "an hour".into(),
            selector: Vec::new(),
            after_ms: 30 * DAY_MS,
            interval_ms: HOUR_MS,
        }],
        ..Policy::default()
    };
    assert_eq!(settle(&catalog, &policy, DAY_MS), [""; 0]);
    assert_eq!(settle(&catalog, &policy, 2 * DAY_MS), ["Expired 1"]);
    let left = all(&catalog);
    assert_eq!(left.len(), 1);
    assert_eq!(left.values().next().map(|samples| samples.len()), Some(120));
    assert_eq!(settle(&catalog, &policy, 40 * DAY_MS), ["Coarsen 1"]);
    let left = all(&catalog);
    let times_ms: Vec<TimeMs> = left.values().flat_map(|samples| samples.keys().copied()).collect();
    assert_eq!(times_ms, [HOUR_MS - 60_000, 2 * HOUR_MS - 60_000]);
    assert_eq!(settle(&catalog, &policy, 400 * DAY_MS), ["Expired 1"]);
    assert!(catalog.snapshot().blocks().is_empty());
}

#[test]
fn what_was_deleted_is_gone_from_the_file_when_it_is_cleaned() {
    let disk = SimulatedDisk::new(8 << 20);
    let catalog = open(&disk).expect("it opens");
    let id = publish(&catalog, &hours(0, 2, 0)).expect("there is space");
    catalog
        .delete(id, [0].into_iter().collect(), TimeMs::MIN, TimeMs::MAX)
        .expect("the disk works");
    catalog.delete(id, [1].into_iter().collect(), HOUR_MS, TimeMs::MAX).expect("the disk works");
    assert_eq!(settle(&catalog, &Policy::default(), HOUR_MS), ["Clean 1"]);
    let snapshot = catalog.snapshot();
    let block = &snapshot.blocks()[0];
    assert!(block.tombstones().is_empty());
    assert_eq!((block.series(), block.meta().samples), (1, 60));
}

#[test]
fn work_on_a_block_from_which_is_deleted_meanwhile_is_refused() {
    let disk = SimulatedDisk::new(8 << 20);
    let catalog = open(&disk).expect("it opens");
    let id = publish(&catalog, &hours(0, 2, 0)).expect("there is space");
    let old = catalog.snapshot();
    catalog.delete(id, [0].into_iter().collect(), 0, 1).expect("the disk works");
    let refused = catalog.replace(old.blocks(), Vec::new());
    assert!(matches!(refused, Err(BlockError::Changed { block }) if block == id));
    assert_eq!(catalog.snapshot().blocks().len(), 1);
}

#[test]
fn work_that_is_ended_leaves_nothing() {
    let disk = SimulatedDisk::new(64 << 20);
    let catalog = open(&disk).expect("it opens");
    let ids =
        [0, 1].map(|shard| publish(&catalog, &hours(0, 3000, shard)).expect("there is space"));
    let policy = Policy { windows_ms: vec![1 << 60], ..Policy::default() };
    let facts = catalog.collect_facts(&policy).expect("they are whole");
    let jobs = plan(&facts, &policy, 1 << 61);
    assert_eq!(jobs[0].sources, ids);
    let ended =
        catalog.run_job(&jobs[0], &policy, BlockLimits::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(BlockError::Interrupted)));
    assert_eq!(disk.list().expect("the disk works").len(), 2);
}
