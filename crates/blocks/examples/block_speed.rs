//! How small blocks are and how fast they are written and read: `cargo run --release -p
//! egret-blocks --example block_speed [DIRECTORY [TARGETS]]`. The directory has texts of one
//! exporter, one a scrape, in the order of their names; they are taken to be 15 s apart, give or
//! take 3 ms, and to come from so many targets. Without one, numbers are made up.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::codec::Reader;
use egret_blocks::block::{Block, BlockCache, WriterOptions};
use egret_blocks::catalog::Catalog;
use egret_blocks::core::{Effort, ints, values};
use egret_log::Directory;
use egret_log::simulated::SplitMix64;
use egret_metrics_model::{LabelMatcher, Labels, MatchOp, Matcher, SeriesSamples, TimeMs};
use egret_metrics_wire::exposition::{TextFormat, TextItem, TextReader};

const START_MS: TimeMs = 1_760_000_400_000;
const STEP_MS: i64 = 15_000;
const JITTER_MS: u64 = 3;
const TARGETS: usize = 50;

/// What each series had at which scrape.
type Scraped = BTreeMap<Labels, Vec<(usize, f64)>>;

fn scraped(directory: &Path) -> Scraped {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("the directory can be read")
        .map(|file| file.expect("it is there").path())
        .collect();
    files.sort();
    let mut all = Scraped::new();
    for (at, file) in files.iter().enumerate() {
        let text = std::fs::read_to_string(file).expect("it is text");
        let mut reader = TextReader::new(&text, TextFormat::Prometheus);
        while let Some(item) = reader.next() {
            if let Ok(TextItem::Sample { labels, value, .. }) = item {
                let labels = Labels::new(labels.iter().map(|(name, value)| (&**name, &**value)));
                all.entry(labels).or_default().push((at, value));
            }
        }
    }
    all
}

/// Counters, of which some count seconds, gauges, and what never changes.
fn made_up() -> Scraped {
    let mut chance = SplitMix64::new(1);
    let mut all = Scraped::new();
    for series in 0..500 {
        let name = format!("metric_{:03}", series / 4);
        let labels = Labels::new([("__name__", &*name), ("mode", &*(series % 4).to_string())]);
        let mut value = chance.next_below(1 << 30) as f64;
        let samples = (0..480).map(|at| {
            value = match series % 5 {
                0 => value + chance.next_below(2000) as f64,
                1 => ((value + chance.next_below(1500) as f64 / 100.0) * 100.0).round() / 100.0,
                2 => chance.next_below(1 << 20) as f64 * 4096.0,
                _ => value,
            };
            (at, value)
        });
        all.insert(labels, samples.collect());
    }
    all
}

/// The series of all targets, in the order of their labels.
fn of_targets(scraped: &Scraped, targets: usize) -> BTreeMap<Labels, SeriesSamples> {
    let mut all = BTreeMap::new();
    for target in 0..targets {
        let mut chance = SplitMix64::new(target as u64);
        let offset_ms = chance.next_below(STEP_MS as u64) as i64;
        let jitter = |_| chance.next_below(2 * JITTER_MS + 1) as i64 - JITTER_MS as i64;
        let jitters: Vec<i64> = (0..10_000).map(jitter).collect();
        let instance = format!("10.0.{}.{}:9100", target / 250, target % 250);
        for (labels, samples) in scraped {
            let pairs = [("instance", &*instance), ("job", "node")];
            let labels = Labels::new(labels.iter().chain(pairs));
            let time = |at: &usize| START_MS + offset_ms + *at as i64 * STEP_MS + jitters[*at];
            let samples = SeriesSamples {
                times_ms: samples.iter().map(|(at, _)| time(at)).collect(),
                values: samples.iter().map(|(_, value)| *value).collect(),
                ..SeriesSamples::default()
            };
            all.insert(labels, samples);
        }
    }
    all
}

fn per_second(count: u64, took: Duration) -> String {
    format!("{:.1} M/s", count as f64 / took.as_secs_f64() / 1e6)
}

/// By encoding: how many samples, in how many bytes, of columns alone.
fn tell_encodings(scraped: &Scraped) {
    let mut by_encoding: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for samples in scraped.values() {
        let numbers: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
        let mut bytes = Vec::new();
        values::encode(&numbers, Effort::Thorough, &mut bytes);
        let (count, size) = by_encoding.entry(values::encoding_name(&bytes)).or_default();
        *count += numbers.len() as u64;
        *size += bytes.len() as u64;
    }
    for (encoding, (count, size)) in by_encoding {
        let each = size as f64 / count as f64;
        println!("  {encoding:24} {count:>9} samples {size:>9} bytes {each:.3} each");
    }
}

