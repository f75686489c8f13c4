//! Following views: server-sent events, gRPC, and tasks.

use egret_base::settings::ByteSize;
use egret_proto::views::v1::follow_response::Told;
use egret_proto::views::v1::views_client::ViewsClient;
use egret_proto::views::v1::{Changes, FollowRequest, FollowResponse};
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};

use super::*;

const CHANGES: &str = "/v1/views/by_carrier/changes";

/// Events as they come.
struct Events {
    response: Response,
    text: String,
}

#[derive(Debug)]
struct Event {
    kind: String,
    id: Option<i64>,
    data: Value,
}

impl Events {
    async fn open(rig: &Rig, query: &str) -> (Self, i64) {
        let response = rig.test_server.get(&format!("{CHANGES}{query}")).await;
        Self::from_response(response).await
    }

    async fn from_response(response: Response) -> (Self, i64) {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut events = Self { response, text: String::new() };
        let first = events.next().await.unwrap();
        assert_eq!(first.kind, "following", "{first:?}");
        assert_eq!(first.data["view"], "public.by_carrier");
        let id = first.id.unwrap();
        assert_eq!(first.data["sequence"], id);
        (events, id)
    }

    /// The next event; none at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_owned();
                self.text = rest.to_owned();
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let Some(kind) = field("event: ") else {
                    continue;
                };
                return Some(Event {
                    kind: kind.to_owned(),
                    id: field("id: ").map(|id| id.parse().unwrap()),
                    data: serde_json::from_str(field("data: ").unwrap()).unwrap(),
                });
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

impl Rig {
    /// Changes something, and refreshes the view.
    async fn execute_and_refresh(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
        let refresh = "/v1/views/by_carrier/refresh";
        self.send_expecting(Method::POST, refresh, json!({}), 200).await;
    }

    async fn alter_view(&self, change: Value) -> Value {
        let path = "/v1/views/by_carrier";
        self.send_expecting(Method::PATCH, path, change, 200).await
    }

