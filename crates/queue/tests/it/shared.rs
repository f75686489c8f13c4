//! What tasks share: callbacks and the contents of schedules are on the load of their tenant, in
//! limits and after a restart.

use egret_base::CodedError;
use egret_base::settings::ByteSize;
use egret_queue::model::{TaskId, TaskState};
use egret_queue::{
    MissedTickPolicy, NewSchedule, NewTask, QueueConfig, QueueError, SettingsChange,
};

use crate::test_engine::{TENANT, TestEngine, config};

fn task_with_callback() -> NewTask<'static> {
    NewTask { callback_url: "https://example.org/done", ..NewTask::default() }
}

/// Callbacks are made and not sent.
fn ten_tasks_a_tenant() -> QueueConfig {
    QueueConfig { partitions: 1, tasks_max: 20, tenant_tasks_max: 10, callbacks: false, ..config() }
}

/// How many of so many tasks are taken in; the others are refused for the tenant's limit.
async fn enqueue_accepted(home: &TestEngine, task: NewTask<'_>, count: usize) -> Vec<TaskId> {
    let outcomes = home.enqueue("q", &vec![task; count]).await.into_iter();
    let taken = outcomes.filter_map(|outcome| match outcome {
        Ok(enqueued) => Some(enqueued.id),
        Err(error) => {
            assert_refused(&error, "queue.tenant_tasks_max");
            None
        }
    });
    taken.collect()
}

fn assert_refused(error: &QueueError, limit: &str) {
    assert_eq!(error.code(), "limit_exceeded", "{error}");
    assert!(error.to_string().contains(limit), "{error}");
}

