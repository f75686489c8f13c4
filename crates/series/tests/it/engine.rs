//! The engine as its users see it: what was acknowledged is there at once, and after a restart.

use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{ManualClock, SystemEntropy, Timestamp};
use egret_metrics_model::{Labels, TimeSpan};
use egret_metrics_wire::{WireSample, encode, snappy};
use egret_promql::{QueryResult, SampleValue, parse_selector};
use egret_series::{EngineOptions, EvalTimes, QueryOptions, Series, SeriesConfig, SnapshotOf};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

pub const NOW_MS: i64 = 1_700_000_000_000;

/// A clock that stands.
pub fn clock() -> Arc<ManualClock> {
    let now = Timestamp::from_micros(NOW_MS * 1_000);
    Arc::new(ManualClock::starting_at(now))
}

pub async fn start_engine(directory: &TempDir, config: SeriesConfig) -> Series {
    start_engine_with_clock(clock(), directory, config, &mut Registry::default()).await
}

/// An engine whose time and metrics are at hand.
pub async fn start_engine_with_clock(
    clock: Arc<ManualClock>,
    directory: &TempDir,
    config: SeriesConfig,
    registry: &mut Registry,
) -> Series {
    let options = EngineOptions {
        config,
        directory: directory.path().join("series"),
        clock,
        entropy: Arc::new(SystemEntropy),
    };
    let series = Series::new(options, registry);
    series.start().await.expect("it starts");
    series
}

pub type Written<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

