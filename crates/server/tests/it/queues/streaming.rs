//! The stream on which tasks are worked on.

use egret_base::settings::ConfigDuration;
use egret_proto::queue::v1;
use egret_proto::queue::v1::task_report::Report;
use tonic::Code;

use super::rig::Rig;
use super::wire::{Client, WorkerStream, completion, enqueue, expect_error, within_timeout};

/// Leases end when they say, also right after the start.
async fn rig() -> Rig {
    let rig = Rig::with(|config| config.lease_grace = ConfigDuration::ms(1)).await;
    rig.create_queue("q").await;
    rig
}

async fn state(client: &mut Client, id: &str) -> v1::Task {
    let asked = v1::GetTaskRequest { id: id.to_owned(), brief: false };
    within_timeout(client.get_task(asked)).await.unwrap().into_inner()
}

#[tokio::test]
async fn tasks_are_pushed_as_credits_allow_and_end_as_reported() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    // Credits wait for tasks as well as tasks for credits.
    let mut hand = WorkerStream::begin(&mut client, "q", 2, 30_000).await;
    let ids = enqueue(&mut client, "q", &["one", "two", "three"]).await;
    let mut tasks = vec![hand.next_task().await, hand.next_task().await];
    let one = tasks.iter().find(|task| task.id == ids[0]).unwrap().clone();
    assert_eq!(
        (&*one.payload, one.attempt, one.max_attempts, one.lease_ms),
        (&b"one"[..], 1, 5, 30_000)
    );
    assert_eq!((one.timeout_ms, one.priority, &*one.queue), (0, 5, "q"));
    hand.complete(&one.lease, "done");
    hand.await_accepted(0).await;
    // An outcome gives no credit.
    hand.drain().await;
    assert_eq!(hand.unread().tasks, []);
    hand.credits(1);
    tasks.push(hand.next_task().await);
    let third = tasks.pop().unwrap();
    tasks.retain(|task| task.id != one.id);
    assert_ne!(third.id, tasks[0].id);
    let failed = Report::Failed(v1::Failed { error: "broken".to_owned(), permanent: true });
    hand.report(&third.lease, failed);
    hand.report(&tasks[0].lease, Report::Heartbeat(v1::Heartbeat::default()));
    hand.report(&tasks[0].lease, Report::Release(v1::Release {}));
    for number in 1..4 {
        hand.await_accepted(number).await;
    }
    hand.credits(1);
    let again = hand.next_task().await;
    assert_eq!((&again.id, again.attempt), (&tasks[0].id, 1));
    let ended = state(&mut client, &ids[0]).await;
    assert_eq!(ended.state(), v1::TaskState::Completed);
    assert_eq!(&*ended.result, b"done");
    let dead = state(&mut client, &third.id).await;
    assert_eq!((dead.state(), &*dead.error), (v1::TaskState::Dead, "broken"));
    drop(hand);
    rig.close().await;
}

#[tokio::test]
async fn the_timeout_of_a_task_is_told_to_its_worker() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let settings = v1::QueueSettings { timeout_ms: Some(90_000), ..v1::QueueSettings::default() };
    let put = v1::PutQueueRequest { name: "q".to_owned(), settings: Some(settings) };
    within_timeout(client.put_queue(put)).await.unwrap();
    rig.enqueue("q", serde_json::json!({})).await;
    rig.enqueue("q", serde_json::json!({"timeout_ms": 70_000})).await;
    let mut hand = WorkerStream::begin(&mut client, "q", 1, 0).await;
    let mut told = vec![hand.next_task().await.timeout_ms];
    told.push(rig.claim("q").await["timeout_ms"].as_u64().unwrap());
    told.sort_unstable();
    assert_eq!(told, [70_000, 90_000]);
    drop(hand);
    rig.close().await;
}

#[tokio::test]
async fn a_worker_that_never_answers_loses_its_task_to_another() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let mut silent = WorkerStream::begin(&mut client, "q", 1, 100).await;
    let id = enqueue(&mut client, "q", &["x"]).await.remove(0);
    let first = silent.next_task().await;
    assert_eq!(first.id, id);
    let mut client = rig.grpc().await;
    let mut other = WorkerStream::begin(&mut client, "q", 1, 60_000).await;
    let second = other.next_task().await;
    assert_eq!((&second.id, second.attempt), (&id, 2));
    assert_ne!(first.lease, second.lease);
    let lost = silent.next_lost_lease().await;
    assert_eq!((&lost.id, &*lost.reason, &lost.lease), (&id, "lease_expired", &first.lease));
    // The fence holds, and the stream of the one that was late goes on.
    silent.complete(&first.lease, "late");
    let error = silent.await_refusal(0).await;
    assert_eq!((&*error.code, error.retryable), ("lease_lost", false));
    other.complete(&second.lease, "mine");
    other.await_accepted(0).await;
    // Said again, it is accepted again; with the old lease it never is.
    other.complete(&second.lease, "mine");
    other.await_accepted(1).await;
    silent.complete(&first.lease, "later still");
    assert_eq!(silent.await_refusal(1).await.code, "lease_lost");
    let ended = state(&mut client, &id).await;
    assert_eq!(&*ended.result, b"mine");
    let outcomes: Vec<&str> = ended.history.iter().map(|one| &*one.outcome).collect();
    assert_eq!(outcomes, ["lease_expired", "completed"]);
    let next = enqueue(&mut client, "q", &["next"]).await.remove(0);
    silent.credits(1);
    assert_eq!(silent.next_task().await.id, next);
    drop((silent, other));
    rig.close().await;
}

