//! Schedules: made, changed, looked at, paused, run, deleted; what they refuse.

use egret_base_test::eventually;
use egret_proto::queue::v1;
use reqwest::Method;
use serde_json::{Value, json};

use super::rig::Rig;
use crate::test_server::problem;

const DAILY: &str = "/v1/schedules/daily";

#[tokio::test]
async fn a_schedule_is_made_changed_listed_and_deleted() {
    let rig = Rig::new().await;
    rig.create_queue("reports").await;
    let task = json!({
        "payload": {"kind": "daily"},
        "priority": 7,
        "ordering_key": "r",
        "max_attempts": 2,
        "retry": {"backoff": "fixed", "base_ms": 5, "jitter": "none"},
        "timeout_ms": 60_000,
        "tags": ["report"],
        "metadata": {"by": "test"},
        "callback_url": "https://example.org/hook",
    });
    let asked = json!({
        "cron": "30 8 29 2 *",
        "time_zone": "Europe/Zurich",
        "queue": "reports",
        "task": task,
        "missed": "one",
    });
    let made = rig.put(DAILY, asked.clone(), 201).await;
    assert_eq!(made["name"], "daily");
    assert_eq!(made["missed"], "one");
    assert_eq!(made["paused"], false);
    assert_eq!(made["last_at"], Value::Null);
    let runs = made["next_runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5);
    assert_eq!(made["next_at"], runs[0]);
    for run in runs {
        let run = run.as_str().unwrap();
        assert!(run.contains("-02-29T07:30:00"), "{run}");
    }
    let mut told = task;
    told["retry"]["max_ms"] = json!(600_000);
    assert_eq!(made["task"], told);

    let paused = rig.post(&format!("{DAILY}/pause"), Value::Null, 200).await;
    assert_eq!(
        (&paused["paused"], &paused["next_at"], &paused["next_runs"]),
        (&json!(true), &Value::Null, &json!([]))
    );
    let change = json!({"cron": "0 0 * * *", "queue": "reports"});
    let changed = rig.put(DAILY, change, 200).await;
    assert_eq!(changed["paused"], true, "it rests on");
    assert_eq!(changed["time_zone"], "UTC");
    assert_eq!(changed["missed"], "skip");
    assert_eq!(changed["task"]["tags"], json!([]));
    let resumed = rig.post(&format!("{DAILY}/resume"), json!({}), 200).await;
    assert_eq!(resumed["next_runs"].as_array().unwrap().len(), 5);
    assert_eq!(rig.get(DAILY).await, resumed);
    rig.put("/v1/schedules/a", asked, 201).await;
    let listed = rig.get("/v1/schedules").await;
    let names: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|schedule| &schedule["name"]).collect();
    assert_eq!(names, ["a", "daily"]);
    rig.delete(DAILY, 204).await;
    rig.expect_problem(Method::GET, DAILY, Value::Null, 404, "schedule_not_found").await;
    crate::openapi::assert_whole(&rig.get("/openapi.json").await);
    rig.close().await;
}

#[tokio::test]
async fn a_run_makes_a_task() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let asked = json!({"cron": "* * * * * *", "queue": "q", "task": {"payload": [1]}});
    rig.put("/v1/schedules/often", asked, 201).await;
    let task = rig.claim("q").await;
    assert_eq!(task["payload"], json!([1]));
    rig.post("/v1/schedules/often/pause", Value::Null, 200).await;
    let seen = rig.get("/v1/schedules/often").await;
    assert!(seen["last_task"].is_string(), "{seen}");
    assert!(seen["last_at"].is_string(), "{seen}");
    assert_eq!(seen["waiting"], false);
    rig.close().await;
}

#[tokio::test]
async fn a_run_that_waits_for_room_is_shown_by_http_and_grpc() {
    let rig = Rig::with(|config| {
        config.partitions = 1;
        config.tenant_tasks_max = 1;
    })
    .await;
    rig.create_queue("q").await;
    rig.enqueue("q", json!({"payload": 1})).await;
    let asked = json!({"cron": "* * * * * *", "queue": "q"});
    rig.put("/v1/schedules/often", asked, 201).await;
    let mut client = rig.grpc().await;
    let waiting = eventually("a run waits for room", async || {
        let request = v1::ScheduleRequest { name: "often".to_owned() };
        let seen = client.get_schedule(request).await.unwrap().into_inner();
        seen.waiting.then_some(seen)
    })
    .await;
    assert_eq!(waiting.last_task, "");
    assert!(waiting.last_at_ms > 0, "{waiting:?}");
    let seen = rig.get("/v1/schedules/often").await;
    assert_eq!(seen["waiting"], true, "{seen}");
    rig.close().await;
}

