//! `egret series …` and the HTTP API of Prometheus, spoken to by a real Prometheus, its promtool and node_exporter.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use egret_proto::series::v1::series_client::SeriesClient;
use egret_proto::series::v1::write_request::Samples;
use egret_proto::series::v1::{QueryRequest, WriteRequest};
use egret_series::wire::encode::{RequestV2, SeriesToWrite, append_series_v1};
use egret_series::wire::{Sample, snappy};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, Server, text};

/// How long samples may take from a program that shows them to Egret.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many targets were scraped often enough.
const ENOUGH: &str = "count(count_over_time(up[1m]) > 4)";

/// A program that runs as long as this lives.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[&str], place: &Place) -> Self {
        let child = Command::new(program)
            .args(arguments)
            .current_dir(&place.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap_or_else(|error| panic!("{program}: {error}: `make test` installs it")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that nobody has.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn series(place: &Place, arguments: &[&str]) -> Value {
    place.json(&[&["series"], arguments].concat())
}

/// What a command says that must work.
fn said(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(&[&["series"], arguments].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out
}

/// The series of an answer with their values, in the order of their labels.
fn values(answer: &Value) -> Vec<String> {
    let result = answer["data"]["result"].as_array().unwrap();
    let mut values: Vec<String> = result.iter().map(Value::to_string).collect();
    values.sort();
    values
}

fn start(place: &Place) -> (Server, String) {
    let server = place.start(&["serve"]);
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    (server, token.trim().to_owned())
}

#[test]
fn a_prometheus_writes_to_it_and_its_tools_read() {
    let place = Place::new("prometheus");
    let (server, token) = start(&place);
    let (node, prometheus) = (free_port(), free_port());
    let listen = format!("--web.listen-address=127.0.0.1:{node}");
    let _node = Running::start("prometheus-node-exporter", &[&listen], &place);
    let own = place.ports[0];
    let configuration = json!({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": "node", "static_configs": [{"targets": [format!("127.0.0.1:{node}")]}]},
            {"job_name": "egret", "basic_auth": {"username": "egret", "password": token},
                "static_configs": [{"targets": [format!("127.0.0.1:{own}")]}]},
        ],
        "remote_write": [{
            "url": format!("http://127.0.0.1:{own}/prometheus/api/v1/write"),
            "authorization": {"credentials": token},
        }],
        "remote_read": [{
            "url": format!("http://127.0.0.1:{own}/prometheus/api/v1/read"),
            "authorization": {"credentials": token},
            "read_recent": true,
        }],
    });
    let file = place.directory.join("prometheus.yml");
    // JSON is YAML.
    std::fs::write(&file, configuration.to_string()).unwrap();
    let listen = format!("--web.listen-address=127.0.0.1:{prometheus}");
    let arguments = [
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=prometheus",
        "--web.route-prefix=/prometheus",
        &listen,
    ];
    let _prometheus = Running::start("prometheus", &arguments, &place);
    let both = json!("2");
    let began = Instant::now();
    while series(&place, &["query", ENOUGH])["data"]["result"][0]["value"][1] != both {
        assert!(began.elapsed() < PATIENCE, "nothing came: {}", place.log());
    }
    the_same_is_answered(&place, prometheus);
    it_is_read_from_afar(&place, prometheus);
    promtool_reads(&place, &token);
    let metrics = said(&place, &["labels", "__name__", "--match", "{job=\"node\"}"]);
    assert!(metrics.contains("\nnode_load1\n"), "{metrics}");
    let found = series(&place, &["cardinality", "--top", "3"]);
    assert!(found["series"].as_u64().unwrap() > 300, "{found}");
    assert_eq!(found["series_by_metric"].as_array().unwrap().len(), 3);
    server.stop(Signal::TERM);
}

/// Asks both the same, at a time of which both have everything.
fn the_same_is_answered(place: &Place, prometheus: u16) {
    let last = series(place, &["query", "min(timestamp(up)) - 2"]);
    let at = last["data"]["result"][0]["value"][1]
        .as_str()
        .unwrap()
        .to_owned();
    let url = format!("http://127.0.0.1:{prometheus}");
    for query in [
        "count by (job, __name__) ({job=~\".+\"})",
        "{__name__=~\"node_(boot|uname|memory).*\"}",
        "max without (cpu, mode) (node_cpu_seconds_total)",
        "histogram_quantile(0.9, sum by (le) (egret_http_request_duration_seconds_bucket))",
        "label_replace(up, \"port\", \"$1\", \"instance\", \".*:(.*)\") * 1e30 / 7",
        "vector(0) / 0 or vector(1) / 0",
    ] {
        let ours = series(place, &["query", query, "--at", &at]);
        let theirs = series(place, &["query", query, "--at", &at, "--url", &url]);
        assert!(!values(&ours).is_empty(), "{query}");
        assert_eq!(values(&ours), values(&theirs), "{query}");
    }
}

/// What only Egret has, Prometheus finds there.
fn it_is_read_from_afar(place: &Place, prometheus: u16) {
    std::fs::write(place.directory.join("here.prom"), "only_here{a=\"b\"} 42\n").unwrap();
    assert_eq!(series(place, &["import", "here.prom"])["samples"], 1);
    let url = format!("http://127.0.0.1:{prometheus}");
    let read = series(place, &["query", "only_here", "--url", &url]);
    let expected = json!({"__name__": "only_here", "a": "b"});
    assert_eq!(read["data"]["result"][0]["metric"], expected, "{read}");
    assert_eq!(read["data"]["result"][0]["value"][1], "42");
}

fn promtool_reads(place: &Place, token: &str) {
    let url = format!(
        "http://egret:{token}@127.0.0.1:{}/prometheus",
        place.ports[0]
    );
    for (arguments, expected) in [
        (&["instant", &url, "1 + 1"][..], "scalar: 2"),
        (&["instant", &url, "up"][..], "up{instance="),
        (&["labels", &url, "job"][..], "egret\nnode\n"),
        (&["series", &url, "--match=up"][..], "{__name__=\"up\""),
        (&["range", "--step=1s", &url, "up"][..], "up{instance="),
    ] {
        let output = Command::new("promtool")
            .arg("query")
            .args(arguments)
            .output()
            .unwrap();
        let out = text(&output.stdout);
        assert!(
            out.contains(expected),
            "{arguments:?}: {out}{}",
            text(&output.stderr)
        );
    }
    let output = Command::new("promtool")
        .args(["query", "instant", &url, "up{"])
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).contains("bad_data"),
        "{}",
        text(&output.stderr)
    );
}

