//! Producing and watching over gRPC, and what one tenant sees of another.

use egret_proto::queue::v1;
use tonic::Code;

use super::rig::Rig;
use super::wire::{Client, WorkerStream, enqueue, expect_error, outgoing, task, within_timeout};

/// Outcomes as they come, by number: the id, or the code of the error.
async fn outcomes(
    answers: &mut tonic::Streaming<v1::ProduceResponse>,
    count: usize,
) -> Vec<(u64, Result<String, String>)> {
    let mut outcomes = Vec::new();
    while outcomes.len() < count {
        let answer = within_timeout(answers.message()).await.unwrap().expect("the stream goes on");
        outcomes.extend(answer.outcomes.into_iter().map(|one| {
            let told = match one.error {
                None => Ok(one.id),
                Some(error) => Err(error.code),
            };
            (one.number, told)
        }));
    }
    outcomes.sort();
    outcomes
}

#[tokio::test]
async fn every_task_of_a_producer_has_one_outcome_by_its_number() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    rig.create_queue("other").await;
    let mut client = rig.grpc().await;
    let (out, messages) = outgoing();
    let mut answers = within_timeout(client.produce(messages)).await.unwrap().into_inner();
    let urgent = v1::NewTask { priority: Some(10), ..task("urgent") };
    let elsewhere = |queue: &str| v1::NewTask { queue: queue.to_owned(), ..task("elsewhere") };
    out.send(v1::ProduceRequest {
        queue: "q".to_owned(),
        tasks: vec![task("one"), urgent, elsewhere("other"), elsewhere("none")],
    })
    .unwrap();
    let told = outcomes(&mut answers, 4).await;
    let numbers: Vec<u64> = told.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert!(told[0].1.is_ok() && told[2].1.is_ok(), "{told:?}");
    assert_eq!(told[1].1, Err("invalid_request".to_owned()));
    assert_eq!(told[3].1, Err("queue_not_found".to_owned()));
    // Numbers go on over messages, and a key is met again.
    let unique = |payload| v1::NewTask { unique_key: "u".to_owned(), ..task(payload) };
    for payload in ["first", "second"] {
        out.send(v1::ProduceRequest { queue: "q".to_owned(), tasks: vec![unique(payload)] })
            .unwrap();
    }
    // What was sent before the side is closed still has its outcomes.
    drop(out);
    let told = outcomes(&mut answers, 2).await;
    assert_eq!((told[0].0, told[1].0), (4, 5));
    assert_eq!(told[0].1, told[1].1);
    assert_eq!(within_timeout(answers.message()).await.unwrap(), None);
    let counts = rig.get("/v1/queues/q").await["counts"].clone();
    assert_eq!(counts["ready"], 2);
    let counts = rig.get("/v1/queues/other").await["counts"].clone();
    assert_eq!(counts["ready"], 1);
    rig.close().await;
}

#[tokio::test]
async fn a_queue_is_made_on_demand_where_the_settings_say_so() {
    let rig = Rig::with(|config| config.create_on_demand = true).await;
    let mut client = rig.grpc().await;
    let (out, messages) = outgoing();
    let mut answers = within_timeout(client.produce(messages)).await.unwrap().into_inner();
    for queue in ["new", "", "-odd"] {
        out.send(v1::ProduceRequest { queue: queue.to_owned(), tasks: vec![task("x")] }).unwrap();
    }
    let told = outcomes(&mut answers, 3).await;
    assert!(told[0].1.is_ok(), "{told:?}");
    assert!(told[1].1.is_err(), "{told:?}");
    assert_eq!(told[2].1, Err("invalid_request".to_owned()));
    // A batch and a worker make them as well; looking does not.
    enqueue(&mut client, "batch", &["x"]).await;
    drop(WorkerStream::begin(&mut client, "worked", 0, 0).await);
    let looked = client.get_queue(v1::QueueRequest { name: "looked".to_owned() });
    let looked = within_timeout(looked).await.unwrap_err();
    expect_error(&looked, Code::NotFound, "queue_not_found");
    let listed = within_timeout(client.list_queues(v1::ListQueuesRequest {}))
        .await
        .unwrap()
        .into_inner()
        .queues;
    let names: Vec<&str> = listed.iter().map(|queue| &*queue.name).collect();
    assert_eq!(names, ["batch", "new", "worked"]);
    rig.close().await;
}

#[tokio::test]
async fn of_a_batch_each_task_is_answered_by_itself() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let mut client = rig.grpc().await;
    let after = |name: &str| v1::NewTask { after: vec![name.to_owned()], ..task("after") };
    let asked = v1::EnqueueRequest {
        atomic: false,
        queue: "q".to_owned(),
        tasks: vec![
            task("one"),
            v1::NewTask { format: v1::Format::Json as i32, ..task("{no json") },
            after("#0"),
            after("#1"),
            after("x"),
        ],
    };
    let answer = within_timeout(client.enqueue(asked)).await.unwrap().into_inner();
    let told: Vec<(u64, &str)> = answer
        .outcomes
        .iter()
        .map(|one| (one.number, one.error.as_ref().map_or("", |error| &error.code)))
        .collect();
    let wrong = "invalid_request";
    assert_eq!(told, [(0, ""), (1, wrong), (2, ""), (3, wrong), (4, wrong)]);
    let many =
        v1::EnqueueRequest { atomic: false, queue: "q".to_owned(), tasks: vec![task("x"); 1_001] };
    let many = within_timeout(client.enqueue(many)).await.unwrap_err();
    let said = expect_error(&many, Code::ResourceExhausted, "limit_exceeded");
    assert!(said.contains("1000"), "{said}");
    let counts = rig.get("/v1/queues/q").await["counts"].clone();
    assert_eq!((&counts["ready"], &counts["waiting"]), (&1.into(), &1.into()));
    rig.close().await;
}

