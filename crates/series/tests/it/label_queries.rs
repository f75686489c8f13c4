//! Which series there are, wherever they are: in the heads, in blocks, in both.

use egret_base::lifecycle::Service;
use egret_metrics_model::{TimeMs, TimeSpan};
use egret_promql::parse_selector;
use egret_series::{Cost, EvalTimes, QueryOptions, Scope, Series, SeriesConfig};

use crate::engine::{NOW_MS, encode_request, start_engine};

const HOUR_MS: i64 = 3_600_000;

fn scope(selectors: &[&str], span: TimeSpan) -> Scope {
    let parse = |text: &&str| parse_selector(text).expect("it is one");
    Scope { selectors: selectors.iter().map(parse).collect(), start: span.start, end: span.end }
}

const ALWAYS: TimeSpan = TimeSpan::ALL;

/// From the one to the other number of hours ago.
fn hours_ago(first: i64, last: i64) -> TimeSpan {
    TimeSpan { start: NOW_MS - first * HOUR_MS, end: NOW_MS - last * HOUR_MS }
}

async fn values(
    series: &Series,
    selectors: &[&str],
    span: TimeSpan,
    limit: usize,
) -> (String, bool) {
    let found = series.label_values("host".to_owned(), scope(selectors, span), limit).await;
    let (values, more) = found.expect("it is looked up");
    (values.join(" "), more)
}

async fn write(series: &Series, metric: &str, host: &str, hours_ago: i64) {
    let labels = [("__name__", metric), ("host", host), ("only", metric)];
    let at = NOW_MS - hours_ago * HOUR_MS;
    let samples: Vec<_> = (0..10).map(|n| (at + n * 1_000, n as f64)).collect();
    let request = encode_request(&[(&labels, &samples)]);
    series.remote_write_v1(&request).await.expect("it is written");
}

