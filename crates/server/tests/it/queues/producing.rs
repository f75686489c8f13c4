//! Enqueueing, and what cannot be enqueued.

use egret_base::settings::ByteSize;
use reqwest::Method;
use serde_json::{Value, json};

use super::rig::Rig;

const TASKS: &str = "/v1/queues/q/tasks";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_task_carries_everything_to_its_worker() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let payload = json!({"to": "ada@example.com", "é": [1.5, null, "\u{1F426}"]});
    let id = rig
        .enqueue(
            "q",
            json!({
                "payload": payload, "priority": 9, "ordering_key": "k \"1\"", "max_attempts": 3,
                "retry": {"backoff": "linear"}, "timeout_ms": 60_000, "unique_key": "u",
                "tags": ["red", "blue"], "metadata": {"a": "b"}, "traceparent": PARENT,
                "tracestate": "x=y", "callback_url": "https://example.org/done",
            }),
        )
        .await;
    let task = rig.claim("q").await;
    assert_eq!(task["id"], id.as_str());
    for (member, value) in [
        ("payload", payload),
        ("queue", json!("q")),
        ("priority", json!(9)),
        ("ordering_key", json!("k \"1\"")),
        ("attempt", json!(1)),
        ("max_attempts", json!(3)),
        ("tags", json!(["red", "blue"])),
        ("metadata", json!({"a": "b"})),
        ("traceparent", json!(PARENT)),
        ("tracestate", json!("x=y")),
        ("lease_ms", json!(30_000)),
    ] {
        assert_eq!(task[member], value, "{member}");
    }
    let seen = rig.task(&id).await;
    assert_eq!(seen["state"], "leased");
    assert_eq!(seen["unique_key"], "u");
    assert_eq!(seen["callback_url"], "https://example.org/done");
    assert_eq!(seen["history"][0]["worker"], "w1");
    rig.close().await;
}

#[tokio::test]
async fn payloads_are_json_bytes_null_or_nothing() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    for (sent, member, came) in [
        (json!({"payload": null}), "payload", json!(null)),
        (json!({"payload": [1, "a"]}), "payload", json!([1, "a"])),
        (json!({"payload_base64": "AP/+"}), "payload_base64", json!("AP/+")),
        (json!({}), "payload_base64", Value::Null),
    ] {
        let id = rig.enqueue("q", sent.clone()).await;
        let task = rig.claim("q").await;
        assert_eq!(task["id"], id.as_str());
        assert_eq!(task[member], came, "{sent}");
        let has = |name: &str| task.as_object().unwrap().contains_key(name);
        assert_eq!(has("payload"), member == "payload", "{sent}");
        assert_eq!(rig.task(&id).await[member], came, "{sent}");
    }
    rig.close().await;
}

#[tokio::test]
async fn a_unique_key_is_answered_with_the_first_task() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let task = json!({"unique_key": "once"});
    let first = rig.post(TASKS, task.clone(), 201).await;
    assert_eq!(first["replayed"], false);
    let second = rig.post(TASKS, task, 200).await;
    assert_eq!(second, json!({"id": first["id"], "replayed": true}));
    rig.close().await;
}

#[tokio::test]
async fn of_an_array_each_is_answered_by_itself() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let answer = rig
        .post(
            TASKS,
            json!([
                {"payload": 1},
                {"payload": 2, "priority": 10},
                {"payload": 3, "after": ["#0"]},
                {"payload": 4, "after": ["#1"]},
                {"payload": 5, "queue": "none"},
                {"payload": 6, "after": ["#5"]},
            ]),
            200,
        )
        .await;
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items[0]["replayed"], false);
    assert_eq!(items[1]["error"]["code"], "invalid_request");
    assert_eq!(items[1]["error"]["retryable"], false);
    assert!(items[1].get("id").is_none());
    let waiting = rig.task(items[2]["id"].as_str().unwrap()).await;
    assert_eq!(waiting["state"], "waiting");
    assert_eq!(waiting["after"][0], items[0]["id"]);
    let detail = |at: usize| items[at]["error"]["detail"].as_str().unwrap();
    assert!(detail(3).contains("`#1` of the same chain was not enqueued"), "{}", detail(3));
    assert_eq!(items[4]["error"]["code"], "queue_not_found");
    assert!(detail(5).contains("is not another task of this request"), "{}", detail(5));
    assert_eq!(rig.post(TASKS, json!([]), 200).await["items"], json!([]));
    let many: Vec<Value> = (0..1_001).map(|_| json!({})).collect();
    let said = rig.expect_problem(Method::POST, TASKS, json!(many), 429, "limit_exceeded").await;
    assert!(said.contains("queue.batch_max"), "{said}");
    rig.close().await;
}

