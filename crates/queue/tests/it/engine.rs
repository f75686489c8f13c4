//! The engine with real threads, files and time.

use std::time::Duration;

use egret_base::CodedError;
use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ByteSize;
use egret_base_test::eventually;
use egret_queue::limits::REPORT_TEXT_BYTES_MAX;
use egret_queue::model::{AttemptEnd, Backoff, Jitter, Retention, RetryPolicy, TaskState};
use egret_queue::{
    Defer, Detail, MissedTickPolicy, NewSchedule, NewTask, QueueConfig, QueueError, ReportKind,
    SettingsChange, WorkSpec,
};

use crate::test_engine::{TENANT, TestEngine, WorkerEvent, config, run_with_timeout};

fn task(payload: &str) -> NewTask<'_> {
    NewTask { payload: payload.as_bytes(), ..NewTask::default() }
}

fn at_once() -> RetryPolicy {
    RetryPolicy { backoff: Backoff::Fixed, base_ms: 1, max_ms: 1, jitter: Jitter::None }
}

#[tokio::test]
async fn a_task_is_made_worked_on_and_kept_with_its_result_over_a_restart() {
    let mut home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let tags = ["red".to_owned()];
    let id = home.enqueue_one("mail", NewTask { tags: &tags, ..task("hello") }).await;
    let hand = home.worker("mail", 1).await;
    let (claimed, lease, attempt) = hand.task().await;
    assert_eq!((claimed, attempt), (id, 1));
    hand.complete(lease, "done").await;
    // The same report again: its acknowledgement might have been lost.
    hand.complete(lease, "done").await;
    drop(hand);
    home.restart().await;
    let view = home.queues.task(TENANT, id, Detail::Whole).await.unwrap();
    assert_eq!(view.state, TaskState::Completed);
    assert_eq!((view.payload, view.result), (b"hello".to_vec(), b"done".to_vec()));
    assert_eq!((view.tags, view.attempts, view.history.len()), (vec!["red".to_owned()], 1, 1));
    assert_eq!(home.view("mail").await.count(TaskState::Completed), 1);
    let other = home.queues.task("other", id, Detail::Brief).await;
    assert_eq!(other.unwrap_err().code(), "task_not_found");
    home.stop().await;
}

#[tokio::test]
async fn a_failure_is_retried_then_dead_then_requeued() {
    let home = TestEngine::new(config()).await;
    let change = SettingsChange {
        max_attempts: Some(2),
        retry: Some(at_once()),
        ..SettingsChange::default()
    };
    home.create_queue("mail", change).await;
    let id = home.enqueue_one("mail", task("x")).await;
    let hand = home.worker("mail", 10).await;
    for attempt in 1..=2 {
        let (_, lease, at) = hand.task().await;
        assert_eq!(at, attempt);
        let failed = ReportKind::Fail { permanent: false };
        hand.report(lease, failed, "no luck").await.unwrap();
    }
    let view =
        run_with_timeout(home.queues.wait(TENANT, id, Duration::from_secs(50))).await.unwrap();
    assert_eq!((view.state, view.error.as_str()), (TaskState::Dead, "no luck"));
    assert_eq!(view.history.len(), 2);
    let (page, dead) = (
        home.queues.tasks(TENANT, "mail", Some(TaskState::Dead), "", 10, ""),
        home.queues.requeue_dead(TENANT, "mail", 0),
    );
    assert_eq!(page.await.unwrap().tasks.len(), 1);
    assert_eq!(dead.await.unwrap(), 1);
    let (again, lease, attempt) = hand.task().await;
    assert_eq!((again, attempt), (id, 1));
    hand.complete(lease, "").await;
    home.stop().await;
}

#[tokio::test]
async fn a_silent_worker_loses_its_lease_and_a_late_report_is_refused() {
    let home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let id = home.enqueue_one("mail", task("x")).await;
    let silent = home.worker_with("mail", 1, Some(100)).await;
    let (_, lease, _) = silent.task().await;
    let other = home.worker("mail", 1).await;
    let (claimed, newer, attempt) = other.task().await;
    assert_eq!((claimed, attempt), (id, 2));
    let lost = silent.next().await;
    assert!(matches!(lost, WorkerEvent::Lost(of, AttemptEnd::LeaseExpired) if of == id));
    let late = silent.report(lease, ReportKind::Complete, "late").await;
    assert_eq!(late.unwrap_err().code(), "lease_lost");
    let heartbeat = ReportKind::Heartbeat { lease_ms: 60_000 };
    other.report(newer, heartbeat, "").await.unwrap();
    other.complete(newer, "mine").await;
    let view = home.queues.task(TENANT, id, Detail::Whole).await.unwrap();
    assert_eq!(view.result, b"mine");
    home.stop().await;
}

