//! Tables are read by the library's own reader.

use std::sync::Arc;

use bytes::Bytes;
use egret_metrics_model::{Buckets, CounterReset, Counts, Histogram, Labels, Span};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{GROUP_ROWS_MIN, ParquetWriter};

fn rows(file: Vec<u8>) -> Vec<String> {
    let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().to_string()).collect()
}

#[test]
fn rows_are_read_as_they_were_written() {
    let mut writer = ParquetWriter::default();
    let labels = Labels::new([("__name__", "up"), ("a", "1"), ("b", "née")]);
    writer.add(&labels, [(1_000, 1.5), (-1, f64::INFINITY)].into_iter());
    writer.add(&Labels::new([("__name__", "bare")]), [(0, -0.0)].into_iter());
    expect_test::expect![[r#"
        {time: 1970-01-01 00:00:01.000 +00:00, metric: "up", labels: {"a" -> "1", "b" -> "née"}, value: 1.5, histogram: null}
        {time: 1969-12-31 23:59:59.999 +00:00, metric: "up", labels: {"a" -> "1", "b" -> "née"}, value: inf, histogram: null}
        {time: 1970-01-01 00:00:00.000 +00:00, metric: "bare", labels: {}, value: -0E0, histogram: null}"#]]
    .assert_eq(&rows(writer.finish()).join("\n"));
    assert!(rows(ParquetWriter::default().finish()).is_empty());
}

#[test]
fn histograms_have_their_buckets_and_no_value() {
    let buckets = |length, counts| Buckets {
        spans: vec![Span { offset: 0, length }],
        counts: Counts::Integer(counts),
    };
    let full = Histogram {
        schema: 0,
        zero_threshold: 0.25,
        zero_count: 0.0,
        count: 0.0,
        integer_counts: Some((1, 4)),
        sum: 4.5,
        positive: buckets(2, vec![2, 1]),
        negative: buckets(0, vec![]),
        custom_bounds: Arc::from([]),
        counter_reset: CounterReset::Unknown,
    };
    let empty = Histogram {
        integer_counts: Some((0, 0)),
        sum: 0.0,
        positive: buckets(0, vec![]),
        ..full.clone()
    };
    let mut writer = ParquetWriter::default();
    let labels = Labels::new([("__name__", "h")]);
    writer.add(&labels, [(1, 7.0)].into_iter());
    writer.add_histograms(&labels, [(2, &full), (3, &empty)].into_iter());
    writer.add(&labels, [(4, 8.0)].into_iter());
    expect_test::expect![[r#"
        {time: 1970-01-01 00:00:00.001 +00:00, metric: "h", labels: {}, value: 7.0, histogram: null}
        {time: 1970-01-01 00:00:00.002 +00:00, metric: "h", labels: {}, value: null, histogram: {count: 4.0, sum: 4.5, schema: 0, zero_threshold: 0.25, zero_count: 1.0, buckets: [{lower: -2.5E-1, upper: 0.25, count: 1.0}, {lower: 0.5, upper: 1.0, count: 2.0}, {lower: 1.0, upper: 2.0, count: 1.0}]}}
        {time: 1970-01-01 00:00:00.003 +00:00, metric: "h", labels: {}, value: null, histogram: {count: 0E0, sum: 0E0, schema: 0, zero_threshold: 0.25, zero_count: 0E0, buckets: []}}
        {time: 1970-01-01 00:00:00.004 +00:00, metric: "h", labels: {}, value: 8.0, histogram: null}"#]].assert_eq(&rows(writer.finish()).join("\n"));
}

#[test]
fn pieces_are_the_whole() {
    let mut writer = ParquetWriter::default();
    let count = 2 * GROUP_ROWS_MIN + 7;
    let labels = Labels::new([("__name__", "up"), ("a", "1")]);
    let mut file = Vec::new();
    for part in [0..count / 3, count / 3..count] {
        writer.add(&labels, part.map(|n| (n as i64, n as f64)));
        file.extend(writer.take_bytes());
    }
    let before = file.len();
    assert!(before > 1_000, "whole row groups were there before the end");
    file.extend(writer.finish());
    assert_eq!(rows(file).len(), count);
}
