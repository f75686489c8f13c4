//! Native histograms: counted when they come in, and given out by every door that has a way to.

use egret_metrics_wire::encode::{RequestV2, SeriesToWrite};
use egret_metrics_wire::histogram::WireBuckets;
use egret_metrics_wire::{WireCount, WireHistogram, WireSample, WireSpan, snappy};
use egret_proto::series::v1::series_client::SeriesClient;
use egret_proto::series::v1::{Bucket, Histogram, QueryRequest};
use rustix::process::Signal;
use serde_json::json;
use tonic::transport::Channel;

use crate::place::{Place, text};
use crate::series::{series, start};
use crate::series_senders::{Sender, V2, WRITE, now_ms, with_token};

const NAMES: [&str; 3] = ["samples", "histograms", "exemplars"];

/// Three observations: one in (0.5,1], two in (1,2].
fn histogram(time_ms: i64, sum: f64) -> WireHistogram {
    WireHistogram {
        time_ms,
        count: WireCount::Integer(3),
        zero_count: WireCount::Integer(0),
        sum,
        schema: 0,
        zero_threshold: 1e-128,
        positive: WireBuckets {
            spans: vec![WireSpan { offset: 0, length: 2 }],
            deltas: vec![1, 1],
            counts: Vec::new(),
        },
        ..WireHistogram::default()
    }
}

/// A request with a series of numbers and one of histograms.
fn request(numbers: &[i64], histograms: Vec<WireHistogram>) -> Vec<u8> {
    let mut request = RequestV2::default();
    let sample = |time_ms: &i64| WireSample { time_ms: *time_ms, value: 7.0 };
    let plain = SeriesToWrite {
        labels: vec![("__name__", "plain")],
        samples: numbers.iter().map(sample).collect(),
        ..SeriesToWrite::default()
    };
    let native = SeriesToWrite {
        labels: vec![("__name__", "native")],
        histograms,
        ..SeriesToWrite::default()
    };
    request.push(&plain, None);
    request.push(&native, None);
    snappy::encode(&request.into_body())
}

/// Status, and the headers that count what was written.
async fn sent(sender: &Sender, body: Vec<u8>) -> (u16, [u64; 3]) {
    let response = sender.send(WRITE, V2, "snappy", body).await;
    let counted = NAMES.map(|name| {
        let name = format!("x-prometheus-remote-write-{name}-written");
        response.headers()[name].to_str().unwrap().parse().unwrap()
    });
    (response.status().as_u16(), counted)
}

#[test]
fn histograms_are_counted_and_given_out() {
    let place = Place::new("series-histograms");
    let (server, token) = start(&place);
    let sender = Sender::new(&place, token);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let now = now_ms();
    runtime.block_on(they_are_counted(&sender, now));
    runtime.block_on(they_are_read(&sender, now));
    runtime.block_on(they_are_asked_for(&place, &sender.token, now));
    they_are_exported(&place, now);
    server.stop(Signal::TERM);
}

async fn they_are_counted(sender: &Sender, now: i64) {
    let two = vec![histogram(now - 2_000, 4.0), histogram(now - 1_000, 4.5)];
    let body = request(&[now - 3_000, now - 2_000, now - 1_000], two);
    assert_eq!(sent(sender, body.clone()).await, (204, [3, 2, 0]));
    assert_eq!(sent(sender, body).await, (204, [3, 2, 0]), "sent again");
    // A staleness marker, which is not a number, is itself when it is sent again.
    let stale = f64::from_bits(egret_metrics_model::STALE_NAN_BITS);
    for _ in 0..2 {
        let body = request(&[], vec![histogram(now - 500, stale)]);
        assert_eq!(sent(sender, body).await, (204, [0, 1, 0]));
    }
    // One of each is of the future, and one histogram is not what is there.
    let future = now + 86_400_000;
    let some = vec![histogram(now - 1_000, 99.0), histogram(now, 5.0), histogram(future, 5.0)];
    assert_eq!(sent(sender, request(&[now, future], some)).await, (400, [1, 1, 0]));
}

