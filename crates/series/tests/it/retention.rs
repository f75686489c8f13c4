//! What is kept for how long, by which rule, and how finely: seen in queries and on disk, before
//! and after a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egret_base::ManualClock;
use egret_base::lifecycle::Service;
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_blocks::block::BlockCache;
use egret_blocks::catalog::Catalog;
use egret_log::Directory;
use egret_metrics_model::{SeriesSamples, TimeMs};
use egret_promql::QueryResult;
use egret_series::{EvalTimes, QueryOptions, Series, SeriesConfig};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use crate::engine::{NOW_MS, clock, encode_request, start_engine_with_clock};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What a block that is deleted or thinned out as a whole may span: no block of these tests is of a
/// longer window.
const WINDOW_MS: i64 = DAY_MS;

/// The samples of each job.
type Samples = BTreeMap<String, BTreeMap<TimeMs, f64>>;

/// An engine with a clock, in a directory that outlives it.
struct World {
    directory: TempDir,
    clock: Arc<ManualClock>,
    config: SeriesConfig,
    series: Series,
}

impl World {
    async fn new(config: SeriesConfig) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = clock();
        let registry = &mut Registry::default();
        let series =
            start_engine_with_clock(clock.clone(), &directory, config.clone(), registry).await;
        Self { directory, clock, config, series }
    }

    fn now_ms(&self) -> TimeMs {
        self.series.now_ms()
    }

    async fn restart(&mut self) {
        self.series.stop().await;
        let config = self.config.clone();
        let registry = &mut Registry::default();
        self.series =
            start_engine_with_clock(self.clock.clone(), &self.directory, config, registry).await;
    }

    /// A sample of each job at each of these times; the value tells them apart and is hard to
    /// compress.
    async fn write(&self, jobs: &[&str], times_ms: impl Iterator<Item = TimeMs>) {
        let samples: Vec<_> = times_ms.map(|at| (at, value(at))).collect();
        for job in jobs {
            let labels = [("__name__", "load"), ("job", *job)];
            let request = encode_request(&[(&labels, &samples)]);
            let written = self.series.remote_write_v1(&request).await;
            let written = written.expect("it is written");
            assert_eq!(written.rejected.samples, 0, "{:?}", written.rejected);
        }
    }

    async fn compact(&self) {
        self.series.compact().await.expect("blocks are tended");
    }

    async fn flush(&self) {
        self.series.flush().await.expect("it is flushed");
    }

    /// All that queries find.
    async fn query_all(&self) -> Samples {
        let all = self
            .series
            .query("load[1000d]", EvalTimes::At(NOW_MS + 100 * DAY_MS), QueryOptions::default())
            .await
            .expect("the query is answered");
        let QueryResult::Matrix(all) = all.result else {
            panic!("not a matrix: {:?}", all.result);
        };
        let of_job = |one: egret_promql::SeriesPoints| {
            let job = one.labels.get("job").to_owned();
            (job, one.floats.into_iter().collect())
        };
        all.into_iter().map(of_job).collect()
    }

    fn blocks(&self) -> PathBuf {
        self.directory.path().join("series/blocks")
    }

    /// Bytes of all files with blocks.
    fn block_files_size(&self) -> u64 {
        let entries = std::fs::read_dir(self.blocks()).expect("it is there");
        let sizes = entries.map(|entry| entry.and_then(|entry| entry.metadata()));
        sizes.map(|entry| entry.expect("it is there").len()).sum()
    }

    /// All that is in files with blocks. The engine has been stopped.
    fn read_blocks(&self) -> Samples {
        let disk = Directory::open(&self.blocks()).expect("it is there");
        let catalog = Catalog::open(disk, Arc::new(BlockCache::new(1 << 20)));
        let snapshot = catalog.expect("it opens").snapshot();
        let mut all = Samples::new();
        for block in snapshot.blocks() {
            for number in 0..block.series() {
                let mut read = SeriesSamples::default();
                let labels = block.labels(number).expect("it is whole");
                let of = block.read(number, TimeMs::MIN, TimeMs::MAX, &mut read);
                of.expect("it is whole");
                let samples = read.times_ms.into_iter().zip(read.values);
                let job = labels.get("job").to_owned();
                all.entry(job).or_default().extend(samples);
            }
        }
        all
    }
}

fn value(at: TimeMs) -> f64 {
    (at as f64).sqrt().sin()
}

fn days(days: i64) -> Duration {
    Duration::from_millis((days * DAY_MS) as u64)
}

/// Times from so long before now until now.
fn recent_times(span_ms: i64, step_ms: i64) -> impl Iterator<Item = TimeMs> + Clone {
    (0..span_ms / step_ms).map(move |at| NOW_MS - span_ms + (at + 1) * step_ms)
}

