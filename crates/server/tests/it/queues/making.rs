//! Queues: made, changed, looked at, paused, drained, deleted; whose they are.

use reqwest::Method;
use serde_json::{Value, json};

use super::rig::Rig;
use crate::test_server::problem;

#[tokio::test]
async fn a_queue_is_made_changed_listed_and_deleted() {
    let rig = Rig::new().await;
    let made = rig.put("/v1/queues/mail", Value::Null, 201).await;
    assert_eq!(made["name"], "mail");
    assert_eq!(made["settings"]["max_attempts"], 5);
    assert_eq!(made["counts"]["ready"], 0);
    let change = json!({
        "max_attempts": 2,
        "retry": {"backoff": "fixed", "base_ms": 5, "jitter": "none"},
        "completed": {"age_ms": 60_000, "count": 10},
        "rate_per_second": 2.5,
    });
    let changed = rig.put("/v1/queues/mail", change, 200).await;
    let settings = &changed["settings"];
    assert_eq!(settings["max_attempts"], 2);
    let retry = json!({"backoff": "fixed", "base_ms": 5, "max_ms": 600_000, "jitter": "none"});
    assert_eq!(settings["retry"], retry);
    assert_eq!(settings["completed"], json!({"age_ms": 60_000, "count": 10}));
    assert_eq!(settings["rate_per_second"], 2.5);
    assert_eq!(settings["lease_ms"], 30_000, "what is absent stays");
    rig.create_queue("events").await;
    let list = rig.get("/v1/queues").await;
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| queue["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["events", "mail"]);
    rig.enqueue("mail", json!({"payload": 1})).await;
    let path = "/v1/queues/mail";
    let said = rig.expect_problem(Method::DELETE, path, Value::Null, 409, "queue_in_use").await;
    assert!(said.contains("1 tasks"), "{said}");
    rig.delete("/v1/queues/mail?force=true", 204).await;
    rig.expect_problem(Method::GET, path, Value::Null, 404, "queue_not_found").await;
    rig.close().await;
}

#[tokio::test]
async fn a_paused_queue_hands_nothing_out_and_a_draining_one_takes_nothing_in() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let id = rig.enqueue("q", json!({"payload": 1})).await;
    assert_eq!(rig.post("/v1/queues/q/pause", Value::Null, 200).await["paused"], true);
    let none = rig.post("/v1/queues/q/claim", Value::Null, 200).await;
    assert_eq!(none["items"], json!([]));
    assert_eq!(rig.post("/v1/queues/q/drain", json!({}), 200).await["draining"], true);
    let tasks = "/v1/queues/q/tasks";
    rig.expect_problem(Method::POST, tasks, json!({}), 409, "queue_draining").await;
    let resumed = rig.post("/v1/queues/q/resume", Value::Null, 200).await;
    assert_eq!((&resumed["paused"], &resumed["draining"]), (&json!(false), &json!(false)));
    assert_eq!(rig.claim("q").await["id"], id.as_str());
    rig.enqueue("q", json!({})).await;
    rig.close().await;
}

#[tokio::test]
async fn invalid_queues_are_refused() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    for (name, body, code, about) in [
        ("-q", json!({}), "invalid_request", "name: `-q`"),
        ("a%20b", json!({}), "invalid_request", "name: `a b`"),
        ("q", json!({"max_attempts": 0}), "invalid_request", "max_attempts"),
        ("q", json!({"max_attempts": -1}), "json_invalid", "max_attempts"),
        ("q", json!({"lease_ms": 1}), "invalid_request", "lease_ms"),
        ("q", json!({"rate_per_second": -2}), "invalid_request", "rate_per_second"),
        ("q", json!({"retry": {"base_ms": 9, "max_ms": 3}}), "invalid_request", "retry.max_ms"),
        ("q", json!({"retry": {"backoff": "wild"}}), "json_invalid", "retry.backoff"),
        ("q", json!({"dead": {"age_ms": 1}}), "json_invalid", "dead: missing field `count`"),
        ("q", json!({"speed": 1}), "json_invalid", "speed"),
    ] {
        let path = format!("/v1/queues/{name}");
        let said = rig.expect_problem(Method::PUT, &path, body, 400, code).await;
        assert!(said.contains(about), "{about}: {said}");
    }
    let settings = rig.get("/v1/queues/q").await["settings"].clone();
    assert_eq!(settings["max_attempts"], 5, "nothing has changed");
    rig.expect_problem(Method::POST, "/v1/queues/q/pause", json!({"for": 1}), 400, "json_invalid")
        .await;
    for action in ["pause", "resume", "drain", "purge", "requeue-dead", "claim"] {
        let path = format!("/v1/queues/none/{action}");
        rig.expect_problem(Method::POST, &path, Value::Null, 404, "queue_not_found").await;
    }
    rig.close().await;
}

