//! Single rules; the simulator in `tests/it` has the rest.

use super::*;
use crate::core::command::{Defer, Held};

/// Time of the first clock, in Unix milliseconds.
const BEGIN_MS: u64 = 1_790_000_000_000;

/// A partition with queue 1, in its first epoch.
fn partition(settings: QueueSettings) -> State {
    let mut state = State::default();
    state.set_clock(BEGIN_MS, 1);
    state.begin_epoch(1, 7, 0);
    state.put_queue(1, "t", "q", &settings);
    state
}

/// Makes a task of an ordering key, or of none.
fn enqueue(state: &mut State, key: u128) -> u64 {
    let task = Enqueue {
        queue: 1,
        key,
        ..Enqueue::default()
    };
    made(state, &task)
}

fn made(state: &mut State, task: &Enqueue<'_>) -> u64 {
    match state.enqueue(1, task) {
        Ok(Enqueued::Made(task)) => task.number,
        other => panic!("no new task: {other:?}"),
    }
}

/// Numbers of the tasks that a worker gets, and their tokens.
fn claim(state: &mut State, count: u32) -> Vec<(u64, u64)> {
    let mut claimed = Vec::new();
    state.claim(1, "w", count, 1_000, &mut claimed);
    let leases = claimed.iter().map(|one| (one.task.number, one.token));
    leases.collect()
}

fn held(number: u64, token: u64) -> Held<'static> {
    Held {
        number,
        token,
        content: b"",
    }
}

/// Lets time pass and does what is due then.
fn pass(state: &mut State, passed_ms: u64) {
    state.set_clock(state.now_ms + passed_ms, 1);
    while state.advance(100) {}
}

fn state_of(state: &State, number: u64) -> TaskState {
    let place = state.place_of(number).unwrap();
    state.entry(place).state
}

#[test]
fn no_lease_is_not_a_lease() {
    let mut state = partition(QueueSettings::default());
    let number = enqueue(&mut state, 0);
    let nobody = held(number, 0);
    assert_eq!(state.fail(2, &nobody, false), Err(Refusal::LeaseLost));
    let deferred = state.defer(2, &nobody, 0, Defer::Nack);
    assert_eq!(deferred, Err(Refusal::LeaseLost));
    let (number, _) = claim(&mut state, 1)[0];
    assert_eq!(state.complete(2, &held(number, 0)), Err(Refusal::LeaseLost));
}

/// Leases of two epochs may have the same count: a report is repeated only with the whole token.
#[test]
fn a_lease_of_another_epoch_is_another() {
    let mut state = partition(QueueSettings::default());
    enqueue(&mut state, 0);
    let (number, stale) = claim(&mut state, 1)[0];
    state.begin_epoch(2, 7, 0);
    pass(&mut state, 2_000);
    let (_, token) = claim(&mut state, 1)[0];
    assert_eq!(stale as u32, token as u32);
    assert_eq!(state.complete(2, &held(number, token)), Ok(true));
    assert_eq!(state.complete(3, &held(number, stale)), Err(Refusal::LeaseLost));
    assert_eq!(state.complete(3, &held(number, token)), Ok(false));
}

#[test]
fn leases_differ_whatever_becomes_of_epochs() {
    let mut state = partition(QueueSettings::default());
    for _ in 0..4 {
        enqueue(&mut state, 0);
    }
    let (_, first) = claim(&mut state, 1)[0];
    // An epoch that is none of its own.
    state.begin_epoch(1, 8, 0);
    let (_, second) = claim(&mut state, 1)[0];
    assert_ne!(first, second);
    // As after a trillion leases.
    state.leases = (1 << lease::LEASE_BITS) - 1;
    let (_, third) = claim(&mut state, 1)[0];
    assert_eq!((third >> lease::LEASE_BITS, state.epoch), (2, 2));
    state.begin_epoch(state.epoch + 1, 7, 0);
    let (_, fourth) = claim(&mut state, 1)[0];
    assert_ne!(third, fourth);
}

#[test]
fn grace_is_not_for_timeouts() {
    let settings = QueueSettings {
        timeout_ms: 3_000,
        ..QueueSettings::default()
    };
    let mut state = partition(settings);
    enqueue(&mut state, 0);
    let (number, _) = claim(&mut state, 1)[0];
    state.begin_epoch(2, 7, 10_000);
    pass(&mut state, 2_000);
    assert_eq!(state_of(&state, number), TaskState::Leased);
    pass(&mut state, 1_000);
    assert_eq!(state.news.lost[0].end, AttemptEnd::TimedOut);
}

/// What is not logged must not be seen in what comes after it.
#[test]
fn a_claim_that_gets_nothing_leaves_no_trace() {
    let mut state = partition(QueueSettings::default());
    let mut claimed = Vec::new();
    state.claim(1, "somebody", 5, 1_000, &mut claimed);
    enqueue(&mut state, 0);
    state.claim(1, "else", 5, 1_000, &mut claimed);
    let worker = state.entry(state.place_of(1).unwrap()).worker;
    assert_eq!((worker, state.worker(worker)), (1, "else"));
}

#[test]
fn tasks_put_off_until_the_same_time_keep_their_order() {
    let mut state = partition(QueueSettings::default());
    let numbers: Vec<u64> = (0..5)
        .map(|_| {
            let task = Enqueue {
                queue: 1,
                key: 9,
                run_at_ms: BEGIN_MS + 100_000,
                ..Enqueue::default()
            };
            made(&mut state, &task)
        })
        .collect();
    pass(&mut state, 100_000);
    for number in numbers {
        let (claimed, token) = claim(&mut state, 5)[0];
        assert_eq!(claimed, number);
        state.complete(2, &held(number, token)).unwrap();
    }
}

#[test]
fn tasks_of_a_worker_that_died_keep_their_order() {
    let mut state = partition(QueueSettings::default());
    for _ in 0..10 {
        enqueue(&mut state, 0);
    }
    let before = claim(&mut state, 5);
    pass(&mut state, 100_000);
    let after = claim(&mut state, 10);
    assert!(before.iter().map(|one| one.0).eq(1..=5));
    assert!(after.iter().map(|one| one.0).eq(1..=10));
}