/// Changes of a subscription, one by one.
struct ChangeSubscription {
    answers: tonic::Streaming<v1::WatchResponse>,
    changes: std::collections::VecDeque<v1::TaskChange>,
}

impl ChangeSubscription {
    async fn begin(client: &mut Client, queues: &[&str], states: &[v1::TaskState]) -> Self {
        let asked = v1::WatchRequest {
            queues: queues.iter().map(|name| (*name).to_owned()).collect(),
            states: states.iter().map(|state| *state as i32).collect(),
        };
        Self {
            answers: within_timeout(client.watch(asked)).await.unwrap().into_inner(),
            changes: Default::default(),
        }
    }

    async fn next(&mut self) -> v1::TaskChange {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            let answer =
                within_timeout(self.answers.message()).await.unwrap().expect("the stream goes on");
            assert_eq!(answer.missed, 0);
            self.changes.extend(answer.changes);
        }
    }
}

#[tokio::test]
async fn changes_are_told_to_those_that_asked_for_them() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    rig.create_queue("other").await;
    let mut client = rig.grpc().await;
    let mut all = ChangeSubscription::begin(&mut client, &[], &[]).await;
    let ends = [v1::TaskState::Completed, v1::TaskState::Dead];
    let mut ends = ChangeSubscription::begin(&mut client, &["q"], &ends).await;
    let id = enqueue(&mut client, "q", &["x"]).await.remove(0);
    let mut hand = WorkerStream::begin(&mut client, "q", 1, 60_000).await;
    let held = hand.next_task().await;
    hand.complete(&held.lease, "done");
    hand.await_accepted(0).await;
    enqueue(&mut client, "other", &["y"]).await;
    for (queue, state, attempt) in [
        ("q", v1::TaskState::Ready, 0),
        ("q", v1::TaskState::Leased, 1),
        ("q", v1::TaskState::Completed, 1),
        ("other", v1::TaskState::Ready, 0),
    ] {
        let change = all.next().await;
        assert_eq!((change.state(), change.attempt), (state, attempt));
        assert_eq!((&*change.queue, change.id == id), (queue, queue == "q"));
        assert!(change.at_ms > 0);
    }
    assert_eq!(ends.next().await.state(), v1::TaskState::Completed);
    let unknown =
        v1::WatchRequest { queues: vec!["none".to_owned()], ..v1::WatchRequest::default() };
    let unknown = within_timeout(client.watch(unknown)).await.unwrap_err();
    expect_error(&unknown, Code::NotFound, "queue_not_found");
    let odd = v1::WatchRequest { states: vec![99], ..v1::WatchRequest::default() };
    let odd = within_timeout(client.watch(odd)).await.unwrap_err();
    expect_error(&odd, Code::InvalidArgument, "invalid_request");
    drop(hand);
    // While Egret stops, a watcher hears that.
    rig.close().await;
    let ended = within_timeout(all.answers.message()).await.unwrap_err();
    expect_error(&ended, Code::Unavailable, "stopping");
}

#[tokio::test]
async fn a_tenant_knows_nothing_of_another_ones_tasks() {
    let rig = Rig::new().await;
    rig.create_queue("q").await;
    let mut mine = rig.grpc().await;
    let mut theirs = rig.client_of(&rig.token("other", &["queue:*"])).await;
    let id = enqueue(&mut mine, "q", &["mine"]).await.remove(0);
    let mut stranger = WorkerStream::open(&mut theirs).await;
    stranger.send(v1::WorkRequest {
        hello: Some(v1::Hello { queues: vec!["q".to_owned()], ..v1::Hello::default() }),
        credits: 10,
        ..v1::WorkRequest::default()
    });
    let (_, ended) = stranger.end().await;
    expect_error(&ended.unwrap(), Code::NotFound, "queue_not_found");
    let asked = v1::GetTaskRequest { id: id.clone(), brief: true };
    let unseen = within_timeout(theirs.get_task(asked)).await.unwrap_err();
    expect_error(&unseen, Code::NotFound, "task_not_found");

    // A queue of the same name is another one.
    let put = v1::PutQueueRequest { name: "q".to_owned(), settings: None };
    within_timeout(theirs.put_queue(put)).await.unwrap();
    let mut watch = ChangeSubscription::begin(&mut theirs, &[], &[]).await;
    let mut stranger = WorkerStream::begin(&mut theirs, "q", 10, 60_000).await;
    let mut hand = WorkerStream::begin(&mut mine, "q", 10, 60_000).await;
    let held = hand.next_task().await;
    assert_eq!(held.id, id);
    // A lease that was overheard is worth nothing.
    stranger.complete(&held.lease, "stolen");
    assert_eq!(stranger.await_refusal(0).await.code, "lease_lost");
    hand.complete(&held.lease, "mine");
    hand.await_accepted(0).await;
    let other = enqueue(&mut theirs, "q", &["theirs"]).await.remove(0);
    assert_eq!(stranger.next_task().await.id, other);
    assert_eq!(watch.next().await.id, other, "the first change is their own");

    // Scopes hold for streams.
    let mut reader = rig.client_of(&rig.token("other", &["queue:read"])).await;
    let (_out, messages) = outgoing::<v1::WorkRequest>();
    let denied = within_timeout(reader.work(messages)).await.unwrap_err();
    expect_error(&denied, Code::PermissionDenied, "scope_missing");
    drop((stranger, hand));
    rig.close().await;
}
