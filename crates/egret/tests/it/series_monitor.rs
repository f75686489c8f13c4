//! What Egret does with series of its own accord: it scrapes itself, its PostgreSQL and a real
//! node_exporter, records, and makes a task of an alert.

use egret_postgres_test::free_port;
use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::Place;
use crate::series::{ChildProgram, said, series, start, until};

/// Asks an HTTP door with a token.
struct MonitorClient {
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    base: String,
    token: String,
}

impl MonitorClient {
    fn new(place: &Place, token: String) -> Self {
        // Another test of this process may have installed the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            runtime: tokio::runtime::Runtime::new().unwrap(),
            base: format!("http://127.0.0.1:{}/prometheus", place.ports[0]),
            token,
        }
    }

    fn ask(&self, method: Method, path: &str) -> (StatusCode, Value) {
        let request =
            self.client.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        self.runtime.block_on(async {
            let answer = request.send().await.unwrap();
            let (status, text) = (answer.status(), answer.text().await.unwrap());
            (status, serde_json::from_str(&text).unwrap_or_default())
        })
    }

    /// Whether the server's own metrics have a line.
    fn counts(&self, line: &str) -> bool {
        let url = self.base.replace("/prometheus", "/metrics");
        let request = self.client.get(url).bearer_auth(&self.token);
        let text =
            self.runtime.block_on(async { request.send().await.unwrap().text().await.unwrap() });
        text.lines().any(|one| one == line)
    }

    /// The data of an answer that must be there.
    fn data(&self, path: &str) -> Value {
        let (status, mut answer) = self.ask(Method::GET, path);
        assert_eq!(
            (status, &answer["status"]),
            (StatusCode::OK, &json!("success")),
            "{path}: {answer}"
        );
        answer["data"].take()
    }
}

/// The value of the one series that a query finds.
fn value(place: &Place, query: &str) -> Option<String> {
    let answer = series(place, &["query", query]);
    let value = &answer["data"]["result"][0]["value"][1];
    value.as_str().map(str::to_owned)
}

const RULES: &str = r#"
groups:
  - name: node
    interval: 500ms
    rules:
      - record: instance:node_memory_free:ratio
        expr: node_memory_MemFree_bytes / node_memory_MemTotal_bytes
        labels: {team: base}
      - alert: NodeDown
        expr: up{job="node"} == 0
        labels: {severity: page}
        annotations: {summary: '{{ $labels.instance }} does not answer'}
"#;

/// A node_exporter at a port. Its look at btrfs leaves files open for a while, so that no volume
/// could be unmounted.
fn exporter(place: &Place, port: u16) -> ChildProgram {
    let listen = format!("--web.listen-address=127.0.0.1:{port}");
    let arguments = [&listen, "--no-collector.btrfs"];
    ChildProgram::start("prometheus-node-exporter", &arguments, place)
}

/// A place with files of rules and jobs, and the node_exporter that is scraped.
fn monitored(purpose: &str) -> (Place, ChildProgram, u16) {
    let mut place = Place::new(purpose);
    let node = free_port();
    let exporter = exporter(&place, node);
    let jobs = format!(
        "scrape_configs:\n- job_name: node\n  scrape_interval: 500ms\n  static_configs: [{{targets: ['127.0.0.1:{node}']}}]\n"
    );
    std::fs::write(place.directory.join("jobs.yml"), jobs).unwrap();
    std::fs::write(place.directory.join("node.rules.yml"), RULES).unwrap();
    place.variables.extend([
        ("EGRET_SERIES_SCRAPE_FILES", "jobs.yml".to_owned()),
        ("EGRET_SERIES_RULE_FILES", "*.rules.yml".to_owned()),
        ("EGRET_SERIES_SCRAPE_INTERVAL", "1s".to_owned()),
        ("EGRET_SERIES_ALERT_QUEUE", "alerts".to_owned()),
        ("EGRET_SERIES_EXTERNAL_LABELS", "site=here".to_owned()),
        ("EGRET_QUEUE_CREATE_ON_DEMAND", "true".to_owned()),
    ]);
    (place, exporter, node)
}

