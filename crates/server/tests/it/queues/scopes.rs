//! Scopes that name a queue: what they allow there, and that they reach nothing elsewhere.

use egret_base::settings::ConfigDuration;
use egret_proto::queue::v1;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tonic::Code;

use super::rig::{Rig, expect_status};
use super::wire::{WorkerStream, expect_error, outgoing, task, within_timeout};
use crate::test_server::problem;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Asks with a token of the default tenant.
async fn send(rig: &Rig, token: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
    let request = rig.test_server.request_without_token(method, path).bearer_auth(token);
    let request = match body {
        Value::Null => request,
        body => request.json(&body),
    };
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// A token of one queue reaches no operation on another one, whatever its action, and learns
/// nothing: what does not exist is answered like what does.
#[tokio::test]
async fn a_scope_of_one_queue_reaches_no_other() {
    let rig = Rig::new().await;
    rig.create_queue("own").await;
    rig.create_queue("other").await;
    let id = rig.enqueue("other", json!({"payload": "secret"})).await;
    let schedule = json!({"cron": "@yearly", "queue": "other"});
    rig.put("/v1/schedules/yearly", schedule, 201).await;
    let document = rig.get("/openapi.json").await;
    for action in ["produce", "work", "operate", "read", "write", "*"] {
        let token = rig.token("default", &[&format!("queue/own:{action}")]);
        for (path, item) in document["paths"].as_object().unwrap() {
            let is_queue = |operation: &Value| operation["tags"][0] == "queue";
            for method in METHODS {
                if !item.get(method).is_some_and(is_queue) {
                    continue;
                }
                check_other_queue(&rig, &token, method, path, &id).await;
            }
        }
    }
    assert_eq!(rig.task(&id).await["state"], "ready");
    rig.get("/v1/schedules/yearly").await;
    rig.close().await;
}

/// One operation, asked for what is another queue's and for what does not exist.
async fn check_other_queue(rig: &Rig, token: &str, method: &str, path: &str, id: &str) {
    const UNKNOWN: &str = "01a1fe82-a02b-7000-84c4-000000000001";
    let name = format!("{method} {path}");
    let fill = |id: &str, queue: &str, schedule: &str| {
        let path = path.replace("{id}", id).replace("{queue}", queue);
        path.replace("{schedule}", schedule).replace("{name}", "a")
    };
    let method: Method = method.to_ascii_uppercase().parse().unwrap();
    let body = if method == Method::POST || method == Method::PUT {
        match path {
            "/v1/schedules/{schedule}" => json!({"cron": "@yearly", "queue": "other"}),
            "/v1/reports" => json!([]),
            _ => json!({}),
        }
    } else {
        Value::Null
    };
    // Lists are filtered, a stream of changes as well.
    if ["/v1/queues", "/v1/callbacks", "/v1/schedules", "/v1/reports"].contains(&path) {
        let (status, answer) = send(rig, token, method, path, body).await;
        assert!(status == 200 || status == 403, "{name}: {status}");
        assert!(!answer.to_string().contains("other"), "{name}: {answer}");
        return;
    }
    if path == "/v1/tasks/events" {
        let path = format!("{path}?queue=other");
        let (status, _) = send(rig, token, method, &path, body).await;
        assert_eq!(status, 403, "{name}");
        return;
    }
    let there = send(rig, token, method.clone(), &fill(id, "other", "yearly"), body.clone()).await;
    let absent = send(rig, token, method, &fill(UNKNOWN, "nowhere", "never"), body).await;
    // A word about a task is refused for its lease before anything else.
    let is_refused = [400, 403, 404, 409].contains(&there.0);
    assert!(is_refused, "{name}: {there:?}");
    assert_eq!(there.0, absent.0, "{name}: {there:?}, {absent:?}");
    assert_eq!(there.1["code"], absent.1["code"], "{name}");
    if path.contains("{queue}") {
        assert_eq!(there.0, 403, "{name}: {there:?}");
    }
}

#[tokio::test]
async fn callbacks_are_listed_by_the_queues_that_a_token_reads() {
    let rig = Rig::with(|config| config.callbacks = false).await;
    let task = json!({"callback_url": "https://hooks.example.org/path?token=secret"});
    for queue in ["own", "other"] {
        rig.create_queue(queue).await;
        rig.enqueue(queue, task.clone()).await;
        let claimed = rig.claim(queue).await;
        rig.report(&claimed, "complete", json!({}), 204).await;
    }
    let queues_of = |scopes: &'static [&'static str], tenant: &'static str, path: &'static str| {
        let token = rig.token(tenant, scopes);
        let rig = &rig;
        async move {
            let (status, page) = send(rig, &token, Method::GET, path, Value::Null).await;
            assert!(!page.to_string().contains("secret"), "{page}");
            let items = page["items"].as_array().cloned().unwrap_or_default();
            let mut queues: Vec<String> =
                items.iter().map(|one| one["queue"].to_string()).collect();
            queues.sort();
            for item in items {
                assert_eq!(item["receiver"], "hooks.example.org:443");
                assert_eq!(item["state"], "ready");
            }
            (status, queues.join(","))
        }
    };
    const PATH: &str = "/v1/callbacks";
    let all = (200, "\"other\",\"own\"".to_owned());
    assert_eq!(queues_of(&["queue:read"], "default", PATH).await, all);
    let own = (200, "\"own\"".to_owned());
    assert_eq!(queues_of(&["queue/own:read"], "default", PATH).await, own);
    let none = (200, String::new());
    assert_eq!(queues_of(&["queue:read"], "foreign", PATH).await, none);
    let dead = "/v1/callbacks?state=dead";
    assert_eq!(queues_of(&["queue:read"], "default", dead).await, none);
    let write = queues_of(&["queue:write"], "default", PATH).await;
    assert_eq!(write, (403, String::new()));
    rig.close().await;
}

