//! Whose turn it is: promises that can be said in a sentence.

use egret_queue::core::command::{Defer, Enqueue, TaskReport};
use egret_queue::core::state::{ClaimedTask, EnqueueOutcome, State};
use egret_queue::model::QueueSettings;

const BEGIN_MS: u64 = 1_790_000_000_000;

fn partition(settings: QueueSettings) -> State {
    let mut state = State::default();
    state.set_clock(BEGIN_MS, 1);
    state.begin_epoch(1, 7, 0);
    state.put_queue(1, "t", "q", &settings);
    state
}

fn enqueue(state: &mut State, key: u128, priority: u8) -> u64 {
    let task = Enqueue { queue: 1, key, priority, ..Enqueue::default() };
    match state.enqueue(1, &task) {
        Ok(EnqueueOutcome::Created(task)) => task.number,
        other => panic!("no new task: {other:?}"),
    }
}

fn claim(state: &mut State) -> Option<ClaimedTask> {
    let mut claimed = Vec::new();
    state.claim(1, "w", 1, 60_000, &mut claimed);
    claimed.pop()
}

fn complete(state: &mut State, claimed: &ClaimedTask) {
    let held = TaskReport { number: claimed.task.number, token: claimed.token, content: b"" };
    assert_eq!(state.complete(2, &held), Ok(true));
}

/// One key with very many tasks does not keep the others waiting.
#[test]
fn keys_take_turns() {
    let mut state = partition(QueueSettings { key_concurrency: 0, ..QueueSettings::default() });
    let mut key_of = std::collections::BTreeMap::new();
    for _ in 0..1_000 {
        key_of.insert(enqueue(&mut state, 1, 5), 1);
    }
    for key in 2..=10 {
        for _ in 0..10 {
            key_of.insert(enqueue(&mut state, key, 5), key);
        }
    }
    for round in 0..10 {
        let mut keys: Vec<u128> = (0..10)
            .map(|_| key_of[&claim(&mut state).expect("there is more").task.number])
            .collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(1..=10), "round {round}");
    }
}

#[test]
fn a_higher_priority_always_goes_first_without_aging() {
    let mut state = partition(QueueSettings { aging_ms: 0, ..QueueSettings::default() });
    let low = enqueue(&mut state, 0, 0);
    for round in 0..1_000 {
        state.set_clock(BEGIN_MS + round * 100_000, 1);
        let high = enqueue(&mut state, 0, 1 + (round % 9) as u8);
        let claimed = claim(&mut state).expect("there is one");
        assert_eq!(claimed.task.number, high);
        complete(&mut state, &claimed);
    }
    assert_eq!(claim(&mut state).expect("it is left").task.number, low);
}

/// A task of priority 0 goes before those of priority 9 that come nine times `aging_ms` after it.
#[test]
fn nothing_starves_with_aging() {
    let aging_ms = 1_000;
    let mut state = partition(QueueSettings { aging_ms, ..QueueSettings::default() });
    let low = enqueue(&mut state, 0, 0);
    let mut now_ms = BEGIN_MS;
    loop {
        now_ms += 100;
        state.set_clock(now_ms, 1);
        // More comes than is done.
        enqueue(&mut state, 0, 9);
        enqueue(&mut state, 0, 9);
        let claimed = claim(&mut state).expect("there is one");
        if claimed.task.number == low {
            break;
        }
        assert!(now_ms < BEGIN_MS + 30 * aging_ms, "it starves");
    }
    assert!(now_ms > BEGIN_MS + 9 * aging_ms);
}

fn claim_all(state: &mut State) -> Vec<ClaimedTask> {
    let mut claimed = Vec::new();
    state.claim(1, "w", 100, 60_000, &mut claimed);
    claimed
}

fn numbers(claimed: &[ClaimedTask]) -> Vec<u64> {
    claimed.iter().map(|one| one.task.number).collect()
}

fn return_task(state: &mut State, claimed: &ClaimedTask, how: Defer) {
    let held = TaskReport { number: claimed.task.number, token: claimed.token, content: b"" };
    assert_eq!(state.defer(3, &held, 0, how), Ok(true));
}

/// What is given back at once stands before all that are ready; of several, the last one first.
#[test]
fn tasks_given_back_stand_first() {
    for how in [Defer::Release, Defer::Nack, Defer::Snooze] {
        let mut state = partition(QueueSettings::default());
        for _ in 0..5 {
            enqueue(&mut state, 0, 5);
        }
        let [first, second] = [0; 2].map(|_| claim(&mut state).expect("there is one"));
        return_task(&mut state, &first, how);
        return_task(&mut state, &second, how);
        assert_eq!(numbers(&claim_all(&mut state)), [2, 1, 3, 4, 5], "{how:?}");
    }
}

/// Given back the last one first, or when their leases end together, they stand as they did.
#[test]
fn tasks_come_back_in_their_order() {
    let mut state = partition(QueueSettings::default());
    for _ in 0..5 {
        enqueue(&mut state, 0, 5);
    }
    let taken = [0; 3].map(|_| claim(&mut state).expect("there is one"));
    for one in taken.iter().rev() {
        return_task(&mut state, one, Defer::Release);
    }
    let taken = [0; 3].map(|_| claim(&mut state).expect("there is one"));
    assert_eq!(numbers(&taken), [1, 2, 3]);
    state.set_clock(BEGIN_MS + 60_000, 1);
    while state.advance(100) {}
    assert_eq!(numbers(&claim_all(&mut state)), [1, 2, 3, 4, 5]);
}

