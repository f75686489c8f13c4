//! A shard whose log is damaged keeps what is whole of it, and takes samples.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{ManualClock, SystemEntropy, Timestamp};
use egret_metrics_model::{Labels, TimeMs};
use egret_promql::{Answer, QueryResult, SampleValue};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use crate::api::{EngineOptions, Series};
use crate::config::SeriesConfig;
use crate::{EvalTimes, QueryOptions};

const NOW_MS: TimeMs = 1_700_000_000_000;
const SHARDS: usize = 2;
const SAMPLES: i64 = 100;

async fn start_engine(directory: &TempDir) -> Series {
    let options = EngineOptions {
        config: SeriesConfig { shards: SHARDS as u32, ..SeriesConfig::default() },
        directory: directory.path().join("series"),
        clock: Arc::new(ManualClock::starting_at(Timestamp::from_micros(NOW_MS * 1_000))),
        entropy: Arc::new(SystemEntropy),
    };
    let series = Series::new(options, &mut Registry::default());
    series.start().await.expect("it starts");
    series
}

/// Writes one sample of each of many series, as one record of each shard.
async fn write(series: &Series, time_ms: TimeMs) {
    let samples = (0..20).map(|number| {
        let number = number.to_string();
        (Labels::new([("__name__", "m"), ("n", number.as_str())]), time_ms, 1.0)
    });
    assert_eq!(series.append(samples).await.expect("it is written").samples, 20);
}

async fn query(series: &Series) -> (f64, Vec<String>) {
    let text = "sum(count_over_time(m[3h]))";
    let answer = series.query(text, EvalTimes::At(NOW_MS), QueryOptions::default()).await;
    let Answer { result, warnings, .. } = answer.expect("it is answered");
    let QueryResult::Vector(samples) = result else { panic!("it is no vector: {result:?}") };
    match samples[0].value {
        SampleValue::Float(count) => (count, warnings),
        ref other => panic!("it is no number: {other:?}"),
    }
}

/// The length of a file without the zeros at its end.
fn content_length(path: &Path) -> usize {
    let bytes = std::fs::read(path).expect("it is readable");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Turns a bit in the middle of the fullest segment of a shard's log over.
fn damage_log(shard: &Path) {
    let files = std::fs::read_dir(shard.join("log")).expect("it is there");
    let paths = files.map(|file| file.expect("it is listed").path());
    let segment = paths.max_by_key(|path| content_length(path)).expect("there is one");
    let mut bytes = std::fs::read(&segment).expect("it is readable");
    bytes[content_length(&segment) / 2] ^= 0x10;
    std::fs::write(&segment, bytes).expect("there is room");
}

fn damaged_directories(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let paths = entries.map(|entry| entry.expect("it is listed").path());
    paths.filter(|path| path.to_string_lossy().contains(".damaged-")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_with_a_damaged_record_keeps_what_is_whole_and_takes_samples() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory).await;
    for minute in 0..SAMPLES {
        write(&series, NOW_MS - (SAMPLES - minute) * 60_000).await;
    }
    let all = (SAMPLES * 20) as f64;
    assert_eq!(query(&series).await, (all, Vec::new()));
    series.stop().await;
    drop(series);
    let place = directory.path().join("series");
    damage_log(&place.join("000"));

    let series = start_engine(&directory).await;
    assert!(series.failed_parts().is_empty(), "{:?}", series.failed_parts());
    assert_eq!(damaged_directories(&place).len(), 1, "what was there is kept");
    let (found, warnings) = query(&series).await;
    // The other shard has lost nothing.
    assert!(found < all && found > all / 2.0, "{found} of {all}");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("partial data: the log of shard 0 "), "{warnings:?}");
    write(&series, NOW_MS).await;
    assert_eq!(query(&series).await.0, found + 20.0);
    series.stop().await;
    drop(series);

    // It is whole now, and no series is there twice.
    let series = start_engine(&directory).await;
    assert_eq!(query(&series).await, (found + 20.0, Vec::new()));
    assert_eq!(damaged_directories(&place).len(), 1);
    series.stop().await;
}

#[tokio::test]
async fn a_log_that_is_missing_is_not_replaced_by_an_empty_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory).await;
    write(&series, NOW_MS).await;
    series.stop().await;
    drop(series);
    let place = directory.path().join("series");
    std::fs::remove_dir_all(place.join("000/log")).expect("it is removed");
    let series = start_engine(&directory).await;
    let failed: Vec<String> = series.failed_parts().into_iter().map(|part| part.part).collect();
    assert_eq!(failed, ["series/000"]);
    assert!(damaged_directories(&place).is_empty());
    series.stop().await;
}
