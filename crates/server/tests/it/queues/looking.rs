//! Looking at tasks, and what people do to them.

use reqwest::Method;
use serde_json::{Value, json};

use super::rig::Rig;

#[tokio::test]
async fn a_list_comes_page_by_page() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let tasks: Vec<Value> = (0..25)
        .map(|number| {
            let tag = if number % 5 == 0 { "fifth" } else { "other" };
            json!({"payload": number, "tags": [tag]})
        })
        .collect();
    rig.post("/v1/queues/q/tasks", json!(tasks), 200).await;
    rig.enqueue("q", json!({"delay_ms": 600_000})).await;
    let mut seen = std::collections::HashSet::new();
    let mut cursor = String::new();
    loop {
        let page = rig.get(&format!("/v1/queues/q/tasks?limit=10&cursor={cursor}")).await;
        for task in page["items"].as_array().unwrap() {
            assert!(task.get("payload").is_none());
            assert!(seen.insert(task["id"].as_str().unwrap().to_owned()));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 26);
    let count = async |query: &str| {
        let page = rig.get(&format!("/v1/queues/q/tasks?{query}")).await;
        page["items"].as_array().unwrap().len()
    };
    assert_eq!(count("state=delayed").await, 1);
    assert_eq!(count("state=ready&tag=fifth").await, 5);
    assert_eq!(count("state=dead").await, 0);
    for (query, code, about) in [
        ("state=odd", "invalid_request", "state: `odd`"),
        ("limit=0", "invalid_request", "limit"),
        ("limit=1001", "invalid_request", "limit"),
        ("limit=x", "parameter_invalid", "limit"),
        ("cursor=x", "invalid_request", "cursor"),
        ("color=red", "parameter_invalid", "color"),
    ] {
        let path = format!("/v1/queues/q/tasks?{query}");
        let said = rig.expect_problem(Method::GET, &path, Value::Null, 400, code).await;
        assert!(said.contains(about), "{about}: {said}");
    }
    rig.close().await;
}

#[tokio::test]
async fn a_task_is_cancelled_put_back_and_deleted() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let id = rig.enqueue("q", json!({"payload": {"a": 1}})).await;
    let path = |action: &str| format!("/v1/tasks/{id}{action}");
    let cancelled = rig.post(&path("/cancel"), Value::Null, 200).await;
    assert_eq!(cancelled["state"], "cancelled");
    rig.expect_problem(Method::POST, &path("/cancel"), json!({}), 409, "task_wrong_state").await;
    let back = rig.post(&path("/requeue"), json!({}), 200).await;
    assert_eq!((&back["state"], &back["attempts"]), (&json!("ready"), &json!(0)));
    let brief = rig.get(&path("?brief=true")).await;
    assert!(brief.get("payload").is_none());
    assert_eq!(rig.get(&path("")).await["payload"], json!({"a": 1}));
    let waited = rig.get(&path("/wait?wait_ms=1")).await;
    assert_eq!(waited["state"], "ready", "the time was over");
    let task = rig.claim("q").await;
    rig.expect_problem(Method::DELETE, &path(""), Value::Null, 409, "task_wrong_state").await;
    rig.report(&task, "complete", json!({}), 204).await;
    rig.delete(&path(""), 204).await;
    rig.expect_problem(Method::GET, &path(""), Value::Null, 404, "task_not_found").await;
    for action in ["/cancel", "/requeue"] {
        rig.expect_problem(Method::POST, &path(action), Value::Null, 404, "task_not_found").await;
    }
    let odd = "/v1/tasks/0197";
    let said = rig.expect_problem(Method::GET, odd, Value::Null, 400, "invalid_request").await;
    assert!(said.contains("id: "), "{said}");
    rig.close().await;
}

#[tokio::test]
async fn dead_tasks_are_put_back_and_others_purged() {
    let rig = Rig::new().await;
    let settings = json!({"max_attempts": 1});
    rig.put("/v1/queues/q", settings, 201).await;
    for number in 0..4 {
        rig.enqueue("q", json!({"payload": number})).await;
        let task = rig.claim("q").await;
        rig.report(&task, "fail", json!({"error": "no"}), 204).await;
    }
    let path = "/v1/queues/q/requeue-dead";
    assert_eq!(rig.post(path, json!({"limit": 1}), 200).await["requeued"], 1);
    rig.expect_problem(Method::POST, path, json!({"limit": 0}), 400, "invalid_request").await;
    assert_eq!(rig.post(path, Value::Null, 200).await["requeued"], 3);
    let path = "/v1/queues/q/purge";
    let purged = rig.post(path, json!({"states": ["completed", "dead"]}), 200).await;
    assert_eq!(purged["deleted"], 0);
    let said = rig
        .expect_problem(Method::POST, path, json!({"states": ["odd"]}), 400, "invalid_request")
        .await;
    assert!(said.contains("states: `odd`"), "{said}");
    assert_eq!(rig.post(path, Value::Null, 200).await["deleted"], 4);
    assert_eq!(rig.get("/v1/queues/q").await["counts"]["ready"], 0);
    rig.close().await;
}