#[tokio::test]
async fn a_chain_runs_in_order_over_partitions_and_fails_with_its_first() {
    let home = TestEngine::new(config()).await;
    home.create_queue("steps", SettingsChange::default()).await;
    let mut firsts = Vec::new();
    for number in 0..4 {
        firsts.push(home.enqueue_one("steps", task(&format!("first {number}"))).await);
    }
    let last = home.enqueue_one("steps", NewTask { after: &firsts, ..task("last") }).await;
    let hand = home.worker("steps", 10).await;
    for _ in 0..4 {
        let (id, lease, _) = hand.task().await;
        assert!(firsts.contains(&id));
        hand.complete(lease, "").await;
    }
    let (id, lease, _) = hand.task().await;
    assert_eq!(id, last);
    let after = [id];
    let doomed = home.enqueue_one("steps", NewTask { after: &after, ..task("doomed") }).await;
    hand.report(lease, ReportKind::Fail { permanent: true }, "broken").await.unwrap();
    let view =
        run_with_timeout(home.queues.wait(TENANT, doomed, Duration::from_secs(50))).await.unwrap();
    assert_eq!(view.state, TaskState::Cancelled);
    assert!(view.error.contains(&format!("task {id}")), "{}", view.error);
    drop(hand);
    home.stop().await;
}

/// A task that is unknown by now is not waited for, and that is reported, also after a restart.
#[tokio::test]
async fn who_waits_for_a_task_that_is_gone_is_cancelled_for_that_reason() {
    let mut home = TestEngine::new(config()).await;
    home.create_queue("steps", SettingsChange::default()).await;
    let id = home.enqueue_one("steps", task("first")).await;
    let after = [id];
    let waiting = || NewTask { after: &after, ..task("vain") };
    let doomed = home.enqueue_one("steps", waiting()).await;
    home.queues.delete_task(TENANT, id).await.unwrap();
    let vain = home.enqueue_one("steps", waiting()).await;
    for cancelled in [doomed, vain] {
        let wait = home.queues.wait(TENANT, cancelled, Duration::from_secs(50));
        run_with_timeout(wait).await.unwrap();
    }
    home.restart().await;
    for cancelled in [doomed, vain] {
        let view = home.queues.task(TENANT, cancelled, Detail::Brief).await.unwrap();
        assert_eq!(view.state, TaskState::Cancelled);
        let reason = format!("task {id}, which this task depends on, was not completed");
        assert!(view.error.starts_with(&reason), "{}", view.error);
        assert!(view.error.ends_with("deleted or unknown"), "{}", view.error);
    }
    // What is put back has no reason any longer.
    home.queues.requeue(TENANT, vain).await.unwrap();
    let view = home.queues.task(TENANT, vain, Detail::Brief).await.unwrap();
    assert_eq!((view.state, &*view.error), (TaskState::Ready, ""));
    home.stop().await;
}

#[tokio::test]
async fn a_limit_on_tasks_at_a_time_holds_over_all_partitions() {
    let home = TestEngine::new(config()).await;
    let change = SettingsChange { concurrency: Some(3), ..SettingsChange::default() };
    home.create_queue("few", change).await;
    for number in 0..40 {
        home.enqueue_one("few", task(&number.to_string())).await;
    }
    let hand = home.worker("few", 40).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let (_, lease, _) = hand.task().await;
        held.push(lease);
        let leased = home.view("few").await.count(TaskState::Leased);
        assert!(leased <= 3, "{leased}");
        if held.len() == 3 {
            hand.complete(held.remove(0), "").await;
        }
    }
    home.stop().await;
}

#[tokio::test]
async fn a_paused_queue_hands_nothing_out_and_a_draining_one_takes_nothing_in() {
    let home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    home.queues.set_queue_flags(TENANT, "mail", Some(true), None).await.unwrap();
    home.enqueue_one("mail", task("x")).await;
    let hand = home.worker("mail", 1).await;
    let view = home.view("mail").await;
    assert!(view.paused && hand.is_idle());
    home.queues.set_queue_flags(TENANT, "mail", Some(false), Some(true)).await.unwrap();
    hand.task().await;
    let refused = home.enqueue("mail", &[task("y")]).await.remove(0);
    assert_eq!(refused.unwrap_err().code(), "queue_draining");
    home.stop().await;
}