/// A table, its rows by time.
const TABLE: &str = "time,metric,value,host\n\
    2013-07-01T00:00:00Z,load,1.5,a\n\
    2013-07-01T01:00:00Z,load,2.5,a\n\
    1372640400000,load,-1e-7,\"b,c\"\n\
    2013-07-01T00:00:00Z,load,x,a\n";

#[test]
fn samples_come_and_go_as_texts() {
    let mut place = Place::new("exchange");
    place
        .variables
        .push(("EGRET_SERIES_RETENTION", "0".to_owned()));
    let (server, _) = start(&place);
    let write = |name: &str, text: &str| std::fs::write(place.directory.join(name), text).unwrap();
    write("load.csv", TABLE);
    let imported = series(&place, &["import", "load.csv"]);
    let reason = "line 5: the value \"x\" is not a number";
    let expected = json!({"samples": 3, "late": 0, "rejected": 1, "reasons": [reason]});
    assert_eq!(imported, expected);
    let csv = said(&place, &["export", "--format", "csv"]);
    assert_eq!(
        csv.lines().collect::<std::collections::BTreeSet<_>>(),
        [
            "time,metric,value,host",
            "2013-07-01T00:00:00.000Z,load,1.5,a",
            "2013-07-01T01:00:00.000Z,load,2.5,a",
            "2013-07-01T01:00:00.000Z,load,-1e-7,\"b,c\"",
        ]
        .into()
    );
    let part = [
        "export",
        "--match",
        "{host=\"a\"}",
        "--end",
        "2013-07-01T00:30:00Z",
        "--format",
        "prometheus",
    ];
    assert_eq!(said(&place, &part), "load{host=\"a\"} 1.5 1372636800000\n");
    said(&place, &["export", "--out", "all.jsonl"]);
    write(
        "all.prom",
        "up{job=\"x\"} 1 1372636800000\nup{job=\"y\"} NaN 1372636800000\n",
    );
    assert_eq!(series(&place, &["import", "all.prom"])["samples"], 2);
    assert_eq!(
        series(&place, &["import", "all.jsonl"])["samples"],
        3,
        "again changes nothing"
    );
    let at = "2013-07-01T01:00:00Z";
    let shown = said(&place, &["query", "load * 2", "--at", at]);
    assert_eq!(
        shown.split_whitespace().collect::<Vec<_>>(),
        [
            "SERIES",
            "VALUE",
            "{host=\"a\"}",
            "5",
            "{host=\"b,c\"}",
            "-2e-07"
        ]
    );
    let drawn = said(
        &place,
        &[
            "range",
            "load{host=\"a\"}",
            "--end",
            at,
            "--last",
            "1h",
            "--step",
            "1h",
        ],
    );
    let row: Vec<&str> = drawn.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["load{host=\"a\"}", "▁█", "1.5", "2.5", "2.5"]);
    server.stop(Signal::TERM);
    let (server, _) = start(&place);
    let count = series(
        &place,
        &[
            "query",
            "count(last_over_time({__name__=~\".+\"}[1d]))",
            "--at",
            at,
        ],
    );
    assert_eq!(
        count["data"]["result"][0]["value"][1], "4",
        "it is there after a restart"
    );
    server.stop(Signal::TERM);
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A body of remote write 1.0 with a sample of each of these.
fn body(samples: &[(i64, f64)]) -> Bytes {
    let mut body = Vec::new();
    for (time_ms, value) in samples {
        let series = SeriesToWrite {
            labels: vec![("__name__", "streamed")],
            samples: vec![Sample {
                time_ms: *time_ms,
                value: *value,
            }],
            ..SeriesToWrite::default()
        };
        append_series_v1(&series, &mut body);
    }
    snappy::encode(&body).into()
}