    /// The payload of the next task, which is then done; none where there is none now.
    async fn complete_next_task(&self, wait_ms: u64) -> Option<Value> {
        let claim = json!({"worker": "w", "wait_ms": wait_ms});
        let claimed = self.send_expecting(Method::POST, "/v1/queues/late/claim", claim, 200).await;
        let task = claimed["items"].get(0)?.clone();
        let complete = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
        let lease = json!({"lease": task["lease"]});
        self.send_expecting(Method::POST, &complete, lease, 204).await;
        Some(task["payload"].clone())
    }
}

const MORE: &str = "INSERT INTO flights VALUES (4, 'DL', 0), (5, 'AA', 1)";

#[tokio::test]
async fn events_tell_what_changes_until_the_server_stops() {
    let rig = Rig::new().await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    let (mut events, begun) = Events::open(&rig, "").await;
    rig.execute_and_refresh(MORE).await;
    let told = events.next().await.unwrap();
    assert_eq!((told.kind.as_str(), told.id), ("changes", Some(begun + 1)));
    let rows = json!([
        {"weight": -1, "row": {"carrier": "DL", "flights": 1}},
        {"weight": 1, "row": {"carrier": "AA", "flights": 1}},
        {"weight": 1, "row": {"carrier": "DL", "flights": 2}},
    ]);
    assert_eq!(told.data["rows"], rows, "{told:?}");
    assert_eq!((&told.data["more"], &told.data["sequence"]), (&json!(false), &json!(begun + 1)));
    let shown = rig.send_expecting(Method::GET, "/v1/views/by_carrier", Value::Null, 200).await;
    assert_eq!(told.data["snapshot"], shown["snapshot"]);
    assert_eq!(shown["changes"]["kept"], "1d", "{shown}");
    assert_eq!(shown["changes"]["sequence"], begun + 1);
    rig.execute_and_refresh("DELETE FROM flights WHERE id = 5").await;
    // A client that reconnects goes on after its last event.
    let last = begun.to_string();
    let again = rig.test_server.request(Method::GET, CHANGES).header("Last-Event-ID", &last);
    let (mut again, from) = Events::from_response(again.send().await.unwrap()).await;
    assert_eq!(from, begun);
    assert_eq!(again.next().await.unwrap().data, told.data);
    let (mut after, _) = Events::open(&rig, &format!("?after={}", begun + 1)).await;
    for events in [&mut events, &mut again, &mut after] {
        assert_eq!(events.next().await.unwrap().id, Some(begun + 2));
    }
    rig.send_expecting(Method::POST, "/v1/views/by_carrier/repair", Value::Null, 200).await;
    let reset = after.next().await.unwrap();
    assert_eq!((reset.kind.as_str(), &reset.data["reset"]), ("reset", &json!("repaired")));
    assert_eq!(after.next().await.unwrap().kind, "changes");
    rig.alter_view(json!({"keep_changes": null})).await;
    let ended = after.next().await.unwrap();
    assert_eq!(
        (ended.kind.as_str(), &ended.data["code"]),
        ("problem", &json!("view_changes_gone"))
    );
    assert!(after.next().await.is_none());
    let (mut last, _) = Events::open(&rig, "").await;
    rig.close().await;
    assert!(last.next().await.is_none());
}

#[tokio::test]
async fn views_that_cannot_be_followed_are_refused() {
    let rig = Rig::with(ViewsConfig { followers_max: 1, ..ViewsConfig::default() }).await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    let at_once = json!({"name": "at_once", "query": BY_CARRIER, "mode": "immediate"});
    rig.send_expecting(Method::POST, "/v1/views", at_once, 201).await;
    let reader = rig.test_server.token(&["views:read"], None);
    let read = async |path: &str| {
        let request = rig.test_server.request_without_token(Method::GET, path).bearer_auth(&reader);
        request.send().await.unwrap()
    };
    let refused = problem(read(CHANGES).await, 409, "view_not_followed").await;
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("--keep-changes"), "{detail}");
    for (path, status, code) in [
        ("/v1/views/none/changes", 404, "view_not_found"),
        ("/v1/views/at_once/changes", 400, "view_unsupported"),
        ("/v1/views/by_carrier/changes?after=x", 400, "parameter_invalid"),
        ("/v1/views/by_carrier/changes?since=1", 400, "parameter_invalid"),
        ("/v1/views/by_carrier/changes?after=99999999999999", 410, "view_changes_gone"),
    ] {
        problem(rig.test_server.get(path).await, status, code).await;
    }
    let odd = rig.test_server.request(Method::GET, CHANGES).header("Last-Event-ID", "odd");
    problem(odd.send().await.unwrap(), 400, "parameter_invalid").await;
    // Changes are tracked by now, so scope `views:read` suffices to follow.
    let (first, _) = Events::from_response(read(CHANGES).await).await;
    let refused = problem(rig.test_server.get(CHANGES).await, 429, "limit_exceeded").await;
    assert!(refused["detail"].as_str().unwrap().contains("views.followers_max"));
    drop(first);
    rig.close().await;
}

#[tokio::test]
async fn invalid_settings_of_kept_changes_are_refused() {
    let rig = Rig::new().await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    rig.alter_view(json!({"keep_changes": "1h"})).await;
    let at_once = json!({"name": "at_once", "query": BY_CARRIER, "mode": "immediate"});
    rig.send_expecting(Method::POST, "/v1/views", at_once, 201).await;
    let path = "/v1/views/by_carrier";
    for (change, code) in [
        (json!({"mode": "immediate"}), "view_unsupported"),
        (json!({"on_change_enqueue": "no such name"}), "invalid_request"),
        (json!({"on_change_enqueue": "late", "keep_changes": null}), "invalid_request"),
        (json!({"keep_changes": "long"}), "json_invalid"),
        (json!({"keep_changes": "0s"}), "invalid_request"),
        (json!({"keep_changes": "4000d"}), "invalid_request"),
    ] {
        let refused = rig.send(Method::PATCH, path, change.clone()).await;
        problem(refused, 400, code).await;
    }
    for (field, value) in [("keep_changes", "1h"), ("on_change_enqueue", "late")] {
        let mut view = json!({"name": "other", "query": BY_CARRIER, "mode": "immediate"});
        view[field] = json!(value);
        let refused = rig.send(Method::POST, "/v1/views", view).await;
        problem(refused, 400, "view_unsupported").await;
        let at_once = json!({field: value});
        let refused = rig.send(Method::PATCH, "/v1/views/at_once", at_once).await;
        problem(refused, 400, "view_unsupported").await;
    }
    let unchanged = rig.send_expecting(Method::GET, path, Value::Null, 200).await;
    assert_eq!(
        (&unchanged["mode"], &unchanged["changes"]["queue"]),
        (&json!("incremental"), &Value::Null)
    );
    rig.close().await;
}