#[tokio::test]
async fn a_unique_key_makes_one_task_though_many_ask_at_once() {
    let home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let same = NewTask { unique_key: "order-1", ..task("x") };
    let outcomes = home.enqueue("mail", &vec![same; 100]).await;
    let made: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(made.iter().filter(|one| !one.replayed).count(), 1);
    assert!(made.iter().all(|one| one.id == made[0].id));
    assert_eq!(home.view("mail").await.count(TaskState::Ready), 1);
    home.stop().await;
}

#[tokio::test]
async fn a_claim_takes_what_is_there_or_waits_for_the_first() {
    let home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let spec =
        WorkSpec { queues: vec!["mail".to_owned()], worker: "rest".to_owned(), lease_ms: None };
    let nothing = home.queues.claim(TENANT, &spec, 5, Duration::ZERO).await;
    assert!(nothing.unwrap().is_empty());
    for number in 0..3 {
        home.enqueue_one("mail", task(&number.to_string())).await;
    }
    let three = home.queues.claim(TENANT, &spec, 5, Duration::ZERO).await.unwrap();
    assert_eq!(three.len(), 3);
    let patience = Duration::from_secs(50);
    let (waited, id) = tokio::join!(
        home.queues.claim(TENANT, &spec, 5, patience),
        home.enqueue_one("mail", task("late")),
    );
    assert_eq!(waited.unwrap()[0].id, id);
    home.stop().await;
}

#[tokio::test]
async fn a_schedule_makes_a_task_at_each_tick() {
    let home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let schedule = NewSchedule {
        name: "often",
        cron: "* * * * * *",
        queue: "mail",
        task: task("tick"),
        missed: MissedTickPolicy::Skip,
        ..NewSchedule::default()
    };
    home.queues.put_schedule(TENANT, &schedule).await.unwrap();
    let hand = home.worker("mail", 10).await;
    let (first, _, _) = hand.task().await;
    let (second, _, _) = hand.task().await;
    let apart = second.created_ms() / 1_000 - first.created_ms() / 1_000;
    assert!(apart >= 1, "one a second: {first} {second}");
    let rests = home.queues.set_schedule_paused(TENANT, "often", true).await.unwrap();
    assert!(rests.paused && rests.last_task.is_some());
    home.queues.delete_schedule(TENANT, "often").await.unwrap();
    let gone = home.queues.schedule(TENANT, "often").await;
    assert_eq!(gone.unwrap_err().code(), "schedule_not_found");
    home.stop().await;
}

#[tokio::test]
async fn the_log_stays_short_and_everything_is_there_after_a_restart() {
    let mut small = config();
    small.segment_size = egret_base::settings::ByteSize::mib(16);
    small.snapshot_after = egret_base::settings::ByteSize::mib(1);
    let mut home = TestEngine::new(small).await;
    let change = SettingsChange {
        completed: Some(Retention { age_ms: 0, count: 100 }),
        ..SettingsChange::default()
    };
    home.create_queue("mail", change).await;
    home.create_queue("later", SettingsChange::default()).await;
    let payload = "x".repeat(10_000);
    let mut kept = Vec::new();
    let hand = home.worker("mail", 100).await;
    for round in 0..60 {
        let tasks = vec![task(&payload); 100];
        for outcome in home.enqueue("mail", &tasks).await {
            outcome.unwrap();
        }
        let text = format!("keep {round}");
        let delayed = NewTask { delay_ms: 3_600_000, ..task(&text) };
        kept.push((home.enqueue_one("later", delayed).await, text));
        for _ in 0..100 {
            let (_, lease, _) = hand.task().await;
            hand.complete(lease, "").await;
        }
    }
    drop(hand);
    home.restart().await;
    assert_eq!(home.view("later").await.count(TaskState::Delayed), 60);
    // Retention is kept partition by partition.
    assert!(home.view("mail").await.count(TaskState::Completed) <= 200);
    for (id, text) in &kept {
        let view = home.queues.task(TENANT, *id, Detail::Whole).await.unwrap();
        assert_eq!(view.payload, text.as_bytes());
    }
    home.stop().await;
}

