//! Programs that send samples: by remote write, OTLP, Influx's protocol and gRPC.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use egret_metrics_wire::encode::{RequestV2, SeriesToWrite, append_series_v1};
use egret_metrics_wire::{WireSample, snappy};
use egret_proto::series::v1::series_client::SeriesClient;
use egret_proto::series::v1::write_request::Samples;
use egret_proto::series::v1::{QueryRequest, WriteRequest};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::Place;
use crate::series::{series, start};
use tonic::transport::Channel;

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A body of remote write 1.0 with a sample of each of these.
fn body(samples: &[(i64, f64)]) -> Bytes {
    let mut body = Vec::new();
    for (time_ms, value) in samples {
        let series = SeriesToWrite {
            labels: vec![("__name__", "streamed")],
            samples: vec![WireSample { time_ms: *time_ms, value: *value }],
            ..SeriesToWrite::default()
        };
        append_series_v1(&series, &mut body);
    }
    snappy::encode(&body).into()
}

/// A request with the token.
pub fn with_token<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
    request
}

#[test]
fn a_stream_is_answered_request_by_request() {
    let place = Place::new("series-grpc");
    let (server, token) = start(&place);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(stream_and_ask(&place, &token));
    server.stop(Signal::TERM);
}

async fn stream_and_ask(place: &Place, token: &str) {
    let address = format!("http://127.0.0.1:{}", place.ports[0]);
    let channel = Channel::from_shared(address).unwrap().connect().await;
    let mut client = SeriesClient::new(channel.unwrap());
    let now = now_ms();
    let bodies = [
        body(&[(now - 2_000, 1.0), (now - 1_000, 2.0)]),
        body(&[(now, 3.0), (now + 86_400_000, 4.0)]),
        Bytes::from_static(b"no block"),
    ];
    let requests = (10..)
        .zip(bodies)
        .map(|(number, body)| WriteRequest { number, samples: Some(Samples::RemoteWriteV1(body)) });
    let requests: Vec<WriteRequest> = requests.collect();
    let sent = with_token(futures_util::stream::iter(requests), token);
    let mut responses = client.write(sent).await.unwrap().into_inner();
    let mut told = BTreeMap::new();
    while let Some(response) = responses.message().await.unwrap() {
        let code = response.error.map(|error| error.code);
        told.insert(response.number, (response.written, response.rejected, code));
    }
    let malformed = Some("series_request_malformed".to_owned());
    let expected = [(10, (2, 0, None)), (11, (1, 1, None)), (12, (0, 0, malformed))];
    assert_eq!(told, expected.into());
    let ask = QueryRequest {
        query: "streamed".to_owned(),
        start_ms: now - 2_000,
        end_ms: now,
        step_ms: 1_000,
        timeout_ms: 0,
    };
    let asked = client.query(with_token(ask.clone(), token)).await.unwrap();
    let page = asked.into_inner().message().await.unwrap().unwrap();
    assert_eq!(page.series[0].values, [1.0, 2.0, 3.0]);
    assert_eq!(page.series[0].labels[0].value, "streamed");
    let wrong = QueryRequest { query: "streamed{".to_owned(), ..ask };
    let refused = client.query(with_token(wrong, token)).await.unwrap_err();
    assert_eq!(refused.metadata().get("egret-code").unwrap(), "query_malformed");
    let stranger = client.query(QueryRequest::default()).await.unwrap_err();
    assert_eq!(stranger.code(), tonic::Code::Unauthenticated);
}

/// A sender that sees what it is answered.
pub struct Sender {
    pub client: reqwest::Client,
    pub base: String,
    pub token: String,
}

impl Sender {
    /// One that sends to this server.
    pub fn new(place: &Place, token: String) -> Self {
        // Another test of this process may have installed the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            client: reqwest::Client::new(),
            base: format!("http://127.0.0.1:{}", place.ports[0]),
            token,
        }
    }

    /// What is answered to a body.
    pub async fn send(
        &self,
        path: &str,
        kind: &str,
        encoding: &str,
        body: Vec<u8>,
    ) -> reqwest::Response {
        let request = self.client.post(format!("{}{path}", self.base));
        let request = request
            .basic_auth("anybody", Some(&self.token))
            .header("content-type", kind)
            .header("content-encoding", encoding)
            .body(body);
        request.send().await.unwrap()
    }

    /// Status, the header that counts samples, and the body.
    pub async fn post(
        &self,
        path: &str,
        kind: &str,
        encoding: &str,
        body: Vec<u8>,
    ) -> (u16, String, String) {
        let response = self.send(path, kind, encoding, body).await;
        let header = response.headers().get("x-prometheus-remote-write-samples-written");
        let counted = header.map_or("", |value| value.to_str().unwrap()).to_owned();
        let status = response.status().as_u16();
        (status, counted, response.text().await.unwrap())
    }
}

/// The content type of remote write 2.0.
pub const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
pub const WRITE: &str = "/prometheus/api/v1/write";

fn body_v2(samples: &[(i64, f64)]) -> Vec<u8> {
    let mut request = RequestV2::default();
    let sample = |(time_ms, value): &(i64, f64)| WireSample { time_ms: *time_ms, value: *value };
    let series = SeriesToWrite {
        labels: vec![("__name__", "second")],
        samples: samples.iter().map(sample).collect(),
        ..SeriesToWrite::default()
    };
    request.push(&series, None);
    snappy::encode(&request.into_body())
}