fn tell_writing(all: &BTreeMap<Labels, SeriesSamples>, effort: Effort) -> Block {
    let home = tempfile::tempdir().expect("a temporary directory");
    let disk = Directory::open(home.path()).expect("it opens");
    let catalog = Catalog::open(disk, Arc::new(BlockCache::new(64 << 20))).expect("it opens");
    let options = WriterOptions { effort, ..WriterOptions::default() };
    let begun = Instant::now();
    let mut writer = catalog.writer(options).expect("there is space");
    for (labels, samples) in all {
        writer.push(labels, samples).expect("there is space");
    }
    let samples_bytes = writer.size_bytes();
    let written = writer.finish().expect("there is space");
    let took = begun.elapsed();
    let block = catalog.publish(written).expect("it is taken in");
    let samples = block.meta().samples;
    println!(
        "{effort:?}: {} series, {samples} samples, {} bytes: {:.3} a sample, {:.3} without the index of labels; written {}",
        block.series(),
        block.size_bytes(),
        block.size_bytes() as f64 / samples as f64,
        samples_bytes as f64 / samples as f64,
        per_second(samples, took),
    );
    block
}

fn tell_reading(block: &Block) {
    let mut samples = SeriesSamples::default();
    for round in ["first", "second"] {
        let begun = Instant::now();
        for series in 0..block.series() {
            samples.clear();
            block.read(series, TimeMs::MIN, TimeMs::MAX, &mut samples).expect("it is whole");
            black_box(&samples);
        }
        println!(
            "read everything, {round} time: {}",
            per_second(block.meta().samples, begun.elapsed())
        );
    }
    let matcher = |name: &str, op, value: &str| {
        LabelMatcher::new(Matcher { name: name.into(), op, value: value.into() })
            .expect("it compiles")
    };
    let matchers = [
        matcher("job", MatchOp::Equal, "node"),
        matcher("instance", MatchOp::Matches, "10.0.0.(1|2|3).*"),
        matcher("mode", MatchOp::NotEqual, "idle"),
    ];
    for round in ["first", "second"] {
        let begun = Instant::now();
        let selected = block.select(&matchers).expect("it is whole");
        println!("select {} series, {round} time: {:?}", selected.len(), begun.elapsed());
        let begun = Instant::now();
        for series in &selected {
            black_box(block.labels(*series).expect("it is whole"));
        }
        println!("  their labels: {:?}", begun.elapsed());
        let begun = Instant::now();
        for series in &selected {
            samples.clear();
            let end_ms = block.meta().max_ms;
            block.read(*series, end_ms - 600_000, end_ms, &mut samples).expect("it is whole");
        }
        println!("  their last 10 minutes: {:?}", begun.elapsed());
    }
}

/// Decoding alone: integers that step by up to 1000.
fn tell_decoding() {
    let mut chance = SplitMix64::new(3);
    let mut value = 0_i64;
    let numbers: Vec<i64> = (0..8192)
        .map(|_| {
            value += chance.next_below(1000) as i64;
            value
        })
        .collect();
    let as_values: Vec<f64> = numbers.iter().map(|number| *number as f64 / 100.0).collect();
    for effort in [Effort::Quick, Effort::Thorough] {
        let (mut integers, mut values) = (Vec::new(), Vec::new());
        ints::encode(&numbers, effort, &mut integers);
        values::encode(&as_values, effort, &mut values);
        let (mut out, mut out_values) = (Vec::new(), Vec::new());
        let (mut best, mut best_values) = (Duration::MAX, Duration::MAX);
        for _ in 0..200 {
            out.clear();
            let begun = Instant::now();
            ints::decode(&mut Reader::new(&integers, ""), numbers.len(), &mut out)
                .expect("it is right");
            best = best.min(begun.elapsed());
            out_values.clear();
            let begun = Instant::now();
            values::decode(&values, numbers.len(), &mut out_values).expect("it is right");
            best_values = best_values.min(begun.elapsed());
        }
        println!(
            "{effort:?}: decode integers {}, hundredths {}",
            per_second(numbers.len() as u64, best),
            per_second(numbers.len() as u64, best_values),
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let scraped = arguments.next().map_or_else(made_up, |directory| scraped(Path::new(&directory)));
    let targets = arguments.next().and_then(|targets| targets.parse().ok()).unwrap_or(TARGETS);
    println!("columns of numbers of one target:");
    tell_encodings(&scraped);
    let all = of_targets(&scraped, targets);
    tell_writing(&all, Effort::Quick);
    let block = tell_writing(&all, Effort::Thorough);
    tell_reading(&block);
    tell_decoding();
}
