//! Several Prometheus servers that write the same series: one is listened to.

use std::sync::Arc;
use std::time::Duration;

use egret_base::ManualClock;
use egret_base::lifecycle::Service;
use egret_metrics_wire::encode::{RequestV2, SeriesToWrite};
use egret_metrics_wire::{WireSample, snappy};
use egret_series::{Duplicates, Series, SeriesConfig, SeriesError};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use crate::engine::{NOW_MS, clock, encode_request, query_vector, start_engine_with_clock};

fn config() -> SeriesConfig {
    SeriesConfig {
        ha_cluster_label: "cluster".to_owned(),
        ha_replica_label: "__replica__".to_owned(),
        ha_clusters_max: 2,
        ..SeriesConfig::default()
    }
}

async fn start_engine(clock: &Arc<ManualClock>, directory: &TempDir) -> Series {
    start_engine_with_clock(clock.clone(), directory, config(), &mut Registry::default()).await
}

/// A request of remote write 2.0 with a sample of each of two hosts.
fn request_v2(replica: &str, time_ms: i64) -> Vec<u8> {
    let mut request = RequestV2::default();
    for host in ["a", "b"] {
        let series = SeriesToWrite {
            labels: vec![
                ("__name__", "load"),
                ("__replica__", replica),
                ("cluster", "west"),
                ("host", host),
            ],
            samples: vec![WireSample { time_ms, value: 1.0 }],
            ..SeriesToWrite::default()
        };
        request.push(&series, None);
    }
    snappy::encode(&request.into_body())
}