#[test]
fn senders_are_told_what_became_of_it() {
    let mut place = Place::new("senders");
    place.variables.push(("EGRET_SERIES_REQUEST_BYTES_MAX", "64kB".to_owned()));
    let (server, token) = start(&place);
    let sender = Sender::new(&place, token);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(remote_writes(&sender));
    runtime.block_on(other_protocols(&sender));
    let found = series(&place, &["query", "count({__name__=~\"second|gauge|m_f\"})"]);
    assert_eq!(found["data"]["result"][0]["value"][1], "3", "{found}");
    let stranger = place.get("/prometheus/api/v1/query?query=1");
    assert!(stranger.starts_with("HTTP/1.1 401 "), "{stranger}");
    assert!(
        stranger.contains("{\"status\":\"error\",\"errorType\":\"unauthorized\""),
        "{stranger}"
    );
    server.stop(Signal::TERM);
}

async fn remote_writes(sender: &Sender) {
    let now = now_ms();
    let good = sender.post(WRITE, V2, "snappy", body_v2(&[(now, 1.0)])).await;
    assert_eq!(good, (204, "1".to_owned(), String::new()));
    let future = now + 86_400_000;
    let (status, counted, answer) =
        sender.post(WRITE, V2, "snappy", body_v2(&[(now + 1, 1.0), (future, 2.0)])).await;
    assert_eq!((status, &*counted), (400, "1"));
    let reason = format!(
        "samples: 1 written; 1 samples were refused: the time {future} is too far in the future: see series.future_max"
    );
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer, json!({"status": "error", "errorType": "bad_data", "error": reason}));
    let (status, _, answer) = sender.post(WRITE, V2, "gzip", Vec::new()).await;
    assert_eq!((status, answer.contains("bad_data")), (415, true), "{answer}");
    let (status, _, answer) = sender.post(WRITE, V2, "snappy", vec![0; 100_000]).await;
    assert_eq!((status, answer.contains("series.request_bytes_max")), (413, true), "{answer}");
    let (status, _, answer) = sender.post(WRITE, V2, "snappy", b"none".to_vec()).await;
    assert_eq!((status, answer.contains("snappy")), (400, true), "{answer}");
}

async fn other_protocols(sender: &Sender) {
    let now = now_ms();
    let otlp = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "gauge", "gauge": {"dataPoints": [{"asDouble": 2.5, "timeUnixNano": (now * 1_000_000).to_string()}]}},
    ]}]}]});
    let path = "/prometheus/api/v1/otlp/v1/metrics";
    let answer = sender.post(path, "application/json", "identity", otlp.to_string().into()).await;
    assert_eq!(answer, (200, String::new(), "{}".to_owned()));
    let path = "/v1/series/influx/write?precision=ms&db=old";
    let lines = format!("m,t=x f=1 {now}");
    let answer = sender.post(path, "text/plain", "identity", lines.into()).await;
    assert_eq!(answer, (204, String::new(), String::new()));
    let (status, _, answer) = sender.post(path, "text/plain", "identity", b"m f=".to_vec()).await;
    assert_eq!(status, 400);
    assert!(
        answer.contains("lines: 0 samples written; 1 samples were refused: line 1, byte"),
        "{answer}"
    );
}

/// A request of one of two servers that scrape the same.
fn body_of_replica(replica: &str, time_ms: i64) -> Vec<u8> {
    let mut request = RequestV2::default();
    for host in ["a", "b"] {
        let series = SeriesToWrite {
            labels: vec![
                ("__name__", "paired"),
                ("__replica__", replica),
                ("cluster", "west"),
                ("host", host),
            ],
            samples: vec![WireSample { time_ms, value: 1.0 }],
            ..SeriesToWrite::default()
        };
        request.push(&series, None);
    }
    snappy::encode(&request.into_body())
}

#[test]
fn the_second_of_a_pair_is_told_that_it_was_heard() {
    let mut place = Place::new("pair");
    for (name, value) in [
        ("EGRET_SERIES_HA_CLUSTER_LABEL", "cluster"),
        ("EGRET_SERIES_HA_REPLICA_LABEL", "__replica__"),
    ] {
        place.variables.push((name, value.to_owned()));
    }
    let (server, token) = start(&place);
    let sender = Sender::new(&place, token);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let now = now_ms();
    let sent = |replica, at| {
        let sent = sender.post(WRITE, V2, "snappy", body_of_replica(replica, at));
        runtime.block_on(sent)
    };
    assert_eq!(sent("one", now), (204, "2".to_owned(), String::new()));
    assert_eq!(sent("two", now + 1), (202, "2".to_owned(), String::new()));
    let streamed = runtime.block_on(async {
        let address = format!("http://127.0.0.1:{}", place.ports[0]);
        let channel = Channel::from_shared(address).unwrap().connect().await;
        let mut client = SeriesClient::new(channel.unwrap());
        let request = WriteRequest {
            number: 1,
            samples: Some(Samples::RemoteWriteV2(body_of_replica("two", now + 2).into())),
        };
        let requests = futures_util::stream::iter([request]);
        let mut responses =
            client.write(with_token(requests, &sender.token)).await.unwrap().into_inner();
        responses.message().await.unwrap().unwrap()
    });
    assert_eq!((streamed.written, streamed.deduplicated), (0, 2));
    assert!(streamed.error.is_none());
    let names = series(&place, &["labels", "--match", "paired"]);
    assert_eq!(names["data"], json!(["__name__", "cluster", "host"]));
    let counted = series(&place, &["query", "sum(count_over_time(paired[1h]))"]);
    assert_eq!(counted["data"]["result"][0]["value"][1], "2", "{counted}");
    server.stop(Signal::TERM);
}
