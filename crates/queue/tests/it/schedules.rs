//! Schedules of a tenant that is at its limit on tasks.

use egret_base_test::eventually;
use egret_queue::{Detail, NewSchedule, NewTask, QueueConfig, ScheduleView, SettingsChange};

use crate::test_engine::{TENANT, TestEngine, config};

fn task(payload: &str) -> NewTask<'_> {
    NewTask { payload: payload.as_bytes(), ..NewTask::default() }
}

fn often(payload: &str) -> NewSchedule<'_> {
    NewSchedule {
        name: "often",
        cron: "* * * * * *",
        queue: "mail",
        task: task(payload),
        ..NewSchedule::default()
    }
}

async fn view(home: &TestEngine) -> ScheduleView {
    home.queues.schedule(TENANT, "often").await.unwrap()
}

/// The schedule, once a run of it waits.
async fn waiting(home: &TestEngine) -> ScheduleView {
    eventually("a run waits for room", async || {
        let view = view(home).await;
        view.waits_for_room.then_some(view)
    })
    .await
}

/// A tenant that may have one task, and has it.
async fn full() -> (TestEngine, egret_queue::model::TaskId) {
    let home =
        TestEngine::new(QueueConfig { partitions: 1, tenant_tasks_max: 1, ..config() }).await;
    home.create_queue("mail", SettingsChange::default()).await;
    let first = home.enqueue_one("mail", task("first")).await;
    (home, first)
}

#[tokio::test]
async fn a_run_without_room_waits_over_a_restart_and_a_change() {
    let (mut home, first) = full().await;
    let schedule = often("as it was");
    home.queues.put_schedule(TENANT, &schedule).await.unwrap();
    let before = waiting(&home).await;
    assert_eq!(before.last_task, None);
    assert!(before.next_ms > before.last_ms, "{before:?}");
    home.restart().await;
    let after = view(&home).await;
    assert_eq!((after.waits_for_room, after.last_ms), (true, before.last_ms));
    let schedule = often("as it is now");
    let changed = home.queues.put_schedule(TENANT, &schedule).await.unwrap();
    assert_eq!((changed.waits_for_room, changed.last_ms), (true, before.last_ms));
    home.queues.delete_task(TENANT, first).await.unwrap();
    let hand = home.worker("mail", 1).await;
    let (made, _, _) = hand.task().await;
    let made = home.queues.task(TENANT, made, Detail::Whole).await.unwrap();
    assert_eq!(made.payload, b"as it is now");
    home.stop().await;
}

#[tokio::test]
async fn a_schedule_that_is_paused_leaves_out_the_run_that_waits() {
    let (home, first) = full().await;
    let schedule = often("never made");
    home.queues.put_schedule(TENANT, &schedule).await.unwrap();
    waiting(&home).await;
    let pause = home.queues.set_schedule_paused(TENANT, "often", true);
    let paused = pause.await.unwrap();
    assert_eq!((paused.paused, paused.waits_for_room), (true, false));
    home.queues.delete_task(TENANT, first).await.unwrap();
    let schedule = NewSchedule { name: "other", ..often("made") };
    home.queues.put_schedule(TENANT, &schedule).await.unwrap();
    let hand = home.worker("mail", 1).await;
    let (made, _, _) = hand.task().await;
    let made = home.queues.task(TENANT, made, Detail::Whole).await.unwrap();
    assert_eq!(made.payload, b"made");
    home.stop().await;
}
