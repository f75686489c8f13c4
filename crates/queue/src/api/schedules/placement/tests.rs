//! Schedules that move from partition to partition, and what fails on the way.

use std::path::Path;
use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{CodedError, SystemClock, SystemEntropy};
use prometheus_client::registry::Registry;

use super::*;
use crate::config::QueueConfig;
use crate::worker::new_task::NewTask;
use crate::worker::queues::Options;
use crate::worker::settings_change::SettingsChange;

const TENANT: &str = "acme";

async fn start_engine(directory: &Path) -> Queues {
    let options = Options {
        config: QueueConfig { partitions: 2, create_on_demand: true, ..QueueConfig::default() },
        directory: directory.to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        destinations: Default::default(),
    };
    let queues = Queues::new(options, &mut Registry::default());
    queues.start().await.unwrap();
    queues
}

/// A schedule whose tasks have this ordering key.
fn nightly(ordering_key: &str) -> NewSchedule<'_> {
    NewSchedule {
        name: "nightly",
        cron: "30 2 * * *",
        queue: "mail",
        task: NewTask { payload: b"go", ordering_key, ..NewTask::default() },
        ..NewSchedule::default()
    }
}

async fn encode_schedule(queues: &Queues, key: &str, before: &[usize]) -> EncodedSchedule {
    let queue = queues.get_or_create_queue(TENANT, "mail").await.unwrap();
    let rhythm = CronSchedule::new("30 2 * * *", "").unwrap();
    let schedule = nightly(key);
    let prepared = queues.encode_schedule(TENANT, &schedule, rhythm, &queue, before);
    prepared.await.unwrap()
}

/// An ordering key of each of the two partitions.
async fn keys(queues: &Queues) -> [String; 2] {
    let mut found: [Option<String>; 2] = [None, None];
    for number in 0.. {
        let key = format!("key {number}");
        let item = encode_schedule(queues, &key, &[]).await.item;
        let partition = queues.inner.partition_of(item.shard).unwrap();
        found[partition].get_or_insert(key);
        if let [Some(one), Some(other)] = &found {
            return [one.clone(), other.clone()];
        }
    }
    unreachable!("there are more keys than numbers")
}

/// Which partitions have the schedule, and with which next tick.
async fn locations(queues: &Queues) -> Vec<(usize, u64)> {
    let mut there = Vec::new();
    for partition in 0..2 {
        let asked = queues.inner.run_in_turn(partition, |turn| {
            let schedule = turn.state.schedule(TENANT, "nightly");
            schedule.map(|schedule| schedule.next_ms)
        });
        there.extend(asked.await.unwrap().map(|next_ms| (partition, next_ms)));
    }
    there
}

#[tokio::test]
async fn a_schedule_moves_with_its_ordering_key() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start_engine(directory.path()).await;
    let keys = keys(&queues).await;
    let next_ms = |view: &ScheduleView| {
        let now_ms = queues.inner.clock.now().as_millis_unsigned();
        assert!(view.next_ms > now_ms && view.next_ms <= now_ms + 86_400_000);
        view.next_ms
    };
    for partition in [0, 1, 1, 0] {
        let schedule = nightly(&keys[partition]);
        let put = queues.put_schedule(TENANT, &schedule);
        let view = put.await.unwrap();
        assert_eq!(view.ordering_key, keys[partition]);
        assert_eq!(locations(&queues).await, [(partition, next_ms(&view))]);
    }
    // What has gone otherwise is gone.
    queues.remove_schedule(0, TENANT, "nightly").await.unwrap();
    queues.put_schedule(TENANT, &nightly(&keys[1])).await.unwrap();
    queues.remove_schedule(1, TENANT, "nightly").await.unwrap();
    queues.delete_schedule(TENANT, "nightly").await.unwrap();
    let gone = queues.schedule(TENANT, "nightly").await;
    assert_eq!(gone.unwrap_err().code(), "schedule_not_found");
    queues.stop().await;
}

/// A crash after the new one was put and before the one before was taken away.
#[tokio::test]
async fn of_two_that_a_crash_has_left_the_later_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut queues = start_engine(directory.path()).await;
    let keys = keys(&queues).await;
    for partition in [1, 0, 1] {
        let from = 1 - partition;
        let schedule = nightly(&keys[from]);
        let put = queues.put_schedule(TENANT, &schedule);
        put.await.unwrap();
        let later = encode_schedule(&queues, &keys[partition], &[from]).await;
        queues.write_schedule(partition, later, 0).await.unwrap();
        assert_eq!(locations(&queues).await.len(), 2);
        queues.stop().await;
        queues = start_engine(directory.path()).await;
        let view = queues.schedule(TENANT, "nightly").await.unwrap();
        assert_eq!(view.ordering_key, keys[partition]);
        assert_eq!(locations(&queues).await, [(partition, view.next_ms)]);
    }
    queues.stop().await;
}

