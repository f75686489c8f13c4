//! How fast the protocols are read: `cargo run --release -p egret-series --example decode_speed`. Prints the best
//! of several rounds, nanoseconds a sample, on one core.

use std::hint::black_box;
use std::time::Instant;

use egret_series::wire::encode::{RequestV2, SeriesToWrite, append_series_v1};
use egret_series::wire::remote_write_v1::{Entry, WriteRequest};
use egret_series::wire::remote_write_v2::{KeyMemory, Request, SymbolMemory};
use egret_series::wire::{Sample, labels, snappy};

const SERIES: usize = 2_000;
const ROUNDS: usize = 300;

/// Ten labels, as an exporter in a cluster has them.
fn label_values(index: usize) -> Vec<(&'static str, String)> {
    vec![
        ("__name__", format!("node_cpu_seconds_total_{}", index % 50)),
        ("cluster", "production-eu-1".into()),
        ("container", format!("container-{}", index % 20)),
        ("cpu", (index % 64).to_string()),
        (
            "instance",
            format!("10.0.{}.{}:9100", index / 250 % 250, index % 250),
        ),
        ("job", "node-exporter".into()),
        (
            "mode",
            ["idle", "user", "system", "iowait"][index % 4].into(),
        ),
        ("namespace", format!("namespace-{}", index % 10)),
        ("pod", format!("node-exporter-{:05x}", index * 7919)),
        ("region", "eu-central-1".into()),
    ]
}

fn series<'a>(
    values: &'a [(&'static str, String)],
    samples: usize,
    index: usize,
) -> SeriesToWrite<'a> {
    let sample = |at: usize| Sample {
        time_ms: 1_760_000_000_000 + at as i64 * 15_000,
        value: (index * 31 + at) as f64 * 1.25 + 1.0,
    };
    SeriesToWrite {
        labels: values
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect(),
        samples: (0..samples).map(sample).collect(),
        ..SeriesToWrite::default()
    }
}

fn time(what: &str, samples: usize, mut run: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    let each = best * 1e9 / samples as f64;
    println!("{what:<64} {each:8.2} ns/sample");
}

/// A cheap stand-in for what the caller does with a sample.
fn consume(sum: &mut u64, sample: Sample) {
    *sum = sum.wrapping_add(sample.time_ms as u64 ^ sample.value.to_bits());
}

fn read_v1(body: &[u8]) -> u64 {
    let mut sum = 0;
    let mut request = WriteRequest::new(body);
    while let Some(entry) = request.next().expect("the body is well formed") {
        if let Entry::Series(series) = entry {
            sum += series.labels.len() as u64;
            for sample in series.samples() {
                consume(&mut sum, sample.expect("the body is well formed"));
            }
        }
    }
    sum
}

fn read_v1_expecting(body: &[u8], known: &[Vec<u8>]) -> u64 {
    let mut sum = 0;
    let mut request = WriteRequest::new(body);
    for labels in known {
        let found = request.next_if(labels).expect("the body is well formed");
        let series = found.expect("series come in the same order");
        for sample in series.samples() {
            consume(&mut sum, sample.expect("the body is well formed"));
        }
    }
    sum
}

fn read_v2(body: &[u8], memory: &mut SymbolMemory, key: &mut KeyMemory) -> u64 {
    let mut sum = 0;
    let mut request = Request::new(body, memory).expect("the body is well formed");
    while let Some(series) = request.next().expect("the body is well formed") {
        let labels = series.key(key).expect("the body is well formed");
        sum += labels.len() as u64;
        for sample in series.samples() {
            consume(&mut sum, sample.expect("the body is well formed"));
        }
    }
    sum
}

fn version_1(per_series: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for index in 0..SERIES {
        append_series_v1(&series(&label_values(index), per_series, index), &mut body);
    }
    body
}

fn remote_write() {
    for per_series in [1, 100] {
        let samples = SERIES * per_series;
        let body = version_1(per_series);
        let packed = snappy::encode(&body);
        println!(
            "remote write 1.0, {per_series} samples a series: {} bytes, {} with snappy",
            body.len(),
            packed.len()
        );
        let mut memory = snappy::Snappy::default();
        time("  snappy", samples, || {
            black_box(
                memory
                    .decode(black_box(&packed), 1 << 30)
                    .expect("it was just packed"),
            );
        });
        time("  v1, labels as bytes", samples, || {
            black_box(read_v1(black_box(&body)));
        });
        let mut known = Vec::new();
        let mut request = WriteRequest::new(&body);
        while let Some(Entry::Series(series)) = request.next().expect("well formed") {
            known.push(series.labels.into_owned());
        }
        time("  v1, the series that was expected", samples, || {
            black_box(read_v1_expecting(black_box(&body), &known));
        });
        let mut pairs = Vec::new();
        time("  labels of unknown series", SERIES, || {
            for raw in &known {
                let mut own = std::mem::take(&mut pairs);
                labels::parse(raw, &Default::default(), &mut own).expect("well formed");
                black_box(&own);
            }
        });
        let mut request = RequestV2::default();
        for index in 0..SERIES {
            request.push(&series(&label_values(index), per_series, index), None);
        }
        let body = request.into_body();
        let packed = snappy::encode(&body);
        println!(
            "remote write 2.0: {} bytes, {} with snappy",
            body.len(),
            packed.len()
        );
        time("  snappy", samples, || {
            black_box(
                memory
                    .decode(black_box(&packed), 1 << 30)
                    .expect("it was just packed"),
            );
        });
        let (mut symbols, mut key) = (SymbolMemory::default(), KeyMemory::default());
        time("  v2, with keys", samples, || {
            black_box(read_v2(black_box(&body), &mut symbols, &mut key));
        });
    }
}

fn main() {
    remote_write();
}
