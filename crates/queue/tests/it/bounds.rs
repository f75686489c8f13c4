//! What is bounded: the credits of workers, what waits for a worker that takes nothing, the number
//! of tasks; and what happens to handles of a queue that is deleted, and when callers go away.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::CodedError;
use egret_queue::model::{AttemptEnd, Lease, TaskId, TaskState};
use egret_queue::{
    CREDITS_MAX, NewTask, QueueConfig, QueueError, ReportSink, SettingsChange, TaskAssignment,
    WorkSink, WorkSpec,
};
use tokio::sync::Notify;

use crate::test_engine::{TENANT, TestEngine, WorkerEvent, config, run_with_timeout};

fn spec(worker: &str) -> WorkSpec {
    WorkSpec { queues: vec!["q".to_owned()], worker: worker.to_owned(), lease_ms: None }
}

/// A worker that takes tasks until it is told to be full.
#[derive(Default)]
struct Bucket {
    tasks: Mutex<Vec<TaskId>>,
    full: AtomicBool,
    arrived: Notify,
}

impl ReportSink for Bucket {
    fn deliver_outcomes(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for Bucket {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        self.tasks.lock().unwrap().extend(tasks.map(|task| task.id));
        self.full.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
    }

    fn notify_lost_lease(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn notify_end(&self, _: QueueError) {}

    fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn who_takes_no_more_gets_the_rest_when_it_does() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let bucket = Arc::new(Bucket::default());
    let sink: Arc<dyn WorkSink> = bucket.clone();
    let (worker, _) = home.queues.register_worker(TENANT, &spec("w"), sink).await.unwrap();
    worker.add_credits(1_000).unwrap();
    let tasks = vec![NewTask::default(); 1_000];
    home.enqueue("q", &tasks).await;
    loop {
        run_with_timeout(bucket.arrived.notified()).await;
        let count = bucket.tasks.lock().unwrap().len();
        // Both partitions may have looked before it was full.
        assert!(count <= 1_000, "no task comes twice");
        if count == 1_000 {
            break;
        }
        bucket.full.store(false, Ordering::SeqCst);
        worker.resume();
    }
    let mut ids = bucket.tasks.lock().unwrap().clone();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1_000);
    home.stop().await;
}

#[tokio::test]
async fn a_claim_takes_as_many_bytes_as_an_answer_may_have() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let payload = vec![b'x'; 512 << 10];
    let large = NewTask { payload: &payload, ..NewTask::default() };
    home.enqueue("q", &vec![large; 64]).await;
    let worker = spec("w");
    let mut seen = 0;
    while seen < 64 {
        let claimed = home.queues.claim(TENANT, &worker, 1_000, Duration::from_secs(60));
        let claimed = run_with_timeout(claimed).await.unwrap();
        let bytes: usize = claimed.iter().map(|task| task.content.len()).sum();
        assert!(bytes <= 6 << 20, "{bytes} bytes at once");
        assert!(claimed.iter().all(|task| task.attempt == 1));
        seen += claimed.len();
    }
    assert_eq!(home.view("q").await.count(TaskState::Leased), 64);
    home.stop().await;
}

#[tokio::test]
async fn names_and_room_have_their_limits() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let sink: Arc<dyn WorkSink> = Arc::new(Bucket::default());
    let long = spec(&"w".repeat(2_000));
    let long = home.queues.register_worker(TENANT, &long, sink.clone());
    let refused = long.await.err().unwrap();
    assert_eq!(refused.code(), "invalid_request", "{refused}");
    let (worker, _) = home.queues.register_worker(TENANT, &spec("w"), sink).await.unwrap();
    worker.add_credits(CREDITS_MAX).unwrap();
    let refused = worker.add_credits(1).unwrap_err();
    assert_eq!(refused.code(), "invalid_request", "{refused}");
    home.stop().await;
}

#[tokio::test]
async fn one_task_too_many_is_refused_by_the_limits_name() {
    let home = TestEngine::new(QueueConfig {
        partitions: 1,
        tasks_max: 10,
        tenant_tasks_max: 10,
        ..config()
    })
    .await;
    home.create_queue("q", SettingsChange::default()).await;
    let outcomes = home.enqueue("q", &vec![NewTask::default(); 11]).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    let refused = outcomes.into_iter().find_map(Result::err).unwrap();
    assert!(refused.to_string().contains("queue.tasks_max"), "{refused}");
    let hand = home.worker("q", 10).await;
    let (_, lease, _) = hand.task().await;
    hand.complete(lease, "").await;
    home.stop().await;
}

