//! How fast the protocols are read: `cargo run --release -p egret-metrics-wire --example
//! decode_speed`. Prints the best of several rounds, nanoseconds a sample, on one core. An argument
//! picks what to time by a part of its name.

use std::hint::black_box;
use std::time::Instant;

use egret_metrics_wire::encode::{RequestV2, SeriesToWrite, append_series_v1};
use egret_metrics_wire::exposition::{self, TextFormat, TextReader};
use egret_metrics_wire::influx::{LineReader, Precision};
use egret_metrics_wire::otlp::{self, OtlpEncoding, OtlpOptions};
use egret_metrics_wire::remote_write_v1::{RequestEntry, WriteRequest};
use egret_metrics_wire::remote_write_v2::{KeyMemory, SymbolMemory, WriteRequestV2};
use egret_metrics_wire::{WireSample, labels, snappy};

const SERIES: usize = 2_000;
const ROUNDS: usize = 300;

/// Ten labels, as an exporter in a cluster has them.
fn label_values(index: usize) -> Vec<(&'static str, String)> {
    vec![
        ("__name__", format!("node_cpu_seconds_total_{}", index % 50)),
        ("cluster", "production-eu-1".into()),
        ("container", format!("container-{}", index % 20)),
        ("cpu", (index % 64).to_string()),
        ("instance", format!("10.0.{}.{}:9100", index / 250 % 250, index % 250)),
        ("job", "node-exporter".into()),
        ("mode", ["idle", "user", "system", "iowait"][index % 4].into()),
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
    let sample = |at: usize| WireSample {
        time_ms: 1_760_000_000_000 + at as i64 * 15_000,
        value: (index * 31 + at) as f64 * 1.25 + 1.0,
    };
    SeriesToWrite {
        labels: values.iter().map(|(name, value)| (*name, value.as_str())).collect(),
        samples: (0..samples).map(sample).collect(),
        ..SeriesToWrite::default()
    }
}

fn time(what: &str, samples: usize, mut run: impl FnMut()) {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if !what.contains(&wanted) {
        return;
    }
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
fn consume(sum: &mut u64, sample: WireSample) {
    *sum = sum.wrapping_add(sample.time_ms as u64 ^ sample.value.to_bits());
}

fn read_v1(body: &[u8]) -> u64 {
    let mut sum = 0;
    let mut request = WriteRequest::new(body);
    while let Some(entry) = request.next().expect("the body is well formed") {
        if let RequestEntry::Series(series) = entry {
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
        let found = request.next_if_labels(labels).expect("the body is well formed");
        let series = found.expect("series come in the same order");
        for sample in series.samples() {
            consume(&mut sum, sample.expect("the body is well formed"));
        }
    }
    sum
}

fn read_v2(body: &[u8], memory: &mut SymbolMemory, key: &mut KeyMemory) -> u64 {
    let mut sum = 0;
    let mut request = WriteRequestV2::new(body, memory).expect("the body is well formed");
    while let Some(series) = request.next().expect("the body is well formed") {
        let labels = series.build_key(key).expect("the body is well formed");
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

fn snappy_of(body: &[u8], samples: usize) {
    let packed = snappy::encode(body);
    println!("{} bytes, {} with snappy", body.len(), packed.len());
    let mut memory = snappy::Snappy::default();
    time("  snappy", samples, || {
        let decoded = memory.decode(black_box(&packed), 1 << 30);
        black_box(decoded.expect("it was just packed"));
    });
}

fn remote_write_1(per_series: usize) {
    let samples = SERIES * per_series;
    let body = version_1(per_series);
    print!("remote write 1.0, {per_series} samples a series: ");
    snappy_of(&body, samples);
    let what = format!("  v1, labels as bytes, {per_series} a series");
    time(&what, samples, || {
        black_box(read_v1(black_box(&body)));
    });
    let mut known = Vec::new();
    let mut request = WriteRequest::new(&body);
    while let Some(RequestEntry::Series(series)) = request.next().expect("well formed") {
        known.push(series.labels.into_owned());
    }
    let what = format!("  v1, the series that was expected, {per_series} a series");
    time(&what, samples, || {
        black_box(read_v1_expecting(black_box(&body), &known));
    });
    time("  labels of unknown series", SERIES, || {
        for raw in &known {
            let mut pairs = Vec::with_capacity(10);
            labels::parse(raw, &Default::default(), &mut pairs).expect("well formed");
            black_box(&pairs);
        }
    });
}

fn remote_write_2(per_series: usize) {
    let samples = SERIES * per_series;
    let mut request = RequestV2::default();
    for index in 0..SERIES {
        request.push(&series(&label_values(index), per_series, index), None);
    }
    let body = request.into_body();
    print!("remote write 2.0, {per_series} samples a series: ");
    snappy_of(&body, samples);
    let (mut symbols, mut key) = (SymbolMemory::default(), KeyMemory::default());
    let what = format!("  v2, with keys, {per_series} a series");
    time(&what, samples, || {
        black_box(read_v2(black_box(&body), &mut symbols, &mut key));
    });
}

/// The same series as text.
fn text() {
    let mut body = String::new();
    for index in 0..SERIES {
        let values = label_values(index);
        let labels = values.iter().map(|(name, value)| (*name, value.as_str()));
        let value = index as f64 * 1.25;
        exposition::append_sample(labels, value, None, TextFormat::Prometheus, &mut body);
    }
    println!("text: {} bytes", body.len());
    time("  text format", SERIES, || {
        let mut reader = TextReader::new(black_box(&body), TextFormat::Prometheus);
        while let Some(item) = reader.next() {
            black_box(item.expect("well formed"));
        }
    });
}

/// Five tags and five fields a line, as Telegraf has them for a processor.
fn influx() {
    let mut body = String::new();
    for index in 0..SERIES / 5 {
        let host = index % 100;
        body.push_str(&format!(
            "cpu,cpu=cpu{},dc=eu-1,host=host-{host},os=linux,team=data usage_user={},usage_system=1.5,\
             usage_idle=90.25,usage_iowait=0.5,count={index}i 1700000000000000000\n",
            index % 64,
            index as f64 / 7.0,
        ));
    }
    println!("influx: {} bytes", body.len());
    time("  influx lines", SERIES, || {
        let mut reader = LineReader::new(black_box(&body), Precision::Nanoseconds);
        while let Some(point) = reader.next() {
            black_box(point.expect("well formed"));
        }
    });
}

/// Gauges with five attributes.
fn otlp_json() {
    let attribute = |key: &str, value: &str| {
        format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
    };
    let points = (0..SERIES).map(|index| {
        let attributes = [
            attribute("http.method", "GET"),
            attribute("http.route", &format!("/api/{}", index % 50)),
            attribute("http.status_code", "200"),
            attribute("net.peer.name", &format!("10.0.0.{}", index % 250)),
            attribute("pod", &format!("pod-{index}")),
        ];
        let attributes = attributes.join(",");
        format!(r#"{{"asDouble":{index}.5,"timeUnixNano":"1700000000000000000","attributes":[{attributes}]}}"#)
    });
    let points: Vec<String> = points.collect();
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"a.gauge","unit":"s","gauge":{{"dataPoints":[{}]}}}}]}}]}}]}}"#,
        points.join(",")
    );
    println!("otlp: {} bytes", body.len());
    let options = OtlpOptions::default();
    time("  otlp, json", SERIES, || {
        black_box(
            otlp::decode(body.as_bytes(), OtlpEncoding::Json, &options).expect("well formed"),
        );
    });
}

fn main() {
    for per_series in [1, 100] {
        remote_write_1(per_series);
        remote_write_2(per_series);
    }
    text();
    influx();
    otlp_json();
}