#[tokio::test]
async fn each_action_allows_its_operations_and_no_other() {
    let rig = Rig::new().await;
    rig.create_queue("own").await;
    let id = rig.enqueue("own", json!({})).await;
    let task = format!("/v1/tasks/{id}");
    let operations = [
        (Method::POST, "/v1/queues/own/tasks", vec!["produce", "write", "*"]),
        (Method::GET, task.as_str(), vec!["produce", "read", "*"]),
        (Method::GET, "/v1/queues/own", vec!["read", "*"]),
        (Method::GET, "/v1/queues/own/tasks", vec!["read", "*"]),
        (Method::POST, "/v1/queues/own/claim", vec!["work", "write", "*"]),
        (Method::PUT, "/v1/queues/own", vec!["operate", "write", "*"]),
        (Method::POST, "/v1/queues/own/pause", vec!["operate", "write", "*"]),
        (Method::POST, "/v1/queues/own/resume", vec!["operate", "write", "*"]),
        (Method::POST, "/v1/queues/own/purge", vec!["operate", "write", "*"]),
        (Method::POST, "/v1/queues/own/requeue-dead", vec!["operate", "write", "*"]),
        (Method::GET, "/v1/callback-key", vec![]),
    ];
    for scope in ["queue/own", "queue/o*"] {
        for action in ["produce", "work", "operate", "read", "write", "*"] {
            let token = rig.token("default", &[&format!("{scope}:{action}")]);
            for (method, path, allowing) in &operations {
                let body = match *method {
                    Method::GET => Value::Null,
                    _ => json!({}),
                };
                let (status, answer) = send(&rig, &token, method.clone(), path, body).await;
                // A purge deletes the task, which is allowed to be read all the same.
                let is_allowed = status != 403;
                let expected = allowing.contains(&action);
                assert_eq!(is_allowed, expected, "{method} {path} with {action}: {answer}");
            }
        }
    }
    for (scopes, status) in [
        (vec!["queue:operate"], 200),
        (vec!["queue:*"], 200),
        (vec!["admin"], 200),
        (vec!["queue:write"], 403),
        (vec!["queue:produce", "queue:work", "queue:read"], 403),
    ] {
        let token = rig.token("default", &scopes);
        let found = send(&rig, &token, Method::GET, "/v1/callback-key", Value::Null).await;
        assert_eq!(found.0, status, "{scopes:?}");
    }
    rig.close().await;
}