#[tokio::test]
async fn a_queue_whose_maker_goes_away_is_nobody_elses() {
    let mut home = TestEngine::new(config()).await;
    let change = SettingsChange::default();
    for round in 0..20 {
        let name = format!("gone-{round}");
        let making = home.queues.put_queue(TENANT, &name, &change);
        let mut making = Box::pin(making);
        for _ in 0..=round % 3 {
            // It goes on without its caller.
            let polled = tokio::time::timeout(Duration::ZERO, &mut making).await;
            if polled.is_ok() {
                break;
            }
        }
        drop(making);
        let other = format!("theirs-{round}");
        home.queues.put_queue("other", &other, &change).await.unwrap();
    }
    home.restart().await;
    let theirs = home.queues.list_queues("other").await.unwrap();
    assert_eq!(theirs.len(), 20);
    for queue in home.queues.list_queues(TENANT).await.unwrap() {
        assert!(queue.name.starts_with("gone-"), "{}", queue.name);
    }
    home.stop().await;
}

#[tokio::test]
async fn whoever_holds_on_to_a_deleted_queue_is_told() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let handle = home.queues.find_queue(TENANT, "q").unwrap();
    let hand = home.worker("q", 1).await;
    home.queues.delete_queue(TENANT, "q", false).await.unwrap();
    assert!(handle.is_deleted());
    assert!(matches!(hand.next().await, WorkerEvent::Ended));
    home.create_queue("q", SettingsChange::default()).await;
    home.enqueue_one("q", NewTask::default()).await;
    let hand = home.worker("q", 1).await;
    hand.task().await;
    home.stop().await;
}

#[tokio::test]
async fn what_a_claim_cannot_take_is_as_if_never_claimed() {
    let home = TestEngine::new(QueueConfig { partitions: 1, ..config() }).await;
    home.create_queue("q", SettingsChange::default()).await;
    let payload = vec![b'x'; 512 << 10];
    let large = NewTask { payload: &payload, ..NewTask::default() };
    // The claim waits already when all of them come in one turn.
    let (queues, worker) = (home.queues.clone(), spec("w"));
    let claim = async move { queues.claim(TENANT, &worker, 100, Duration::from_secs(60)).await };
    let claim = tokio::spawn(claim);
    home.enqueue("q", &vec![large; 16]).await;
    let claimed = run_with_timeout(claim).await.unwrap().unwrap();
    assert!(claimed.len() < 16, "{} at once", claimed.len());
    let hand = home.worker("q", 100).await;
    for _ in claimed.len()..16 {
        let (_, _, attempt) = hand.task().await;
        assert_eq!(attempt, 1, "what nobody saw was no attempt");
    }
    home.stop().await;
}

#[tokio::test]
async fn a_limit_on_tasks_at_a_time_counts_those_of_before() {
    let mut home = TestEngine::new(config()).await;
    let change = SettingsChange { concurrency: Some(1), ..SettingsChange::default() };
    home.create_queue("q", change.clone()).await;
    home.create_queue("busy", SettingsChange::default()).await;
    home.enqueue("q", &vec![NewTask::default(); 8]).await;
    home.enqueue("busy", &vec![NewTask::default(); 8]).await;
    let hand = home.worker("q", 8).await;
    let (_, lease, _) = hand.task().await;
    drop(hand);
    home.restart().await;
    // Its lease outlives the restart.
    let hand = home.worker("q", 8).await;
    let busy = home.worker("busy", 1).await;
    let (_, other, _) = busy.task().await;
    assert!(hand.is_idle(), "one at a time");
    // The same where a limit comes to a queue at work.
    home.create_queue("busy", change).await;
    busy.worker.add_credits(8).unwrap();
    hand.report(lease, egret_queue::ReportKind::Complete, "").await.unwrap();
    hand.task().await;
    assert!(busy.is_idle(), "one at a time");
    busy.report(other, egret_queue::ReportKind::Complete, "").await.unwrap();
    busy.task().await;
    home.stop().await;
}

