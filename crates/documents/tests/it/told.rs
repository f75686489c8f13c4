//! Subscriptions: delivery to webhooks and queues.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::lifecycle::{BoxFuture, Service};
use egret_base::{Kind, TaskReceipt, TaskRejection, TaskRequest, TaskSink};
use egret_base_test::{ConditionLog, eventually};
use egret_documents::api::{Destination, SubscriptionSpec};
use egret_documents::model::FeedPosition;
use egret_postgres_test::{Termination, TestDatabase, start_own_server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::world::{FLIGHTS, World, collection_name, default_parts, engine_with, error_code};

/// A queue that refuses its first task.
#[derive(Default)]
struct Queue {
    accepted: Mutex<Vec<(String, Value)>>,
    request_count: Mutex<u32>,
}

impl TaskSink for Queue {
    fn check_queue(&self, queue: &str) -> Result<(), TaskRejection> {
        match queue {
            "changes" => Ok(()),
            _ => Err(TaskRejection {
                code: "queue_name_invalid",
                kind: Kind::Invalid,
                retryable: false,
                message: format!("`{queue}` is no name"),
            }),
        }
    }

    fn enqueue<'a>(
        &'a self,
        tasks: &'a [TaskRequest<'a>],
    ) -> BoxFuture<'a, Vec<Result<TaskReceipt, TaskRejection>>> {
        let mut request_count = self.request_count.lock().unwrap();
        *request_count += 1;
        let rejection = TaskRejection {
            code: "queue_full",
            kind: Kind::LimitReached,
            retryable: true,
            message: "it is full".to_owned(),
        };
        let outcomes = match *request_count {
            1 => vec![Err(rejection); tasks.len()],
            _ => {
                let mut taken = self.accepted.lock().unwrap();
                for task in tasks {
                    let change = serde_json::from_slice(task.payload).unwrap();
                    taken.push((task.key.to_owned(), change));
                }
                let receipt = TaskReceipt { id: uuid::Uuid::nil(), replayed: false };
                vec![Ok(receipt); tasks.len()]
            }
        };
        Box::pin(async move { outcomes })
    }
}

#[tokio::test]
async fn a_database_that_comes_after_egret_is_found_and_its_subscribers_are_told() {
    let server = start_own_server(18).await;
    let database = TestDatabase::create_in(server.clone(), "told_late".to_owned()).await;
    let database = Arc::new(database);
    let rejecting_queue = Arc::new(Queue::default());
    let documents = engine_with(&database, default_parts(), Some(rejecting_queue.clone()));
    let world = World::on_database(database.clone(), documents).await;
    world.apply(FLIGHTS).await.unwrap();
    let spec = SubscriptionSpec { after: Some(FeedPosition(0)), ..to_queue(None, "changes") };
    world.create("airports", &json!({"faa": "JFK"})).await;
    let subscription = world.documents.subscribe(&world.caller, spec).await;
    assert_eq!(subscription.unwrap().position, FeedPosition(0));
    eventually("a task is refused", async || *rejecting_queue.request_count.lock().unwrap() > 0)
        .await;
    world.stop_documents().await;
    assert_eq!(rejecting_queue.accepted.lock().unwrap().len(), 0);

    server.end(Termination::Stop).await;
    let log = ConditionLog::watch("documents_databases_unreachable", &database.name);
    let queue = Arc::new(Queue::default());
    let documents = engine_with(&database, default_parts(), Some(queue.clone()));
    documents.start().await.unwrap();
    eventually("the server is reported as unreachable", async || log.is_active()).await;
    server.start().await;
    // Delivery works without any request for a document.
    eventually("a task is delivered", async || !queue.accepted.lock().unwrap().is_empty()).await;
    eventually("the condition ends", async || !log.is_active()).await;
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    documents.stop().await;
}

fn to_queue(collection: Option<&str>, queue: &str) -> SubscriptionSpec {
    SubscriptionSpec {
        name: collection_name("watch"),
        collection: collection.map(collection_name),
        destination: Destination::Queue(queue.to_owned()),
        after: None,
    }
}

