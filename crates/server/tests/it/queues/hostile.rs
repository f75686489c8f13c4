//! Deep, huge and odd input to every parser of the queue: each is refused with a problem that says
//! what is wrong and does not repeat the input at length, and the server serves on.

use std::io::Write as _;

use egret_proto::queue::v1;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::rig::Rig;
use super::wire::within_timeout;

/// Bytes of what a refusal says.
const DETAIL_BYTES_MAX: usize = 4_200;

/// How deep what is deep is nested: a parser that recursed so far would have no stack left.
const DEPTH: usize = 100_000;

const TASKS: &str = "/v1/queues/q/tasks";

/// A value in so many arrays or objects.
fn nested(open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(DEPTH), close.repeat(DEPTH))
}

async fn send(rig: &Rig, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let request = rig.test_server.request(method, path).header("content-type", "application/json");
    let response = within_timeout(request.body(body.to_owned()).send()).await.unwrap();
    (response.status(), response.text().await.unwrap())
}

async fn assert_refused(rig: &Rig, method: Method, path: &str, body: &str) {
    let shown: String = format!("{method} {path} {body}").chars().take(200).collect();
    let (status, text) = send(rig, method, path, body).await;
    assert!(status.is_client_error(), "{shown}: {status} {text}");
    let problem: Value = serde_json::from_str(&text).unwrap_or_default();
    let code = problem["code"].as_str().unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or_default();
    let is_clear = !code.is_empty() && !detail.is_empty() && detail.len() <= DETAIL_BYTES_MAX;
    assert!(is_clear, "{shown}: {status} {text}");
}

#[tokio::test]
async fn expressions_and_zones_of_schedules_that_make_no_sense() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let long = "*".repeat(1_000_000);
    let range = format!("{}-5 * * * *", "9".repeat(1_000));
    let crons = [
        "",
        " ",
        "* * * *",
        "*/0 * * * *",
        "60 * * * *",
        "-1 * * * *",
        "1-99999999999999999999 * * * *",
        "\0 * * * *",
        "٣ * * * *",
        "0 0 30 2 *",
        &long,
        &range,
    ];
    let zone = "A".repeat(100_000);
    let zones =
        ["Nowhere/City", "../../../../etc/passwd", "/etc/localtime", "\0", "UTC+26:99", &zone];
    let crons = crons.map(|cron| (cron, "UTC"));
    let zones = zones.map(|zone| ("0 0 * * *", zone));
    for (cron, time_zone) in crons.into_iter().chain(zones) {
        let body = json!({"cron": cron, "time_zone": time_zone, "queue": "q"});
        assert_refused(&rig, Method::PUT, "/v1/schedules/s", &body.to_string()).await;
    }
    rig.enqueue("q", json!({"payload": 1})).await;
}

#[tokio::test]
async fn tasks_and_chains_that_make_no_sense() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let (arrays, objects) = (nested("[", "]"), nested("{\"a\":", "}"));
    let members = [
        format!("\"metadata\":{objects}"),
        format!("\"tags\":{arrays}"),
        format!("\"after\":{arrays}"),
        format!("\"retry\":{objects}"),
        format!("\"unknown\":{objects}"),
        "\"priority\":1e400".to_owned(),
        "\"priority\":-0.5".to_owned(),
        "\"delay_ms\":-1".to_owned(),
        "\"delay_ms\":1e30".to_owned(),
        "\"run_at\":\"+999999-01-01T00:00:00Z\"".to_owned(),
        "\"retry\":{\"backoff\":\"cubic\"}".to_owned(),
        format!("\"ordering_key\":\"{}\"", "k".repeat(500_000)),
        format!("\"unique_key\":\"{}\"", "k".repeat(500_000)),
        format!("\"tags\":{}", json!(vec!["t"; 65])),
        format!("\"tags\":[\"{}\"]", "t".repeat(500_000)),
        format!("\"after\":{}", json!(vec!["#0"; 65])),
        "\"after\":[\"#0\"]".to_owned(),
        "\"after\":[\"#18446744073709551616\"]".to_owned(),
        "\"after\":[\"\\u0000\"]".to_owned(),
        format!("\"callback_url\":\"http://{}\"", "a".repeat(500_000)),
        "\"callback_url\":\"javascript:alert(1)\"".to_owned(),
        "\"callback_url\":\"http://[::1\"".to_owned(),
    ];
    for member in members {
        let body = format!("{{\"payload\":1,{member}}}");
        assert_refused(&rig, Method::POST, TASKS, &body).await;
    }
    let unfinished = ["[".repeat(DEPTH), "{\"payload\":".to_owned(), objects];
    for body in unfinished {
        assert_refused(&rig, Method::POST, TASKS, &body).await;
    }
    let many = json!(vec![json!({"payload": 1}); 1_001]);
    assert_refused(&rig, Method::POST, TASKS, &many.to_string()).await;
    // A payload is not looked into: it comes back as it went in.
    let deep = format!("{{\"payload\":{arrays}}}");
    let (status, text) = send(&rig, Method::POST, TASKS, &deep).await;
    assert!(status.is_success() || status.is_client_error(), "{text}");
    if status.is_success() {
        let made: Value = serde_json::from_str(&text).unwrap();
        let path = format!("/v1/tasks/{}", made["id"].as_str().unwrap());
        let (status, text) = send(&rig, Method::GET, &path, "").await;
        assert!(status.is_success() && text.contains(&arrays), "{status}");
    }
    rig.enqueue("q", json!({"payload": 1})).await;
}