/// What was written is there as far as it is younger than `keep_ms`, and nothing is that is older
/// by a window.
#[track_caller]
fn check_retained(
    found: &Samples,
    job: &str,
    written: impl Iterator<Item = TimeMs>,
    since_ms: TimeMs,
) {
    let none = BTreeMap::new();
    let found = found.get(job).unwrap_or(&none);
    let mut last = None;
    for at in written {
        match found.get(&at) {
            Some(found) => assert_eq!(*found, value(at), "{job} at {at}"),
            None => assert!(at < since_ms, "{job} lost {}", at - since_ms),
        }
        if found.contains_key(&at) {
            assert!(at >= since_ms - WINDOW_MS, "{job} has {}", at - since_ms);
        }
        last = Some(at);
    }
    assert!(found.keys().next_back() <= last.as_ref(), "{job} has more");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_its_rule_says_is_gone_from_queries_and_from_disk() {
    let config = SeriesConfig {
        shards: 2,
        retention: ConfigDuration::secs(10 * 86_400),
        keep: r#"{job="debug"} 1d; {job=~"tmp|debug"} 60h"#.to_owned(),
        ..SeriesConfig::default()
    };
    let mut world = World::new(config).await;
    let keeps = [
        ("api", 10 * DAY_MS),
        ("node", 10 * DAY_MS),
        ("tmp", 60 * HOUR_MS),
        // The first rule that takes it counts.
        ("debug", DAY_MS),
    ];
    let written = recent_times(9 * DAY_MS, 10 * MINUTE_MS);
    world.write(&["api", "debug", "node", "tmp"], written.clone()).await;
    let check = |found: &Samples, now_ms: TimeMs| {
        for (job, keep_ms) in keeps {
            check_retained(found, job, written.clone(), now_ms - keep_ms);
        }
    };
    world.flush().await;
    world.compact().await;
    check(&world.query_all().await, NOW_MS);
    world.restart().await;
    check(&world.query_all().await, NOW_MS);
    // Two days later more of it is over; what is still only in memory and log is no matter.
    world.clock.advance(days(2));
    let fresh = world.now_ms();
    world.write(&["api"], [fresh].into_iter()).await;
    world.compact().await;
    world.restart().await;
    let mut found = world.query_all().await;
    let of_api = found.get_mut("api").expect("it is kept");
    assert_eq!(of_api.remove(&fresh), Some(value(fresh)));
    check(&found, NOW_MS + 2 * DAY_MS);
    assert!(!found.contains_key("debug"), "{:?}", found.keys());
    world.series.stop().await;
    check(&world.read_blocks(), NOW_MS + 2 * DAY_MS);
    // Nine days later only what came after the rest is left, and then nothing.
    world.clock.advance(days(9));
    world.restart().await;
    world.compact().await;
    let found = world.query_all().await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["api"]);
    assert_eq!(found["api"], [(fresh, value(fresh))].into());
    world.clock.advance(days(2));
    world.compact().await;
    assert_eq!(world.query_all().await, Samples::new());
    world.series.stop().await;
    assert_eq!(world.read_blocks(), Samples::new());
    assert_eq!(world.block_files_size(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_keeps_longer_is_taken_in_as_long() {
    let config = SeriesConfig {
        retention: ConfigDuration::secs(2 * 86_400),
        keep: "{job=\"long\"} 10d".to_owned(),
        ..SeriesConfig::default()
    };
    let world = World::new(config).await;
    let old = NOW_MS - 5 * DAY_MS;
    world.write(&["long", "short"], [old].into_iter()).await;
    world.flush().await;
    world.compact().await;
    let found = world.query_all().await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["long"]);
    let labels = [("__name__", "load"), ("job", "long")];
    let too_old = [(NOW_MS - 11 * DAY_MS, 1.0)];
    let request = encode_request(&[(&labels, &too_old)]);
    let written = world.series.remote_write_v1(&request).await;
    assert_eq!(written.expect("it is read").rejected.samples, 1);
    world.series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_for_ever_stays() {
    let config = SeriesConfig {
        shards: 1,
        retention: ConfigDuration::secs(0),
        keep: r#"{job="debug"} 1d"#.to_owned(),
        ..SeriesConfig::default()
    };
    let mut world = World::new(config).await;
    let written = recent_times(3 * DAY_MS, HOUR_MS);
    world.write(&["debug", "node"], written.clone()).await;
    world.flush().await;
    world.clock.advance(days(4_000));
    for _ in 0..2 {
        world.compact().await;
        let found = world.query_all().await;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["node"]);
        assert_eq!(found["node"], written.clone().map(|at| (at, value(at))).collect());
        world.restart().await;
    }
    world.series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_its_size_the_oldest_blocks_go_first_and_no_more_than_have_to() {
    let config = SeriesConfig { shards: 2, ..SeriesConfig::default() };
    let mut world = World::new(config).await;
    let written = recent_times(6 * DAY_MS, MINUTE_MS);
    world.write(&["api", "node"], written.clone()).await;
    world.flush().await;
    world.compact().await;
    let all_bytes = world.block_files_size();
    let before = world.query_all().await;
    assert_eq!(before["node"].len(), written.clone().count());
    let bytes_max = all_bytes / 2;
    world.config.size_max = ByteSize(bytes_max);
    world.restart().await;
    world.compact().await;
    let left_bytes = world.block_files_size();
    assert!(left_bytes <= bytes_max, "{left_bytes} of {bytes_max}");
    // No block is of more than a day, and a day is less than a fourth of six.
    assert!(left_bytes > bytes_max - all_bytes / 4, "{left_bytes} of {all_bytes}");
    let left = world.query_all().await;
    for (job, before) in &before {
        let left = &left[job];
        let (first, _) = left.first_key_value().expect("some of it is left");
        // All that is newer is there, as it was.
        let newer = before.range(first..).map(|(at, value)| (*at, *value));
        assert_eq!(*left, newer.collect(), "{job}");
        assert!(left.len() < before.len(), "{job}");
    }
    let firsts: Vec<_> = left.values().filter_map(|of| of.keys().next()).collect();
    assert!((firsts[0] - firsts[1]).abs() <= WINDOW_MS, "{firsts:?}");
    world.restart().await;
    assert_eq!(world.query_all().await, left);
    world.series.stop().await;
    assert_eq!(world.read_blocks(), left);
}

/// The last sample of each hour.
fn downsample(written: impl Iterator<Item = TimeMs>) -> BTreeMap<TimeMs, f64> {
    let hours = written.map(|at| (at.div_euclid(HOUR_MS), at));
    let last: BTreeMap<_, _> = hours.collect();
    last.into_values().map(|at| (at, value(at))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_samples_are_thinned_out_and_new_ones_are_not() {
    let config = SeriesConfig {
        shards: 2,
        coarsen: r#"{job="node"} after 2d every 1h"#.to_owned(),
        ..SeriesConfig::default()
    };
    let mut world = World::new(config).await;
    let written = recent_times(6 * DAY_MS, 7 * MINUTE_MS);
    // Every fifth comes late, into blocks that have been thinned out already.
    let late = |at: &TimeMs| at.div_euclid(7 * MINUTE_MS).rem_euclid(5) == 2;
    let all: BTreeMap<_, _> = written.clone().map(|at| (at, value(at))).collect();
    let check = |found: &Samples, written: BTreeMap<TimeMs, f64>, since_ms: TimeMs| {
        let node = &found["node"];
        let thinned = downsample(written.keys().copied());
        let sure_ms = since_ms - WINDOW_MS;
        let old = |all: &BTreeMap<TimeMs, f64>| -> BTreeMap<TimeMs, f64> {
            all.range(..sure_ms).map(|(at, value)| (*at, *value)).collect()
        };
        assert_eq!(old(node), old(&thinned));
        for (at, value) in &written {
            let is_wanted = *at >= since_ms || (*at >= sure_ms && thinned.contains_key(at));
            match node.get(at) {
                Some(found) => assert_eq!(found, value),
                None => assert!(!is_wanted, "lost {}", at - since_ms),
            }
        }
        assert!(node.keys().all(|at| written.contains_key(at)));
        assert_eq!(found["api"], written);
    };
    let in_time = written.clone().filter(|at| !late(at));
    world.write(&["api", "node"], in_time.clone()).await;
    world.flush().await;
    world.compact().await;
    let in_time = in_time.map(|at| (at, value(at))).collect();
    check(&world.query_all().await, in_time, NOW_MS - 2 * DAY_MS);
    world.write(&["api", "node"], written.filter(late)).await;
    world.flush().await;
    world.compact().await;
    for _ in 0..2 {
        check(&world.query_all().await, all.clone(), NOW_MS - 2 * DAY_MS);
        world.restart().await;
        world.compact().await;
    }
    // At last all of it is old.
    world.clock.advance(days(5));
    world.compact().await;
    let found = world.query_all().await;
    assert_eq!(found["node"], downsample(all.keys().copied()));
    assert_eq!(found["api"], all);
    world.series.stop().await;
    assert_eq!(world.read_blocks(), found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_forwards_and_back_costs_no_samples_and_no_memory() {
    let config = SeriesConfig { shards: 1, ..SeriesConfig::default() };
    let mut world = World::new(config).await;
    let mut written = Samples::new();
    let mut write = async |world: &World| {
        let times_ms: Vec<_> = (-60..60).map(|at| world.now_ms() + at * 1_000).collect();
        world.write(&["api"], times_ms.iter().copied()).await;
        let samples = times_ms.into_iter().map(|at| (at, value(at)));
        written.entry("api".to_owned()).or_default().extend(samples);
    };
    write(&world).await;
    // It is five days ahead for a while, and blocks are written.
    world.clock.advance(days(5));
    write(&world).await;
    world.clock.advance(days(1));
    world.compact().await;
    world.clock.set_back(days(6));
    world.restart().await;
    for _ in 0..3 {
        world.clock.advance(Duration::from_millis(3 * HOUR_MS as u64));
        world.compact().await;
        let head = world.series.head_statistics(1).await;
        assert_eq!(head.expect("it is counted").chunks, 0);
        write(&world).await;
    }
    world.restart().await;
    assert_eq!(world.query_all().await, written);
    world.series.stop().await;
}