/// A request with the token.
fn with_token<T>(message: T, token: &str) -> tonic::Request<T> {
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
    let mut client = SeriesClient::connect(address).await.unwrap();
    let now = now_ms();
    let bodies = [
        body(&[(now - 2_000, 1.0), (now - 1_000, 2.0)]),
        body(&[(now, 3.0), (now + 86_400_000, 4.0)]),
        Bytes::from_static(b"no block"),
    ];
    let requests = (10..).zip(bodies).map(|(number, body)| WriteRequest {
        number,
        samples: Some(Samples::RemoteWriteV1(body)),
    });
    let requests: Vec<WriteRequest> = requests.collect();
    let sent = with_token(futures_util::stream::iter(requests), token);
    let mut responses = client.write(sent).await.unwrap().into_inner();
    let mut told = BTreeMap::new();
    while let Some(response) = responses.message().await.unwrap() {
        let code = response.error.map(|error| error.code);
        told.insert(response.number, (response.written, response.rejected, code));
    }
    let malformed = Some("series_request_malformed".to_owned());
    let expected = [
        (10, (2, 0, None)),
        (11, (1, 1, None)),
        (12, (0, 0, malformed)),
    ];
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
    let wrong = QueryRequest {
        query: "streamed{".to_owned(),
        ..ask
    };
    let refused = client.query(with_token(wrong, token)).await.unwrap_err();
    assert_eq!(
        refused.metadata().get("egret-code").unwrap(),
        "query_malformed"
    );
    let stranger = client.query(QueryRequest::default()).await.unwrap_err();
    assert_eq!(stranger.code(), tonic::Code::Unauthenticated);
}

/// A sender that sees what it is answered.
struct Sender {
    client: reqwest::Client,
    base: String,
    token: String,
}

impl Sender {
    /// Status, the header that counts samples, and the body.
    async fn post(
        &self,
        path: &str,
        kind: &str,
        encoding: &str,
        body: Vec<u8>,
    ) -> (u16, String, String) {
        let request = self.client.post(format!("{}{path}", self.base));
        let request = request.basic_auth("anybody", Some(&self.token));
        let request = request.header("content-type", kind);
        let request = request.header("content-encoding", encoding).body(body);
        let response = request.send().await.unwrap();
        let header = response
            .headers()
            .get("x-prometheus-remote-write-samples-written");
        let counted = header
            .map_or("", |value| value.to_str().unwrap())
            .to_owned();
        let status = response.status().as_u16();
        (status, counted, response.text().await.unwrap())
    }
}