#[tokio::test]
async fn callbacks_are_on_their_tenants_share_from_the_beginning() {
    let mut home = TestEngine::new(ten_tasks_a_tenant()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let tasks = enqueue_accepted(&home, task_with_callback(), 7).await;
    assert_eq!(tasks.len(), 5, "each counts as two");
    assert_eq!(enqueue_accepted(&home, NewTask::default(), 1).await.len(), 0);
    // The end of a task makes its callback, which takes the place that was kept for it.
    for id in &tasks {
        home.queues.cancel(TENANT, *id).await.unwrap();
    }
    assert_eq!(enqueue_accepted(&home, NewTask::default(), 1).await.len(), 0);
    home.restart().await;
    assert_eq!(enqueue_accepted(&home, NewTask::default(), 1).await.len(), 0);
    // To begin a task anew causes another callback.
    let refused = home.queues.requeue(TENANT, tasks[0]).await.unwrap_err();
    assert_refused(&refused, "queue.tenant_tasks_max");
    // Callbacks outlive their tasks.
    for id in &tasks {
        home.queues.delete_task(TENANT, *id).await.unwrap();
    }
    assert_eq!(enqueue_accepted(&home, NewTask::default(), 7).await.len(), 5);
    // Another tenant has its own share all the while.
    let settings = SettingsChange::default();
    home.queues.put_queue("other", "q", &settings).await.unwrap();
    let queue = home.queues.get_or_create_queue("other", "q").await.unwrap();
    for _ in 0..5 {
        let chain = [egret_queue::ChainTask {
            queue: queue.clone(),
            task: task_with_callback(),
            links: Vec::new(),
            origin: None,
        }];
        home.queues.enqueue_chain(&chain).await.unwrap();
    }
    home.stop().await;
}

/// Callbacks that cannot arrive take room until their tenant deletes them.
#[tokio::test]
async fn a_tenant_deletes_its_callbacks_and_no_others() {
    let home = TestEngine::new(ten_tasks_a_tenant()).await;
    home.create_queue("q", SettingsChange::default()).await;
    for id in enqueue_accepted(&home, task_with_callback(), 5).await {
        home.queues.cancel(TENANT, id).await.unwrap();
        home.queues.delete_task(TENANT, id).await.unwrap();
    }
    let page = home.queues.callbacks(TENANT, None, None, 10, "").await;
    let callbacks = page.unwrap().callbacks;
    assert_eq!(callbacks.len(), 5);
    for callback in &callbacks {
        let refused = home.queues.delete_task("other", callback.id).await;
        assert_eq!(refused.unwrap_err().code(), "task_not_found");
        let queue = home.queues.queue_to_delete_in(TENANT, callback.id).await;
        assert_eq!(queue.unwrap(), "q");
        home.queues.delete_task(TENANT, callback.id).await.unwrap();
    }
    assert_eq!(enqueue_accepted(&home, NewTask::default(), 11).await.len(), 10);
    home.stop().await;
}

/// A chain over the share is refused as a whole, callbacks included.
#[tokio::test]
async fn a_chain_counts_its_callbacks() {
    let home = TestEngine::new(ten_tasks_a_tenant()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let queue = home.queues.get_or_create_queue(TENANT, "q").await.unwrap();
    let member = |_| egret_queue::ChainTask {
        queue: queue.clone(),
        task: task_with_callback(),
        links: Vec::new(),
        origin: None,
    };
    let chain: Vec<_> = (0..6).map(member).collect();
    let refused = home.queues.enqueue_chain(&chain).await.unwrap_err();
    assert_refused(&refused.error, "queue.tenant_tasks_max");
    home.queues.enqueue_chain(&chain[..5]).await.unwrap();
    home.stop().await;
}

/// Dead tasks are put back as far as there is room for what they will cause.
#[tokio::test]
async fn dead_tasks_are_put_back_within_the_share() {
    let home = TestEngine::new(ten_tasks_a_tenant()).await;
    home.create_queue("q", SettingsChange::default()).await;
    enqueue_accepted(&home, task_with_callback(), 4).await;
    let hand = home.worker("q", 4).await;
    let permanent = true;
    for _ in 0..4 {
        let (_, lease, _) = hand.task().await;
        let said = egret_queue::ReportKind::Fail { permanent };
        hand.report(lease, said, "no").await.unwrap();
    }
    drop(hand);
    let refused = home.queues.requeue_dead(TENANT, "q", 0).await.unwrap_err();
    assert_refused(&refused, "queue.tenant_tasks_max");
    let view = home.view("q").await;
    let counts = [TaskState::Ready, TaskState::Dead].map(|state| view.count(state));
    assert_eq!(counts, [2, 2]);
    home.stop().await;
}

/// Completes tasks until there is one that the schedule has made from now on.
async fn await_tick(home: &TestEngine, name: &str) {
    let last = async || home.queues.schedule(TENANT, name).await.unwrap().last_task;
    let (before, hand) = (last().await, home.worker("q", 1).await);
    while last().await == before {
        let (_, lease, _) = hand.task().await;
        hand.complete(lease, "").await;
    }
}

#[tokio::test]
async fn the_bytes_of_a_replaced_schedule_stay_while_its_tasks_do() {
    let mut home = TestEngine::new(QueueConfig {
        partitions: 1,
        tenant_tasks_bytes_max: ByteSize(45_000),
        ..config()
    })
    .await;
    home.create_queue("q", SettingsChange::default()).await;
    let put = async |home: &TestEngine, name: &str| {
        let schedule = NewSchedule {
            name,
            cron: "* * * * * *",
            time_zone: "",
            queue: "q",
            task: NewTask { payload: &[b'x'; 20_000], ..NewTask::default() },
            missed: MissedTickPolicy::Skip,
            paused: false,
        };
        home.queues.put_schedule(TENANT, &schedule).await
    };
    // The first has no task yet, the second has one that refers to it.
    put(&home, "s").await.unwrap();
    await_tick(&home, "s").await;
    put(&home, "s").await.unwrap();
    await_tick(&home, "s").await;
    let refused = put(&home, "s").await.unwrap_err();
    assert_refused(&refused, "queue.tenant_tasks_bytes_max");
    home.queues.set_schedule_paused(TENANT, "s", true).await.unwrap();
    home.restart().await;
    let refused = put(&home, "t").await.unwrap_err();
    assert_refused(&refused, "queue.tenant_tasks_bytes_max");
    // Deleted, it is still what tasks are made of.
    home.queues.delete_schedule(TENANT, "s").await.unwrap();
    let refused = put(&home, "t").await.unwrap_err();
    assert_refused(&refused, "queue.tenant_tasks_bytes_max");
    home.queues.purge(TENANT, "q", &[]).await.unwrap();
    put(&home, "t").await.unwrap();
    home.stop().await;
}
