//! Blocks on a disk that forgets, fills up, fails and lies.

mod golden;
mod hostile;
mod rewrite;
mod select;
mod simulator;

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_blocks::block::{Block, BlockCache, BlockError, WriterOptions};
use egret_blocks::catalog::Catalog;
use egret_blocks::core::BlockId;
use egret_log::Disk;
use egret_log::simulated::{SimulatedDisk, SplitMix64};
use egret_metrics_model::{LabelMatcher, Labels, MatchOp, Matcher, SeriesSamples, TimeMs};

/// The samples of series, values as their bits.
type Content = BTreeMap<Labels, BTreeMap<TimeMs, u64>>;

fn open<D: Disk>(disk: &D) -> Result<Catalog<D>, BlockError> {
    Catalog::open(disk.clone(), Arc::new(BlockCache::new(256 << 10)))
}

fn matcher(name: &str, op: MatchOp, value: &str) -> LabelMatcher {
    LabelMatcher::new(Matcher { name: name.into(), op, value: value.into() }).expect("it compiles")
}

fn samples(of: &BTreeMap<TimeMs, u64>) -> SeriesSamples {
    SeriesSamples {
        times_ms: of.keys().copied().collect(),
        values: of.values().map(|bits| f64::from_bits(*bits)).collect(),
        ..SeriesSamples::default()
    }
}

/// Writes a block and takes it in.
fn publish<D: Disk>(catalog: &Catalog<D>, content: &Content) -> Result<BlockId, BlockError> {
    let mut writer = catalog.writer(WriterOptions::default())?;
    for (labels, of) in content {
        writer.push(labels, &samples(of))?;
    }
    Ok(catalog.publish(writer.finish()?)?.id())
}

/// All that is in a block, and that its parts fit together.
fn content(block: &Block) -> Result<Content, BlockError> {
    let mut all = Content::new();
    let mut read = SeriesSamples::default();
    for series in 0..block.series() {
        read.clear();
        block.read(series, TimeMs::MIN, TimeMs::MAX, &mut read)?;
        assert_eq!(read.times_ms.len(), read.values.len());
        let of = read.times_ms.iter().copied().zip(read.values.iter().map(|value| value.to_bits()));
        all.insert(block.labels(series)?, of.collect());
    }
    Ok(all)
}

/// The count of a histogram is its bucket `+Inf`, sample by sample.
#[test]
fn what_two_series_have_alike_is_written_once() {
    let mut chance = SplitMix64::new(5);
    let mut sum = 0;
    let step = |at: i64| {
        sum += chance.next_below(1000);
        (1000 * at, (sum as f64).to_bits())
    };
    let of: BTreeMap<TimeMs, u64> = (0..2000).map(step).collect();
    let named = |name| Labels::new([("__name__", name)]);
    let one = Content::from([(named("count"), of.clone())]);
    let two = Content::from([(named("bucket"), of.clone()), (named("count"), of)]);
    let mut sizes = Vec::new();
    for wanted in [one, two] {
        let catalog = open(&SimulatedDisk::new(1 << 20)).expect("the disk works");
        publish(&catalog, &wanted).expect("the disk works");
        let snapshot = catalog.snapshot();
        let [block] = snapshot.blocks() else { panic!("one block was written") };
        assert_eq!(content(block).expect("it is whole"), wanted);
        sizes.push(block.size_bytes());
    }
    assert!(sizes[1] < sizes[0] + 200, "{sizes:?}");
}