#[tokio::test]
async fn names_ids_selectors_and_cursors_that_make_no_sense() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let name = format!("/v1/queues/{}", "a".repeat(10_000));
    let paths = [
        (Method::PUT, name.as_str()),
        (Method::PUT, "/v1/queues/%00"),
        (Method::PUT, "/v1/queues/..%2f..%2fetc"),
        (Method::GET, "/v1/tasks/not-an-id"),
        (Method::GET, "/v1/tasks/ffffffff-ffff-ffff-ffff-ffffffffffff"),
        (Method::GET, "/v1/queues/q/tasks?state=odd"),
        (Method::GET, "/v1/queues/q/tasks?cursor=%00%01"),
        (Method::GET, "/v1/queues/q/tasks?cursor=9-9-9-9"),
        (Method::GET, "/v1/queues/q/tasks?limit=-1"),
        (Method::GET, "/v1/queues/q/tasks?limit=99999999999999999999"),
    ];
    for (method, path) in paths {
        let body = if method == Method::PUT { "{}" } else { "" };
        assert_refused(&rig, method, path, body).await;
    }
    let deep = nested("[", "]");
    let claims = [
        format!("{{\"max\":{deep}}}"),
        "{\"wait_ms\":1e30}".to_owned(),
        "{\"lease_ms\":-1}".to_owned(),
    ];
    for body in claims {
        assert_refused(&rig, Method::POST, "/v1/queues/q/claim", &body).await;
    }
    let scopes = [
        format!("queue/{}:work", "*".repeat(100_000)),
        "queue/a.*.b:work".to_owned(),
        "queue/:work".to_owned(),
        "queue/\0:work".to_owned(),
    ];
    for scope in scopes {
        let body = json!({"name": "t", "scopes": [scope]}).to_string();
        assert_refused(&rig, Method::POST, "/v1/tokens", &body).await;
    }
    rig.enqueue("q", json!({"payload": 1})).await;
}

/// Each of these is wrong in one way.
fn invalid_tasks() -> Vec<v1::NewTask> {
    let plain = v1::NewTask::default;
    let many = |count: usize| (0..count).map(|number| number.to_string());
    vec![
        v1::NewTask { queue: "\0".to_owned(), ..plain() },
        v1::NewTask { format: 99, ..plain() },
        v1::NewTask { priority: Some(u32::MAX), ..plain() },
        v1::NewTask { run_at_ms: i64::MIN, ..plain() },
        v1::NewTask { run_at_ms: 1, delay_ms: u64::MAX, ..plain() },
        v1::NewTask { max_attempts: Some(u32::MAX), ..plain() },
        v1::NewTask { ordering_key: "k".repeat(500_000), ..plain() },
        v1::NewTask { unique_key: "k".repeat(500_000), ..plain() },
        v1::NewTask { tags: many(65).collect(), ..plain() },
        v1::NewTask { metadata: many(65).map(|name| (name, String::new())).collect(), ..plain() },
        v1::NewTask { after: vec!["#5".to_owned()], ..plain() },
        v1::NewTask { after: vec!["\0".to_owned()], ..plain() },
        v1::NewTask { callback_url: "ftp://example.org".to_owned(), ..plain() },
    ]
}

#[tokio::test]
async fn messages_of_tasks_that_make_no_sense() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let mut client = rig.grpc().await;
    for task in invalid_tasks() {
        let shown: String = format!("{task:?}").chars().take(300).collect();
        let asked = v1::EnqueueRequest { atomic: false, queue: "q".to_owned(), tasks: vec![task] };
        let message = match within_timeout(client.enqueue(asked)).await {
            Err(status) => status.message().to_owned(),
            Ok(answer) => {
                let outcome = answer.into_inner().outcomes.remove(0);
                outcome.error.unwrap_or_default().message
            }
        };
        let is_clear = !message.is_empty() && message.len() <= DETAIL_BYTES_MAX;
        assert!(is_clear, "{shown}: {message}");
    }
    rig.enqueue("q", json!({"payload": 1})).await;
}

#[tokio::test]
async fn a_body_is_read_in_the_encodings_that_are_supported() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let send = async |path: &str, encoding: &str, body: Vec<u8>| {
        let request = rig.test_server.request(Method::POST, path);
        let request =
            request.header("content-type", "application/json").header("content-encoding", encoding);
        within_timeout(request.body(body).send()).await.unwrap()
    };
    let task = br#"{"payload": 1}"#.to_vec();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&task).unwrap();
    let packed = encoder.finish().unwrap();
    let zstd = zstd::encode_all(&task[..], 3).unwrap();
    for (encoding, body) in [("gzip", packed.clone()), ("zstd", zstd)] {
        let response = send(TASKS, encoding, body).await;
        assert!(response.status().is_success(), "{}", response.status());
    }
    let refused = [
        (TASKS, "br", packed, 415, "content_encoding_unsupported"),
        ("/v1/queues/q/claim", "gzip", task, 400, "body_broken"),
    ];
    for (path, encoding, body, status, code) in refused {
        let response = send(path, encoding, body).await;
        assert_eq!(response.status(), status, "{path}");
        let accepted = response.headers().get("accept-encoding").cloned();
        assert_eq!(accepted.is_some(), status == 415);
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["code"], code, "{path}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("Content-Encoding"), "{detail}");
    }
    let request = rig
        .test_server
        .request(Method::POST, TASKS)
        .header("content-encoding", "identity")
        .header("content-type", "application/json");
    let response = within_timeout(request.body(r#"{"payload": 1}"#).send()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
}