#[test]
fn an_exporter_is_scraped_and_its_end_becomes_a_task() {
    let (place, exporter, node) = monitored("monitor");
    let (server, token) = start(&place);
    let door = MonitorClient::new(&place, token);
    for job in ["egret", "postgres", "node"] {
        let query = format!("up{{job=\"{job}\"}}");
        until(&place, &query, || value(&place, &query).filter(|up| up == "1"));
    }
    until(&place, "statistics", || value(&place, "pg_up"));
    until(&place, "metrics", || value(&place, "egret_series_scrapes_total"));
    let recorded = "instance:node_memory_free:ratio{team=\"base\"}";
    until(&place, recorded, || value(&place, recorded));
    it_is_told_what_is_scraped(&door, node);
    commands_tell_it(&place);
    files_are_read_again(&place, &door);

    drop(exporter);
    let firing = until(&place, "task", || task(&place, 0));
    check_task(&firing, "firing", node);
    let alerts = door.data("/api/v1/alerts");
    assert_eq!(alerts["alerts"][0]["state"], "firing", "{alerts}");
    // Its link leads to what its expression yields.
    let link = firing["generatorURL"].as_str().unwrap();
    let answer = door.data(link.strip_prefix(&door.base).unwrap());
    assert_eq!(answer["result"][0]["metric"]["job"], "node", "{link}: {answer}");
    let _exporter = self::exporter(&place, node);
    let resolved = until(&place, "second task", || task(&place, 1));
    check_task(&resolved, "resolved", node);
    assert_eq!(task(&place, 2), None, "each is told once");
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new(), "{}", place.log());
}

/// The payload of a task of the queue, in the order in which they came.
fn task(place: &Place, at: usize) -> Option<Value> {
    let found = place.run(&["queue", "tasks", "alerts", "--json"]);
    let found: Value = serde_json::from_slice(&found.stdout).ok()?;
    let id = found["items"][at]["id"].as_str()?;
    let task = place.json(&["queue", "get", id]);
    Some(task["payload"].clone())
}

fn check_task(payload: &Value, status: &str, node: u16) {
    let instance = format!("127.0.0.1:{node}");
    assert_eq!(payload["status"], status, "{payload}");
    let labels = json!({
        "alertname": "NodeDown", "instance": instance, "job": "node", "severity": "page", "site": "here",
    });
    assert_eq!(payload["labels"], labels);
    let summary = format!("{instance} does not answer");
    assert_eq!(payload["annotations"], json!({ "summary": summary }));
}