async fn they_are_read(sender: &Sender, now: i64) {
    // A query for everything called `native`, until now.
    let mut query = vec![0x08, 0x00, 0x10];
    egret_base::codec::put_varint(&mut query, now as u64);
    query.extend_from_slice(b"\x1a\x12\x12\x08__name__\x1a\x06native");
    let mut body = vec![0x0a, query.len() as u8];
    body.append(&mut query);
    let read = async |forms: &[u8]| {
        let forms = forms.iter().flat_map(|form| [0x10, *form]);
        let body: Vec<u8> = body.iter().copied().chain(forms).collect();
        let (path, kind) = ("/prometheus/api/v1/read", "application/x-protobuf");
        let body = snappy::encode(&body);
        sender.send(path, kind, "snappy", body).await
    };
    // Chunks cannot have them.
    let refused = read(&[1]).await;
    assert_eq!(refused.status().as_u16(), 400);
    let told = refused.text().await.unwrap();
    assert!(told.contains("accept SAMPLES as well"), "{told}");
    let response = read(&[1, 0]).await;
    assert_eq!(response.status().as_u16(), 200);
    let read = response.bytes().await.unwrap();
    let read = snappy::Snappy::default().decode(&read, 1 << 20).unwrap().to_vec();
    for sum in [4.0_f64, 4.5, 5.0] {
        // Field 3 of a histogram.
        let mut field = vec![0x19];
        field.extend_from_slice(&sum.to_le_bytes());
        let times = read.windows(9).filter(|window| *window == field);
        assert_eq!(times.count(), 1, "{sum}");
    }
}

async fn they_are_asked_for(place: &Place, token: &str, now: i64) {
    let address = format!("http://127.0.0.1:{}", place.ports[0]);
    let channel = Channel::from_shared(address).unwrap().connect().await;
    let mut client = SeriesClient::new(channel.unwrap());
    let ask = QueryRequest { query: "native".to_owned(), start_ms: now, ..QueryRequest::default() };
    let asked = client.query(with_token(ask, token)).await.unwrap();
    let page = asked.into_inner().message().await.unwrap().unwrap();
    let bucket = |lower, upper, count| Bucket { bounds: 0, lower, upper, count };
    let expected = Histogram {
        count: 3.0,
        sum: 5.0,
        buckets: vec![bucket(0.5, 1.0, 1.0), bucket(1.0, 2.0, 2.0)],
    };
    assert_eq!(page.series[0].histograms, [expected]);
    assert_eq!(page.series[0].histogram_times_ms, [now]);
    assert!(page.series[0].values.is_empty());
}

fn they_are_exported(place: &Place, now: i64) {
    let refused = place.run(&["series", "export", "--format", "csv"]);
    assert!(!refused.status.success());
    let told = text(&refused.stderr);
    assert!(
        told.contains(
            "native has native histograms, which this format cannot represent: use jsonl or parquet"
        ),
        "{told}"
    );
    let csv = place.run(&["series", "export", "--format", "csv", "--match", "plain"]);
    assert!(csv.status.success(), "{}", text(&csv.stderr));
    let arguments = ["series", "export", "--match", "native", "--out", "native.jsonl"];
    assert!(place.run(&arguments).status.success());
    let line = std::fs::read_to_string(place.directory.join("native.jsonl")).unwrap();
    let read: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(read["histograms"][2]["sum"], json!(null));
    assert_eq!(read["histograms"][3]["timestamp"], now);
    assert_eq!(read["histograms"][3]["positive_counts"], json!([1, 2]));
    // What comes back is what went.
    let renamed = line.replace("\"native\"", "\"again\"");
    std::fs::write(place.directory.join("again.jsonl"), renamed).unwrap();
    assert_eq!(series(place, &["import", "again.jsonl"])["samples"], 4);
    let query = "count(native == ignoring (__name__) again)";
    let at = (now as f64 / 1_000.0).to_string();
    let same = series(place, &["query", query, "--at", &at]);
    assert_eq!(same["data"]["result"][0]["value"][1], "1", "{same}");
    let arguments = ["series", "export", "--format", "parquet", "--out", "all.parquet"];
    assert!(place.run(&arguments).status.success());
}