#[tokio::test]
async fn a_task_that_is_cancelled_is_lost_to_its_worker_at_once() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let mut hand = WorkerStream::begin(&mut client, "q", 1, 60_000).await;
    let id = enqueue(&mut client, "q", &["x"]).await.remove(0);
    let task = hand.next_task().await;
    let cancelled = client.cancel_task(v1::TaskRequest { id: id.clone() });
    let cancelled = within_timeout(cancelled).await.unwrap().into_inner();
    assert_eq!(cancelled.state(), v1::TaskState::Cancelled);
    let lost = hand.next_lost_lease().await;
    assert_eq!((&lost.id, &*lost.reason), (&id, "cancelled"));
    hand.report(&task.lease, Report::Heartbeat(v1::Heartbeat::default()));
    assert_eq!(hand.await_refusal(0).await.code, "lease_lost");
    drop(hand);
    rig.close().await;
}

#[tokio::test]
async fn a_side_that_is_closed_gets_its_outcomes_and_keeps_its_leases() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let mut hand = WorkerStream::begin(&mut client, "q", 100, 60_000).await;
    enqueue(&mut client, "q", &["one", "two"]).await;
    let (one, two) = (hand.next_task().await, hand.next_task().await);
    hand.complete(&one.lease, "done");
    hand.report(&[7; 16], completion("of nobody"));
    hand.out = None;
    let (rest, ended) = hand.end().await;
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(rest.accepted, [0]);
    let codes: Vec<&str> =
        rest.refused.iter().map(|one| &*one.error.as_ref().unwrap().code).collect();
    assert_eq!(codes, ["lease_lost"]);
    // Its credits have gone with it: the next task is another one's.
    let next = enqueue(&mut client, "q", &["three"]).await.remove(0);
    let mut later = WorkerStream::begin(&mut client, "q", 5, 60_000).await;
    assert_eq!(later.next_task().await.id, next);
    later.complete(&two.lease, "reported after all");
    later.await_accepted(0).await;
    let ended = state(&mut client, &two.id).await;
    assert_eq!((ended.state(), ended.attempts), (v1::TaskState::Completed, 1));
    drop(later);
    rig.close().await;
}

#[tokio::test]
async fn what_was_pushed_to_a_connection_that_breaks_is_not_lost() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let mut gone = rig.grpc().await;
    let hand = WorkerStream::begin(&mut gone, "q", 100, 100).await;
    drop((hand, gone));
    // Until the server knows it may still push there: those leases end.
    let mut hand = WorkerStream::begin(&mut client, "q", 10, 60_000).await;
    let mut ids = enqueue(&mut client, "q", &["one", "two"]).await;
    let mut seen = [hand.next_task().await.id, hand.next_task().await.id];
    ids.sort();
    seen.sort();
    assert_eq!(seen[..], ids);
    drop(hand);
    rig.close().await;
}

#[tokio::test]
async fn what_a_worker_cannot_say_ends_its_stream_with_a_reason() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let hello = |queue: &str, lease_ms| v1::WorkRequest {
        hello: Some(v1::Hello { queues: vec![queue.to_owned()], worker: String::new(), lease_ms }),
        ..v1::WorkRequest::default()
    };
    let release =
        v1::TaskReport { lease: vec![1; 16].into(), report: Some(Report::Release(v1::Release {})) };
    let many = v1::WorkRequest { reports: vec![release; 1_001], ..v1::WorkRequest::default() };
    let wrong = (Code::InvalidArgument, "invalid_request");
    for (messages, (code, egret_code), about) in [
        (vec![v1::WorkRequest::default()], wrong, "hello"),
        (vec![hello("q", 0), hello("q", 0)], wrong, "hello"),
        (vec![hello("none", 0)], (Code::NotFound, "queue_not_found"), "none"),
        (vec![hello("q", 1)], wrong, "lease_ms"),
        (
            vec![v1::WorkRequest {
                hello: Some(v1::Hello::default()),
                ..v1::WorkRequest::default()
            }],
            wrong,
            "queues",
        ),
        (vec![hello("q", 0), many], (Code::ResourceExhausted, "limit_exceeded"), "1000"),
    ] {
        let mut hand = WorkerStream::open(&mut client).await;
        messages.into_iter().for_each(|message| hand.send(message));
        let (_, ended) = hand.end().await;
        let said = expect_error(&ended.expect("it is refused"), code, egret_code);
        assert!(said.contains(about), "{about}: {said}");
    }
    rig.close().await;
}

#[tokio::test]
async fn a_report_that_says_nothing_is_refused_by_itself() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let mut hand = WorkerStream::begin(&mut client, "q", 0, 0).await;
    hand.send(v1::WorkRequest {
        reports: vec![v1::TaskReport::default()],
        ..v1::WorkRequest::default()
    });
    assert_eq!(hand.await_refusal(0).await.code, "invalid_request");
    drop(hand);
    rig.close().await;
}

#[tokio::test]
async fn a_stop_lets_reports_have_their_outcomes_and_says_so() {
    let rig = rig().await;
    let mut client = rig.grpc().await;
    let mut hand = WorkerStream::begin(&mut client, "q", 1, 60_000).await;
    enqueue(&mut client, "q", &["x"]).await;
    let task = hand.next_task().await;
    hand.complete(&task.lease, "done");
    hand.await_accepted(0).await;
    let (_, (rest, ended)) = tokio::join!(rig.close(), hand.end());
    assert_eq!(rest, v1::WorkResponse::default());
    let ended = ended.expect("the server says why");
    expect_error(&ended, Code::Unavailable, "stopping");
}