#[tokio::test]
async fn a_queue_gets_one_task_for_each_change_despite_retries() {
    let queue = Arc::new(Queue::default());
    let database = Arc::new(TestDatabase::create(18).await);
    let documents = engine_with(&database, default_parts(), Some(queue.clone()));
    let world = World::on_database(database, documents).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    let caller = &world.caller;
    let result = world.documents.subscribe(caller, to_queue(None, "no queue")).await;
    assert_eq!(error_code(result), "invalid_request");
    let subscribed =
        world.documents.subscribe(caller, to_queue(Some("flights"), "changes")).await.unwrap();
    assert_eq!(subscribed.position, FeedPosition(1));
    world.create("airports", &json!({"faa": "LGA"})).await;
    let flight = world.create("flights", &json!({"number": 1, "origin": "JFK"})).await;
    world.delete("flights", flight.id).await.unwrap();
    world.await_number("SELECT position FROM egret.document_subscription", 4).await;
    let taken = queue.accepted.lock().unwrap().clone();
    let told: Vec<(&str, &str)> = taken
        .iter()
        .map(|(key, change)| (key.rsplit('/').next().unwrap(), change["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("3", "create"), ("4", "delete")]);
    let all = world.documents.subscriptions(caller).await.unwrap();
    assert_eq!((all.len(), all[0].position.0, &all[0].failure), (1, 4, &None));
    let name = collection_name("watch");
    world.documents.unsubscribe(caller, &name).await.unwrap();
    let gone = world.documents.unsubscribe(caller, &name).await;
    assert_eq!(error_code(gone), "subscription_not_found");
    world.stop().await;
}

/// A webhook receiver that sends these answers in order and passes on the bodies it gets.
async fn webhook_receiver(
    answers: &'static [&'static str],
) -> (String, mpsc::UnboundedReceiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (body_sender, bodies) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = Vec::new();
            let body = loop {
                let mut part = [0; 4096];
                let read = stream.read(&mut part).await.unwrap();
                text.extend_from_slice(&part[..read]);
                let all = String::from_utf8_lossy(&text).into_owned();
                if let Some((head, sent)) = all.split_once("\r\n\r\n")
                    && let Ok(body) = serde_json::from_str(sent)
                {
                    let signed = format!("egret-signature: default of {}", sent.len());
                    assert!(head.contains(&signed), "{head}");
                    break body;
                }
            };
            _ = body_sender.send(body);
            let answer =
                format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, bodies)
}

#[tokio::test]
async fn webhook_deliveries_are_retried_until_they_succeed() {
    let world = World::new(15).await;
    let database = &world.database.name;
    let log = ConditionLog::watch("documents_receiver_unreachable", database);
    world.apply(FLIGHTS).await.unwrap();
    let (url, mut bodies) = webhook_receiver(&["500 No", "503 No", "204 Yes", "200 Yes"]).await;
    let spec = SubscriptionSpec {
        name: collection_name("hook"),
        collection: None,
        destination: Destination::Webhook(url),
        after: Some(FeedPosition(0)),
    };
    world.documents.subscribe(&world.caller, spec).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    let first = bodies.recv().await.unwrap();
    assert_eq!(first["subscription"], "hook");
    assert_eq!(first["changes"][0]["position"], 1);
    assert_eq!(bodies.recv().await.unwrap(), first);
    assert!(log.is_active());
    assert_eq!(bodies.recv().await.unwrap(), first);
    world.await_number("SELECT position FROM egret.document_subscription", 1).await;
    world.create("airports", &json!({"faa": "LGA"})).await;
    let next = bodies.recv().await.unwrap();
    assert_eq!(next["changes"][0]["position"], 2);
    assert!(!log.is_active());
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    world.stop().await;
}

/// A webhook receiver that reports each request and never answers.
async fn silent_receiver() -> (String, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (request_sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(listener.accept().await.unwrap());
            _ = request_sender.send(());
        }
    });
    (url, requests)
}

#[tokio::test]
async fn an_address_that_does_not_answer_holds_nobody_else_up() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let (slow, mut slow_requests) = silent_receiver().await;
    let (quick, mut quick_bodies) = webhook_receiver(&["204 Yes"; 4]).await;
    for (name, url) in [("slow", slow), ("quick", quick)] {
        let spec = SubscriptionSpec {
            name: collection_name(name),
            collection: None,
            destination: Destination::Webhook(url),
            after: Some(FeedPosition(0)),
        };
        let subscribed = world.documents.subscribe(&world.caller, spec).await;
        subscribed.unwrap();
    }
    for (faa, position) in ["JFK", "LGA", "EWR", "ORD"].into_iter().zip(1..) {
        world.create("airports", &json!({ "faa": faa })).await;
        let body = quick_bodies.recv().await.unwrap();
        assert_eq!(body["changes"][0]["position"], position);
    }
    let position_sql =
        |name| format!("SELECT position FROM egret.document_subscription WHERE name = '{name}'");
    world.await_number(&position_sql("quick"), 4).await;
    // One request was sent, and its answer is being waited for.
    slow_requests.recv().await.unwrap();
    assert!(slow_requests.try_recv().is_err());
    assert_eq!(world.query_number(&position_sql("slow")).await, 0);
    // A POST may take ten seconds; a stop does not wait for it.
    let stopped = tokio::time::timeout(Duration::from_secs(5), world.stop_documents());
    stopped.await.unwrap();
}

/// An address that does not answer occupies at most a quarter of the delivery slots, however many
/// subscriptions lead to it.
#[tokio::test]
async fn many_subscriptions_of_a_silent_address_leave_room_to_others() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let (slow, mut slow_requests) = silent_receiver().await;
    let (quick, mut quick_bodies) = webhook_receiver(&["204 Yes"; 4]).await;
    let mut receivers: Vec<(String, String)> =
        (0..80).map(|at| (format!("slow-{at}"), slow.clone())).collect();
    receivers.push(("the-quick-one".to_owned(), quick));
    world.create("airports", &json!({"faa": "JFK"})).await;
    for (name, url) in receivers {
        let spec = SubscriptionSpec {
            name: collection_name(&name),
            collection: None,
            destination: Destination::Webhook(url),
            after: Some(FeedPosition(0)),
        };
        let subscribed = world.documents.subscribe(&world.caller, spec).await;
        subscribed.unwrap();
    }
    let body = quick_bodies.recv().await.unwrap();
    assert_eq!(body["changes"][0]["position"], 1);
    let mut requests = 0;
    while slow_requests.try_recv().is_ok() {
        requests += 1;
    }
    assert!((1..=16).contains(&requests), "{requests} requests at a time");
    world.stop_documents().await;
}