#[tokio::test]
async fn what_is_given_back_comes_again() {
    let home = TestEngine::new(config()).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let id = home.enqueue_one("mail", task("x")).await;
    let hand = home.worker("mail", 10).await;
    for (how, delay_ms, attempt) in
        [(Defer::Release, 0, 1), (Defer::Snooze, 1, 1), (Defer::Nack, 1, 1)]
    {
        let (claimed, lease, at) = hand.task().await;
        assert_eq!((claimed, at), (id, attempt), "{how:?}");
        hand.report(lease, ReportKind::Defer { delay_ms, mode: how }, "").await.unwrap();
    }
    let (_, _, attempt) = hand.task().await;
    assert_eq!(attempt, 2, "only the nack counted");
    home.stop().await;
}

#[tokio::test]
async fn the_limit_of_results_does_not_apply_to_failures() {
    let home = TestEngine::new(QueueConfig { result_bytes_max: ByteSize(0), ..config() }).await;
    home.create_queue("mail", SettingsChange::default()).await;
    home.enqueue_one("mail", task("x")).await;
    let hand = home.worker("mail", 1).await;
    let (_, lease, _) = hand.task().await;
    let refused = hand.report(lease, ReportKind::Complete, "done").await.unwrap_err();
    assert!(refused.to_string().contains("queue.result_bytes_max"), "{refused}");
    let failed = ReportKind::Fail { permanent: true };
    let longest = "e".repeat(REPORT_TEXT_BYTES_MAX);
    let refused = hand.report(lease, failed, &format!("{longest}e")).await.unwrap_err();
    assert!(refused.to_string().starts_with("the error or reason has 8001 bytes"), "{refused}");
    hand.report(lease, failed, &longest).await.unwrap();
    home.stop().await;
}

#[tokio::test]
async fn settings_under_which_nothing_could_be_written_are_refused() {
    type Change = fn(&mut QueueConfig);
    let cases: [(&str, Change); 3] = [
        ("queue.payload_bytes_max", |config| {
            config.payload_bytes_max = ByteSize::mib(12);
        }),
        ("queue.result_bytes_max", |config| {
            config.result_bytes_max = ByteSize::mib(10);
        }),
        ("queue.attachments_max", |config| {
            config.attachments_max = 1_001;
        }),
    ];
    for (name, change) in cases {
        let mut config = config();
        change(&mut config);
        let error = TestEngine::start_error(config).await;
        assert!(error.contains(name), "{error}");
    }
    let mut largest = config();
    largest.payload_bytes_max = ByteSize::mib(9);
    let home = TestEngine::new(largest).await;
    home.create_queue("q", SettingsChange::default()).await;
    let payload = "x".repeat(9 << 20);
    home.enqueue_one("q", task(&payload)).await;
    home.stop().await;
}

/// Callers that wait for a partition whose thread panics get an error, and so do later ones.
#[tokio::test]
async fn a_partition_that_ends_by_a_panic_keeps_nobody_waiting() {
    let mut config = config();
    config.partitions = 1;
    let home = TestEngine::new(config).await;
    home.create_queue("q", SettingsChange::default()).await;
    let hand = home.worker("q", 1).await;
    let id = home.enqueue_one("q", task("x")).await;
    let (_, lease, _) = hand.task().await;
    assert_eq!(home.queues.ready(), Readiness::Ready);
    let queues = home.queues.clone();
    let waiting = tokio::spawn(async move {
        let patience = Duration::from_secs(3_600);
        queues.wait(TENANT, id, patience).await
    });
    // It waits before what comes next.
    eventually("the task is known", async || home.queues.task(TENANT, id, Detail::Brief).await)
        .await;
    tokio::task::yield_now().await;
    egret_queue::testing::panic_in_turn(&home.queues, 0);
    let failed = |error: Option<QueueError>| error.map(|error| error.code());
    assert_eq!(
        failed(run_with_timeout(waiting).await.unwrap().err()),
        Some("queue_partition_failed")
    );
    assert!(matches!(hand.next().await, WorkerEvent::Ended));
    let said = hand.report(lease, ReportKind::Complete, "done").await;
    assert_eq!(failed(said.err()), Some("queue_partition_failed"));
    let made = home.enqueue("q", &[task("y")]).await.remove(0);
    assert_eq!(failed(made.err()), Some("queue_partition_failed"));
    assert!(matches!(home.queues.ready(), Readiness::NotReady(_)));
    home.stop().await;
}