/// `old` is in blocks of ten hours ago, `both` there and in the head, `new` in the head.
async fn three_metrics(directory: &tempfile::TempDir) -> Series {
    let series = start_engine(directory, SeriesConfig::default()).await;
    for host in ["a", "b", "c"] {
        write(&series, "old", host, 10).await;
        write(&series, "both", host, 10).await;
    }
    // The second lets the series go, as they are not written to any more.
    series.flush().await.expect("it is flushed");
    series.flush().await.expect("it is flushed");
    for host in ["c", "d", "e"] {
        write(&series, "both", host, 1).await;
        write(&series, "new", host, 1).await;
    }
    series
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_listed_of_heads_and_of_blocks_that_reach_into_the_span() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = three_metrics(&directory).await;
    assert_eq!(values(&series, &[], ALWAYS, 100).await, ("a b c d e".to_owned(), false));
    assert_eq!(values(&series, &["old"], ALWAYS, 100).await.0, "a b c");
    assert_eq!(values(&series, &["new"], ALWAYS, 100).await.0, "c d e");
    assert_eq!(values(&series, &["both"], ALWAYS, 4).await, ("a b c d".to_owned(), true));
    assert_eq!(values(&series, &["old", "new"], ALWAYS, 1).await, ("a".to_owned(), true));
    let recent = hours_ago(2, 0);
    assert_eq!(values(&series, &["{host!=\"\"}"], recent, 100).await.0, "c d e");
    assert_eq!(values(&series, &["old"], recent, 100).await.0, "");
    let before = hours_ago(11, 9);
    assert_eq!(values(&series, &["both"], before, 100).await.0, "a b c");
    let names = series.label_names(scope(&["old"], ALWAYS), 2).await;
    let expected = (vec!["__name__".to_owned(), "host".to_owned()], true);
    assert_eq!(names.expect("it is looked up"), expected);
    let names = series.label_names(scope(&[], ALWAYS), 9).await;
    assert_eq!(names.expect("it is looked up").0, ["__name__", "host", "only"]);
    let found = series.series(scope(&["both", "{host=\"c\"}"], ALWAYS), 6).await;
    let (found, more) = found.expect("it is looked up");
    let found: Vec<String> =
        found.iter().map(|labels| format!("{} {}", labels.metric(), labels.get("host"))).collect();
    assert_eq!(found, ["both a", "both b", "both c", "both d", "both e", "new c"]);
    assert!(more, "old c is the seventh");
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_explorer_counts_each_series_once_and_knows_which_are_new() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = three_metrics(&directory).await;
    let day = hours_ago(24, 0);
    let found = series.cardinality(day, 10).await.expect("it is counted");
    // Three of `old`, five of `both`, three of `new`: none was there a day before.
    assert_eq!((found.series, found.new_series), (11, 11));
    assert_eq!((found.largest.names, found.largest.pairs), (3, 11));
    let periods: Vec<(i64, u64)> =
        found.new_by_period.iter().map(|(from, new)| ((NOW_MS - from) / HOUR_MS, *new)).collect();
    assert_eq!(periods, [(10, 6), (1, 5)]);
    let cost = |name: &str| found.costs.iter().find(|cost| cost.metric == name).cloned();
    let both = cost("both").expect("it is there");
    assert_eq!((both.series, both.samples), (5, 60));
    assert!(both.disk_bytes > 0 && both.memory_bytes > 0);
    let old = cost("old").expect("it is there");
    assert_eq!((old.series, old.samples, old.memory_bytes), (3, 30, 0));
    let recent = hours_ago(2, 0);
    let found = series.cardinality(recent, 1).await.expect("it is counted");
    // `both c` was there ten hours before, and not in the two hours before.
    assert_eq!((found.series, found.new_series), (6, 6));
    let [Cost { series: count, .. }] = &found.costs[..] else {
        panic!("one was wanted: {:?}", found.costs);
    };
    assert_eq!(*count, 3);
    let head = series.head_statistics(10).await.expect("it is counted");
    assert_eq!((head.series, head.chunks, head.largest.pairs), (6, 6, 7));
    let start = NOW_MS - HOUR_MS;
    let expected = TimeSpan { start, end: start + 9_000 };
    assert_eq!(head.span, Some(expected));
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_explorer_counts_series_from_the_first_time_there_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig {
        retention: egret_base::settings::ConfigDuration::secs(0),
        ..SeriesConfig::default()
    };
    let series = start_engine(&directory, config).await;
    let request = encode_request(&[(&[("__name__", "first")], &[(TimeMs::MIN, 1.0)])]);
    let written = series.remote_write_v1(&request).await;
    written.expect("it is written");
    let found = series.cardinality(ALWAYS, 1).await.expect("it is counted");
    assert_eq!(found.new_by_period, [(TimeMs::MIN, 1)]);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_has_a_budget_of_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig {
        query_memory_max: egret_base::settings::ByteSize(1_000),
        ..SeriesConfig::default()
    };
    for error in query_errors(&directory, config).await {
        assert!(error.contains("series.query_memory_max"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_has_a_budget_of_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig {
        query_timeout: egret_base::settings::ConfigDuration::secs(0),
        ..SeriesConfig::default()
    };
    for error in query_errors(&directory, config).await {
        assert!(error.contains("series.query_timeout"), "{error}");
    }
}

/// Why nothing that looks at series has an answer with these settings: of series in the heads, then
/// in blocks.
async fn query_errors(directory: &tempfile::TempDir, config: SeriesConfig) -> Vec<String> {
    let series = start_engine(directory, config).await;
    for host in 0..20 {
        write(&series, "many", &format!("host-{host}"), 1).await;
    }
    let all = || scope(&["many"], ALWAYS);
    let host = || "host".to_owned();
    let mut errors = Vec::new();
    let at = EvalTimes::At(NOW_MS);
    let span = TimeSpan { start: 0, end: NOW_MS };
    for _ in ["heads", "blocks"] {
        errors.push(series.series(all(), usize::MAX).await.err());
        errors.push(series.label_values(host(), all(), usize::MAX).await.err());
        errors.push(series.cardinality(span, 1).await.err());
        let query = series.query("count(many)", at, QueryOptions::default());
        errors.push(query.await.err());
        series.flush().await.expect("a block");
    }
    series.stop().await;
    let told = errors.into_iter().map(|error| error.expect("it is refused"));
    told.map(|error| error.to_string()).collect()
}