/// The partition that is to let the schedule go does not take anything any more.
#[tokio::test]
async fn a_move_that_fails_half_way_leaves_the_schedule() {
    let directory = tempfile::tempdir().unwrap();
    let mut queues = start_engine(directory.path()).await;
    let keys = keys(&queues).await;
    let schedule = nightly(&keys[0]);
    let put = queues.put_schedule(TENANT, &schedule);
    put.await.unwrap();
    queues.inner.partitions().unwrap()[0].inbox.close();
    let moved = queues.put_schedule(TENANT, &nightly(&keys[1])).await;
    assert!(matches!(moved, Err(QueueError::Stopping)));
    let place = queues.schedule_location(TENANT, "nightly").unwrap();
    assert_eq!((place.partition, place.duplicates), (0, vec![1]));
    queues.stop().await;
    queues = start_engine(directory.path()).await;
    let view = queues.schedule(TENANT, "nightly").await.unwrap();
    assert_eq!(view.ordering_key, keys[0]);
    // Also where what was left could not be taken back.
    let later = encode_schedule(&queues, &keys[1], &[0]).await;
    queues.write_schedule(1, later, MOVE_WAIT_MS).await.unwrap();
    let key = ScheduleKey::new(TENANT, "nightly");
    let left = ScheduleLocation { partition: 0, duplicates: vec![1] };
    lock(&queues.inner.schedules).insert(key, left);
    queues.delete_schedule(TENANT, "nightly").await.unwrap();
    assert_eq!(locations(&queues).await, []);
    // And one that stays where it is stays, whatever becomes of what was left.
    let schedule = nightly(&keys[0]);
    queues.put_schedule(TENANT, &schedule).await.unwrap();
    lock(&queues.inner.schedules).insert(
        ScheduleKey::new(TENANT, "nightly"),
        ScheduleLocation { partition: 0, duplicates: vec![1] },
    );
    queues.inner.partitions().unwrap()[1].inbox.close();
    let put = queues.put_schedule(TENANT, &schedule).await;
    assert!(matches!(put, Err(QueueError::Stopping)));
    let view = queues.schedule(TENANT, "nightly").await.unwrap();
    assert_eq!(view.ordering_key, keys[0]);
    queues.stop().await;
}

#[tokio::test]
async fn to_resume_what_does_not_rest_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let queues = start_engine(directory.path()).await;
    let put = queues.put_schedule(TENANT, &nightly("")).await.unwrap();
    let resumed = queues.set_schedule_paused(TENANT, "nightly", false).await;
    assert_eq!(resumed.unwrap(), put);
    let paused = queues.set_schedule_paused(TENANT, "nightly", true).await;
    assert!(paused.unwrap().paused);
    let resumed = queues.set_schedule_paused(TENANT, "nightly", false).await;
    assert_eq!(resumed.unwrap(), put);
    queues.stop().await;
}

#[tokio::test]
async fn a_queue_goes_with_its_schedules_and_only_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let mut queues = start_engine(directory.path()).await;
    let keys = keys(&queues).await;
    for (name, key, queue) in
        [("one", &keys[0], "mail"), ("two", &keys[1], "mail"), ("three", &keys[0], "other")]
    {
        let schedule = NewSchedule { name, queue, ..nightly(key) };
        queues.put_schedule(TENANT, &schedule).await.unwrap();
    }
    let refused = queues.delete_queue(TENANT, "mail", false).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("0 tasks and 2 schedules"), "{message}");
    queues.delete_queue(TENANT, "mail", true).await.unwrap();
    let change = SettingsChange::default();
    queues.put_queue(TENANT, "mail", &change).await.unwrap();
    for _ in 0..2 {
        let left = queues.schedules(TENANT).await.unwrap();
        let left: Vec<&str> = left.iter().map(|view| &*view.name).collect();
        assert_eq!(left, ["three"]);
        queues.stop().await;
        queues = start_engine(directory.path()).await;
    }
    queues.delete_queue(TENANT, "mail", false).await.unwrap();
    // One of a queue that is gone, as it was left before schedules went with their queues.
    let queue = queues.get_or_create_queue(TENANT, "other").await.unwrap().id;
    for partition in [1, 0] {
        let asked = queues
            .inner
            .run_in_turn(partition, move |turn| turn.run(&Command::DeleteQueue { queue }));
        asked.await.unwrap().unwrap();
    }
    queues.stop().await;
    queues = start_engine(directory.path()).await;
    assert_eq!(queues.schedules(TENANT).await.unwrap(), []);
    queues.stop().await;
}
