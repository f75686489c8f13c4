//! Whatever a request has, each piece of it fits into an append, and nothing of it is lost.

use std::sync::Arc;

use egret_metrics_model::Labels;

use super::{PIECE_BYTES, PIECE_SAMPLES, split_part};
use crate::api::ingest_batch::ShardPart;
use crate::worker::shard::{NewSeries, Write, WritePriority};
use crate::worker::write_ack::WriteAck;

fn labels(name: &str, bytes: usize) -> Labels {
    let value = "x".repeat(bytes);
    Labels::new([("__name__", name), ("long", &value)])
}

fn new_series(name: &str, bytes: usize, samples: usize) -> NewSeries {
    NewSeries {
        labels: labels(name, bytes),
        alias: Some(Box::from(&b"alias"[..])),
        samples: (0..samples).map(|at| (at as i64, at as f64)).collect(),
        histograms: Vec::new(),
    }
}

/// The samples of new series in order, by name; every piece is small enough.
fn check_pieces(pieces: Vec<ShardPart>) -> Vec<(Labels, i64)> {
    let (ack, _receiver) = WriteAck::new(pieces.len());
    let mut all = Vec::new();
    for part in pieces {
        let write = Write {
            samples: part.samples,
            histograms: part.histograms,
            new_series: part.new_series,
            priority: WritePriority::Bulk,
            ack: Arc::clone(&ack),
        };
        assert!(write.log_bytes() <= 2 * PIECE_BYTES, "{}", write.log_bytes());
        for new in write.new_series {
            all.extend(new.samples.iter().map(|(at, _)| (new.labels.clone(), *at)));
        }
    }
    all
}

#[test]
fn one_new_series_with_millions_of_samples_comes_in_many_pieces() {
    let part =
        ShardPart { new_series: vec![new_series("many", 10, 1_000_000)], ..ShardPart::default() };
    let pieces = split_part(part);
    assert!(pieces.len() > 5, "{}", pieces.len());
    let aliases = pieces.iter().flat_map(|piece| &piece.new_series);
    assert_eq!(aliases.filter(|new| new.alias.is_some()).count(), 1);
    let samples = check_pieces(pieces);
    assert!(samples.iter().map(|(_, at)| *at).eq(0..1_000_000));
}

#[test]
fn long_labels_are_not_written_together() {
    let names = ["a", "b", "c", "d", "e"];
    let part = ShardPart {
        new_series: names.map(|name| new_series(name, 300 << 10, 2)).into(),
        ..ShardPart::default()
    };
    let pieces = split_part(part);
    assert_eq!(pieces.len(), 5);
    assert_eq!(check_pieces(pieces).len(), 10);
}

#[test]
fn samples_of_known_series_stay_in_their_order() {
    let mut part = ShardPart::default();
    for at in 0..(PIECE_SAMPLES * 2 + 7) {
        part.samples.push(1, at as i64, 0.0);
    }
    part.new_series.push(new_series("a", 1, 1));
    let pieces = split_part(part);
    let times = pieces.iter().flat_map(|piece| &piece.samples.times_ms);
    assert!(times.copied().eq(0..(PIECE_SAMPLES * 2 + 7) as i64));
    assert_eq!(pieces.len(), 3);
    assert!(split_part(ShardPart::default()).is_empty());
}
