//! Claims, leases, and what workers say.

use egret_base_test::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::rig::Rig;

/// A queue whose failed tasks come back at once.
async fn queue_with_fast_retries(attempts: u32) -> Rig {
    let rig = Rig::new().await;
    let settings = json!({
        "max_attempts": attempts,
        "retry": {"backoff": "fixed", "base_ms": 1, "max_ms": 1, "jitter": "none"},
    });
    rig.put("/v1/queues/q", settings, 201).await;
    rig
}

#[tokio::test]
async fn a_task_is_completed_with_its_result_once_or_twice_by_one_lease() {
    let rig = queue_with_fast_retries(3).await;
    for (result, member, seen) in [
        (json!({"result": {"sent": 1}}), "result", json!({"sent": 1})),
        (json!({"result": null}), "result", Value::Null),
        (json!({"result_base64": "AP8="}), "result_base64", json!("AP8=")),
        (json!({}), "result_base64", Value::Null),
    ] {
        rig.enqueue("q", json!({"payload": 1})).await;
        let task = rig.claim("q").await;
        rig.report(&task, "heartbeat", json!({"lease_ms": 5_000}), 204).await;
        rig.report(&task, "complete", result.clone(), 204).await;
        // Its acknowledgement might have been lost.
        rig.report(&task, "complete", result, 204).await;
        let refused = rig.report(&task, "heartbeat", json!({}), 409).await;
        assert_eq!(refused["code"], "lease_lost");
        let ended = rig.task(task["id"].as_str().unwrap()).await;
        assert_eq!(ended["state"], "completed");
        assert_eq!(ended[member], seen);
        assert_eq!(ended["history"][0]["outcome"], "completed");
        assert!(ended["ended_at"].is_string());
    }
    rig.close().await;
}

