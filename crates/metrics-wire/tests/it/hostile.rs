//! Malformed bytes: the readers of the protocols refuse them or read something, and never panic.

use egret_log::simulated::SplitMix64;
use egret_metrics_wire::encode::{RequestV2, SeriesToWrite, append_metadata_v1, append_series_v1};
use egret_metrics_wire::exposition::{TextFormat, TextReader};
use egret_metrics_wire::influx::{LineReader, Precision};
use egret_metrics_wire::json_lines::JsonLine;
use egret_metrics_wire::otlp::{self, OtlpEncoding, OtlpOptions};
use egret_metrics_wire::remote_write_v1::{RequestEntry, WriteRequest};
use egret_metrics_wire::remote_write_v2::{KeyMemory, SymbolMemory, WriteRequestV2};
use egret_metrics_wire::table::TableColumns;
use egret_metrics_wire::{
    LabelLimits, MetricKind, WireCount, WireError, WireHistogram, WireSample, WireSpan, labels,
    remote_read, snappy,
};

const ROUNDS: usize = 20_000;

/// Reads damaged copies of `whole` and bytes at random.
fn try_all(seed: u64, whole: &[u8], mut read: impl FnMut(&[u8])) {
    let mut chance = SplitMix64::new(seed);
    read(whole);
    for _ in 0..ROUNDS {
        let mut bytes = whole.to_vec();
        chance.damage(&mut bytes);
        read(&bytes);
        read(&chance.next_bytes(60));
    }
}

fn series() -> SeriesToWrite<'static> {
    let mut histogram = WireHistogram { count: WireCount::Integer(3), ..WireHistogram::default() };
    histogram.positive.spans = vec![WireSpan { offset: -1, length: 2 }];
    histogram.positive.deltas = vec![1, 1];
    SeriesToWrite {
        labels: vec![("__name__", "up"), ("instance", "10.0.0.1:9100"), ("job", "näme")],
        samples: vec![WireSample { time_ms: 1_700_000_000_000, value: 1.5 }; 3],
        histograms: vec![histogram],
        created_ms: 1,
    }
}

fn read_v1(body: &[u8]) -> Result<(), WireError> {
    let mut request = WriteRequest::new(body);
    let mut histogram = WireHistogram::default();
    loop {
        let _ = request.next_if_labels(b"\x0a\x0e\x0a\x08__name__\x12\x02up");
        let Some(entry) = request.next()? else {
            return Ok(());
        };
        let RequestEntry::Series(series) = entry else {
            continue;
        };
        let _ = labels::parse(&series.labels, &LabelLimits::default(), &mut Vec::new());
        assert!(series.samples().count() <= body.len());
        let mut histograms = series.histograms();
        while histograms.read(&mut histogram)? {}
    }
}

#[test]
fn remote_write_1() {
    let mut whole = Vec::new();
    append_series_v1(&series(), &mut whole);
    append_metadata_v1("up", MetricKind::Gauge, "help", "s", &mut whole);
    append_series_v1(&series(), &mut whole);
    let mut good = 0;
    try_all(1, &whole, |body| good += u32::from(read_v1(body).is_ok()));
    assert!(good > 100, "damage is not always noticed: {good}");
}

fn read_v2(
    body: &[u8],
    symbols: &mut SymbolMemory,
    memory: &mut KeyMemory,
) -> Result<(), WireError> {
    let mut request = WriteRequestV2::new(body, symbols)?;
    let mut histogram = WireHistogram::default();
    while let Some(series) = request.next()? {
        let key = series.build_key(memory)?;
        // The key is made of label fields, so that only what the labels hold is left to be wrong.
        if let Err(error) = labels::parse(key, &LabelLimits::default(), &mut Vec::new()) {
            let error = error.to_string();
            assert!(!error.contains("byte") || error.contains("UTF-8"), "{error}");
        }
        assert!(series.samples().count() <= body.len());
        let _ = series.metadata();
        let mut histograms = series.histograms();
        while histograms.read(&mut histogram)? {}
    }
    Ok(())
}

#[test]
fn remote_write_2() {
    let mut request = RequestV2::default();
    request.push(&series(), Some((MetricKind::Gauge, "help", "s")));
    request.push(&series(), None);
    let whole = request.into_body();
    let (mut symbols, mut memory) = (SymbolMemory::default(), KeyMemory::default());
    let mut good = 0;
    try_all(2, &whole, |body| {
        good += u32::from(read_v2(body, &mut symbols, &mut memory).is_ok());
    });
    assert!(good > 100, "damage is not always noticed: {good}");
}