#[tokio::test]
async fn a_trace_in_the_headers_goes_along_unless_the_task_has_its_own() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let own = PARENT.replace("-01", "-00");
    for (header, body, came) in [
        (PARENT, json!({}), json!(PARENT)),
        (PARENT, json!({"traceparent": own}), json!(own)),
        ("not a trace", json!({}), Value::Null),
        (&PARENT.to_uppercase(), json!({}), Value::Null),
    ] {
        let request = rig
            .request(Method::POST, TASKS, body)
            .header("traceparent", header)
            .header("tracestate", "a=b");
        assert_eq!(request.send().await.unwrap().status(), 201);
        let task = rig.claim("q").await;
        assert_eq!(task["traceparent"], came);
        let with_state = came == json!(PARENT);
        assert_eq!(task["tracestate"] == "a=b", with_state, "{task}");
    }
    rig.close().await;
}

#[tokio::test]
async fn values_that_cannot_be_used_are_named() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let long = "x".repeat(1_025);
    let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    let invalid = [
        (json!({"priority": 10}), "priority: 10 is not from 0 to 9"),
        (json!({"ordering_key": long}), "ordering_key"),
        (json!({"unique_key": long}), "unique_key"),
        (json!({"tags": many}), "tags"),
        (json!({"tags": [long]}), "tags"),
        (json!({"metadata": {"a": long}}), "metadata"),
        (json!({"max_attempts": 0}), "max_attempts"),
        (json!({"max_attempts": 10_001}), "max_attempts"),
        (json!({"retry": {"base_ms": 5, "max_ms": 1}}), "retry.max_ms"),
        (json!({"delay_ms": u64::MAX}), "delay_ms"),
        (json!({"timeout_ms": u64::MAX}), "timeout_ms"),
        (json!({"unique_key": "u", "unique_window_ms": u64::MAX}), "unique_window_ms"),
        (json!({"run_at": "1950-01-01T00:00:00Z"}), "run_at: it is before 1970"),
        (json!({"run_at": "2099-01-01T00:00:00Z", "delay_ms": 1}), "delay_ms"),
        (json!({"callback_url": "ftp://x"}), "callback_url"),
        (json!({"after": ["x"]}), "after: `x`"),
        (json!({"after": ["#0"]}), "after: `#0`"),
        (json!({"traceparent": long}), "traceparent"),
        (
            json!({"payload": 1, "payload_base64": "AA=="}),
            "payload: it cannot be combined with payload_base64",
        ),
    ];
    for (body, about) in invalid {
        let said = rig.expect_problem(Method::POST, TASKS, body, 400, "invalid_request").await;
        assert!(said.contains(about), "{about}: {said}");
    }
    assert_eq!(rig.get("/v1/queues/q").await["counts"]["ready"], 0);
    rig.close().await;
}

#[tokio::test]
async fn what_is_misshapen_or_too_large_is_refused() {
    let rig = Rig::with(|config| config.payload_bytes_max = ByteSize(64)).await;
    rig.create_queue("q").await;
    let misshapen = [
        (json!({"prioritty": 1}), "unknown field `prioritty`"),
        (json!({"priority": "high"}), "priority"),
        (json!({"delay_ms": -1}), "delay_ms"),
        (json!({"payload_base64": "%"}), "payload_base64"),
        (json!({"run_at": "tomorrow"}), "run_at"),
        (json!([{}, {"tags": "red"}]), "[1].tags"),
        (json!(5), "body"),
    ];
    for (body, about) in misshapen {
        let said = rig.expect_problem(Method::POST, TASKS, body, 400, "json_invalid").await;
        assert!(said.contains(about), "{about}: {said}");
    }
    let large = json!({"payload": "x".repeat(64)});
    let said = rig.expect_problem(Method::POST, TASKS, large, 413, "payload_too_large").await;
    assert!(said.contains("queue.payload_bytes_max"), "{said}");
    let counts = rig.get("/v1/queues/q").await["counts"].clone();
    assert_eq!(counts["ready"], 0, "nothing was enqueued");
    rig.close().await;
}

#[tokio::test]
async fn a_queue_is_made_on_demand_where_the_settings_say_so() {
    let rig = Rig::with(|config| config.create_on_demand = true).await;
    rig.enqueue("new", json!({})).await;
    assert_eq!(rig.get("/v1/queues/new").await["counts"]["ready"], 1);
    let said = rig
        .expect_problem(Method::POST, "/v1/queues/-x/tasks", json!({}), 400, "invalid_request")
        .await;
    assert!(said.contains("name"), "{said}");
    rig.close().await;
}

#[tokio::test]
async fn callbacks_go_to_public_addresses_and_each_tenant_has_its_key() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    for url in ["http://127.0.0.1:1/", "http://[fd00::1]/", "https://a:b@example.org/"] {
        let body = json!({"callback_url": url});
        let said = rig.expect_problem(Method::POST, TASKS, body, 400, "invalid_request").await;
        assert!(said.contains("callback_url"), "{said}");
    }
    let key = rig.get("/v1/callback-key").await;
    assert_eq!(key["key"].as_str().unwrap().len(), 64);
    rig.close().await;
}
