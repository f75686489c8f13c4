//! Blocks that are damaged under a running engine: it says so, and the rest is answered.

use std::path::{Path, PathBuf};

use egret_metrics_model::TimeSpan;
use egret_promql::parse_selector;
use egret_series::{EvalTimes, QueryOptions, Series, SeriesConfig};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use crate::engine::{
    NOW_MS, Written, clock, encode_request, query_vector, start_engine_with_clock,
};

const MINUTE_MS: i64 = 60_000;

/// A shard with two blocks: hosts with an hour of samples ten hours ago, and again two hours ago.
async fn two_blocks(directory: &TempDir, registry: &mut Registry) -> Series {
    let config = SeriesConfig { shards: 1, ..SeriesConfig::default() };
    let series = start_engine_with_clock(clock(), directory, config, registry).await;
    let names: Vec<String> = (0..20).map(|host| format!("host-{host:02}")).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|name| [("__name__", "load"), ("host", name)]).collect();
    for (hours, sign) in [(10, 1.0), (2, -1.0)] {
        // Nothing that can be compressed well: each has bytes of its own in the file.
        let samples: Vec<Vec<(i64, f64)>> = (0..20)
            .map(|host| {
                let sample = |at: i32| {
                    let time_ms = NOW_MS - hours * 60 * MINUTE_MS + i64::from(at) * MINUTE_MS;
                    (time_ms, sign * f64::from((at + 1) * (host + 3)).sqrt())
                };
                (0..60).map(sample).collect()
            })
            .collect();
        let written: Vec<Written<'_>> = labels
            .iter()
            .zip(&samples)
            .map(|(labels, samples)| (&labels[..], &samples[..]))
            .collect();
        // One request is one change of the head: the engine's own flush cannot make two blocks of
        // it.
        let request = encode_request(&written);
        series.remote_write_v1(&request).await.expect("it is written");
        series.flush().await.expect("it is flushed");
    }
    series
}

fn blocks(directory: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.path().join("series/blocks")).expect("it is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it is").path()).collect();
    paths.sort();
    paths
}

/// Turns bytes of a file over, in place.
fn damage(path: &Path, range: std::ops::RangeFrom<usize>, length: usize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).expect("it is there");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start as u64).expect("it is that long");
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    file.write_all_at(&bytes, range.start as u64).expect("there is room");
}

async fn refusal(series: &Series, query: &str) -> String {
    let asked = series.query(query, EvalTimes::At(NOW_MS), QueryOptions::default());
    asked.await.expect_err("it cannot be answered").to_string()
}

fn shown(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
    text
}

async fn warnings(series: &Series, query: &str) -> Vec<String> {
    let answer = series.query(query, EvalTimes::At(NOW_MS), QueryOptions::default()).await;
    answer.expect("the query is answered").warnings
}

const ONE_MISSING: &str =
    "partial data: 1 damaged files of blocks were set aside, their samples are missing";

const ALL: &str = "count_over_time(load[11h])";

#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_a_damaged_index_is_named_and_set_aside_and_the_rest_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut registry = Registry::default();
    let series = two_blocks(&directory, &mut registry).await;
    let all = blocks(&directory);
    let name = all[0].file_name().expect("it has one").to_string_lossy().into_owned();
    let id = name.strip_prefix("block-").expect("it is a block").to_owned();
    let size = std::fs::metadata(&all[0]).expect("it is there").len() as usize;
    damage(&all[0], size - 600.., 600);
    assert_eq!(warnings(&series, ALL).await, [ONE_MISSING], "of the query that found it");
    let reasons = egret_base::lifecycle::Service::failed_parts(&series);
    assert!(reasons[0].reason.contains(&format!("block {id} is damaged at offset ")));
    assert_eq!(warnings(&series, ALL).await, [ONE_MISSING]);
    assert_eq!(warnings(&series, "sum(load offset 1h)").await, [""; 0], "of samples not missing");
    assert_eq!(warnings(&series, "1 + 1").await, [""; 0]);
    let old = warnings(&series, "load offset 9h or vector(1)").await;
    assert_eq!(old, [ONE_MISSING], "nothing is found where something is missing");
    let rest = query_vector(&series, ALL, NOW_MS).await;
    assert_eq!(rest.len(), 20);
    assert!(rest.iter().all(|(_, count)| *count == 60.0), "{rest:?}");
    let aside = blocks(&directory);
    let aside = aside.iter().filter(|path| path.ends_with(format!("quarantine-{name}")));
    assert_eq!(aside.count(), 1);
    assert_eq!(series.summary().expect("it runs").blocks_set_aside, 1);
    let metrics = shown(&registry);
    assert!(metrics.contains("egret_series_block_failures_total 1\n"), "{metrics}");
    // Deleting goes on with what is left.
    let selector = parse_selector("load{host=\"host-07\"}").expect("it is one");
    let all = TimeSpan { start: 0, end: NOW_MS };
    series.delete(vec![selector], all).await.expect("it is deleted");
    assert_eq!(query_vector(&series, ALL, NOW_MS).await.len(), 19);
    egret_base::lifecycle::Service::stop(&series).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_samples_are_named_whenever_they_are_wanted_and_can_be_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut registry = Registry::default();
    let series = two_blocks(&directory, &mut registry).await;
    // Samples are what a file begins with.
    damage(&blocks(&directory)[0], 100.., 8);
    for _ in 0..2 {
        let told = refusal(&series, ALL).await;
        assert!(told.contains("is damaged at offset "), "{told}");
    }
    let others =
        query_vector(&series, "count_over_time(load{host!=\"host-00\"}[11h])", NOW_MS).await;
    assert_eq!(others.len(), 19);
    assert!(others.iter().all(|(_, count)| *count == 120.0), "{others:?}");
    assert_eq!(series.summary().expect("it runs").blocks_set_aside, 0);
    let selector = parse_selector("load{host=\"host-00\"}").expect("it is one");
    let damaged = TimeSpan { start: 0, end: NOW_MS - 8 * 60 * MINUTE_MS };
    series.delete(vec![selector], damaged).await.expect("it is deleted");
    let all = query_vector(&series, "sum(count_over_time(load[11h]))", NOW_MS).await;
    assert_eq!(all[0].1, 19.0 * 120.0 + 60.0);
    egret_base::lifecycle::Service::stop(&series).await;
}
