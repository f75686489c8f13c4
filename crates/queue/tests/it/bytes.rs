//! Bytes that a tenant's tasks and attachments take: bounded, and counted the same after a restart.

use egret_base::settings::ByteSize;
use egret_queue::model::TaskState;
use egret_queue::{
    EnqueueReceipt, MissedTickPolicy, NewSchedule, NewTask, QueueConfig, QueueError, ReportKind,
    SettingsChange,
};

use crate::test_engine::{TENANT, TestEngine, config};

const PAYLOAD: [u8; 1_000] = [b'x'; 1_000];

fn small() -> QueueConfig {
    QueueConfig { partitions: 1, tasks_bytes_max: ByteSize(100_000), ..config() }
}

fn task() -> NewTask<'static> {
    NewTask { payload: &PAYLOAD, ..NewTask::default() }
}

/// Enqueues until that is refused. Returns how many tasks were taken in, and why no more were.
async fn fill(home: &TestEngine, tenant: &str, queue: &str) -> (usize, String) {
    let queue = home.queues.get_or_create_queue(tenant, queue).await.unwrap();
    for made in 0.. {
        let chain = [egret_queue::ChainTask {
            queue: queue.clone(),
            task: task(),
            links: Vec::new(),
            origin: None,
        }];
        if let Err(refusal) = home.queues.enqueue_chain(&chain).await {
            return (made, refusal.error.to_string());
        }
    }
    unreachable!("there is no end")
}

fn refusals(outcomes: &[Result<EnqueueReceipt, QueueError>]) -> Vec<String> {
    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    refused.map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_tenant_leaves_bytes_for_others_and_gets_them_back() {
    let home = TestEngine::new(small()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let settings = SettingsChange::default();
    let greedy = home.queues.put_queue("greedy", "q", &settings);
    greedy.await.unwrap();
    // A tenant alone gets half. What goes with a payload is counted too.
    let (made, named) = fill(&home, "greedy", "q").await;
    assert!((45..=50).contains(&made), "{made}");
    assert!(named.contains("queue.tenant_tasks_bytes_max"), "{named}");
    // So do batches whose tasks are each for themselves, up to the one that is too much.
    let outcomes = home.enqueue("q", &vec![task(); 40]).await;
    let refused = refusals(&outcomes);
    assert!((10..=20).contains(&refused.len()), "{}", refused.len());
    assert!(refused[0].contains("queue.tenant_tasks_bytes_max"), "{refused:?}");
    let purged = home.queues.purge("greedy", "q", &[]).await.unwrap();
    assert_eq!(purged, made as u64);
    assert!(home.enqueue("q", &[task()]).await[0].is_ok());
    home.stop().await;
}

#[tokio::test]
async fn a_restart_counts_what_was_counted_before() {
    let limited = QueueConfig { tenant_tasks_bytes_max: ByteSize(40_000), ..small() };
    let mut home = TestEngine::new(limited).await;
    home.create_queue("q", SettingsChange::default()).await;
    let (made, named) = fill(&home, TENANT, "q").await;
    assert!((35..=40).contains(&made), "{made}");
    assert!(named.contains("queue.tenant_tasks_bytes_max"), "{named}");
    home.restart().await;
    let outcomes = home.enqueue("q", &[task()]).await;
    assert_eq!(refusals(&outcomes).len(), 1, "{outcomes:?}");
    // Results are taken in all the same, and count.
    let hand = home.worker("q", 1).await;
    let (_, lease, _) = hand.task().await;
    let result = "r".repeat(5_000);
    hand.report(lease, ReportKind::Complete, &result).await.unwrap();
    let ready = Some(TaskState::Ready);
    let page = home.queues.tasks(TENANT, "q", ready, "", 100, "").await;
    let mut deleted = 0;
    for one in page.unwrap().tasks {
        if home.enqueue("q", &[task()]).await[0].is_ok() {
            break;
        }
        home.queues.delete_task(TENANT, one.id).await.unwrap();
        deleted += 1;
    }
    assert!((5..=6).contains(&deleted), "{deleted}");
    drop(hand);
    home.stop().await;
}

/// Bytes of schedules count as those of tasks do.
#[tokio::test]
async fn schedules_take_bytes_too() {
    let home = TestEngine::new(small()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let put = async |number: usize, payload: &[u8]| {
        let name = format!("s{number}");
        let schedule = NewSchedule {
            name: &name,
            cron: "0 0 1 1 *",
            time_zone: "",
            queue: "q",
            task: NewTask { payload, ..NewTask::default() },
            missed: MissedTickPolicy::Skip,
            paused: false,
        };
        home.queues.put_schedule(TENANT, &schedule).await
    };
    let mut made = 0;
    let refused = loop {
        match put(made, &[b'x'; 10_000]).await {
            Ok(_) => made += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(made, 5, "{refused}");
    assert!(refused.contains("queue.tenant_tasks_bytes_max"), "{refused}");
    home.queues.delete_schedule(TENANT, "s0").await.unwrap();
    put(0, &[b'x'; 10_000]).await.unwrap();
    // At the limit a schedule may still be put again, and may shrink.
    let refused = put(made, &[b'x'; 10_000]).await.unwrap_err().to_string();
    assert!(refused.contains("queue.tenant_tasks_bytes_max"), "{refused}");
    put(0, &[b'y'; 10_000]).await.unwrap();
    put(0, &[b'y'; 5_000]).await.unwrap();
    home.stop().await;
}

/// A caller that repeats a call at the limit gets the first answer.
#[tokio::test]
async fn a_task_that_was_made_before_takes_no_room() {
    let home = TestEngine::new(QueueConfig { tasks_max: 2, tenant_tasks_max: 2, ..small() }).await;
    home.create_queue("q", SettingsChange::default()).await;
    let named = |unique_key| NewTask { unique_key, ..NewTask::default() };
    let first = home.enqueue("q", &[named("a"), named("b")]).await;
    let again = home.enqueue("q", &[named("a"), named("c"), named("b")]).await;
    assert_eq!(refusals(&again).len(), 1, "{again:?}");
    for (first, again) in [(&first[0], &again[0]), (&first[1], &again[2])] {
        let (first, again) = (first.as_ref().unwrap(), again.as_ref().unwrap());
        assert_eq!((again.id, again.replayed), (first.id, true));
    }
    let queue = home.queues.get_or_create_queue(TENANT, "q").await.unwrap();
    let member = |unique_key, links| egret_queue::ChainTask {
        queue: queue.clone(),
        task: named(unique_key),
        links,
        origin: None,
    };
    let chain = [member("a", Vec::new()), member("b", vec![0])];
    let replayed = home.queues.enqueue_chain(&chain).await.unwrap();
    assert!(replayed.iter().all(|task| task.replayed));
    home.stop().await;
}
