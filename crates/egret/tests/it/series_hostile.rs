//! What senders and askers do that is wrong or too much, over HTTP: each is answered in
//! Prometheus's own form, and the server goes on.

use std::io::Write;

use egret_metrics_wire::encode::{SeriesToWrite, append_series_v1};
use egret_metrics_wire::{WireSample, snappy};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::Place;
use crate::series::start;
use crate::series_senders::{Sender, WRITE, now_ms};

const PROTOBUF: &str = "application/x-protobuf";
const FORM: &str = "application/x-www-form-urlencoded";

/// A body with one series, not compressed.
fn plain(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> Vec<u8> {
    let sample = |(time_ms, value): &(i64, f64)| WireSample { time_ms: *time_ms, value: *value };
    let series = SeriesToWrite {
        labels: labels.to_vec(),
        samples: samples.iter().map(sample).collect(),
        ..SeriesToWrite::default()
    };
    let mut body = Vec::new();
    append_series_v1(&series, &mut body);
    body
}

struct Hostile {
    sender: Sender,
    now: i64,
}

impl Hostile {
    /// Status and `errorType` of the answer to a body, and what is said; which has Prometheus's
    /// form.
    async fn refused(
        &self,
        path: &str,
        kind: &str,
        encoding: &str,
        body: Vec<u8>,
    ) -> (u16, String, String) {
        let response = self.sender.send(path, kind, encoding, body).await;
        let status = response.status().as_u16();
        let answer = response.text().await.unwrap();
        let answer: Value =
            serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert_eq!(answer["status"], "error", "{answer}");
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        (status, text("errorType"), text("error"))
    }

    /// What a body of remote write is refused with.
    async fn write_refused(&self, body: &[u8]) -> (u16, String, String) {
        self.refused(WRITE, PROTOBUF, "snappy", snappy::encode(body)).await
    }

    async fn write(&self, body: &[u8]) {
        let answer = self.sender.post(WRITE, PROTOBUF, "snappy", snappy::encode(body)).await;
        assert_eq!(answer.0, 204, "{}", answer.2);
    }

    fn form(&self, query: &str) -> Vec<u8> {
        let time = (self.now / 1_000 + 1).to_string();
        let mut form = reqwest::Url::parse("http://form/").unwrap();
        form.query_pairs_mut().append_pair("query", query).append_pair("time", &time);
        form.query().unwrap().as_bytes().to_vec()
    }

    /// The answer to a query.
    async fn asked(&self, query: &str) -> (u16, Value) {
        let path = "/prometheus/api/v1/query";
        let response = self.sender.send(path, FORM, "identity", self.form(query)).await;
        let status = response.status().as_u16();
        let answer = response.text().await.unwrap();
        (status, serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }

    async fn value(&self, query: &str) -> Value {
        let (status, answer) = self.asked(query).await;
        assert_eq!(status, 200, "{answer}");
        answer["data"]["result"][0]["value"][1].clone()
    }
}

#[test]
fn whatever_comes_is_bounded_and_answered() {
    let mut place = Place::new("series-hostile");
    for (name, value) in [
        ("EGRET_SERIES_DECODED_BYTES_MAX", "1MB"),
        ("EGRET_SERIES_QUERY_SAMPLES_MAX", "1000"),
        ("EGRET_SERVER_BODY_BYTES_MAX", "16MB"),
    ] {
        place.variables.push((name, value.to_owned()));
    }
    let (server, token) = start(&place);
    let hostile = Hostile { sender: Sender::new(&place, token), now: now_ms() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(samples(&hostile));
    runtime.block_on(labels(&hostile));
    runtime.block_on(bombs(&hostile));
    runtime.block_on(queries(&hostile));
    assert_eq!(runtime.block_on(hostile.value("vector(1) + 1")), "2");
    server.stop(Signal::TERM);
}

async fn samples(hostile: &Hostile) {
    let now = hostile.now;
    let name = |name| [("__name__", name)];
    hostile.write(&plain(&name("twice"), &[(now, 1.0), (now, 1.0)])).await;
    let told = hostile.write_refused(&plain(&name("twice"), &[(now, 2.0)])).await;
    let reason = format!(
        "samples: 0 written; 1 samples were refused: twice already has another value at {now}, which is kept"
    );
    assert_eq!(told, (400, "bad_data".to_owned(), reason));
    assert_eq!(hostile.value("twice").await, "1");
    // A NaN with a payload of its own comes back bit by bit.
    let odd = f64::from_bits(0x7ff8_dead_beef_0001);
    hostile.write(&plain(&name("odd"), &[(now, odd)])).await;
    assert_eq!(hostile.value("odd").await, "NaN");
    // One by one, and in a chunk.
    for (form, bits) in [(0, odd.to_bits().to_le_bytes()), (1, odd.to_bits().to_be_bytes())] {
        let mut query = vec![0x10];
        egret_base::codec::put_varint(&mut query, now as u64);
        query.extend_from_slice(b"\x1a\x0f\x12\x08__name__\x1a\x03odd");
        let mut body = vec![0x0a, query.len() as u8];
        body.append(&mut query);
        body.extend([0x10, form]);
        let body = snappy::encode(&body);
        let sender = &hostile.sender;
        let read = sender
            .send("/prometheus/api/v1/read", PROTOBUF, "snappy", body)
            .await
            .bytes()
            .await
            .unwrap();
        let read = match form {
            0 => snappy::Snappy::default().decode(&read, 1 << 20).unwrap().to_vec(),
            _ => read.to_vec(),
        };
        assert!(read.windows(8).any(|window| window == bits), "{form}");
    }
    for (metric, value, shown) in
        [("up_there", f64::INFINITY, "+Inf"), ("down_there", f64::NEG_INFINITY, "-Inf")]
    {
        hostile.write(&plain(&name(metric), &[(now, value)])).await;
        assert_eq!(hostile.value(metric).await, shown);
    }
    for (time_ms, setting) in [
        (now + 86_400_000, "series.future_max"),
        (i64::MAX, "series.future_max"),
        (0, "series.retention"),
        (i64::MIN, "series.retention"),
    ] {
        let told = hostile.write_refused(&plain(&name("when"), &[(time_ms, 1.0)])).await;
        assert_eq!((told.0, &*told.1), (400, "bad_data"), "{}", told.2);
        assert!(told.2.contains(setting), "{}", told.2);
    }
    assert_eq!(hostile.value("when").await, Value::Null);
}

async fn labels(hostile: &Hostile) {
    let samples = [(hostile.now, 1.0)];
    let long = "x".repeat(64 << 10);
    hostile.write(&plain(&[("__name__", "long"), ("label", &long)], &samples)).await;
    assert_eq!(hostile.value("count(long{label=~\"x+\"})").await, "1");
    let longer = format!("{long}x");
    for (labels, reason) in [
        (vec![("__name__", "a"), ("label", &*longer)], "label_value_bytes_max"),
        (vec![("__name__", "a"), (&longer[..2_000], "b")], "label_name_bytes_max"),
        (vec![("__name__", "a"), ("b", "1"), ("b", "2")], "\"b\" occurs twice"),
        (vec![("no_name", "a")], "no metric name"),
    ] {
        let told = hostile.write_refused(&plain(&labels, &samples)).await;
        assert_eq!((told.0, &*told.1), (400, "bad_data"), "{}", told.2);
        assert!(told.2.contains(reason), "{}", told.2);
    }
    let mut body = plain(&[("__name__", "a"), ("label", "????")], &samples);
    let at = body.windows(4).position(|window| window == b"????").unwrap();
    body[at..at + 4].copy_from_slice(b"\xff\xfe\xfd\xfc");
    let told = hostile.write_refused(&body).await;
    assert_eq!((told.0, &*told.1), (400, "bad_data"), "{}", told.2);
    assert!(told.2.contains("UTF-8"), "{}", told.2);
    let count = hostile.value("count({__name__=\"a\"})").await;
    assert_eq!(count, Value::Null, "nothing of these was kept");
}

/// Zeros in gzip: a thousandth of their size.
fn gzip_bomb(megabytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![b'0'; 1 << 20];
    for _ in 0..megabytes {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

async fn bombs(hostile: &Hostile) {
    let limit = "series.decoded_bytes_max";
    // A block of snappy that is large, and one that says that it would be.
    let large = snappy::encode(&vec![0; 8 << 20]);
    let promise = vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0x00];
    for body in [large, promise] {
        let told = hostile.refused(WRITE, PROTOBUF, "snappy", body).await;
        assert_eq!((told.0, &*told.1), (413, "bad_data"), "{}", told.2);
        assert!(told.2.contains("decoded_bytes_max"), "{}", told.2);
    }
    let bomb = gzip_bomb(200);
    assert!(bomb.len() < 1 << 20);
    let path = "/prometheus/api/v1/otlp/v1/metrics";
    let told = hostile.refused(path, PROTOBUF, "gzip", bomb.clone()).await;
    assert_eq!((told.0, &*told.1), (413, "bad_data"), "{}", told.2);
    assert!(told.2.contains(limit), "{}", told.2);
    // These have problems of Egret's own form.
    for (path, limit) in
        [("/v1/series/influx", limit), ("/v1/series/import?format=jsonl", "line_bytes_max")]
    {
        let response = hostile.sender.send(path, "text/plain", "gzip", bomb.clone()).await;
        let status = response.status().as_u16();
        let answer = response.text().await.unwrap();
        assert_eq!(status, 413, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["detail"].as_str().unwrap().contains(limit), "{answer}");
    }
}

async fn queries(hostile: &Hostile) {
    let now = hostile.now;
    // More than a query may read, in one series.
    let samples: Vec<(i64, f64)> = (0..1_500).map(|at| (now - at * 100, 1.0)).rev().collect();
    hostile.write(&plain(&[("__name__", "much")], &samples)).await;
    let (status, answer) = hostile.asked("sum_over_time({__name__=~\".+\"}[1h])").await;
    assert_eq!((status, &answer["errorType"]), (422, &json!("execution")), "{answer}");
    let told = answer["error"].as_str().unwrap();
    assert!(told.contains("series.query_samples_max"), "{told}");
    let (status, answer) = hostile.asked(&"(".repeat(100_000)).await;
    assert_eq!((status, &answer["errorType"]), (400, &json!("bad_data")), "{answer}");
    // A million values: it is a query like any other, if a slow one, or too large to be one.
    let values: Vec<String> = (0..1_000_000).map(|at| format!("v{at}")).collect();
    let wide = format!("count(twice{{__name__=~\"twice|{}\"}})", values.join("|"));
    let (status, answer) = hostile.asked(&wide).await;
    match status {
        200 => assert_eq!(answer["data"]["result"][0]["value"][1], "1"),
        _ => assert_eq!((status, &answer["errorType"]), (400, &json!("bad_data")), "{answer}"),
    }
    let range = "query=much&start=0&end=1000000000&step=1";
    let path = "/prometheus/api/v1/query_range";
    let told = hostile.refused(path, FORM, "identity", range.into()).await;
    assert_eq!((told.0, &*told.1), (400, "bad_data"), "{}", told.2);
    assert!(told.2.contains("11,000"), "{}", told.2);
}
