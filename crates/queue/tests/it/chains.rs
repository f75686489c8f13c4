//! Chains: made all together or not at all, in one partition or over several.

use std::sync::Arc;

use egret_base::CodedError;
use egret_base::lifecycle::Service;
use egret_base::settings::ByteSize;
use egret_queue::model::TaskState;
use egret_queue::testing::{chain, record};
use egret_queue::{ChainTask, Detail, NewTask, QueueHandle, SettingsChange};

use crate::test_engine::{TENANT, TestEngine, config};

fn task<'a>(queue: &Arc<QueueHandle>, key: &'a str, links: &[usize]) -> ChainTask<'a> {
    ChainTask {
        queue: queue.clone(),
        task: NewTask { payload: key.as_bytes(), unique_key: key, ..NewTask::default() },
        links: links.to_vec(),
        origin: None,
    }
}

/// Names that are keys in both partitions.
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn states(home: &TestEngine, queue: &str) -> Vec<(u64, u64)> {
    let view = home.view(queue).await;
    vec![(view.count(TaskState::Ready), view.count(TaskState::Waiting))]
}

#[tokio::test]
async fn a_chain_with_keys_of_several_partitions_is_made_once_and_in_order() {
    let mut home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let queue = home.queues.get_or_create_queue(TENANT, "q").await.unwrap();
    let chain: Vec<ChainTask<'_>> = KEYS
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let before: Vec<usize> = at.checked_sub(1).into_iter().collect();
            task(&queue, key, &before)
        })
        .collect();
    let made = home.queues.enqueue_chain(&chain).await.unwrap();
    assert_eq!(states(&home, "q").await, [(1, 5)]);
    let mut shards: Vec<u16> = made.iter().map(|task| task.id.shard() >> 11).collect();
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards, [0, 1], "the keys lie in both partitions");
    let again = home.queues.enqueue_chain(&chain).await.unwrap();
    for (first, second) in made.iter().zip(&again) {
        assert_eq!((second.id, second.replayed), (first.id, true));
    }
    let left = std::fs::read_dir(home.directory.join("chains")).unwrap();
    assert_eq!(left.count(), 0, "no promise is left");
    home.restart().await;
    for (at, task) in made.iter().enumerate() {
        let view = home.queues.task(TENANT, task.id, Detail::Whole).await.unwrap();
        assert_eq!(view.payload, KEYS[at].as_bytes());
    }
    home.stop().await;
}

#[tokio::test]
async fn of_a_chain_with_a_task_that_is_refused_none_is_made() {
    let home = TestEngine::new(config()).await;
    home.create_queue("open", SettingsChange::default()).await;
    home.create_queue("shut", SettingsChange::default()).await;
    let drained = home.queues.set_queue_flags(TENANT, "shut", None, Some(true));
    drained.await.unwrap();
    let open = home.queues.get_or_create_queue(TENANT, "open").await.unwrap();
    let shut = home.queues.get_or_create_queue(TENANT, "shut").await.unwrap();
    for last in [KEYS[0], KEYS[1], ""] {
        // In one partition, in two, and without a key.
        let chain = [task(&open, KEYS[0], &[]), task(&shut, last, &[0])];
        let refusal = home.queues.enqueue_chain(&chain).await.unwrap_err();
        assert_eq!(refusal.error.code(), "queue_draining");
        assert_eq!(home.view("open").await.counts.iter().sum::<u64>(), 0);
    }
    let long = "k".repeat(2_000);
    let chain = [task(&open, "", &[]), task(&open, &long, &[0])];
    let refusal = home.queues.enqueue_chain(&chain).await.unwrap_err();
    assert_eq!(refusal.task, Some(1));
    assert_eq!(home.view("open").await.counts.iter().sum::<u64>(), 0);
    let circle = [task(&open, "", &[1]), task(&open, "", &[0])];
    let refusal = home.queues.enqueue_chain(&circle).await.unwrap_err();
    assert_eq!(refusal.error.code(), "invalid_request");
    home.stop().await;
}

#[tokio::test]
async fn a_chain_that_was_promised_before_a_crash_is_there_after_the_start() {
    let mut home = TestEngine::new(config()).await;
    home.create_queue("q", SettingsChange::default()).await;
    let queue = home.queues.get_or_create_queue(TENANT, "q").await.unwrap();
    // A crash after the promise: what the chain has in its file, with one of its tasks made
    // already.
    let member = |shard: u16, origin: u128, links: &[u32]| {
        let command = egret_queue::core::command::Enqueue {
            queue: queue.id,
            shard,
            priority: 5,
            origin: Some((origin, 60_000)),
            ..Default::default()
        };
        let mut bytes = Vec::new();
        record::encode_enqueue(&command, &mut bytes);
        chain::Member { record: bytes, links: links.to_vec() }
    };
    let directory = home.directory.join("chains");
    std::fs::create_dir_all(&directory).unwrap();
    for (number, length) in [(1, 1), (1, 3), (1, 3)] {
        let all = [member(0, 1, &[]), member(4_000, 2, &[0]), member(1, 3, &[1])];
        chain::write(&chain::path(&directory, number), &all[..length]).unwrap();
        home.restart().await;
        assert_eq!(states(&home, "q").await, [(1, length as u64 - 1)]);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }
    home.queues.stop().await;
}

#[tokio::test]
async fn a_chain_of_too_many_bytes_is_refused_as_a_whole() {
    let mut config = config();
    config.chain_bytes_max = ByteSize(1_000);
    let home = TestEngine::new(config).await;
    home.create_queue("q", SettingsChange::default()).await;
    let queue = home.queues.get_or_create_queue(TENANT, "q").await.unwrap();
    let half = "x".repeat(500);
    let with_key = |key, links: &[usize]| ChainTask {
        task: NewTask { payload: half.as_bytes(), ..NewTask::default() },
        ..task(&queue, key, links)
    };
    let refused =
        home.queues.enqueue_chain(&[with_key("", &[]), with_key("", &[0])]).await.unwrap_err();
    assert_eq!(
        refused.error.to_string(),
        "the chain has 1016 bytes, but queue.chain_bytes_max is 1000: send a reference instead"
    );
    assert_eq!(states(&home, "q").await, [(0, 0)]);
    home.stop().await;
}