async fn follow(
    rig: &Rig,
    token: &str,
    after: Option<i64>,
) -> Result<Streaming<FollowResponse>, Status> {
    let endpoint = Endpoint::from_shared(rig.test_server.base.clone()).unwrap();
    let mut client = ViewsClient::new(endpoint.connect().await.unwrap());
    let mut request = Request::new(FollowRequest {
        view: "by_carrier".to_owned(),
        database: String::new(),
        after,
    });
    let bearer = MetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", bearer);
    Ok(client.follow(request).await?.into_inner())
}

async fn next_changes(told: &mut Streaming<FollowResponse>) -> Changes {
    match told.message().await.unwrap().unwrap().told {
        Some(Told::Changes(changes)) => changes,
        other => panic!("{other:?}"),
    }
}

async fn expect_following(told: &mut Streaming<FollowResponse>) -> i64 {
    match told.message().await.unwrap().unwrap().told {
        Some(Told::Following(following)) => following.sequence,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn grpc_tells_the_same() {
    let config = ViewsConfig { change_event_size: ByteSize(40), ..ViewsConfig::default() };
    let rig = Rig::with(config).await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    let writer = rig.test_server.token(&["views:*"], None);
    let reader = rig.test_server.token(&["views:read"], None);
    let code = |status: &Status| {
        let code = status.metadata().get("egret-code").unwrap();
        code.to_str().unwrap().to_owned()
    };
    let refused = follow(&rig, &reader, None).await.unwrap_err();
    assert_eq!(
        (refused.code(), code(&refused).as_str()),
        (tonic::Code::FailedPrecondition, "view_not_followed")
    );
    let mut told = follow(&rig, &writer, None).await.unwrap();
    let first = expect_following(&mut told).await;
    rig.execute_and_refresh(MORE).await;
    let parts = [next_changes(&mut told).await, next_changes(&mut told).await];
    assert_eq!(parts.clone().map(|part| part.more), [true, false]);
    let rows: Vec<(i64, &str)> = parts
        .iter()
        .flat_map(|part| &part.rows)
        .map(|row| (row.weight, row.json.as_str()))
        .collect();
    let all = [
        (-1, r#"{"carrier":"DL","flights":1}"#),
        (1, r#"{"carrier":"AA","flights":1}"#),
        (1, r#"{"carrier":"DL","flights":2}"#),
    ];
    assert_eq!(rows, all);
    let mut again = follow(&rig, &reader, Some(first)).await.unwrap();
    assert_eq!(expect_following(&mut again).await, first);
    assert_eq!(next_changes(&mut again).await, parts[0]);
    let gone = follow(&rig, &reader, Some(first + 9)).await.unwrap_err();
    assert_eq!((gone.code(), code(&gone).as_str()), (tonic::Code::OutOfRange, "view_changes_gone"));
    let stranger = follow(&rig, &rig.test_server.token(&["queue:read"], None), None).await;
    assert_eq!(stranger.unwrap_err().code(), tonic::Code::PermissionDenied);
    rig.close().await;
    let ended = told.message().await.unwrap_err();
    assert_eq!((ended.code(), code(&ended).as_str()), (tonic::Code::Unavailable, "stopping"));
}

#[tokio::test]
async fn every_change_becomes_one_task() {
    let config = ViewsConfig { change_task_size_max: ByteSize(200), ..ViewsConfig::default() };
    let rig = Rig::with(config).await;
    let queue = "/v1/queues/late";
    rig.send_expecting(Method::PUT, queue, Value::Null, 201).await;
    let view = json!({"name": "by_carrier", "query": BY_CARRIER, "schedule": "manual", "mode": "incremental",
        "on_change_enqueue": "late", "keep_changes": "1h"});
    let made = rig.send_expecting(Method::POST, "/v1/views", view, 201).await;
    assert_eq!(
        (&made["changes"]["queue"], &made["changes"]["kept"]),
        (&json!("late"), &json!("1h"))
    );
    // What it is filled with is a change.
    let filled = rig.complete_next_task(10_000).await.unwrap();
    assert_eq!((&filled["view"], &filled["changes"]), (&json!("public.by_carrier"), &json!(2)));
    assert_eq!(filled["database"], rig.database.name.as_str());
    rig.execute_and_refresh("DELETE FROM flights WHERE carrier = 'DL'").await;
    let task = rig.complete_next_task(10_000).await.unwrap();
    assert_eq!(task["rows"], json!([{"weight": -1, "row": {"carrier": "DL", "flights": 1}}]));
    let sequence = task["sequence"].as_i64().unwrap();
    // More than a task has is read where it says.
    rig.execute_and_refresh(
        "INSERT INTO flights SELECT i, 'C' || i, 1 FROM generate_series(100, 120) AS i",
    )
    .await;
    let task = rig.complete_next_task(10_000).await.unwrap();
    assert_eq!((&task["changes"], task.get("rows")), (&json!(21), None), "{task}");
    let response = rig.test_server.get(task["read"].as_str().unwrap()).await;
    let (mut events, _) = Events::from_response(response).await;
    let told = events.next().await.unwrap();
    assert_eq!((told.id, told.data["rows"].as_array().unwrap().len()), (Some(sequence + 1), 21));
    // A crash after the queue took them and before that is remembered: they are handed over again,
    // and are the tasks that were made.
    let back = format!("UPDATE egret.view_handed_over SET sequence = {}", sequence - 1);
    rig.client.batch_execute(&back).await.unwrap();
    rig.execute_and_refresh("DELETE FROM flights WHERE id > 100").await;
    let task = rig.complete_next_task(10_000).await.unwrap();
    assert_eq!(task["sequence"], sequence + 2);
    rig.alter_view(json!({"on_change_enqueue": null})).await;
    rig.execute_and_refresh("DELETE FROM flights").await;
    assert_eq!(rig.complete_next_task(0).await, None);
    let ended = rig.alter_view(json!({"keep_changes": null})).await;
    assert_eq!(ended["changes"], Value::Null);
    rig.close().await;
}

#[tokio::test]
async fn changes_that_no_queue_took_in_time_are_told_of() {
    let rig = Rig::new().await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    let queue = "/v1/queues/late";
    rig.send_expecting(Method::PUT, queue, Value::Null, 201).await;
    rig.alter_view(json!({"on_change_enqueue": "late"})).await;
    // While no task is published, all change sets but the last are deleted.
    rig.views.stop().await;
    for id in 10..14 {
        rig.execute_and_refresh(&format!("INSERT INTO flights VALUES ({id}, 'UA', 1)")).await;
    }
    let forget = "DELETE FROM egret.view_change_set WHERE sequence < (SELECT max(sequence) FROM egret.view_change_set)";
    rig.client.batch_execute(forget).await.unwrap();
    let options = Options {
        config: ViewsConfig::default(),
        databases: Databases::single(rig.database.connection()),
        clock: Arc::new(SystemClock),
        task_publisher: Some(TaskPublisher {
            sink: Arc::new(rig.queues.clone()),
            tenant: DEFAULT_TENANT.to_owned(),
        }),
    };
    let views = Views::new(options, &mut prometheus_client::registry::Registry::default());
    views.start().await.unwrap();
    let lost = rig.complete_next_task(10_000).await.unwrap();
    let last = rig.complete_next_task(10_000).await.unwrap();
    views.stop().await;
    assert_eq!((&lost["reset"], lost.get("rows")), (&json!("forgotten"), None), "{lost}");
    assert_eq!(last["sequence"].as_i64(), lost["sequence"].as_i64().map(|lost| lost + 1));
    assert_eq!(last["changes"], 2);
    rig.close().await;
}