/// What a call names beside its path counts as well: queues of single tasks, tasks to wait for,
/// queues of schedules.
#[tokio::test]
async fn what_a_call_names_beside_its_path_is_compared() {
    let rig = Rig::new().await;
    rig.create_queue("own").await;
    rig.create_queue("other").await;
    let foreign = rig.enqueue("other", json!({})).await;
    let producer = rig.token("default", &["queue/own:produce"]);
    let tasks = "/v1/queues/own/tasks";
    let elsewhere = json!([{"payload": 1}, {"payload": 2, "queue": "other"}]);
    let (status, _) = send(&rig, &producer, Method::POST, tasks, elsewhere).await;
    assert_eq!(status, 403);
    let chained = json!({"after": [foreign]});
    let (status, _) = send(&rig, &producer, Method::POST, tasks, chained).await;
    assert_eq!(status, 404);
    let tasks_there = rig.get(tasks).await;
    assert_eq!(tasks_there["items"], json!([]));
    let (status, made) = send(&rig, &producer, Method::POST, tasks, json!({})).await;
    assert_eq!(status, 201);
    let chained = json!({"after": [made["id"]]});
    let (status, _) = send(&rig, &producer, Method::POST, tasks, chained).await;
    assert_eq!(status, 201);
    let operator = rig.token("default", &["queue/own:operate"]);
    let schedule = |queue: &str| json!({"cron": "@yearly", "queue": queue});
    rig.put("/v1/schedules/theirs", schedule("other"), 201).await;
    for (name, queue) in [("mine", "other"), ("theirs", "own")] {
        let path = format!("/v1/schedules/{name}");
        let (status, _) = send(&rig, &operator, Method::PUT, &path, schedule(queue)).await;
        assert_eq!(status, 403, "{name} for {queue}");
    }
    let (status, _) =
        send(&rig, &operator, Method::PUT, "/v1/schedules/mine", schedule("own")).await;
    assert_eq!(status, 201);
    rig.close().await;
}

/// To operate a queue is not to read what its tasks carry.
#[tokio::test]
async fn who_changes_a_task_sees_its_payload_only_with_the_right_to_read() {
    let rig = Rig::new().await;
    rig.create_queue("own").await;
    for (scopes, is_seen) in [
        (vec!["queue/own:operate"], false),
        (vec!["queue/own:write"], false),
        (vec!["queue/own:operate", "queue/other:read"], false),
        (vec!["queue/own:operate", "queue/own:read"], true),
        (vec!["queue/own:operate", "queue:produce"], true),
        (vec!["queue/own:*"], true),
    ] {
        let token = rig.token("default", &scopes);
        let id = rig.enqueue("own", json!({"payload": "secret"})).await;
        for (action, state) in [("cancel", "cancelled"), ("requeue", "ready")] {
            let path = format!("/v1/tasks/{id}/{action}");
            let (status, task) = send(&rig, &token, Method::POST, &path, Value::Null).await;
            assert_eq!((status, &task["state"]), (200, &json!(state)), "{task}");
            let text = task.to_string();
            assert_eq!(text.contains("secret"), is_seen, "{scopes:?}: {text}");
        }
        let schedule = json!({"cron": "@yearly", "queue": "own",
            "task": {"payload": "secret", "tags": ["secret"], "metadata": {"a": "secret"}}});
        let put = rig.request(Method::PUT, "/v1/schedules/s", schedule).send();
        assert!(put.await.unwrap().status().is_success());
        let may_read =
            scopes.iter().any(|scope| *scope == "queue/own:read" || *scope == "queue/own:*");
        for action in ["pause", "resume"] {
            let path = format!("/v1/schedules/s/{action}");
            let (status, schedule) = send(&rig, &token, Method::POST, &path, Value::Null).await;
            assert_eq!((status, &schedule["name"]), (200, &json!("s")), "{schedule}");
            let text = schedule.to_string();
            assert_eq!(text.contains("secret"), may_read, "{scopes:?}: {text}");
        }
        let mut client = rig.client_of(&token).await;
        let request = || v1::ScheduleRequest { name: "s".to_owned() };
        let paused = within_timeout(client.pause_schedule(request())).await.unwrap();
        let resumed = within_timeout(client.resume_schedule(request())).await.unwrap();
        for schedule in [paused.into_inner(), resumed.into_inner()] {
            let text = format!("{schedule:?}");
            let is_read = !schedule.task.unwrap().payload.is_empty();
            assert_eq!(is_read, may_read, "{scopes:?}: {text}");
            assert!(is_read || !text.contains("secret"), "{text}");
        }
        let request = || v1::TaskRequest { id: id.to_string() };
        let cancelled = within_timeout(client.cancel_task(request())).await.unwrap();
        let requeued = within_timeout(client.requeue_task(request())).await.unwrap();
        for task in [cancelled.into_inner(), requeued.into_inner()] {
            assert_eq!(!task.payload.is_empty(), is_seen, "{scopes:?}: {task:?}");
        }
    }
    rig.close().await;
}

