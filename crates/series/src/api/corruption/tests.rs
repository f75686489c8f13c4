//! What answers say of a block that was found damaged.

use std::path::PathBuf;
use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{ManualClock, SystemEntropy, Timestamp};
use egret_metrics_model::{Labels, TimeMs};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use crate::api::{EngineOptions, Series};
use crate::config::SeriesConfig;
use crate::{EvalTimes, QueryOptions};

const NOW_MS: TimeMs = 1_700_000_000_000;
const MINUTE_MS: TimeMs = 60_000;

/// A shard with two blocks: an hour of samples ten hours ago, and one two hours ago.
async fn start_with_two_blocks(directory: &TempDir) -> Series {
    let options = EngineOptions {
        config: SeriesConfig { shards: 1, ..SeriesConfig::default() },
        directory: directory.path().join("series"),
        clock: Arc::new(ManualClock::starting_at(Timestamp::from_micros(NOW_MS * 1_000))),
        entropy: Arc::new(SystemEntropy),
    };
    let series = Series::new(options, &mut Registry::default());
    series.start().await.expect("it starts");
    for hours in [10, 2] {
        let samples = (0..1_200_i64).map(|number| {
            let (host, minute) = ((number % 20).to_string(), number / 20);
            let labels = Labels::new([("__name__", "load"), ("host", host.as_str())]);
            let time_ms = NOW_MS - (hours * 60 - minute) * MINUTE_MS;
            (labels, time_ms, ((number + 1) as f64).sqrt())
        });
        assert_eq!(series.append(samples).await.expect("they are written").samples, 1_200);
        series.flush().await.expect("it is flushed");
    }
    series
}

async fn warnings(series: &Series, query: &str) -> Vec<String> {
    let answer = series.query(query, EvalTimes::At(NOW_MS), QueryOptions::default()).await;
    answer.expect("it is answered").warnings
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_say_that_samples_of_their_time_are_missing() {
    const ONE_MISSING: &str =
        "partial data: 1 damaged files of blocks were set aside, their samples are missing";
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_with_two_blocks(&directory).await;
    let entries = std::fs::read_dir(directory.path().join("series/blocks")).expect("it is there");
    let mut blocks: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it is listed").path()).collect();
    blocks.sort();
    let mut bytes = std::fs::read(&blocks[0]).expect("it is readable");
    let size = bytes.len();
    bytes[size - 600..].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&blocks[0], bytes).expect("there is room");
    let all = "count_over_time(load[11h])";
    assert_eq!(warnings(&series, all).await, [ONE_MISSING], "of the query that found it");
    assert_eq!(series.failed_parts().len(), 1);
    assert_eq!(warnings(&series, all).await, [ONE_MISSING]);
    assert!(warnings(&series, "sum(load offset 1h)").await.is_empty(), "nothing is missing");
    assert!(warnings(&series, "1 + 1").await.is_empty(), "nothing is read");
    let old = warnings(&series, "load offset 9h or vector(1)").await;
    assert_eq!(old, [ONE_MISSING], "nothing is found where something is missing");
    series.stop().await;
}
