//! What is refused costs nothing else: neither the other series of a request, nor the room that is
//! left for series, nor the election of a replica.

use std::time::Duration;

use egret_base::lifecycle::Service;
use egret_metrics_model::Labels;
use egret_metrics_wire::encode::{RequestV2, SeriesToWrite, append_sample, append_series_v1};
use egret_metrics_wire::otlp::OtlpEncoding;
use egret_metrics_wire::{WireHistogram, WireSample, snappy};
use egret_series::core::rules::NewSample;
use egret_series::worker::Append;
use egret_series::{Import, ImportFormat, SeriesConfig, SeriesError, WriteCounts};
use prometheus_client::registry::Registry;

use crate::engine::{
    NOW_MS, clock, encode_request, query_vector, start_engine, start_engine_with_clock,
};

const SAMPLE: WireSample = WireSample { time_ms: NOW_MS, value: 1.0 };

/// Stands where bytes are put that are not UTF-8.
const NOT_UTF8: &str = "not UTF-8";

fn series<'a>(name: &'a str, labels: &[(&'a str, &'a str)]) -> SeriesToWrite<'a> {
    SeriesToWrite {
        labels: [&[("__name__", name)], labels].concat(),
        samples: vec![SAMPLE],
        ..SeriesToWrite::default()
    }
}

/// Good series before, between and after bad ones.
fn mixed_series() -> Vec<SeriesToWrite<'static>> {
    let unknown_schema = WireHistogram { time_ms: NOW_MS, schema: 9, ..WireHistogram::default() };
    let fine = WireHistogram { time_ms: NOW_MS - 1, ..WireHistogram::default() };
    let mut histograms = series("h", &[]);
    histograms.samples.clear();
    histograms.histograms = vec![unknown_schema, fine];
    vec![
        series("good", &[("n", "1")]),
        series("bad", &[("n", NOT_UTF8)]),
        series("good", &[("n", "2")]),
        histograms,
        series("good", &[("n", "3")]),
    ]
}

fn compress(mut body: Vec<u8>) -> Vec<u8> {
    while let Some(at) =
        body.windows(NOT_UTF8.len()).position(|window| window == NOT_UTF8.as_bytes())
    {
        body[at..at + NOT_UTF8.len()].fill(0xff);
    }
    snappy::encode(&body)
}