#[test]
fn snappy_blocks() {
    let mut whole = Vec::new();
    append_series_v1(&series(), &mut whole);
    append_series_v1(&series(), &mut whole);
    let mut memory = snappy::Snappy::default();
    try_all(3, &snappy::encode(&whole), |body| {
        if let Ok(decoded) = memory.decode(body, 4_096) {
            assert!(decoded.len() <= 4_096);
        }
    });
}

#[test]
fn texts() {
    let text = "# HELP a_b What \\n it\n# TYPE a_b counter\na_b{c=\"d\",\"e.f\"=\"\\\"g\\\\\"} 1e3 1700000000000\n\
        {\"a.b\"} NaN # {t=\"x\"} 1 2.5\n# EOF\n";
    for (seed, format) in [(4, TextFormat::Prometheus), (5, TextFormat::OpenMetrics)] {
        try_all(seed, text.as_bytes(), |body| {
            let text = String::from_utf8_lossy(body);
            let mut reader = TextReader::new(&text, format);
            let mut items = 0;
            while reader.next().is_some() {
                items += 1;
            }
            assert!(items <= reader.lines_read());
        });
    }
}

#[test]
fn influx_lines() {
    let text =
        "m\\ 1,tag=a\\,b,x=y f=1.5,g=2i,s=\"a\\\"\nb\",b=t 1700000000000000000\n# no\nm u=7u\n";
    try_all(6, text.as_bytes(), |body| {
        let text = String::from_utf8_lossy(body);
        let mut reader = LineReader::new(&text, Precision::Seconds);
        let mut lines = 0;
        while let Some(point) = reader.next() {
            lines += 1;
            if let Err(error) = point {
                assert!(error.line as usize <= text.lines().count(), "{error}: {text:?}");
            }
        }
        assert!(lines <= text.lines().count());
    });
}

#[test]
fn json_lines_and_tables() {
    let line =
        r#"{"metric":{"__name__":"up","a":"\u00e9"},"values":[1,null,"NaN"],"timestamps":[1,2,3]}"#;
    try_all(10, line.as_bytes(), |body| {
        let text = String::from_utf8_lossy(body);
        if let Ok(line) = JsonLine::parse(&text) {
            assert!(line.samples().count() <= body.len());
        }
    });
    let columns = TableColumns::parse_header("time,metric,value,a".split(',')).unwrap();
    try_all(11, b"2013-01-01T00:00:00.5+01:00,up,1e-7,x", |body| {
        let text = String::from_utf8_lossy(body);
        let cells: Vec<&str> = text.split(',').collect();
        let _ = columns.parse_row(|at| cells.get(at).copied());
    });
}

#[test]
fn otlp_requests() {
    let json = r#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},
        "scopeMetrics":[{"metrics":[{"name":"a","sum":{"isMonotonic":true,"aggregationTemporality":2,
        "dataPoints":[{"asInt":"5","timeUnixNano":"7"}]}}]}]}]}"#;
    let options = OtlpOptions::default();
    try_all(7, json.as_bytes(), |body| {
        let _ = otlp::decode(body, OtlpEncoding::Json, &options);
    });
    // A gauge with a point, and an exponential histogram.
    let protobuf = b"\x0a\x36\x12\x34\x12\x12\x0a\x01g\x2a\x0d\x0a\x0b\x19\x07\0\0\0\0\0\0\0\x3a\0\
        \x12\x1e\x0a\x01e\x52\x19\x0a\x15\x21\x03\0\0\0\0\0\0\0\x30\x02\x42\x04\x08\x03\x12\0\x4a\x02\x08\x05\x10\x02";
    try_all(8, protobuf, |body| {
        let _ = otlp::decode(body, OtlpEncoding::Protobuf, &options);
    });
}

#[test]
fn remote_reads() {
    let whole = b"\x0a\x13\x08\x01\x10\x02\x1a\x0b\x08\x03\x12\x03job\x1a\x02a+\x22\0\x12\x01\x01";
    try_all(9, whole, |body| {
        let _ = remote_read::decode(body);
    });
}
