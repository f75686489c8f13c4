//! A partition that has failed stops only itself.

use std::collections::BTreeSet;
use std::time::Duration;

use egret_base::CodedError;
use egret_base::lifecycle::Service;
use egret_base_test::eventually;
use egret_queue::model::TaskState;
use egret_queue::{Detail, NewTask, SettingsChange, WorkSpec};

use crate::test_engine::{TENANT, TestEngine, config};

/// Waits until the failure of a partition is known.
async fn await_failure(home: &TestEngine) {
    eventually("a partition has failed", async || !home.queues.failed_parts().is_empty()).await;
}

#[tokio::test]
async fn the_other_partitions_are_listed_claimed_from_and_enqueued_to() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(home.enqueue_one("q", NewTask::default()).await);
    }
    let healthy = |id: &egret_queue::model::TaskId| id.shard() >= 2_048;
    let left: BTreeSet<_> = ids.iter().copied().filter(healthy).collect();
    assert!(!left.is_empty() && left.len() < ids.len());
    egret_queue::testing::panic_in_turn(&home.queues, 0);
    await_failure(&home).await;
    let page = home.queues.tasks(TENANT, "q", None, "", 100, "").await;
    let page = page.unwrap();
    let listed: BTreeSet<_> = page.tasks.iter().map(|task| task.id).collect();
    assert_eq!((listed, page.unavailable), (left.clone(), vec![0]));
    let view = home.view("q").await;
    assert_eq!(view.count(TaskState::Ready), left.len() as u64);
    assert_eq!(view.unavailable, [0]);
    assert_eq!(home.queues.list_queues(TENANT).await.unwrap().len(), 1);

    // New tasks go where they can be worked on, unless their key leads elsewhere.
    let mut all = left.clone();
    for _ in 0..20 {
        all.insert(home.enqueue_one("q", NewTask::default()).await);
    }
    assert!(all.iter().all(healthy));
    let mut refusals = BTreeSet::new();
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let task = NewTask { ordering_key: key, ..NewTask::default() };
        match home.enqueue("q", &[task]).await.remove(0) {
            Ok(made) => drop(all.insert(made.id)),
            Err(error) => drop(refusals.insert((error.code(), error.to_string()))),
        }
    }
    let refusals: Vec<_> = refusals.into_iter().collect();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(refusals[0].0, "queue_partition_failed");
    assert!(refusals[0].1.contains("partition 0"), "{refusals:?}");

    let spec = WorkSpec { queues: vec!["q".to_owned()], worker: "hand".to_owned(), lease_ms: None };
    let mut claimed = BTreeSet::new();
    let patience = Duration::from_millis(10);
    loop {
        let tasks = home.queues.claim(TENANT, &spec, 100, patience).await;
        let tasks = tasks.unwrap();
        if tasks.is_empty() {
            break;
        }
        claimed.extend(tasks.iter().map(|task| task.id));
    }
    let expected = all.len();
    // Those with a key wait for one another.
    assert!(claimed.len() <= expected && claimed.is_superset(&left));
    let lost = ids.iter().find(|id| !healthy(id)).unwrap();
    let refused = home.queues.task(TENANT, *lost, Detail::Brief).await;
    assert_eq!(refused.unwrap_err().code(), "queue_partition_failed");
    home.stop().await;
}

/// A change that some partitions would miss is refused before any of them makes it.
#[tokio::test]
async fn queues_are_not_changed_while_a_partition_has_failed() {
    let home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    egret_queue::testing::panic_in_turn(&home.queues, 1);
    await_failure(&home).await;
    let change = SettingsChange { max_attempts: Some(77), ..SettingsChange::default() };
    let queues = &home.queues;
    let refusals = [
        queues.put_queue(TENANT, "q", &change).await.map(drop),
        queues.put_queue(TENANT, "new", &change).await.map(drop),
        queues.set_queue_flags(TENANT, "q", Some(true), None).await,
        queues.delete_queue(TENANT, "q", true).await,
    ];
    for refusal in refusals {
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code(), "queue_partition_failed");
        assert!(refusal.to_string().contains("partition 1"), "{refusal}");
    }
    let view = home.view("q").await;
    assert!(view.settings.max_attempts != 77 && !view.paused);
    assert_eq!(queues.list_queues(TENANT).await.unwrap().len(), 1);
    let claimed = home.enqueue_one("q", NewTask::default()).await;
    assert!(claimed.shard() < 2_048, "the other partition serves");
    home.stop().await;
}