fn check(written: &WriteCounts, refused: u64, reasons: &expect_test::Expect) {
    // The three good ones, and one histogram.
    assert_eq!((written.samples, written.histograms, written.rejected.samples), (4, 1, refused));
    reasons.assert_eq(&written.rejected.reasons.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_cannot_be_kept_costs_no_other_in_remote_write_1() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = start_engine(&directory, SeriesConfig::default()).await;
    let mut body = Vec::new();
    for series in mixed_series() {
        append_series_v1(&series, &mut body);
    }
    let body = compress(body);
    // The second time, series are known.
    for _ in 0..2 {
        let written = engine.remote_write_v1(&body).await.expect("it is read");
        check(
            &written,
            2,
            &expect_test::expect![[r#"
                Label has a string that is not UTF-8 at byte 24
                histogram at byte 164: schema is neither -4 to 8 nor -53"#]],
        );
    }
    let good = query_vector(&engine, "count(good)", NOW_MS).await;
    assert_eq!(good, [("{}".to_owned(), 3.0)]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_cannot_be_kept_costs_no_other_in_remote_write_2() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = start_engine(&directory, SeriesConfig::default()).await;
    let mut request = RequestV2::default();
    for series in mixed_series() {
        request.push(&series, None);
    }
    let long = "x".repeat(64 << 10);
    let names: Vec<String> = (0..20).map(|number| format!("l{number}")).collect();
    let labels: Vec<_> = names.iter().map(|name| (&**name, &*long)).collect();
    request.push(&series("long", &labels), None);
    let mut body = request.into_body();
    for references in [&[1, 0x7f][..], &[1]] {
        let mut fields = vec![0x0a, references.len() as u8];
        fields.extend_from_slice(references);
        append_sample(SAMPLE, &mut fields);
        body.extend_from_slice(&[0x2a, fields.len() as u8]);
        body.extend_from_slice(&fields);
    }
    let body = compress(body);
    for _ in 0..2 {
        let written = engine.remote_write_v2(&body).await.expect("it is read");
        check(
            &written,
            5,
            &expect_test::expect![[r#"
                Label has a string that is not UTF-8 at byte 24
                histogram at byte 65771: schema is neither -4 to 8 nor -53
                limit key_bytes_max is 1048576, but 1048792 came: send less or raise the setting
                TimeSeries refers to symbol 127 at byte 65881, but there are 32
                TimeSeries has an odd number of label references at byte 65905: name and value go together"#]],
        );
    }
    let good = query_vector(&engine, "count(good)", NOW_MS).await;
    assert_eq!(good, [("{}".to_owned(), 3.0)]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_protobuf_is_refused_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = start_engine(&directory, SeriesConfig::default()).await;
    let mut body = Vec::new();
    append_series_v1(&series("good", &[]), &mut body);
    // A label that is longer than its series.
    body.extend_from_slice(b"\x0a\x02\x0a\x09");
    let refused = engine.remote_write_v1(&snappy::encode(&body)).await;
    assert!(matches!(refused, Err(SeriesError::Wire(_))), "{refused:?}");
    assert_eq!(query_vector(&engine, "good", NOW_MS).await, []);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_samples_of_a_new_series_are_one_series() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig { series_max: 2, ..SeriesConfig::default() };
    let engine = start_engine(&directory, config).await;
    let lines = |name: &str| -> String {
        let times = NOW_MS - 100..NOW_MS;
        times.map(|at| format!("{name} 1 {at}\n")).collect()
    };
    let mut import = Import::new(engine.clone(), ImportFormat::Prometheus);
    import.push(lines("a").as_bytes()).await.expect("it is read");
    let written = import.finish().await.expect("there is room for one");
    assert_eq!(written.samples, 100);
    // Each in its own entry of one request, written in two ways.
    let usual: &[(&str, &str)] = &[("__name__", "b"), ("l", "1")];
    let turned: &[(&str, &str)] = &[("l", "1"), ("__name__", "b")];
    let entries: Vec<_> = (0..10)
        .map(|entry| (if entry % 2 == 0 { usual } else { turned }, NOW_MS - entry))
        .collect();
    let samples: Vec<_> = entries.iter().map(|(_, at)| [(*at, 1.0)]).collect();
    let all: Vec<_> = entries
        .iter()
        .zip(&samples)
        .map(|((labels, _), samples)| (*labels, &samples[..]))
        .collect();
    let written = engine.remote_write_v1(&encode_request(&all)).await;
    assert_eq!(written.expect("there is room for one more").samples, 10);
    let counted =
        query_vector(&engine, "sum(count_over_time({__name__=~\"a|b\"}[1h]))", NOW_MS).await;
    assert_eq!(counted, [("{}".to_owned(), 110.0)]);
    let mut import = Import::new(engine.clone(), ImportFormat::Prometheus);
    import.push(lines("c").as_bytes()).await.expect("it is kept");
    let refused = import.finish().await;
    assert!(matches!(refused, Err(SeriesError::TooManySeries { max: 2 })), "{refused:?}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_series_beyond_the_limit_cost_no_known_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig { series_max: 4, ..SeriesConfig::default() };
    let engine = start_engine(&directory, config).await;
    let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let request = |name: &'static str, count: usize| {
        let entries = numbers.iter().take(count);
        entries.map(move |number| series(name, &[("n", number)]))
    };
    let write = async |all: Vec<SeriesToWrite<'_>>| {
        let mut body = Vec::new();
        for series in &all {
            append_series_v1(series, &mut body);
        }
        engine.remote_write_v1(&snappy::encode(&body)).await
    };
    let written = write(request("known", 3).collect()).await;
    assert_eq!(written.expect("there is room").samples, 3);
    // Three are known, one more has room, and nineteen have none.
    let known = request("known", 3).map(|mut series| {
        series.samples[0].time_ms -= 1;
        series
    });
    let mut mixed: Vec<SeriesToWrite> = request("new", 20).chain(known).collect();
    let histogram = WireHistogram { time_ms: NOW_MS, ..WireHistogram::default() };
    mixed[0].histograms = vec![histogram];
    let all: usize = mixed.iter().map(|one| one.samples.len() + one.histograms.len()).sum();
    let written = write(mixed).await.expect("known series are written");
    assert_eq!(written.samples + written.rejected.samples, all as u64);
    assert!(written.samples >= 4, "{written:?}");
    let reasons = written.rejected.reasons.join("\n");
    assert!(reasons.starts_with("limit series.series_max is 4"), "{reasons}");
    assert_eq!(
        query_vector(&engine, "count(count_over_time(known[1h]) == 2)", NOW_MS).await,
        [("{}".to_owned(), 3.0)]
    );
    assert_eq!(
        query_vector(&engine, "count({__name__=~\"known|new\"})", NOW_MS).await,
        [("{}".to_owned(), 4.0)]
    );
    // Nothing is left to write of a request of new series alone.
    let refused = write(request("newer", 1).collect()).await;
    assert!(matches!(refused, Err(SeriesError::TooManySeries { max: 4 })), "{refused:?}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_scrape_is_written_beyond_the_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig { series_max: 1, ..SeriesConfig::default() };
    let engine = start_engine(&directory, config).await;
    let sample = |name: &str, time_ms| NewSample {
        labels: Labels::new([("__name__", name)]),
        time_ms,
        value: 1.0,
    };
    let report = |time_ms| [sample("up", time_ms), sample("scrape_samples_scraped", time_ms)];
    for time_ms in [NOW_MS - 1, NOW_MS] {
        let samples = [sample("a", time_ms), sample("b", time_ms)];
        let appended = engine.append_scrape(&samples, &report(time_ms)).await;
        let appended = appended.expect("known series and the report are written");
        assert_eq!(appended.refused, 1);
        let reason = appended.series_limit.expect("a reason");
        assert!(
            reason.starts_with("1 samples were refused: limit series.series_max is 1"),
            "{reason}"
        );
    }
    for (query, value) in [
        ("count({__name__=~\".+\"})", 3.0),
        ("count_over_time(up[1h])", 2.0),
        ("count_over_time(scrape_samples_scraped[1h])", 2.0),
    ] {
        let found = query_vector(&engine, query, NOW_MS).await;
        assert_eq!(found, [("{}".to_owned(), value)], "{query}");
    }
    // Without a report there is nothing to write.
    Append::append(&engine, &[sample("c", NOW_MS)]).await.expect_err("there is no room");
    engine.stop().await;
}

/// A request of a replica, whole or with a rest that cannot be read.
fn replica_request(replica: &str, is_broken: bool) -> Vec<u8> {
    let labels = [("__replica__", replica), ("cluster", "west")];
    let mut body = Vec::new();
    append_series_v1(&series("load", &labels), &mut body);
    if is_broken {
        body.extend_from_slice(b"\x0a\x09");
    }
    snappy::encode(&body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_request_neither_elects_a_replica_nor_keeps_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let config = SeriesConfig {
        ha_cluster_label: "cluster".to_owned(),
        ha_replica_label: "__replica__".to_owned(),
        ..SeriesConfig::default()
    };
    let failover = config.ha_failover.duration();
    let mut registry = Registry::default();
    let engine = start_engine_with_clock(clock.clone(), &directory, config, &mut registry).await;
    let send = async |replica, is_broken| {
        let request = replica_request(replica, is_broken);
        let written = engine.remote_write_v1(&request).await.ok()?;
        Some((written.samples, written.duplicates.samples))
    };
    assert_eq!(send("broken", true).await, None);
    assert_eq!(send("one", false).await, Some((1, 0)));
    assert_eq!(send("two", false).await, Some((0, 1)));
    clock.advance(failover - Duration::from_secs(1));
    assert_eq!(send("one", true).await, None);
    clock.advance(Duration::from_secs(1));
    assert_eq!(send("two", true).await, None);
    assert_eq!(send("one", false).await, Some((1, 0)));
    clock.advance(failover);
    assert_eq!(send("two", false).await, Some((1, 0)));
    assert_eq!(send("one", false).await, Some((0, 1)));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_after_their_samples_are_ignored() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = start_engine(&directory, SeriesConfig::default()).await;
    let mut request = RequestV2::default();
    request.push(&SeriesToWrite { created_ms: NOW_MS + 1, ..series("created", &[]) }, None);
    let written = engine.remote_write_v2(&snappy::encode(&request.into_body())).await;
    let written = written.expect("it is written");
    assert_eq!((written.samples, written.rejected.samples), (1, 0));
    let (start, time) = ((NOW_MS + 1) * 1_000_000, NOW_MS * 1_000_000);
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"started","gauge":{{
            "dataPoints":[{{"asDouble":1,"startTimeUnixNano":"{start}","timeUnixNano":"{time}"}}]
        }}}}]}}]}}]}}"#
    );
    let answer = engine.write_otlp(body.as_bytes(), OtlpEncoding::Json).await;
    let answer = String::from_utf8(answer.expect("it is written")).expect("it is text");
    assert!(!answer.contains("rejected"), "{answer}");
    let found = query_vector(&engine, "{__name__=~\"created|started\"}", NOW_MS).await;
    let expected = ["created", "started"].map(|name| (name.to_owned(), 1.0));
    assert_eq!(found, expected);
    for name in ["created", "started"] {
        let before = format!("count_over_time({name}[1d])");
        let counts = query_vector(&engine, &before, NOW_MS + 60_000).await;
        assert!(counts.iter().all(|(_, count)| *count == 1.0), "no sample of a start: {counts:?}");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_count_native_histograms() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = start_engine(&directory, SeriesConfig::default()).await;
    let line = format!(
        r#"{{"metric":{{"__name__":"h"}},"values":[1],"timestamps":[{}],"histograms":[
            {{"timestamp":{NOW_MS},"count":2,"sum":3,"schema":0,"positive_spans":[[0,1]],
            "positive_counts":[2]}}]}}"#,
        NOW_MS - 1
    );
    let mut import = Import::new(engine.clone(), ImportFormat::JsonLines);
    import.push(line.replace('\n', "").as_bytes()).await.expect("it is read");
    let written = import.finish().await.expect("it is written");
    assert_eq!((written.samples, written.histograms), (2, 1), "{written:?}");
    engine.stop().await;
}
