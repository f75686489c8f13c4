//! Single rules; the simulator in `tests/it` has the rest.

use super::chain::DEPENDENTS_MAX;
use super::lease;
use super::machine::State;
use super::message::{Message, MessageKind, tenant_mark};
use super::rows::EnqueueOutcome;
use super::schedule::CALLBACK_QUEUE;
use super::shared_record::{RecordOwner, SharedRecord};
use super::tenants::TaskLoad;
use crate::core::command::{Defer, Enqueue, Refusal, TaskReport};
use crate::core::entry::TaskState;
use crate::model::{AttemptEnd, QueueSettings, Retention, TaskId};

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
    let task = Enqueue { queue: 1, key, ..Enqueue::default() };
    enqueue_task(state, &task)
}

fn enqueue_task(state: &mut State, task: &Enqueue<'_>) -> u64 {
    match state.enqueue(1, task) {
        Ok(EnqueueOutcome::Created(task)) => task.number,
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

fn report(number: u64, token: u64) -> TaskReport<'static> {
    TaskReport { number, token, content: b"" }
}

/// Lets time pass and does what is due then.
fn advance_time(state: &mut State, passed_ms: u64) {
    state.set_clock(state.now_ms + passed_ms, 1);
    while state.advance(100) {}
}

fn state_of(state: &State, number: u64) -> TaskState {
    let place = state.slot_of(number).unwrap();
    state.entry(place).state
}

#[test]
fn no_lease_is_not_a_lease() {
    let mut state = partition(QueueSettings::default());
    let number = enqueue(&mut state, 0);
    let nobody = report(number, 0);
    assert_eq!(state.fail(2, &nobody, false), Err(Refusal::LeaseLost));
    let deferred = state.defer(2, &nobody, 0, Defer::Nack);
    assert_eq!(deferred, Err(Refusal::LeaseLost));
    let (number, _) = claim(&mut state, 1)[0];
    assert_eq!(state.complete(2, &report(number, 0)), Err(Refusal::LeaseLost));
}

/// Leases of two epochs may have the same count: a report is repeated only with the whole token.
#[test]
fn a_lease_of_another_epoch_is_another() {
    let mut state = partition(QueueSettings::default());
    enqueue(&mut state, 0);
    let (number, stale) = claim(&mut state, 1)[0];
    state.begin_epoch(2, 7, 0);
    advance_time(&mut state, 2_000);
    let (_, token) = claim(&mut state, 1)[0];
    assert_eq!(stale as u32, token as u32);
    assert_eq!(state.complete(2, &report(number, token)), Ok(true));
    assert_eq!(state.complete(3, &report(number, stale)), Err(Refusal::LeaseLost));
    assert_eq!(state.complete(3, &report(number, token)), Ok(false));
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
    state.leases_given = (1 << lease::LEASE_BITS) - 1;
    let (_, third) = claim(&mut state, 1)[0];
    assert_eq!((third >> lease::LEASE_BITS, state.epoch), (2, 2));
    state.begin_epoch(state.epoch + 1, 7, 0);
    let (_, fourth) = claim(&mut state, 1)[0];
    assert_ne!(third, fourth);
}

#[test]
fn grace_is_not_for_timeouts() {
    let settings = QueueSettings { timeout_ms: 3_000, ..QueueSettings::default() };
    let mut state = partition(settings);
    enqueue(&mut state, 0);
    let (number, _) = claim(&mut state, 1)[0];
    state.begin_epoch(2, 7, 10_000);
    advance_time(&mut state, 2_000);
    assert_eq!(state_of(&state, number), TaskState::Leased);
    advance_time(&mut state, 1_000);
    assert_eq!(state.events.lost_leases[0].end, AttemptEnd::TimedOut);
}

/// What is not logged must not be seen in what comes after it.
#[test]
fn a_claim_that_gets_nothing_leaves_no_trace() {
    let mut state = partition(QueueSettings::default());
    let mut claimed = Vec::new();
    state.claim(1, "somebody", 5, 1_000, &mut claimed);
    enqueue(&mut state, 0);
    state.claim(1, "else", 5, 1_000, &mut claimed);
    let worker = state.entry(state.slot_of(1).unwrap()).worker;
    assert_eq!((worker, state.worker_name(worker)), (1, "else"));
}

#[test]
fn tasks_put_off_until_the_same_time_keep_their_order() {
    let mut state = partition(QueueSettings::default());
    let numbers: Vec<u64> = (0..5)
        .map(|_| {
            let task =
                Enqueue { queue: 1, key: 9, run_at_ms: BEGIN_MS + 100_000, ..Enqueue::default() };
            enqueue_task(&mut state, &task)
        })
        .collect();
    advance_time(&mut state, 100_000);
    for number in numbers {
        let (claimed, token) = claim(&mut state, 5)[0];
        assert_eq!(claimed, number);
        state.complete(2, &report(number, token)).unwrap();
    }
}

#[test]
fn tasks_of_a_worker_that_died_keep_their_order() {
    let mut state = partition(QueueSettings::default());
    for _ in 0..10 {
        enqueue(&mut state, 0);
    }
    let before = claim(&mut state, 5);
    advance_time(&mut state, 100_000);
    let after = claim(&mut state, 10);
    assert!(before.iter().map(|one| one.0).eq(1..=5));
    assert!(after.iter().map(|one| one.0).eq(1..=10));
}

#[test]
fn a_queue_that_is_resumed_has_its_turn() {
    let mut state = partition(QueueSettings::default());
    state.set_queue_flags(1, true, false).unwrap();
    enqueue(&mut state, 0);
    state.events.readiness_changes.clear();
    state.set_queue_flags(1, false, false).unwrap();
    assert_eq!(state.events.readiness_changes, [1]);
}

/// Also when each task that ends is deleted at once, so that each is the first of its list.
#[test]
fn one_note_is_kept_of_the_age_of_a_list() {
    let day_ms = 86_400_000;
    let settings = QueueSettings {
        completed: Retention { age_ms: day_ms, count: 0 },
        ..QueueSettings::default()
    };
    let mut state = partition(settings);
    for round in 0..100 {
        state.set_clock(BEGIN_MS + round, 1);
        enqueue(&mut state, 0);
        let (number, token) = claim(&mut state, 1)[0];
        state.complete(2, &report(number, token)).unwrap();
        if round < 99 {
            state.delete(number).unwrap();
        }
    }
    assert_eq!(state.retention_checks.len(), 1);
    state = State::restore(state.take_snapshot());
    advance_time(&mut state, day_ms - 1);
    assert_eq!((state.len(), state.retention_checks.len()), (1, 1));
    advance_time(&mut state, 1);
    assert_eq!((state.len(), state.retention_checks.len()), (0, 0));
}

#[test]
fn keys_that_may_begin_after_a_change_come_in_the_order_of_their_tasks() {
    let one_at_a_time = QueueSettings::default();
    let mut state = partition(one_at_a_time.clone());
    // The places of flows are used again, the last one first.
    let gone: Vec<u64> = (1..6).map(|key| enqueue(&mut state, key)).collect();
    for number in gone {
        state.delete(number).unwrap();
    }
    for key in 1..6 {
        enqueue(&mut state, key);
        enqueue(&mut state, key);
    }
    claim(&mut state, 5);
    assert_eq!(claim(&mut state, 5), []);
    let two_at_a_time = QueueSettings { key_concurrency: 2, ..one_at_a_time };
    state.put_queue(1, "t", "q", &two_at_a_time);
    let numbers = claim(&mut state, 5).into_iter().map(|one| one.0);
    assert!(numbers.eq([7, 9, 11, 13, 15]));
}

#[test]
fn ids_of_queues_are_not_used_again() {
    let mut state = partition(QueueSettings::default());
    state.put_queue(5, "t", "r", &QueueSettings::default());
    state.delete_queue(5).unwrap();
    assert_eq!(state.next_due_ms(), Some(BEGIN_MS));
    advance_time(&mut state, 0);
    assert_eq!((state.next_queue_id(), state.next_due_ms()), (6, None));
    assert_eq!(State::restore(state.take_snapshot()).next_queue_id(), 6);
}

#[test]
fn callbacks_are_not_made_in_a_queue_that_goes() {
    let mut state = partition(QueueSettings::default());
    state.put_queue(CALLBACK_QUEUE, "", "callbacks", &QueueSettings::default());
    state.delete_queue(CALLBACK_QUEUE).unwrap();
    let task = Enqueue { queue: 1, callback: true, ..Enqueue::default() };
    let number = enqueue_task(&mut state, &task);
    state.cancel(number).unwrap();
    assert_eq!((state.len(), state.callback_subjects.len()), (1, 0));
}

/// A task may be waited for by very many: each message that asks for it costs the same.
#[test]
fn a_task_that_many_wait_for_knows_each_once() {
    let mut state = partition(QueueSettings::default());
    let number = enqueue(&mut state, 0);
    let id = state.id_at(state.slot_of(number).unwrap());
    let whose = tenant_mark("t");
    for waiting in 0..20_000 {
        state.await_task(id, TaskId::new(1, 1, 1, waiting % 10_000), whose);
    }
    state.cancel(number).unwrap();
    assert_eq!(state.messages().count(), 10_000);
}

#[test]
fn a_question_that_the_power_took_is_asked_again() {
    let mut partition = partition(QueueSettings::default());
    let first = enqueue(&mut partition, 0);
    let first = partition.id_at(partition.slot_of(first).unwrap());
    let after = first.to_bytes();
    let task = Enqueue { queue: 1, after: &after, ..Enqueue::default() };
    let second = enqueue_task(&mut partition, &task);
    // It was noted as delivered, and what it was delivered to lost it.
    let lost = partition.messages().next().map(|(number, _)| number);
    partition.remove_message(lost.unwrap());
    let (number, token) = claim(&mut partition, 1)[0];
    partition.complete(1, &report(number, token)).unwrap();
    assert_eq!(partition.messages().count(), 0);
    for epoch in 2..4 {
        partition.begin_epoch(epoch, 7, 0);
        assert_eq!(partition.messages().count(), 1, "and only once");
    }
    for _ in 0..2 {
        let (number, message) = partition.messages().next().unwrap();
        let (kind, to, from) = (message.kind, message.to, message.from);
        match kind {
            MessageKind::Await { tenant } => partition.await_task(to, from, tenant),
            MessageKind::Ended { completed } => partition.resolve(9, to, from, completed),
        }
        partition.remove_message(number);
    }
    assert_eq!(state_of(&partition, second), TaskState::Ready);
}

#[test]
fn a_number_that_was_lowered_is_reached_step_by_step_without_anybody_ending() {
    let mut state = partition(QueueSettings::default());
    for _ in 0..100 {
        enqueue(&mut state, 0);
    }
    for (number, token) in claim(&mut state, 100) {
        assert_eq!(state.complete(2, &report(number, token)), Ok(true));
    }
    assert!(!state.advance(10));
    let few =
        QueueSettings { completed: Retention { age_ms: 0, count: 5 }, ..QueueSettings::default() };
    state.put_queue(1, "t", "q", &few);
    assert_eq!(state.next_due_ms(), Some(state.now_ms));
    // Also when it goes on from a snapshot.
    let mut state = State::restore(state.take_snapshot());
    for left in [90, 80, 70] {
        assert!(state.advance(10));
        assert_eq!(state.len(), left);
    }
    while state.advance(10) {}
    assert_eq!((state.len(), state.next_due_ms()), (5, None));
    assert_eq!(state_of(&state, 100), TaskState::Completed);
    assert_eq!(state.slot_of(95), None);
}

/// A message that comes again, after what it asks about is gone, does not undo the answer that came
/// first.
#[test]
fn to_ask_again_about_a_task_that_is_gone_cancels_nobody() {
    let mut state = partition(QueueSettings::default());
    let first = enqueue(&mut state, 0);
    let first_id = state.id_at(state.slot_of(first).unwrap());
    let second = enqueue_task(
        &mut state,
        &Enqueue { queue: 1, after: &first_id.to_bytes(), ..Enqueue::default() },
    );
    let second_id = state.id_at(state.slot_of(second).unwrap());
    let leases = claim(&mut state, 2);
    assert_eq!(leases.len(), 1);
    state.await_task(first_id, second_id, tenant_mark("t"));
    state.complete(9, &report(first, leases[0].1)).unwrap();
    state.delete(first).unwrap();
    state.await_task(first_id, second_id, tenant_mark("t"));
    let told: Vec<Message> = state.messages().map(|(_, message)| *message).collect();
    let ended: Vec<bool> = told
        .iter()
        .filter_map(|message| match message.kind {
            MessageKind::Ended { completed } => Some(completed),
            MessageKind::Await { .. } => None,
        })
        .collect();
    assert_eq!(ended, [true, false]);
    for completed in ended {
        state.resolve(9, second_id, first_id, completed);
    }
    assert_eq!(state_of(&state, second), TaskState::Ready);
}

#[test]
fn so_many_may_wait_for_a_task_and_no_more() {
    let mut state = partition(QueueSettings::default());
    let number = enqueue(&mut state, 0);
    let id = state.id_at(state.slot_of(number).unwrap());
    let waiting = |number: u64| TaskId::new(BEGIN_MS, 1, 9, number);
    for number in 0..DEPENDENTS_MAX as u64 {
        state.await_task(id, waiting(number), tenant_mark("t"));
    }
    // One of them again.
    state.await_task(id, waiting(7), tenant_mark("t"));
    assert_eq!(state.message_count(), 0);
    state.await_task(id, waiting(DEPENDENTS_MAX as u64), tenant_mark("t"));
    let (_, told) = state.messages().next().unwrap();
    assert_eq!(told.to, waiting(DEPENDENTS_MAX as u64));
    assert_eq!(told.kind, MessageKind::Ended { completed: false });
}

/// A sum that has less than is taken from it is zero, and says so: wrapped, it would lock the
/// tenant out.
#[test]
fn a_sum_that_was_counted_wrongly_ends_at_zero() {
    let mut state = partition(QueueSettings::default());
    let number = enqueue(&mut state, 0);
    let tenant = state.queues[1].tenant_slot;
    state.tenants.load_mut(tenant).tasks = 0;
    assert_eq!(state.delete(number), Ok(()));
    assert_eq!(state.tenant_load("t"), TaskLoad::default());
    assert_eq!(state.events.miscounts, 1);
}

#[test]
fn a_record_that_is_given_back_without_a_holder_was_counted_wrongly() {
    let mut state = partition(QueueSettings::default());
    let shared = SharedRecord {
        tenant: state.tenants.acquire("t"),
        owner: RecordOwner::Schedule,
        bytes: 0,
        holders: 0,
    };
    state.shared_records.insert(77, shared);
    state.release_record(77);
    assert_eq!(state.events.miscounts, 1);
    assert_eq!(state.shared_records().count(), 0);
}
