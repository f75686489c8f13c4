//! Waits for any number of tasks over one stream, and calls of which all tasks are made or none.

use std::collections::BTreeMap;

use egret_proto::queue::v1;
use serde_json::json;

use super::rig::Rig;
use super::wire::{outgoing, within_timeout};

const TASKS: u64 = 400;

#[tokio::test]
async fn many_waits_share_a_stream_and_each_gets_its_outcome() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let tasks: Vec<_> = (0..TASKS).map(|_| json!({"delay_ms": 600_000})).collect();
    let made = rig.post("/v1/queues/q/tasks", json!(tasks), 200).await;
    let id = |at: u64| made["items"][at as usize]["id"].as_str().unwrap().to_owned();
    let waits = (0..TASKS).map(|number| v1::Wait { number, id: id(number) });
    let unknown = v1::Wait { number: TASKS, id: "no id".to_owned() };
    let (requests, inbound) = outgoing();
    let first =
        v1::WaitTasksRequest { waits: waits.chain([unknown]).collect(), cancelled: Vec::new() };
    requests.send(first).unwrap();
    let mut client = rig.grpc().await;
    let mut answers = within_timeout(client.wait_tasks(inbound)).await.unwrap().into_inner();
    // Other calls go on over the same connection.
    for at in [1, 2] {
        let task = v1::TaskRequest { id: id(at) };
        within_timeout(client.cancel_task(task)).await.unwrap();
    }
    let mut outcomes = BTreeMap::new();
    while outcomes.len() < 3 {
        let message = within_timeout(answers.message()).await.unwrap().unwrap();
        outcomes.extend(message.outcomes.into_iter().map(|one| (one.number, one)));
    }
    let cancelled = v1::TaskState::Cancelled as i32;
    for at in [1, 2] {
        let task = outcomes[&at].task.as_ref().unwrap();
        assert_eq!((task.id.as_str(), task.state), (id(at).as_str(), cancelled));
    }
    let error = outcomes[&TASKS].error.as_ref().unwrap();
    assert_eq!(error.code, "invalid_request");

    // What is cancelled has no outcome, and the stream ends after the last one.
    let rest = v1::WaitTasksRequest { waits: Vec::new(), cancelled: (3..TASKS).collect() };
    requests.send(rest).unwrap();
    drop(requests);
    let task = v1::TaskRequest { id: id(0) };
    within_timeout(client.cancel_task(task)).await.unwrap();
    let message = within_timeout(answers.message()).await.unwrap().unwrap();
    let numbers: Vec<u64> = message.outcomes.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [0]);
    assert!(within_timeout(answers.message()).await.unwrap().is_none());
    rig.close().await;
}

#[tokio::test]
async fn an_atomic_call_makes_all_tasks_or_none() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let path = "/v1/queues/q/tasks?atomic=true";
    let tasks = json!([{}, {"unique_key": "a"}, {"priority": 12}]);
    let refused = rig.post(path, tasks, 200).await;
    for item in refused["items"].as_array().unwrap() {
        assert_eq!(item["error"]["code"], "invalid_request", "{refused}");
    }
    let counts = rig.get("/v1/queues/q").await["counts"].clone();
    assert_eq!(counts["ready"], 0);
    let keys = ["a", "b", "c", "d", "e", "f"];
    let tasks: Vec<_> = keys.iter().map(|key| json!({"unique_key": key})).collect();
    let made = rig.post(path, json!(tasks), 200).await;
    let again = rig.post(path, json!(tasks), 200).await;
    for at in 0..keys.len() {
        assert_eq!(made["items"][at]["id"], again["items"][at]["id"]);
        assert_eq!(again["items"][at]["replayed"], true);
    }
    let counts = rig.get("/v1/queues/q").await["counts"].clone();
    assert_eq!(counts["ready"], 6);
    rig.close().await;
}