/// What becomes of a sample of each of three hosts: how many were written, and how many dropped.
async fn send_sample(
    series: &Series,
    cluster: &str,
    replica: &str,
    at_ms: i64,
    value: f64,
) -> (u64, u64) {
    let hosts = ["a", "b", "c"];
    let labels = hosts.map(|host| {
        [("__name__", "load"), ("__replica__", replica), ("cluster", cluster), ("host", host)]
    });
    let samples = [(at_ms, value)];
    let all = labels.each_ref().map(|labels| (&labels[..], &samples[..]));
    let written = series.remote_write_v1(&encode_request(&all)).await.expect("it is read");
    assert_eq!(written.rejected.samples, 0, "{:?}", written.rejected);
    (written.samples, written.duplicates.samples)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_of_a_cluster_is_listened_to_until_it_is_silent() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let series = start_engine(&clock, &directory).await;
    // Each scrapes at its own moments.
    for round in 0..3 {
        let at = NOW_MS - 60_000 + round * 10_000;
        assert_eq!(send_sample(&series, "west", "one", at, 1.0).await, (3, 0));
        assert_eq!(send_sample(&series, "west", "two", at + 7, 2.0).await, (0, 3));
        assert_eq!(send_sample(&series, "east", "two", at + 7, 2.0).await, (3, 0));
        clock.advance(Duration::from_secs(10));
    }
    let counted = query_vector(&series, "count_over_time(load{host=\"a\"}[5m])", NOW_MS).await;
    let expected = [
        ("{cluster=\"east\", host=\"a\"}".to_owned(), 3.0),
        ("{cluster=\"west\", host=\"a\"}".to_owned(), 3.0),
    ];
    assert_eq!(counted, expected);
    // Ten seconds of silence are over already.
    clock.advance(Duration::from_secs(19));
    assert_eq!(send_sample(&series, "west", "two", NOW_MS, 2.0).await, (0, 3));
    clock.advance(Duration::from_secs(1));
    assert_eq!(send_sample(&series, "west", "two", NOW_MS, 2.0).await, (3, 0));
    assert_eq!(send_sample(&series, "west", "one", NOW_MS + 1, 1.0).await, (0, 3));
    // What was written before a restart is remembered: the first that sends then is not elected for
    // that.
    series.stop().await;
    let series = start_engine(&clock, &directory).await;
    assert_eq!(send_sample(&series, "west", "one", NOW_MS + 2, 1.0).await, (0, 3));
    assert_eq!(send_sample(&series, "west", "two", NOW_MS + 3, 2.0).await, (3, 0));
    let values = query_vector(&series, "last_over_time(load{cluster=\"west\"}[5m])", NOW_MS).await;
    assert_eq!(values.len(), 3);
    assert!(values.iter().all(|(_, value)| *value == 2.0), "{values:?}");
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_replica_is_taken_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let series = start_engine(&clock, &directory).await;
    let plain: [&[(&str, &str)]; 2] = [
        &[("__name__", "plain"), ("cluster", "west")],
        &[("__name__", "plain"), ("__replica__", "one")],
    ];
    for (at, labels) in plain.iter().enumerate() {
        let request = encode_request(&[(labels, &[(NOW_MS, at as f64)])]);
        let written = series.remote_write_v1(&request).await.expect("it is written");
        assert_eq!((written.samples, written.duplicates), (1, Duplicates::default()));
    }
    let found = query_vector(&series, "plain", NOW_MS).await;
    let expected = [
        ("plain{__replica__=\"one\"}".to_owned(), 1.0),
        ("plain{cluster=\"west\"}".to_owned(), 0.0),
    ];
    assert_eq!(found, expected);
    send_sample(&series, "a", "x", NOW_MS, 0.0).await;
    send_sample(&series, "b", "x", NOW_MS, 0.0).await;
    let labels = [("__name__", "load"), ("__replica__", "x"), ("cluster", "c")];
    let request = encode_request(&[(&labels, &[(NOW_MS, 0.0)])]);
    let refused = series.remote_write_v1(&request).await;
    assert!(matches!(refused, Err(SeriesError::TooManyClusters { max: 2 })), "{refused:?}");
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_write_2_is_no_different() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let series = start_engine(&clock, &directory).await;
    for round in 0..3 {
        let at = NOW_MS - 30_000 + round * 10_000;
        let written = series.remote_write_v2(&request_v2("one", at)).await;
        assert_eq!(written.expect("it is written").samples, 2);
        let dropped = series.remote_write_v2(&request_v2("two", at + 1)).await.expect("it is read");
        let expected = Duplicates { samples: 2, histograms: 0 };
        assert_eq!((dropped.samples, dropped.duplicates), (0, expected));
    }
    let counted = query_vector(&series, "sum(count_over_time(load[5m]))", NOW_MS).await;
    assert_eq!(counted[0].1, 6.0);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn series_of_before_lose_their_replica_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let plain = SeriesConfig::default();
    let series =
        start_engine_with_clock(clock.clone(), &directory, plain, &mut Registry::default()).await;
    assert_eq!(send_sample(&series, "west", "one", NOW_MS - 60_000, 1.0).await, (3, 0));
    series.stop().await;
    let series = start_engine(&clock, &directory).await;
    // Twice each: in the second request it is known which series comes after which.
    for round in 0..2 {
        let at = NOW_MS - 40_000 + round * 10_000;
        assert_eq!(send_sample(&series, "west", "one", at, 1.0).await, (3, 0));
        let written = series.remote_write_v2(&request_v2("one", at + 1)).await;
        assert_eq!(written.expect("it is written").samples, 2);
    }
    let counted = query_vector(&series, "count_over_time(load{host=\"a\"}[5m])", NOW_MS).await;
    let before = "{__replica__=\"one\", cluster=\"west\", host=\"a\"}";
    let since = "{cluster=\"west\", host=\"a\"}";
    let expected = [(before.to_owned(), 1.0), (since.to_owned(), 4.0)];
    assert_eq!(counted, expected);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_label_without_the_other_is_refused_at_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = egret_series::EngineOptions {
        config: SeriesConfig { ha_cluster_label: "cluster".to_owned(), ..SeriesConfig::default() },
        directory: directory.path().join("series"),
        clock: clock(),
        entropy: Arc::new(egret_base::SystemEntropy),
    };
    let series = Series::new(options, &mut Registry::default());
    let refused = series.start().await.expect_err("it says nothing of replicas");
    assert!(refused.message.contains("series.ha_replica_label"), "{}", refused.message);
}
