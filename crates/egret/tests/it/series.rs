//! `egret series …` and the HTTP API of Prometheus, spoken to by a real Prometheus, its promtool
//! and node_exporter.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use egret_base_test::eventually_blocking;
use egret_postgres_test::free_port;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, Server, text};

/// How many targets were scraped often enough.
const ENOUGH: &str = "count(count_over_time(up[1m]) > 4)";

/// A program that runs as long as this lives.
pub struct ChildProgram(Child);

impl ChildProgram {
    pub fn start(program: &str, arguments: &[&str], place: &Place) -> Self {
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

impl Drop for ChildProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The settings with which Egret scrapes nothing that it is not told to.
fn without_own() -> [(&'static str, String); 2] {
    let names = ["EGRET_SERIES_SCRAPE_EGRET", "EGRET_SERIES_SCRAPE_POSTGRES"];
    names.map(|name| (name, "false".to_owned()))
}

/// The answer to a command that must work.
pub fn series(place: &Place, arguments: &[&str]) -> Value {
    place.json(&[&["series"], arguments].concat())
}

/// Output of a command that must succeed.
pub fn said(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(&[&["series"], arguments].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out
}

/// The log of a server, shown line by line in a failure.
struct ServerLog(String);

impl fmt::Debug for ServerLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Waits until a look finds something. Fails with the log of the server.
#[track_caller]
pub fn until<T>(place: &Place, what: &str, look: impl Fn() -> Option<T>) -> T {
    eventually_blocking(&format!("there is {what}"), || {
        look().ok_or_else(|| ServerLog(place.log()))
    })
}

/// The series of an answer with their values, in the order of their labels.
fn values(answer: &Value) -> Vec<String> {
    let result = answer["data"]["result"].as_array().unwrap();
    let mut values: Vec<String> = result.iter().map(Value::to_string).collect();
    values.sort();
    values
}

/// A server and its admin token.
pub fn start(place: &Place) -> (Server, String) {
    let server = place.start(&["serve"]);
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    (server, token.trim().to_owned())
}

#[test]
fn a_prometheus_writes_to_it_and_its_tools_read() {
    let mut place = Place::new("prometheus");
    // What both know is compared.
    place.variables.extend(without_own());
    let (server, token) = start(&place);
    let (node, prometheus) = (free_port(), free_port());
    let listen = format!("--web.listen-address=127.0.0.1:{node}");
    let _node = ChildProgram::start("prometheus-node-exporter", &[&listen], &place);
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
    let _prometheus = ChildProgram::start("prometheus", &arguments, &place);
    let both = json!("2");
    until(&place, "the value of both targets", || {
        let answer = series(&place, &["query", ENOUGH]);
        (answer["data"]["result"][0]["value"][1] == both).then_some(())
    });
    the_same_is_answered(&place, prometheus);
    it_is_read_from_afar(&place, prometheus);
    promtool_reads(&place, &token);
    let metrics = said(&place, &["labels", "__name__", "--match", "{job=\"node\"}"]);
    assert!(metrics.contains("\nnode_load1\n"), "{metrics}");
    let none = place.run(&["series", "labels", "nope"]);
    assert_eq!((none.status.code(), &*none.stdout), (Some(0), &b""[..]));
    assert!(text(&none.stderr).starts_with("no series has that label"));
    let found = series(&place, &["cardinality", "--top", "3"]);
    assert!(found["series"].as_u64().unwrap() > 300, "{found}");
    assert_eq!(found["series_by_metric"].as_array().unwrap().len(), 3);
    server.stop(Signal::TERM);
}

/// Asks both the same, at a time of which both have everything.
fn the_same_is_answered(place: &Place, prometheus: u16) {
    let last = series(place, &["query", "min(timestamp(up)) - 2"]);
    let at = last["data"]["result"][0]["value"][1].as_str().unwrap().to_owned();
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
    let url = format!("http://egret:{token}@127.0.0.1:{}/prometheus", place.ports[0]);
    for (arguments, expected) in [
        (&["instant", &url, "1 + 1"][..], "scalar: 2"),
        (&["instant", &url, "up"][..], "up{instance="),
        (&["labels", &url, "job"][..], "egret\nnode\n"),
        (&["series", &url, "--match=up"][..], "{__name__=\"up\""),
        (&["range", "--step=1s", &url, "up"][..], "up{instance="),
    ] {
        let output = Command::new("promtool").arg("query").args(arguments).output().unwrap();
        let out = text(&output.stdout);
        assert!(out.contains(expected), "{arguments:?}: {out}{}", text(&output.stderr));
    }
    let output = Command::new("promtool").args(["query", "instant", &url, "up{"]).output().unwrap();
    assert!(text(&output.stderr).contains("bad_data"), "{}", text(&output.stderr));
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
    let retention = ("EGRET_SERIES_RETENTION", "0".to_owned());
    place.variables.push(retention);
    place.variables.extend(without_own());
    let (server, _) = start(&place);
    std::fs::write(place.directory.join("load.csv"), TABLE).unwrap();
    let output = place.run(&["series", "import", "load.csv", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("1 samples or lines were refused"), "{error}");
    let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = "line 5: the value \"x\" is not a number";
    let expected = json!({
        "samples": 3, "histograms": 0, "late": 0, "rejected": 1, "reasons": [reason],
    });
    assert_eq!(imported, expected);
    samples_go(&place);
    let text = "up{job=\"x\"} 1 1372636800000\nup{job=\"y\"} NaN 1372636800000\n";
    std::fs::write(place.directory.join("all.prom"), text).unwrap();
    assert_eq!(series(&place, &["import", "all.prom"])["samples"], 2);
    let again = series(&place, &["import", "all.jsonl"]);
    assert_eq!(again["samples"], 3, "again changes nothing");
    samples_are_shown(&place);
    server.stop(Signal::TERM);
    let (server, _) = start(&place);
    let query = "count(last_over_time({__name__=~\".+\"}[1d]))";
    let count = series(&place, &["query", query, "--at", HOUR]);
    let count = &count["data"]["result"][0]["value"][1];
    assert_eq!(count, "4", "it is there after a restart");
    server.stop(Signal::TERM);
}

fn samples_go(place: &Place) {
    let csv = said(place, &["export", "--format", "csv"]);
    let mut lines: Vec<&str> = csv.lines().collect();
    lines.sort_unstable();
    let expected = [
        "2013-07-01T00:00:00.000Z,load,1.5,a",
        "2013-07-01T01:00:00.000Z,load,-1e-7,\"b,c\"",
        "2013-07-01T01:00:00.000Z,load,2.5,a",
        "time,metric,value,host",
    ];
    assert_eq!(lines, expected);
    let part = "export --match {host=\"a\"} --end 2013-07-01T00:30:00Z --format prometheus";
    let part: Vec<&str> = part.split(' ').collect();
    let text = "load{host=\"a\"} 1.5 1372636800000\n";
    assert_eq!(said(place, &part), text);
    said(place, &["export", "--out", "all.jsonl"]);
    let parquet = ["export", "--out", "all.parquet", "--format", "parquet"];
    said(place, &parquet);
    let table = std::fs::read(place.directory.join("all.parquet")).unwrap();
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
}

/// A time of which both series have a sample.
const HOUR: &str = "2013-07-01T01:00:00Z";

fn samples_are_shown(place: &Place) {
    let shown = said(place, &["query", "load * 2", "--at", HOUR]);
    let shown: Vec<&str> = shown.split_whitespace().collect();
    let expected = ["SERIES", "VALUE", "{host=\"a\"}", "5", "{host=\"b,c\"}", "-2e-07"];
    assert_eq!(shown, expected);
    let range = "range load{host=\"a\"} --last 1h --step 1h --end";
    let range: Vec<&str> = range.split(' ').chain([HOUR]).collect();
    let drawn = said(place, &range);
    let row: Vec<&str> = drawn.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["load{host=\"a\"}", "▁█", "1.5", "2.5", "2.5"]);
}

#[test]
fn tests_of_promql_run_without_a_server() {
    let place = Place::new("promqltest");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../promql/tests/cases");
    let passed = series(&place, &["promqltest", directory.to_str().unwrap()]);
    assert_eq!(passed["failed"], 0, "{passed}");
    assert!(passed["passed"].as_u64().unwrap() > 0);
    let wrong = place.directory.join("wrong.test");
    std::fs::write(&wrong, "load 1m\n  up 1\n\neval instant at 0 up\n  up 2\n").unwrap();
    let output = place.run(&["series", "promqltest", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("wrong.test:4"), "{said}");
    assert!(said.contains("1 of 1 queries did not answer as expected"), "{said}");
    std::fs::write(&wrong, "lod 1m\n  up 1\n").unwrap();
    let output = place.run(&["series", "promqltest", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let expected = "error: 1 commands of the files cannot be read";
    assert!(said.contains("unknown command \"lod\""), "{said}");
    assert!(said.contains(expected), "{said}");
    assert!(!said.contains("queries"), "{said}");
}