/// Another attempt after a failure comes behind what is there; of a key, in the key's order.
#[test]
fn a_failed_task_stands_last_and_that_of_a_key_first() {
    let mut at_once = QueueSettings::default();
    at_once.retry.base_ms = 0;
    at_once.retry.max_ms = 0;
    for (key, order) in [(0, [2, 3, 1]), (7, [1, 2, 3])] {
        let mut state = partition(at_once.clone());
        for _ in 0..3 {
            enqueue(&mut state, key, 5);
        }
        let first = claim(&mut state).expect("there is one");
        let held = TaskReport { number: first.task.number, token: first.token, content: b"" };
        assert_eq!(state.fail(3, &held, false), Ok(true));
        let mut found = Vec::new();
        while let Some(claimed) = claim(&mut state) {
            found.push(claimed.task.number);
            complete(&mut state, &claimed);
        }
        assert_eq!(found, order);
    }
}

#[tokio::test]
async fn claims_take_the_highest_priority_of_all_partitions() {
    for partitions in [1, 2, 4] {
        let home = crate::test_engine::TestEngine::new(egret_queue::QueueConfig {
            partitions,
            ..crate::test_engine::config()
        })
        .await;
        home.create_queue("q", egret_queue::SettingsChange::default()).await;
        let spec = egret_queue::WorkSpec {
            queues: vec!["q".to_owned()],
            worker: "hand".to_owned(),
            lease_ms: None,
        };
        for _ in 0..10 {
            for priority in [0, 9, 3, 7] {
                let task = egret_queue::NewTask {
                    priority: Some(priority),
                    ..egret_queue::NewTask::default()
                };
                home.enqueue_one("q", task).await;
            }
            let mut order = Vec::new();
            loop {
                let patience = std::time::Duration::ZERO;
                let claim = home.queues.claim(crate::test_engine::TENANT, &spec, 1, patience);
                let Some(task) = claim.await.unwrap().pop() else {
                    break;
                };
                order.push(task.priority);
            }
            assert_eq!(order, [9, 7, 3, 0], "{partitions} partitions");
        }
        home.stop().await;
    }
}

/// An engine with a queue `q` whose order holds strictly: however slow the machine is, no partition
/// goes ahead of another.
async fn strictly_ordered(partitions: u32) -> crate::test_engine::TestEngine {
    let home = crate::test_engine::TestEngine::new(egret_queue::QueueConfig {
        partitions,
        priority_wait_max: egret_base::settings::ConfigDuration::secs(3_600),
        ..crate::test_engine::config()
    })
    .await;
    let settings =
        egret_queue::SettingsChange { aging_ms: Some(0), ..egret_queue::SettingsChange::default() };
    home.create_queue("q", settings).await;
    home
}

#[tokio::test]
async fn workers_get_the_highest_priority_of_all_partitions() {
    for (partitions, credits) in [(1, 1), (2, 1), (4, 1), (4, 40)] {
        let home = strictly_ordered(partitions).await;
        let mut priorities = std::collections::HashMap::new();
        for number in 0..40 {
            let priority = [0, 9, 3, 7][number % 4];
            let task = egret_queue::NewTask {
                priority: Some(priority),
                ..egret_queue::NewTask::default()
            };
            priorities.insert(home.enqueue_one("q", task).await, priority);
        }
        let worker = home.worker("q", credits).await;
        let mut order = Vec::new();
        for _ in 0..40 {
            let (id, lease, _) = worker.task().await;
            order.push(priorities[&id]);
            worker.complete(lease, "").await;
        }
        let expected = [9, 7, 3, 0].map(|priority| [priority; 10]).concat();
        assert_eq!(order, expected, "{partitions} partitions, {credits} credits");
        home.stop().await;
    }
}

/// Tasks of several priorities in each partition: batches without keys stay together.
#[tokio::test]
async fn batches_of_several_priorities_go_in_order_over_partitions() {
    let priorities = [[9, 5, 3], [7, 9, 1], [5, 2, 8]];
    let mut expected: Vec<u32> = priorities.concat();
    expected.sort_unstable_by_key(|priority| std::cmp::Reverse(*priority));
    for (partitions, credits) in [(2, 1), (2, 40), (3, 40)] {
        let home = strictly_ordered(partitions).await;
        let mut known = std::collections::HashMap::new();
        for batch in priorities {
            let tasks = batch.map(|priority| egret_queue::NewTask {
                priority: Some(priority),
                ..egret_queue::NewTask::default()
            });
            let outcomes = home.enqueue("q", &tasks).await;
            known.extend(outcomes.into_iter().map(|made| made.unwrap().id).zip(batch));
        }
        let mut order = Vec::new();
        if credits == 40 {
            // One claim for several takes them in the same order.
            let spec = egret_queue::WorkSpec {
                queues: vec!["q".to_owned()],
                worker: "hand".to_owned(),
                lease_ms: None,
            };
            let claim =
                home.queues.claim(crate::test_engine::TENANT, &spec, 4, std::time::Duration::ZERO);
            let claimed = crate::test_engine::run_with_timeout(claim).await.unwrap();
            order.extend(claimed.iter().map(|task| known[&task.id]));
        }
        let worker = home.worker("q", credits).await;
        while order.len() < expected.len() {
            let (id, lease, _) = worker.task().await;
            order.push(known[&id]);
            worker.complete(lease, "").await;
        }
        assert_eq!(order, expected, "{partitions} partitions, {credits} credits");
        home.stop().await;
    }
}