#[tokio::test]
async fn grpc_compares_parts_alike() {
    let rig = Rig::new().await;
    rig.create_queue("own").await;
    rig.create_queue("other").await;
    rig.enqueue("other", json!({})).await;
    let lease = rig.claim("other").await["lease"].as_str().unwrap().to_owned();
    let lease: egret_queue::model::Lease = lease.parse().unwrap();
    let worker = rig.token("default", &["queue/own:work"]);
    let mut client = rig.client_of(&worker).await;
    let mut hand = WorkerStream::begin(&mut client, "own", 1, 30_000).await;
    hand.complete(&lease.to_bytes(), "forged");
    let error = hand.await_refusal(0).await;
    assert_eq!(error.code, "lease_lost");
    let mut foreign = WorkerStream::open(&mut client).await;
    foreign.send(v1::WorkRequest {
        hello: Some(v1::Hello { queues: vec!["other".to_owned()], ..v1::Hello::default() }),
        ..v1::WorkRequest::default()
    });
    let (_, status) = foreign.end().await;
    expect_error(&status.unwrap(), Code::PermissionDenied, "scope_missing");
    let producer = rig.token("default", &["queue/own:produce"]);
    let mut client = rig.client_of(&producer).await;
    let (out, messages) = outgoing();
    let mut answers = within_timeout(client.produce(messages)).await.unwrap().into_inner();
    out.send(v1::ProduceRequest { queue: "other".to_owned(), tasks: vec![task("x")] }).unwrap();
    let status = within_timeout(answers.message()).await.unwrap_err();
    expect_error(&status, Code::PermissionDenied, "scope_missing");
    let purged = client.purge_queue(v1::PurgeQueueRequest {
        name: "own".to_owned(),
        ..v1::PurgeQueueRequest::default()
    });
    expect_error(
        &within_timeout(purged).await.unwrap_err(),
        Code::PermissionDenied,
        "scope_missing",
    );
    drop(hand);
    rig.close().await;
}

/// Every kind of open request ends with its token, and what a worker held returns to its queue when
/// the lease ends.
#[tokio::test]
async fn open_requests_end_with_their_token() {
    let rig = Rig::with(|config| config.lease_grace = ConfigDuration::ms(1)).await;
    rig.create_queue("q").await;
    rig.create_queue("empty").await;
    let id = rig.enqueue("q", json!({})).await;
    let made = expect_status(
        rig.request(
            Method::POST,
            "/v1/tokens",
            json!({"name": "w", "scopes": ["queue:*"], "ttl_ms": 60_000}),
        ),
        201,
    )
    .await;
    let token = made["token"].as_str().unwrap();
    let mut client = rig.client_of(token).await;
    let mut hand = WorkerStream::begin(&mut client, "q", 1, 1_000).await;
    assert_eq!(hand.next_task().await.id, id);
    let (_out, messages) = outgoing();
    let mut produce = within_timeout(client.produce(messages)).await.unwrap().into_inner();
    let mut watch =
        within_timeout(client.watch(v1::WatchRequest::default())).await.unwrap().into_inner();
    let mut events = rig.test_server.request_without_token(Method::GET, "/v1/tasks/events");
    events = events.bearer_auth(token);
    let mut events = events.send().await.unwrap();
    assert_eq!(events.status(), StatusCode::OK);
    assert!(events.chunk().await.unwrap().is_some());
    let claim = rig
        .test_server
        .request_without_token(Method::POST, "/v1/queues/empty/claim")
        .bearer_auth(token)
        .json(&json!({"wait_ms": 60_000}))
        .send();
    let wait = rig
        .test_server
        .request_without_token(Method::GET, &format!("/v1/tasks/{id}/wait?wait_ms=60000"))
        .bearer_auth(token)
        .send();
    let end = async {
        // Both waits are at the engine by the time that another request has been answered.
        rig.get("/v1/queues").await;
        rig.test_server.clock.advance(std::time::Duration::from_secs(60));
    };
    let (claimed, waited, ()) = within_timeout(async { tokio::join!(claim, wait, end) }).await;
    problem(claimed.unwrap(), 401, "token_expired").await;
    problem(waited.unwrap(), 401, "token_expired").await;
    assert!(within_timeout(events.chunk()).await.unwrap().is_none());
    let (_, status) = hand.end().await;
    expect_error(&status.unwrap(), Code::Unauthenticated, "token_expired");
    let status = within_timeout(produce.message()).await.unwrap_err();
    expect_error(&status, Code::Unauthenticated, "token_expired");
    let status = within_timeout(watch.message()).await.unwrap_err();
    expect_error(&status, Code::Unauthenticated, "token_expired");
    assert_eq!(rig.claim("q").await["id"], *id);
    rig.close().await;
}
