//! What goes wrong in one place is told there, and holds up nothing else.

use egret_base::lifecycle::{Readiness, Service};
use egret_base::sync::lock;
use egret_base::{CodedError, ManualClock, SystemEntropy, Timestamp};
use egret_metrics_model::{LabelMatcher, Labels, MatchOp, Matcher, TimeSpan};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use super::*;
use crate::api::{EngineOptions, Series};
use crate::config::SeriesConfig;

const NOW_MS: TimeMs = 1_700_000_000_000;
const SHARDS: usize = 3;

/// An engine with samples in each of its shards.
async fn start_engine(directory: &TempDir) -> Series {
    let options = EngineOptions {
        config: SeriesConfig { shards: SHARDS as u32, ..SeriesConfig::default() },
        directory: directory.path().join("series"),
        clock: Arc::new(ManualClock::starting_at(Timestamp::from_micros(NOW_MS * 1_000))),
        entropy: Arc::new(SystemEntropy),
    };
    let series = Series::new(options, &mut Registry::default());
    series.start().await.expect("it starts");
    let samples = (0..100).map(|number| {
        let number = number.to_string();
        let labels = Labels::new([("__name__", "m"), ("n", number.as_str())]);
        (labels, NOW_MS, 1.0)
    });
    let written = series.append(samples).await.expect("they are written");
    assert_eq!(written.samples, 100);
    series
}

/// What the upkeep sees of its shards.
async fn inspect_shards<R: Send + 'static>(
    series: &Series,
    inspect: impl Fn(&mut BlockMaintenance, usize) -> R + Send + 'static,
) -> Vec<R> {
    let inspect_all = move |upkeep: &mut BlockMaintenance| {
        Ok((0..SHARDS).map(|shard| inspect(upkeep, shard)).collect())
    };
    series.inner.run_job(inspect_all).await.expect("it is seen")
}

#[tokio::test]
async fn a_shard_that_has_ended_holds_up_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory).await;
    let ended = &series.inner.shards().expect("they are there")[0];
    let failure = SeriesError::ShardFailed { shard: 0 };
    ended.failure.set(failure).expect("it had not ended");
    ended.inbox.close();

    let error = series.flush().await.expect_err("not all can be written");
    assert_eq!(error.code(), "series_shard_failed");
    let is_flushed = |upkeep: &mut BlockMaintenance, shard: usize| {
        upkeep.shards[shard].flush_watermark != FlushWatermark::EMPTY
    };
    assert_eq!(inspect_shards(&series, is_flushed).await, [false, true, true]);

    // The other shards are written as they are due, and the one that has ended is not asked again
    // and again.
    let has_retry = |upkeep: &mut BlockMaintenance, shard: usize| {
        upkeep.flush_due();
        upkeep.shards[shard].retry_at.is_some()
    };
    assert_eq!(inspect_shards(&series, has_retry).await, [false; SHARDS]);

    // A deletion that cannot be finished is not begun.
    let name = Matcher { name: "__name__".into(), op: MatchOp::Equal, value: "m".into() };
    let selector = vec![LabelMatcher::new(name).expect("it is one")];
    let span = TimeSpan { start: 0, end: NOW_MS };
    let error = series.delete(vec![selector], span).await.expect_err("it is not begun");
    assert_eq!(error.code(), "series_shard_failed");
    let has_unfinished_deletion = |upkeep: &mut BlockMaintenance, _| upkeep.has_unfinished_deletion;
    assert_eq!(inspect_shards(&series, has_unfinished_deletion).await, [false; SHARDS]);
    series.stop().await;
}

#[tokio::test]
async fn what_cannot_be_written_is_tried_again_after_a_while() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory).await;
    // No file can be made where a directory is.
    let obstacle = directory.path().join("series/001/checkpoint.new");
    std::fs::create_dir(&obstacle).expect("it is made");
    let try_flush = |upkeep: &mut BlockMaintenance, shard: usize| {
        if shard == 0 {
            for handle in &upkeep.shards {
                handle.shared.head_bytes.store(u64::MAX, Ordering::Relaxed);
            }
            upkeep.flush_due();
        }
        let kept = &upkeep.shards[shard];
        (kept.flush_watermark != FlushWatermark::EMPTY, kept.retry_at.is_some())
    };
    let tried = inspect_shards(&series, try_flush).await;
    std::fs::remove_dir(&obstacle).expect("it is removed");
    assert_eq!(tried, [(true, false), (false, true), (true, false)]);
    series.flush().await.expect("now it can be written");
    series.stop().await;
}

#[tokio::test]
async fn an_upkeep_that_has_ended_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory).await;
    assert_eq!(series.ready(), Readiness::Ready);
    let panic_job =
        |_: &mut BlockMaintenance| -> Result<(), SeriesError> { panic!("this is only a test") };
    let error = series.inner.run_job(panic_job).await.expect_err("it has ended");
    assert_eq!(error.code(), "series_upkeep_failed");
    let error = series.flush().await.expect_err("nobody does it");
    assert_eq!(error.code(), "series_upkeep_failed");
    // Samples are taken in and found all the same.
    let labels = Labels::new([("__name__", "m"), ("n", "1")]);
    let written = series.append([(labels, NOW_MS + 1, 2.0)]).await;
    assert_eq!(written.expect("it is written").samples, 1);
    // Stopping waits for the thread.
    let threads = std::mem::take(&mut *lock(&series.inner.threads));
    let upkeep = threads.into_iter().last().expect("it is the last");
    upkeep.join().expect("its panic was caught");
    let not_ready = Readiness::NotReady(SeriesError::UpkeepFailed.to_string());
    assert_eq!(series.ready(), not_ready);
    series.stop().await;
}