#[tokio::test]
async fn one_queue_too_many_is_refused_by_the_limits_name() {
    let rig = Rig::with(|config| config.queues_max = 1).await;
    rig.create_queue("one").await;
    let said =
        rig.expect_problem(Method::PUT, "/v1/queues/two", Value::Null, 429, "limit_exceeded").await;
    assert!(said.contains("queue.queues_max"), "{said}");
    rig.close().await;
}

#[tokio::test]
async fn each_operation_needs_its_scope_and_tenants_see_their_own() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let id = rig.enqueue("q", json!({"payload": 1})).await;
    let reads = [
        "/v1/queues".to_owned(),
        "/v1/queues/q".to_owned(),
        "/v1/queues/q/tasks".to_owned(),
        format!("/v1/tasks/{id}"),
        format!("/v1/tasks/{id}/wait?wait_ms=0"),
    ];
    let (reader, writer) =
        (rig.token("default", &["queue:read"]), rig.token("default", &["queue:write"]));
    for path in &reads {
        let seen = rig.with_token(&reader, Method::GET, path).await;
        assert_eq!(seen.status(), 200, "{path}");
        let refused = rig.with_token(&writer, Method::GET, path).await;
        problem(refused, 403, "scope_missing").await;
    }
    let writes = [
        (Method::PUT, "/v1/queues/q".to_owned()),
        (Method::DELETE, "/v1/queues/q".to_owned()),
        (Method::POST, "/v1/queues/q/tasks".to_owned()),
        (Method::POST, "/v1/queues/q/claim".to_owned()),
        (Method::POST, "/v1/queues/q/purge".to_owned()),
        (Method::POST, format!("/v1/tasks/{id}/cancel")),
        (Method::POST, format!("/v1/tasks/{id}/complete")),
        (Method::DELETE, format!("/v1/tasks/{id}")),
        (Method::POST, "/v1/reports".to_owned()),
    ];
    for (method, path) in writes {
        let refused = rig.with_token(&reader, method, &path).await;
        problem(refused, 403, "scope_missing").await;
    }
    let stranger = rig.token("other", &["queue:*"]);
    for path in &reads[1..] {
        let response = rig.with_token(&stranger, Method::GET, path).await;
        assert_eq!(response.status(), 404, "{path}");
    }
    let seen: Value =
        rig.with_token(&stranger, Method::GET, "/v1/queues").await.json().await.unwrap();
    assert_eq!(seen["items"], json!([]));
    let path = format!("/v1/tasks/{id}/cancel");
    let refused = rig.with_token(&stranger, Method::POST, &path).await;
    problem(refused, 404, "task_not_found").await;
    crate::openapi::assert_whole(&rig.get("/openapi.json").await);
    rig.close().await;
}

#[tokio::test]
async fn names_of_queues_are_published_as_they_are_checked() {
    let rig = Rig::new().await;
    let document = rig.get("/openapi.json").await;
    let (longest, longer) = ("q".repeat(128), "q".repeat(129));
    for name in ["a.b:c_d-e", ":", "0", &longest] {
        let path = format!("/v1/queues/{name}");
        let made = rig.request(Method::PUT, &path, json!({})).send().await.unwrap();
        assert!(made.status().is_success(), "{name}: {}", made.status());
        assert!(crate::openapi::allows(&document, "/v1/queues/{queue}", name), "{name}");
    }
    for name in ["-q", "q%20q", "%C3%A4", "q%0A", &longer] {
        let path = format!("/v1/queues/{name}");
        rig.expect_problem(Method::PUT, &path, json!({}), 400, "invalid_request").await;
        let name = name.replace("%20", " ").replace("%C3%A4", "\u{e4}");
        let name = name.replace("%0A", "\n");
        assert!(!crate::openapi::allows(&document, "/v1/queues/{queue}", &name), "{name}");
    }
    rig.close().await;
}