pub fn encode_request(series: &[Written<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (labels, samples) in series {
        let samples: Vec<WireSample> = samples
            .iter()
            .map(|(time_ms, value)| WireSample { time_ms: *time_ms, value: *value })
            .collect();
        let series = encode::SeriesToWrite {
            labels: labels.to_vec(),
            samples,
            ..encode::SeriesToWrite::default()
        };
        encode::append_series_v1(&series, &mut body);
    }
    snappy::encode(&body)
}

pub async fn query_vector(series: &Series, query: &str, at_ms: i64) -> Vec<(String, f64)> {
    let answer = series
        .query(query, EvalTimes::At(at_ms), QueryOptions::default())
        .await
        .expect("the query is answered");
    let QueryResult::Vector(samples) = answer.result else {
        panic!("not a vector: {:?}", answer.result);
    };
    let one = |sample: &egret_promql::InstantSample| match &sample.value {
        SampleValue::Float(value) => (sample.labels.to_string(), *value),
        other => panic!("not a number: {other:?}"),
    };
    let mut all: Vec<_> = samples.iter().map(one).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_there_at_once_and_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig { shards: 3, ..SeriesConfig::default() };
    let series = start_engine(&directory, config.clone()).await;
    for step in 0..3 {
        let at = NOW_MS - 30_000 + step * 10_000;
        write_hosts(&series, at, step as f64, 0..100).await;
        assert_eq!(
            query_vector(&series, "sum(load)", at).await,
            [("{}".to_owned(), step as f64 * 100.0)]
        );
    }
    series.stop().await;
    drop(series);
    let series = start_engine(&directory, config).await;
    assert_eq!(query_vector(&series, "sum(load)", NOW_MS).await, [("{}".to_owned(), 200.0)]);
    let at = NOW_MS - 20_000;
    assert_eq!(
        query_vector(&series, "load{host=~\"host-7|host-8\"}", at).await,
        [("load{host=\"host-7\"}".to_owned(), 1.0), ("load{host=\"host-8\"}".to_owned(), 1.0),]
    );
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn good_samples_are_kept_and_bad_ones_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory, SeriesConfig::default()).await;
    let day = 86_400_000;
    let labels: &[(&str, &str)] = &[("__name__", "a")];
    let request = encode_request(&[
        (labels, &[(NOW_MS, 1.0), (NOW_MS, 2.0), (NOW_MS - 5, 3.0)]),
        (labels, &[(NOW_MS + day, 1.0), (NOW_MS - 400 * day, 1.0)]),
        (&[("b", "1")], &[(NOW_MS, 1.0)]),
        (&[("__name__", "a"), ("c", "1"), ("c", "2")], &[(NOW_MS, 1.0)]),
    ]);
    let written = series.remote_write_v1(&request).await.expect("it is read");
    assert_eq!((written.samples, written.late, written.rejected.samples), (2, 1, 5));
    let reasons = written.rejected.reasons.join("\n");
    expect_test::expect![[r#"
        the time 1700086400000 is too far in the future: see series.future_max
        the time 1665440000000 is too old: see series.retention and series.keep
        series has no metric name: set the label __name__
        label name "c" occurs twice
        a already has another value at 1700000000000, which is kept"#]]
    .assert_eq(&reasons);
    assert_eq!(query_vector(&series, "a", NOW_MS).await, [("a".to_owned(), 1.0)]);
    assert_eq!(
        query_vector(&series, "count_over_time(a[1m])", NOW_MS).await,
        [("{}".to_owned(), 2.0)]
    );
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_in_any_order_are_one_series() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory, SeriesConfig::default()).await;
    let orders: [&[(&str, &str)]; 3] = [
        &[("__name__", "a"), ("b", "1"), ("c", "2")],
        &[("c", "2"), ("b", "1"), ("__name__", "a")],
        &[("b", "1"), ("d", ""), ("__name__", "a"), ("c", "2")],
    ];
    for round in 0..3 {
        for (at, labels) in orders.iter().enumerate() {
            let time_ms = NOW_MS - 10_000 + round * 100 + at as i64;
            let written =
                series.remote_write_v1(&encode_request(&[(labels, &[(time_ms, 1.0)])])).await;
            assert_eq!(written.expect("it is written").samples, 1);
        }
    }
    let counted = query_vector(&series, "count_over_time(a[1m])", NOW_MS).await;
    assert_eq!(counted, [("{b=\"1\", c=\"2\"}".to_owned(), 9.0)]);
    let labels = Labels::new(orders[0].iter().copied());
    assert_eq!(query_vector(&series, "timestamp(a)", NOW_MS).await.len(), 1);
    let same = series.append([(labels, NOW_MS, 5.0)]).await.expect("it is written");
    assert_eq!(same.samples, 1);
    assert_eq!(query_vector(&series, "count_over_time(a[1m])", NOW_MS).await[0].1, 10.0);
    series.stop().await;
}

/// A sample of each of these hosts.
pub async fn write_hosts(series: &Series, at_ms: i64, value: f64, hosts: std::ops::Range<usize>) {
    let count = hosts.len() as u64;
    let names: Vec<String> = hosts.map(|n| format!("host-{n}")).collect();
    let labels: Vec<_> =
        names.iter().map(|name| [("__name__", "load"), ("host", &**name)]).collect();
    let samples = [(at_ms, value)];
    let all: Vec<_> = labels.iter().map(|pairs| (&pairs[..], &samples[..])).collect();
    let written = series.remote_write_v1(&encode_request(&all)).await.expect("it is written");
    assert_eq!(written.rejected.samples, 0, "{:?}", written.rejected);
    assert_eq!(written.samples, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_head_and_log_together_have_every_sample_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig { shards: 2, ..SeriesConfig::default() };
    let mut series = start_engine(&directory, config.clone()).await;
    // Ten hours, a sample a minute; blocks are written twice on the way, and after that some come
    // late.
    let minutes = 600;
    let at = |minute: i64| NOW_MS - (minutes - minute) * 60_000;
    for minute in 0..minutes {
        write_hosts(&series, at(minute), minute as f64, 10..300).await;
        if minute == 200 || minute == 400 {
            series.flush().await.expect("it is flushed");
            let counted = query_vector(&series, "sum(count_over_time(load[11h]))", NOW_MS).await;
            assert_eq!(counted[0].1, 290.0 * (minute + 1) as f64);
        }
        if minute == 300 {
            series.stop().await;
            series = start_engine(&directory, config.clone()).await;
        }
    }
    for minute in 0..minutes {
        write_hosts(&series, at(minute), minute as f64, 0..10).await;
    }
    for round in 0..3 {
        let counted = query_vector(&series, "sum(count_over_time(load[11h]))", NOW_MS).await;
        assert_eq!(counted[0].1, 300.0 * minutes as f64, "round {round}");
        let sum =
            query_vector(&series, "sum(sum_over_time(load{host=\"host-3\"}[11h]))", NOW_MS).await;
        assert_eq!(sum[0].1, (minutes * (minutes - 1) / 2) as f64, "round {round}");
        let first = NOW_MS - minutes * 60_000;
        assert_eq!(query_vector(&series, "count(load)", first).await[0].1, 300.0);
        match round {
            0 => {
                // The second finds nothing any more, and lets the series go.
                series.flush().await.expect("it is flushed");
                series.flush().await.expect("it is flushed");
            }
            _ => {
                series.stop().await;
                series = start_engine(&directory, config.clone()).await;
            }
        }
    }
    // All of it is in blocks: a log of one empty segment is left, and series are known by blocks
    // alone.
    assert_eq!(series.head_statistics(1).await.expect("it is counted").series, 0);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_stays_deleted_and_what_comes_later_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig::default();
    let mut series = start_engine(&directory, config.clone()).await;
    let minute = |minute: i64| NOW_MS - (300 - minute) * 60_000;
    let write = async |series: &Series, minutes: &[i64]| {
        for host in ["a", "b"] {
            let labels = [("__name__", "load"), ("host", host)];
            let samples: Vec<_> = minutes.iter().map(|at| (minute(*at), *at as f64)).collect();
            let request = encode_request(&[(&labels, &samples)]);
            series.remote_write_v1(&request).await.expect("it is written");
        }
    };
    // In a block, in order and late; then in the head, in order and late.
    write(&series, &(0..100).filter(|at| at % 10 > 0).collect::<Vec<_>>()).await;
    write(&series, &[0, 10, 20, 30, 40, 50]).await;
    series.flush().await.expect("it is flushed");
    write(&series, &(100..200).filter(|at| at % 10 > 0).collect::<Vec<_>>()).await;
    write(&series, &[60, 100, 110, 190]).await;
    let count = async |series: &Series, host: &str| {
        let query = format!("count_over_time(load{{host=\"{host}\"}}[10h])");
        query_vector(series, &query, NOW_MS).await.first().map(|(_, count)| *count)
    };
    assert_eq!(count(&series, "a").await, Some(190.0));
    let selector = parse_selector("load{host=\"a\"}").expect("it is one");
    let span = TimeSpan { start: minute(15), end: minute(184) };
    series.delete(vec![selector], span).await.expect("it is deleted");
    let left = 14.0 + 15.0 + 1.0;
    assert_eq!(count(&series, "a").await, Some(left));
    assert_eq!(count(&series, "b").await, Some(190.0));
    // A time within the deleted span, after the deletion.
    write(&series, &[20, 186]).await;
    for round in 0..4 {
        assert_eq!(count(&series, "a").await, Some(left + 1.0), "round {round}");
        assert_eq!(count(&series, "b").await, Some(190.0), "round {round}");
        if round == 1 {
            series.flush().await.expect("it is flushed");
            continue;
        }
        series.stop().await;
        series = start_engine(&directory, config.clone()).await;
    }
    let nothing = series.delete(Vec::new(), span).await;
    assert!(matches!(nothing, Err(egret_series::SeriesError::Invalid { .. })));
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subqueries_without_a_step_take_the_interval_of_rules() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig {
        evaluation_interval: egret_base::settings::ConfigDuration::secs(10),
        ..SeriesConfig::default()
    };
    let series = start_engine(&directory, config).await;
    let steps = "count_over_time(vector(1)[2m:])";
    assert_eq!(query_vector(&series, steps, NOW_MS).await[0].1, 12.0);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_an_engine_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory, SeriesConfig::default()).await;
    let labels = [("__name__", "load")];
    let samples: Vec<_> = (0..500).map(|at| (NOW_MS - at * 60_000, at as f64)).rev().collect();
    let request = encode_request(&[(&labels, &samples)]);
    series.remote_write_v1(&request).await.expect("it is written");
    let selector = parse_selector("load").expect("it is one");
    let gone = TimeSpan { start: NOW_MS - 100 * 60_000, end: NOW_MS - 91 * 60_000 };
    series.flush().await.expect("it is flushed");
    series.delete(vec![selector.clone()], gone).await.expect("it is deleted");
    let name = series.snapshot(SnapshotOf::Everything).await.expect("it is written");
    // What comes later is not in it.
    let all = TimeSpan { start: 0, end: NOW_MS };
    series.delete(vec![selector], all).await.expect("it is deleted");
    assert_eq!(query_vector(&series, "count_over_time(load[10h])", NOW_MS).await, []);
    series.clean_tombstones().await.expect("the space is given back");
    series.stop().await;
    let elsewhere = tempfile::tempdir().expect("a directory");
    let from = directory.path().join("series/snapshots").join(name);
    std::fs::rename(from, elsewhere.path().join("series")).expect("one file system");
    let series = start_engine(&elsewhere, SeriesConfig::default()).await;
    let counted = query_vector(&series, "count_over_time(load[10h])", NOW_MS).await;
    assert_eq!(counted[0].1, 490.0);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_looked_up_in_blocks_is_remembered_and_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut registry = Registry::default();
    let config = SeriesConfig { shards: 1, ..SeriesConfig::default() };
    let series = start_engine_with_clock(clock(), &directory, config, &mut registry).await;
    write_hosts(&series, NOW_MS, 1.0, 0..100).await;
    series.flush().await.expect("it is flushed");
    let counted = |registry: &Registry, what: &str| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
        let name = format!("egret_series_block_cache_{what}_total{{of=\"selections\"}} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&name));
        found.expect("it is shown").parse::<u64>().expect("a number")
    };
    // Both matchers and what they have in common.
    for (hits, misses) in [(0, 3), (1, 3), (2, 3)] {
        let found = query_vector(&series, "count(load{host=~\"host-.*7\"})", NOW_MS).await;
        assert_eq!(found[0].1, 10.0);
        assert_eq!(counted(&registry, "hits"), hits);
        assert_eq!(counted(&registry, "misses"), misses);
    }
    series.stop().await;
}
