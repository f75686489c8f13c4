//! The format on disk: what version 1 wrote must be read for ever.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use egret_blocks::block::WriterOptions;
use egret_log::Disk;
use egret_log::simulated::SimulatedDisk;
use egret_metrics_model::{
    Buckets, CounterReset, Counts, Histogram, Labels, STALE_NAN_BITS, SeriesSamples, Span, TimeMs,
};

use super::open;

const NAME: &str = "block-0000000000000001";
const TOMBSTONES: &str = "tombstones-0000000000000001";
const BLOCK: &[u8] = include_bytes!("../golden/block-v1");
const DELETED: &[u8] = include_bytes!("../golden/tombstones-v1");

fn histogram(count: u64) -> Arc<Histogram> {
    let spans = vec![Span { offset: -2, length: 2 }];
    Arc::new(Histogram {
        schema: 3,
        zero_threshold: 1e-128,
        zero_count: 1.0,
        count: count as f64,
        integer_counts: Some((1, count)),
        sum: count as f64 / 3.0,
        positive: Buckets { spans, counts: Counts::Integer(vec![count / 2, count / 3]) },
        negative: Buckets { spans: Vec::new(), counts: Counts::Integer(Vec::new()) },
        custom_bounds: Arc::new([]),
        counter_reset: CounterReset::NotReset,
    })
}

/// Series for every encoding there is.
fn written() -> BTreeMap<Labels, SeriesSamples> {
    let regular = |step: i64| (0..300).map(move |at| 1_760_000_000_000 + at * step);
    let mut all = BTreeMap::new();
    let mut add = |name: &str, times_ms: Vec<TimeMs>, value: &dyn Fn(usize) -> f64| {
        let values = (0..times_ms.len()).map(value).collect();
        let labels = Labels::new([("__name__", name), ("job", "golden")]);
        all.insert(labels, SeriesSamples { times_ms, values, ..SeriesSamples::default() });
    };
    add("constant", regular(15_000).collect(), &|_| 1.0);
    add("counter", regular(15_000).collect(), &|at| (at * at % 1000 + at * 4096) as f64);
    add("hundredths", regular(15_000).collect(), &|at| (at * 7 % 1000) as f64 / 100.0);
    add("roots", regular(15_000).collect(), &|at| (at as f64).sqrt());
    add("ended", regular(15_000).collect(), &|at| match at {
        299 => f64::from_bits(STALE_NAN_BITS),
        _ => at as f64,
    });
    add(
        "jitter",
        regular(15_000).map(|time_ms| time_ms + time_ms * 7 / 15_000 % 5).collect(),
        &|at| at as f64,
    );
    add("odd", vec![i64::MIN, -1, 0, i64::MAX], &|at| {
        [f64::NAN, -0.0, f64::INFINITY, 0.1 + 0.2][at]
    });
    let histograms = SeriesSamples {
        histogram_times_ms: regular(15_000).collect(),
        histograms: (0..300).map(|at| histogram(at * 11)).collect(),
        ..SeriesSamples::default()
    };
    all.insert(Labels::new([("__name__", "native")]), histograms);
    all
}

fn shown(samples: &SeriesSamples) -> String {
    let bits: Vec<u64> = samples.values.iter().map(|value| value.to_bits()).collect();
    format!(
        "{:?} {bits:?} {:?} {:?}",
        samples.times_ms, samples.histogram_times_ms, samples.histograms
    )
}

#[test]
fn version_1_is_read_for_ever() {
    let disk = SimulatedDisk::new(1 << 20);
    for (name, golden) in [(NAME, BLOCK), (TOMBSTONES, DELETED)] {
        disk.create(name).expect("the disk is empty");
        disk.overwrite(name, golden.to_vec());
    }
    let snapshot = open(&disk).expect("version 1 is read").snapshot();
    let block = &snapshot.blocks()[0];
    let mut read = SeriesSamples::default();
    for (series, (labels, mut expected)) in (0..).zip(written()) {
        assert_eq!(block.labels(series).expect("it is whole"), labels);
        read.clear();
        block.read(series, TimeMs::MIN, TimeMs::MAX, &mut read).expect("it is whole");
        if labels.metric() == "counter" {
            expected.times_ms.drain(..100);
            expected.values.drain(..100);
        }
        assert_eq!(shown(&read), shown(&expected), "{labels}");
    }
}

#[test]
fn version_1_is_written_as_ever() {
    let disk = SimulatedDisk::new(1 << 20);
    let catalog = open(&disk).expect("the disk works");
    let mut writer = catalog.writer(WriterOptions::default()).expect("there is space");
    for (labels, samples) in written() {
        writer.push(&labels, &samples).expect("there is space");
    }
    let block = catalog.publish(writer.finish().expect("there is space")).expect("the disk works");
    let counter = [1].into_iter().collect();
    assert_eq!(block.labels(1).expect("it is whole").metric(), "counter");
    catalog
        .delete(block.id(), counter, 0, 1_760_000_000_000 + 99 * 15_000)
        .expect("the disk works");
    // A newer zstd or pco that makes something smaller writes the same format: that may renew the
    // files.
    if let Some(directory) = std::env::var_os("EGRET_GOLDEN") {
        for (name, file) in [(NAME, "block-v1"), (TOMBSTONES, "tombstones-v1")] {
            let content = disk.content(name).expect("it is there");
            std::fs::write(Path::new(&directory).join(file), content).expect("it can be written");
        }
        return;
    }
    for (name, golden) in [(NAME, BLOCK), (TOMBSTONES, DELETED)] {
        let content = disk.content(name).expect("it is there");
        assert!(content == golden, "{name} differs from what version 1 wrote");
    }
}
