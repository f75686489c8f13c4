//! Tables are read by the library's own reader.

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{ParquetWriter, ROWS};
use crate::model::Labels;

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
    writer.add(
        &Labels::new([("__name__", "bare")]),
        [(0, -0.0)].into_iter(),
    );
    expect_test::expect![[r#"
        {time: 1970-01-01 00:00:01.000 +00:00, metric: "up", labels: {"a" -> "1", "b" -> "née"}, value: 1.5}
        {time: 1969-12-31 23:59:59.999 +00:00, metric: "up", labels: {"a" -> "1", "b" -> "née"}, value: inf}
        {time: 1970-01-01 00:00:00.000 +00:00, metric: "bare", labels: {}, value: -0E0}"#]]
    .assert_eq(&rows(writer.finish()).join("\n"));
    assert!(rows(ParquetWriter::default().finish()).is_empty());
}

#[test]
fn pieces_are_the_whole() {
    let mut writer = ParquetWriter::default();
    let count = 2 * ROWS + 7;
    let labels = Labels::new([("__name__", "up"), ("a", "1")]);
    let mut file = Vec::new();
    for part in [0..count / 3, count / 3..count] {
        writer.add(&labels, part.map(|n| (n as i64, n as f64)));
        file.extend(writer.take());
    }
    let before = file.len();
    assert!(before > 1_000, "whole row groups were there before the end");
    file.extend(writer.finish());
    assert_eq!(rows(file).len(), count);
}