#[tokio::test]
async fn a_backlog_of_one_queue_does_not_hold_up_another_of_the_same_worker() {
    let home = TestEngine::new(QueueConfig { partitions: 1, ..config() }).await;
    for name in ["q", "r", "s"] {
        home.create_queue(name, SettingsChange::default()).await;
    }
    home.enqueue("q", &vec![NewTask::default(); 100]).await;
    let rare = [
        home.enqueue_one("r", NewTask::default()).await,
        home.enqueue_one("s", NewTask::default()).await,
    ];
    let bucket = Arc::new(Bucket::default());
    let sink: Arc<dyn WorkSink> = bucket.clone();
    let spec = WorkSpec {
        queues: ["q", "r", "s"].map(str::to_owned).to_vec(),
        worker: "w".to_owned(),
        lease_ms: None,
    };
    let (worker, _) = home.queues.register_worker(TENANT, &spec, sink).await.unwrap();
    for _ in 0..6 {
        bucket.full.store(false, Ordering::SeqCst);
        worker.add_credits(1).unwrap();
        run_with_timeout(bucket.arrived.notified()).await;
    }
    let tasks = bucket.tasks.lock().unwrap().clone();
    assert!(rare.iter().all(|one| tasks.contains(one)), "{tasks:?}");
    home.stop().await;
}

#[tokio::test]
async fn a_task_of_another_tenant_is_as_unknown_as_none() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    home.queues.put_queue("other", "q", &SettingsChange::default()).await.unwrap();
    let first = home.enqueue_one("q", NewTask::default()).await;
    let theirs = home.queues.get_or_create_queue("other", "q").await.unwrap();
    let (told, mut outcomes) = crate::test_engine::Outcomes::new();
    let mut enqueues = egret_queue::Enqueues::new(&home.queues).unwrap();
    let after = [first];
    let spying = NewTask { after: &after, ..NewTask::default() };
    enqueues.add(0, &theirs, &spying).unwrap();
    let sink: Arc<dyn egret_queue::ProduceSink> = told;
    enqueues.submit(&sink);
    let (_, outcome) = run_with_timeout(outcomes.recv()).await.unwrap();
    let spy = outcome.unwrap().id;
    let wait = home.queues.wait("other", spy, Duration::from_secs(60));
    let ended = run_with_timeout(wait).await.unwrap();
    assert_eq!(ended.state, TaskState::Cancelled);
    home.stop().await;
}

#[tokio::test]
async fn a_tenant_leaves_room_for_others() {
    let home =
        TestEngine::new(QueueConfig { partitions: 1, queues_max: 10, tasks_max: 40, ..config() })
            .await;
    let settings = SettingsChange::default();
    let mut made = 0;
    let refused = loop {
        let name = format!("q{made}");
        match home.queues.put_queue("greedy", &name, &settings).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(made, 5);
    let named = refused.to_string();
    assert!(named.contains("queue.tenant_queues_max"), "{named}");
    home.create_queue("q", SettingsChange::default()).await;
    let fill = |queue: &'static str, tenant: &'static str| {
        let queues = home.queues.clone();
        async move {
            let queue = queues.get_or_create_queue(tenant, queue).await.unwrap();
            let mut made = 0;
            loop {
                let chain = [egret_queue::ChainTask {
                    queue: queue.clone(),
                    task: NewTask::default(),
                    links: Vec::new(),
                    origin: None,
                }];
                match queues.enqueue_chain(&chain).await {
                    Ok(_) => made += 1,
                    Err(refusal) => return (made, refusal.error.to_string()),
                }
            }
        }
    };
    let (greedy, named) = fill("q0", "greedy").await;
    assert!((19..=20).contains(&greedy), "{greedy}");
    assert!(named.contains("queue.tenant_tasks_max"), "{named}");
    let outcomes = home.enqueue("q", &vec![NewTask::default(); 5]).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    home.stop().await;
}

/// A task's tags and metadata may be far longer than what a page needs of it.
#[tokio::test]
async fn a_page_of_tasks_that_carry_much_ends_early() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let long = "m".repeat(1_000);
    let names: Vec<String> = (0..64).map(|n| format!("{n:03}{long}")).collect();
    let metadata = names.iter().map(|name| (name.as_str(), long.as_str()));
    let task = NewTask { metadata: metadata.collect(), ..NewTask::default() };
    for outcome in home.enqueue("q", &vec![task; 150]).await {
        outcome.unwrap();
    }
    let (mut ids, mut pages, mut cursor) = (BTreeSet::new(), 0, String::new());
    loop {
        let page = home.queues.tasks(TENANT, "q", None, "", 1_000, &cursor).await.unwrap();
        assert!(page.tasks.len() < 100, "{} tasks", page.tasks.len());
        ids.extend(page.tasks.iter().map(|task| task.id));
        pages += 1;
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!(ids.len(), 150);
    assert!(pages >= 3, "{pages} pages");
    home.stop().await;
}