#[tokio::test]
async fn attempts_end_as_workers_say() {
    let rig = queue_with_fast_retries(3).await;
    let id = rig.enqueue("q", json!({"payload": 1})).await;
    for (attempt, word, more) in [
        (1, "release", json!({})),
        (1, "snooze", json!({"delay_ms": 1})),
        (1, "nack", json!({"delay_ms": 1, "reason": "busy"})),
        (2, "fail", json!({"error": "broken"})),
        (3, "fail", json!({"error": "broken again"})),
    ] {
        let task = rig.claim("q").await;
        assert_eq!((&task["id"], &task["attempt"]), (&json!(id), &json!(attempt)), "{word}");
        rig.report(&task, word, more, 204).await;
    }
    let dead = rig.task(&id).await;
    assert_eq!(dead["state"], "dead");
    assert_eq!(dead["error"], "broken again");
    let outcomes: Vec<&str> = dead["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|attempt| attempt["outcome"].as_str())
        .collect();
    assert!(outcomes.ends_with(&["nack", "failed", "failed"]), "{outcomes:?}");
    rig.enqueue("q", json!({})).await;
    let task = rig.claim("q").await;
    let permanent = json!({"error": "never", "permanent": true});
    rig.report(&task, "fail", permanent, 204).await;
    let counts = rig.get("/v1/queues/q").await["counts"].clone();
    assert_eq!(counts["dead"], 2);
    rig.close().await;
}

#[tokio::test]
async fn several_reports_are_answered_one_by_one() {
    let rig = queue_with_fast_retries(3).await;
    let tasks: Vec<Value> = (0..6).map(|number| json!({"payload": number})).collect();
    rig.post("/v1/queues/q/tasks", json!(tasks), 200).await;
    let claimed = rig.post("/v1/queues/q/claim", json!({"max": 10, "lease_ms": 60_000}), 200).await;
    let items = claimed["items"].as_array().unwrap();
    assert_eq!(items.len(), 6);
    let lease = |at: usize| items[at]["lease"].clone();
    let reports = json!([
        {"complete": {"lease": lease(0), "result": [1]}},
        {"fail": {"lease": lease(1), "error": "no"}},
        {"nack": {"lease": lease(2)}},
        {"snooze": {"lease": lease(3), "delay_ms": 60_000}},
        {"release": {"lease": lease(4)}},
        {"heartbeat": {"lease": lease(5)}},
        {"complete": {"lease": lease(1)}},
        {"complete": {"lease": "zz"}},
        {"heartbeat": {"lease": lease(5), "lease_ms": 1}},
    ]);
    let answer = rig.post("/v1/reports", reports, 200).await;
    let outcomes = answer["items"].as_array().unwrap();
    for outcome in &outcomes[..6] {
        assert_eq!(outcome, &json!({"accepted": true}));
    }
    let codes: Vec<&str> =
        outcomes[6..].iter().map(|outcome| outcome["error"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["lease_lost", "invalid_request", "invalid_request"]);
    let said = rig
        .expect_problem(
            Method::POST,
            "/v1/reports",
            json!([{"finish": {"lease": "x"}}]),
            400,
            "json_invalid",
        )
        .await;
    assert!(said.contains("finish"), "{said}");
    let many: Vec<Value> = (0..1_001).map(|_| json!({"release": {"lease": "x"}})).collect();
    rig.expect_problem(Method::POST, "/v1/reports", json!(many), 429, "limit_exceeded").await;
    rig.close().await;
}

#[tokio::test]
async fn a_lease_belongs_to_its_task_and_its_tenant() {
    let rig = queue_with_fast_retries(3).await;
    let other = rig.enqueue("q", json!({"delay_ms": 600_000})).await;
    rig.enqueue("q", json!({})).await;
    let task = rig.claim("q").await;
    let path = format!("/v1/tasks/{other}/complete");
    let lease = json!({"lease": task["lease"]});
    let said = rig.expect_problem(Method::POST, &path, lease.clone(), 400, "invalid_request").await;
    assert!(said.contains("lease: it is not a lease of task"), "{said}");
    let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
    let stranger = rig.token("other", &["queue:*"]);
    let request = rig.test_server.request_without_token(Method::POST, &path).bearer_auth(stranger);
    let response = request.json(&lease).send().await.unwrap();
    crate::test_server::problem(response, 409, "lease_lost").await;
    for (body, code, about) in [
        (json!({"lease": "0123"}), "invalid_request", "lease"),
        (json!({}), "json_invalid", "lease"),
        (
            json!({"lease": task["lease"], "result": 1, "result_base64": ""}),
            "invalid_request",
            "result",
        ),
        (json!({"lease": task["lease"], "delay_ms": 1}), "json_invalid", "delay_ms"),
    ] {
        let said = rig.expect_problem(Method::POST, &path, body, 400, code).await;
        assert!(said.contains(about), "{about}: {said}");
    }
    let nowhere = "/v1/tasks/none/complete";
    rig.expect_problem(Method::POST, nowhere, lease, 400, "invalid_request").await;
    let seen = rig.task(task["id"].as_str().unwrap()).await;
    assert_eq!(seen["state"], "leased", "nothing has changed");
    rig.close().await;
}

#[tokio::test]
async fn a_claim_waits_for_the_first_task_and_a_wait_for_the_end() {
    let rig = queue_with_fast_retries(3).await;
    let waiting = rig.claim("q");
    let enqueueing = rig.enqueue("q", json!({"payload": "late"}));
    let (task, id) = tokio::join!(waiting, enqueueing);
    assert_eq!(task["id"], id.as_str());
    let path = format!("/v1/tasks/{id}/wait?wait_ms=10000");
    let ended = rig.get(&path);
    let done = rig.report(&task, "complete", json!({"result": 42}), 204);
    let (ended, _) = tokio::join!(ended, done);
    assert_eq!((&ended["state"], &ended["result"]), (&json!("completed"), &json!(42)));
    for (body, about) in [
        (json!({"max": 0}), "max: 0 is not in the range 1 to 1000"),
        (json!({"max": 1_001}), "max"),
        (json!({"wait_ms": 60_001}), "wait_ms"),
        (json!({"lease_ms": 1}), "lease_ms"),
    ] {
        let path = "/v1/queues/q/claim";
        let said = rig.expect_problem(Method::POST, path, body, 400, "invalid_request").await;
        assert!(said.contains(about), "{about}: {said}");
    }
    rig.close().await;
}

#[tokio::test]
async fn a_claim_whose_client_leaves_holds_nothing() {
    let rig = queue_with_fast_retries(3).await;
    let asked = json!({"wait_ms": 60_000});
    let request = rig.request(Method::POST, "/v1/queues/q/claim", asked).send();
    let gone = tokio::time::timeout(std::time::Duration::from_millis(200), request).await;
    assert!(gone.is_err());
    let id = rig.enqueue("q", json!({})).await;
    let task = rig.claim("q").await;
    assert_eq!((&task["id"], &task["attempt"]), (&json!(id), &json!(1)), "it is there at once");
    rig.close().await;
}

#[tokio::test]
async fn what_waits_ends_with_the_server() {
    let rig = queue_with_fast_retries(3).await;
    let id = rig.enqueue("q", json!({"delay_ms": 600_000})).await;
    let asks = [
        rig.request(Method::POST, "/v1/queues/q/claim", json!({"wait_ms": 60_000})),
        rig.request(Method::GET, &format!("/v1/tasks/{id}/wait?wait_ms=60000"), Value::Null),
    ];
    let waiting: Vec<_> = asks.into_iter().map(|ask| tokio::spawn(ask.send())).collect();
    eventually("three requests are in flight", async || {
        let metrics = rig.get_metrics().await;
        metrics.contains("egret_http_requests_in_flight 3")
    })
    .await;
    rig.close().await;
    for answer in waiting {
        let response = answer.await.unwrap().unwrap();
        crate::test_server::problem(response, 503, "stopping").await;
    }
}

impl Rig {
    async fn get_metrics(&self) -> String {
        self.test_server.get("/metrics").await.text().await.unwrap()
    }
}