fn it_is_told_what_is_scraped(door: &MonitorClient, node: u16) {
    let pools = door.data("/api/v1/scrape_pools");
    assert_eq!(pools, json!({"scrapePools": ["egret", "node", "postgres"]}));
    let targets = door.data("/api/v1/targets?state=active&scrapePool=node");
    assert_eq!(targets["droppedTargetCounts"], Value::Null);
    let target = &targets["activeTargets"][0];
    assert_eq!(target["health"], "up", "{target}");
    let url = format!("http://127.0.0.1:{node}/metrics");
    assert_eq!(target["scrapeUrl"], url);
    let load = json!({"type": "gauge", "unit": "", "help": "1m load average."});
    let known = door.data("/api/v1/metadata?metric=node_load1");
    assert_eq!(known, json!({ "node_load1": [load] }));
    let known = door.data("/api/v1/targets/metadata?metric=node_load1&match_target={job=\"node\"}");
    assert_eq!(known[0]["target"]["job"], "node");
    let (status, answer) = door.ask(Method::GET, "/api/v1/targets/metadata?metric=none");
    assert_eq!((status, &answer["errorType"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    let rules = door.data("/api/v1/rules?type=record");
    let [group] = rules["groups"].as_array().unwrap().as_slice() else {
        panic!("{rules}");
    };
    assert_eq!(group["rules"][0]["health"], "ok", "{group}");
    assert_eq!(group["rules"].as_array().unwrap().len(), 1);
    let (status, answer) = door.ask(Method::GET, "/api/v1/rules?type=both");
    let said = json!({
        "status": "error", "errorType": "bad_data",
        "error": "invalid parameter \"type\": not supported value \"both\"",
    });
    assert_eq!((status, answer), (StatusCode::BAD_REQUEST, said));
    let config = door.data("/api/v1/status/config");
    let yaml = config["yaml"].as_str().unwrap();
    assert!(yaml.contains("- job_name: node\n"), "{yaml}");
    assert!(yaml.contains("    site: here\n"), "{yaml}");
}

/// The cells of a row.
fn cells(shown: &str, row: usize) -> Vec<&str> {
    let row = shown.lines().nth(row).unwrap_or_default();
    row.split_whitespace().collect()
}

fn commands_tell_it(place: &Place) {
    let shown = said(place, &["targets", "--job", "node"]);
    assert_eq!(cells(&shown, 1)[2..4], ["up", "500ms"], "{shown}");
    let shown = said(place, &["rules"]);
    let alert = cells(&shown, 2);
    assert_eq!(alert[..5], ["node", "NodeDown", "alerting", "ok", "inactive"]);
    let shown = said(place, &["alerts"]);
    assert_eq!(cells(&shown, 0), ["ALERT", "STATE", "SINCE", "VALUE", "LABELS"]);
}

/// A file that is wrong changes nothing; one that is right takes effect.
fn files_are_read_again(place: &Place, door: &MonitorClient) {
    let file = place.directory.join("more.rules.yml");
    std::fs::write(&file, "groups: [{name: more, rules: [{record: a, expr: 'sum('}]}]").unwrap();
    let (status, answer) = door.ask(Method::POST, "/-/reload");
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let said = answer["error"].as_str().unwrap();
    assert!(said.contains("more.rules.yml: 1:49: group"), "{said}");
    let state = door.data("/api/v1/status/runtimeinfo");
    assert_eq!(state["reloadConfigSuccess"], false);
    let groups = |count| door.data("/api/v1/rules")["groups"].as_array().unwrap().len() == count;
    assert!(groups(1));
    let rule = "groups: [{name: more, interval: 500ms, rules: [{record: more, expr: '42'}]}]";
    std::fs::write(&file, rule).unwrap();
    let (status, answer) = door.ask(Method::POST, "/-/reload");
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(groups(2));
    let asked = series(place, &["rules", "--group", "more"]);
    assert_eq!(asked["data"]["groups"][0]["name"], "more", "{asked}");
    until(place, "more", || value(place, "more"));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(series(place, &["reload"]), json!({"reloaded": true}));
    assert!(groups(1));
}

#[test]
fn a_crash_makes_no_task_twice() {
    let (place, exporter, _) = monitored("monitor-crash");
    let (server, _) = start(&place);
    until(&place, "up", || value(&place, "up{job=\"node\"}").filter(|up| up == "1"));
    drop(exporter);
    until(&place, "task", || task(&place, 0));
    server.kill();
    let (server, token) = start(&place);
    let door = MonitorClient::new(&place, token);
    // It is known again since when the alert is active, and it was told.
    let told = "egret_series_alerts_told_total{receiver=\"queue/alerts\"} 1";
    until(&place, "restored alert", || door.counts(told).then_some(()));
    let rules = door.data("/api/v1/rules");
    assert_eq!(rules["groups"][0]["rules"][1]["state"], "firing", "{rules}");
    assert_eq!(task(&place, 1), None, "it is the task of before");
    server.stop(Signal::TERM);
}

#[test]
fn a_file_that_is_wrong_is_said_at_the_start() {
    let mut place = Place::new("monitor-wrong");
    let rule = "groups: [{name: g, rules: [{alert: A}]}]";
    std::fs::write(place.directory.join("r.yml"), rule).unwrap();
    place.variables.push(("EGRET_SERIES_RULE_FILES", "r.yml".to_owned()));
    let output = place.run(&["serve"]);
    assert!(!output.status.success());
    let said = crate::place::text(&output.stderr);
    let expected = "error: monitor could not start: r.yml: 1:28: group \"g\", rule 1, \"A\": field 'expr' must be set in rule";
    assert!(said.contains(expected), "{said}");
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn settings_that_cannot_be_are_said_at_the_start() {
    for (name, value, expected) in [
        ("EGRET_SERIES_LOOKBACK", "0s", "; above 0"),
        (
            "EGRET_SERIES_EXTERNAL_URL",
            "egret.here",
            "series.external_url: `egret.here` is not a URL",
        ),
        (
            "EGRET_SERIES_ALERT_QUEUE",
            "a b",
            "series.alert_queue: name: `a b` is not 1 to 128 letters",
        ),
        (
            "EGRET_SERIES_SCRAPE_FILES",
            "jobs.yml",
            "jobs.yml: 1:18: job \"a\": target \"http://b/metrics\" is not host:port",
        ),
    ] {
        let mut place = Place::new("monitor-settings");
        let jobs =
            "scrape_configs: [{job_name: a, static_configs: [{targets: ['http://b/metrics']}]}]";
        std::fs::write(place.directory.join("jobs.yml"), jobs).unwrap();
        place.variables.push((name, value.to_owned()));
        let output = place.run(&["serve"]);
        assert!(!output.status.success());
        let said = crate::place::text(&output.stderr);
        assert!(said.contains(expected), "{said}");
        assert_eq!(place.left_behind(), Vec::<String>::new());
    }
}

#[test]
fn the_statistics_of_an_external_server_are_scraped() {
    let postgres = crate::server::PostgresServer::start();
    let mut place = Place::new("monitor-external");
    place.variables.extend([
        ("EGRET_POSTGRES_URL", postgres.url()),
        ("EGRET_SERIES_SCRAPE_INTERVAL", "500ms".to_owned()),
    ]);
    let (server, token) = start(&place);
    let door = MonitorClient::new(&place, token);
    until(&place, "statistics", || value(&place, "pg_up{job=\"postgres\"}").filter(|up| up == "1"));
    let databases = "count(pg_database_size_bytes)";
    until(&place, databases, || value(&place, databases));
    let targets = door.data("/api/v1/targets?scrapePool=postgres");
    let shown = targets.to_string();
    assert!(!shown.contains(crate::server::PASSWORD), "{shown}");
    server.stop(Signal::TERM);
}