/// The content type of remote write 2.0.
const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
const WRITE: &str = "/prometheus/api/v1/write";

fn body_v2(samples: &[(i64, f64)]) -> Vec<u8> {
    let mut request = RequestV2::default();
    let sample = |(time_ms, value): &(i64, f64)| Sample {
        time_ms: *time_ms,
        value: *value,
    };
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
    place
        .variables
        .push(("EGRET_SERIES_REQUEST_BYTES_MAX", "64kB".to_owned()));
    let (server, token) = start(&place);
    let sender = Sender {
        client: reqwest::Client::new(),
        base: format!("http://127.0.0.1:{}", place.ports[0]),
        token,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(remote_writes(&sender));
    runtime.block_on(other_protocols(&sender));
    let found = series(
        &place,
        &["query", "count({__name__=~\"second|gauge|m_f\"})"],
    );
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
    let good = sender
        .post(WRITE, V2, "snappy", body_v2(&[(now, 1.0)]))
        .await;
    assert_eq!(good, (204, "1".to_owned(), String::new()));
    let future = now + 86_400_000;
    let (status, counted, answer) = sender
        .post(
            WRITE,
            V2,
            "snappy",
            body_v2(&[(now + 1, 1.0), (future, 2.0)]),
        )
        .await;
    assert_eq!((status, &*counted), (400, "1"));
    let reason = format!(
        "samples: 1 were written, 1 samples were refused: the time {future} is too far in the future: see series.future_max"
    );
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer,
        json!({"status": "error", "errorType": "bad_data", "error": reason})
    );
    let (status, _, answer) = sender.post(WRITE, V2, "gzip", Vec::new()).await;
    assert_eq!(
        (status, answer.contains("bad_data")),
        (415, true),
        "{answer}"
    );
    let (status, _, answer) = sender.post(WRITE, V2, "snappy", vec![0; 100_000]).await;
    assert_eq!(
        (status, answer.contains("series.request_bytes_max")),
        (413, true),
        "{answer}"
    );
    let (status, _, answer) = sender.post(WRITE, V2, "snappy", b"none".to_vec()).await;
    assert_eq!((status, answer.contains("snappy")), (400, true), "{answer}");
}

async fn other_protocols(sender: &Sender) {
    let now = now_ms();
    let otlp = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "gauge", "gauge": {"dataPoints": [{"asDouble": 2.5, "timeUnixNano": (now * 1_000_000).to_string()}]}},
    ]}]}]});
    let path = "/prometheus/api/v1/otlp/v1/metrics";
    let answer = sender
        .post(
            path,
            "application/json",
            "identity",
            otlp.to_string().into(),
        )
        .await;
    assert_eq!(answer, (200, String::new(), "{}".to_owned()));
    let path = "/v1/series/influx/write?precision=ms&db=old";
    let lines = format!("m,t=x f=1 {now}");
    let answer = sender
        .post(path, "text/plain", "identity", lines.into())
        .await;
    assert_eq!(answer, (204, String::new(), String::new()));
    let (status, _, answer) = sender
        .post(path, "text/plain", "identity", b"m f=".to_vec())
        .await;
    assert_eq!(status, 400);
    assert!(
        answer.contains("0 samples were written, 1 samples were refused: line 1, byte"),
        "{answer}"
    );
}

#[test]
fn tests_of_promql_run_without_a_server() {
    let place = Place::new("promqltest");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../series/tests/promql");
    let passed = series(&place, &["promqltest", directory.to_str().unwrap()]);
    assert_eq!(passed["failed"], 0, "{passed}");
    assert!(passed["passed"].as_u64().unwrap() > 0);
    let wrong = place.directory.join("wrong.test");
    std::fs::write(&wrong, "load 1m\n  up 1\n\neval instant at 0 up\n  up 2\n").unwrap();
    let output = place.run(&["series", "promqltest", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("wrong.test:4"), "{said}");
    assert!(
        said.contains("1 of 1 queries did not answer as expected"),
        "{said}"
    );
}
