//! Streams whose clients take no answers, beside other calls of the same tenant.

use std::time::Duration;

use egret_proto::queue::v1;
use reqwest::Method;
use serde_json::json;
use tonic::transport::Channel;

use super::rig::{Rig, expect_status};
use super::wire::{outgoing, within_timeout};

/// How long a call may take that nothing holds up: less than the 30 s after which a stalled stream
/// is reset.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(25);

/// Streams, by the tasks of each of their messages.
const MESSAGES: [usize; 8] = [500, 500, 400, 1_000, 500, 500, 1_000, 1_000];

#[tokio::test]
async fn a_producer_that_takes_no_answers_holds_up_no_other_call_of_its_tenant() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let leased = rig.enqueue("q", json!({})).await;
    let task = rig.claim("q").await;
    assert_eq!(task["id"], leased.as_str());
    let other = rig.token("other", &["queue:*"]);
    rig.with_token(&other, Method::PUT, "/v1/queues/q").await;
    let beside = async || {
        let made = rig.with_token(&other, Method::POST, "/v1/queues/q/tasks");
        assert_eq!(made.await.status(), 201);
    };
    // Of the answers to a message, the window lets through a part.
    let endpoint = Channel::from_shared(rig.test_server.base.clone()).unwrap();
    let endpoint = endpoint.initial_stream_window_size(500);
    let channel = within_timeout(endpoint.connect()).await.unwrap();
    let mut streams = Vec::new();
    for tasks in MESSAGES {
        beside().await;
        let (out, messages) = outgoing();
        // The later ones wait for room as the answers to the first fill the window.
        for _ in 0..4 {
            out.send(v1::ProduceRequest {
                queue: "q".to_owned(),
                tasks: vec![v1::NewTask::default(); tasks],
            })
            .unwrap();
        }
        let mut client = rig.client_over(channel.clone());
        let answers = within_timeout(client.produce(messages)).await.unwrap();
        streams.push((out, answers.into_inner()));
    }
    // The bound is in force for each of these calls.
    for _ in 0..20 {
        beside().await;
        let tasks = json!(vec![json!({}); 1_000]);
        let enqueue = rig.request(Method::POST, "/v1/queues/q/tasks", tasks);
        let enqueued = tokio::time::timeout(RESPONSE_TIME_MAX, expect_status(enqueue, 200));
        enqueued.await.expect("new tasks wait for no stream");
        beside().await;
        let heartbeat = rig.report(&task, "heartbeat", json!({}), 204);
        let kept = tokio::time::timeout(RESPONSE_TIME_MAX, heartbeat);
        kept.await.expect("reports wait for no stream");
    }
    drop(streams);
    rig.close().await;
}
