//! A catalog with a few blocks.

use std::sync::Arc;

use egret_log::simulated::SimulatedDisk;
use egret_metrics_model::{LabelMatcher, Labels, MatchOp, Matcher, SeriesSamples};

use super::*;

fn catalog(disk: &SimulatedDisk) -> Catalog<SimulatedDisk> {
    Catalog::open(disk.clone(), Arc::new(BlockCache::new(1 << 20))).expect("the directory opens")
}

fn samples(times_ms: impl Iterator<Item = i64>) -> SeriesSamples {
    let times_ms: Vec<i64> = times_ms.collect();
    let values = times_ms.iter().map(|time_ms| *time_ms as f64 / 1000.0).collect();
    SeriesSamples { times_ms, values, ..SeriesSamples::default() }
}

fn matcher(name: &str, op: MatchOp, value: &str) -> LabelMatcher {
    LabelMatcher::new(Matcher { name: name.into(), op, value: value.into() }).expect("it compiles")
}

#[test]
fn published_blocks_are_found_and_read() {
    let disk = SimulatedDisk::new(10 << 20);
    let all = Labels::new([("__name__", "up"), ("job", "a")]);
    let other = Labels::new([("__name__", "up"), ("job", "b")]);
    let opened = catalog(&disk);
    let mut writer = opened.writer(WriterOptions::default()).expect("there is space");
    writer.push(&all, &samples((0..1000).map(|at| at * 15_000))).expect("there is space");
    writer.push(&other, &samples((0..1000).map(|at| at * 15_000))).expect("there is space");
    opened.publish(writer.finish().expect("there is space")).expect("it is taken in");
    let opened = catalog(&disk);
    let snapshot = opened.snapshot();
    let block = &snapshot.blocks()[0];
    let selected = block.select(&[matcher("job", MatchOp::Matches, "b|c")]).expect("it is whole");
    assert_eq!(selected, [1]);
    assert_eq!(block.labels(1).expect("it is whole"), other);
    let mut read = SeriesSamples::default();
    block.read(1, 30_000, 60_000, &mut read).expect("it is whole");
    assert_eq!(read.times_ms, [30_000, 45_000, 60_000]);
    assert_eq!(read.values, [30.0, 45.0, 60.0]);
}

#[test]
fn a_replacement_is_written_as_ever_and_read() {
    let replacement = Replacement {
        results: vec![BlockId(7), BlockId(8)],
        sources: vec![BlockId(1), BlockId(2), BlockId(300)],
    };
    // 4 bytes are the checksum of the others.
    let golden = b"\x52\xb9\x8a\x38\x00\x02\x07\x08\x03\x01\x02\xac\x02";
    assert_eq!(replacement.encode(), golden);
    let read = Replacement::decode(golden).expect("version 1 is read");
    assert_eq!(read, replacement);
}

#[test]
fn readers_of_replaced_snapshots_are_known() {
    let disk = SimulatedDisk::new(10 << 20);
    let opened = catalog(&disk);
    let living = || {
        let replaced = opened.replaced_snapshots();
        replaced.iter().filter_map(std::sync::Weak::upgrade).count()
    };
    let empty = opened.snapshot();
    for at in 0..3 {
        assert_eq!(living(), usize::from(at > 0));
        let mut writer = opened.writer(WriterOptions::default()).unwrap();
        let labels = Labels::new([("__name__", "up")]);
        writer.push(&labels, &samples([at].into_iter())).unwrap();
        opened.publish(writer.finish().unwrap()).unwrap();
    }
    let latest = opened.snapshot();
    assert_eq!((living(), empty.blocks().len()), (1, 0));
    drop(empty);
    assert_eq!((living(), latest.blocks().len()), (0, 3));
}