#[tokio::test]
async fn invalid_schedules_are_refused() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let with = |task: Value| json!({"cron": "* * * * *", "queue": "q", "task": task});
    for (body, status, code, about) in [
        (json!({"cron": "x", "queue": "q"}), 400, "invalid_request", "cron: `x`"),
        (
            json!({"cron": "* * * * *", "queue": "q", "time_zone": "Mars"}),
            400,
            "invalid_request",
            "time_zone: `Mars`",
        ),
        (json!({"cron": "* * * * *"}), 400, "json_invalid", "queue"),
        (json!({"cron": "* * * * *", "queue": "none"}), 404, "queue_not_found", "none"),
        (
            json!({"cron": "* * * * *", "queue": "q", "missed": "some"}),
            400,
            "json_invalid",
            "missed",
        ),
        (with(json!({"delay_ms": 1})), 400, "invalid_request", "delay_ms"),
        (with(json!({"unique_key": "u"})), 400, "invalid_request", "unique_key"),
        (with(json!({"after": ["#0"]})), 400, "invalid_request", "after"),
        (with(json!({"queue": "q"})), 400, "invalid_request", "task.queue"),
    ] {
        let said = rig.expect_problem(Method::PUT, DAILY, body, status, code).await;
        assert!(said.contains(about), "{about}: {said}");
    }
    let never = json!({"cron": "0 0 30 2 *", "queue": "q"});
    let refused = rig.expect_problem(Method::PUT, DAILY, never, 400, "invalid_request");
    assert!(refused.await.contains("`0 0 30 2 *` never runs"));
    for action in ["pause", "resume"] {
        let path = format!("{DAILY}/{action}");
        rig.expect_problem(Method::POST, &path, Value::Null, 404, "schedule_not_found").await;
    }
    rig.close().await;
}

#[tokio::test]
async fn schedules_need_their_scopes_and_belong_to_a_tenant() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let asked = json!({"cron": "0 0 * * *", "queue": "q"});
    rig.put(DAILY, asked, 201).await;
    let (reader, writer) =
        (rig.token("default", &["queue:read"]), rig.token("default", &["queue:write"]));
    for path in ["/v1/schedules", DAILY] {
        let refused = rig.with_token(&writer, Method::GET, path).await;
        problem(refused, 403, "scope_missing").await;
        let seen = rig.with_token(&reader, Method::GET, path).await;
        assert_eq!(seen.status(), 200, "{path}");
    }
    let pause = format!("{DAILY}/pause");
    for (method, path) in
        [(Method::PUT, DAILY), (Method::DELETE, DAILY), (Method::POST, pause.as_str())]
    {
        let refused = rig.with_token(&reader, method, path).await;
        problem(refused, 403, "scope_missing").await;
    }
    let stranger = rig.token("other", &["queue:*"]);
    for method in [Method::GET, Method::DELETE] {
        let refused = rig.with_token(&stranger, method, DAILY).await;
        problem(refused, 404, "schedule_not_found").await;
    }
    rig.close().await;
}

#[tokio::test]
async fn a_list_of_schedules_leaves_out_what_is_long() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let payload = "x".repeat(1_000_000);
    for number in 0..10 {
        let asked = json!({"cron": "@yearly", "queue": "q",
            "task": {"payload": payload, "tags": ["t"]}});
        rig.put(&format!("/v1/schedules/s{number}"), asked, 201).await;
    }
    let list = rig.get("/v1/schedules").await;
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 10);
    for (number, item) in items.iter().enumerate() {
        let (task, is_whole) = (&item["task"], number < 8);
        assert_eq!(item["name"], format!("s{number}"));
        assert_eq!(task["payload"].is_string(), is_whole);
        assert_eq!(task["omitted"] == true, !is_whole);
    }
    let alone = rig.get("/v1/schedules/s9").await;
    assert_eq!(alone["task"]["payload"], payload);
    assert_eq!(alone["task"]["tags"], json!(["t"]));
    rig.close().await;
}

#[tokio::test]
async fn names_of_schedules_are_published_as_they_are_checked() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let document = rig.get("/openapi.json").await;
    let allows = |name: &str| crate::openapi::allows(&document, "/v1/schedules/{schedule}", name);
    let asked = json!({"cron": "@daily", "queue": "q"});
    let (longest, longer) = ("s".repeat(128), "s".repeat(129));
    for name in ["a.b:c_d-e", "0", &longest] {
        let path = format!("/v1/schedules/{name}");
        rig.put(&path, asked.clone(), 201).await;
        assert!(allows(name), "{name}");
    }
    for name in ["-s", "%C3%A4", &longer] {
        let path = format!("/v1/schedules/{name}");
        rig.expect_problem(Method::PUT, &path, asked.clone(), 400, "invalid_request").await;
        let name = name.replace("%C3%A4", "\u{e4}");
        assert!(!allows(&name), "{name}");
    }
    rig.close().await;
}
