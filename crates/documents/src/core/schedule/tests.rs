//! Scheduling of conflicting writes.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn name(number: u128) -> LockKey {
    LockKey::Alias(TenantId(1), AliasId(Uuid::from_u128(number)))
}

fn exclusive(numbers: &[u128]) -> LockSet {
    LockSet { exclusive: numbers.iter().copied().map(name).collect(), ..LockSet::default() }
}

fn shared(numbers: &[u128]) -> LockSet {
    LockSet { shared: numbers.iter().copied().map(name).collect(), ..LockSet::default() }
}

fn taken(schedule: &mut ConflictScheduler<&'static str>) -> Vec<(Ticket, &'static str)> {
    schedule.admit(256)
}

fn names(taken: &[(Ticket, &'static str)]) -> Vec<&'static str> {
    taken.iter().map(|one| one.1).collect()
}

#[test]
fn writes_of_different_documents_are_a_group_and_of_the_same_are_not() {
    let mut schedule = ConflictScheduler::default();
    schedule.push(exclusive(&[1]), 1, "a");
    schedule.push(exclusive(&[2]), 1, "b");
    schedule.push(exclusive(&[1]), 1, "again a");
    let first = taken(&mut schedule);
    assert_eq!(names(&first), ["a", "b"]);
    assert!(taken(&mut schedule).is_empty());
    schedule.release(first[0].0);
    assert_eq!(names(&taken(&mut schedule)), ["again a"]);
}

#[test]
fn a_target_may_be_shared_and_its_removal_waits_and_is_waited_for() {
    let mut schedule = ConflictScheduler::default();
    schedule.push(shared(&[7]), 1, "refers");
    schedule.push(shared(&[7]), 1, "refers too");
    schedule.push(exclusive(&[7]), 1, "removes");
    schedule.push(shared(&[7]), 1, "refers later");
    let first = taken(&mut schedule);
    assert_eq!(names(&first), ["refers", "refers too"]);
    schedule.release(first[0].0);
    assert!(taken(&mut schedule).is_empty(), "one still relies on it");
    schedule.release(first[1].0);
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["removes"]);
    schedule.release(second[0].0);
    assert_eq!(names(&taken(&mut schedule)), ["refers later"]);
}

#[test]
fn a_database_lock_runs_alone() {
    let mut schedule = ConflictScheduler::default();
    schedule.push(exclusive(&[1]), 1, "before");
    schedule.push(LockSet::whole_database(), 1, "everything");
    schedule.push(exclusive(&[2]), 1, "after");
    let first = taken(&mut schedule);
    assert_eq!(names(&first), ["before"]);
    assert!(taken(&mut schedule).is_empty());
    schedule.release(first[0].0);
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["everything"]);
    assert!(taken(&mut schedule).is_empty());
    schedule.release(second[0].0);
    assert_eq!(names(&taken(&mut schedule)), ["after"]);
}

#[test]
fn extended_locks_are_granted_or_waited_for() {
    let mut schedule = ConflictScheduler::default();
    schedule.push(exclusive(&[1]), 1, "removes");
    schedule.push(shared(&[5]), 1, "refers");
    let mut first = taken(&mut schedule);
    assert_eq!(schedule.extend_locks(&[(first[0].0, exclusive(&[5]))]), [false]);
    let removes = first.remove(0);
    schedule.put_back(removes.0, removes.1, exclusive(&[5]));
    schedule.push(shared(&[5]), 1, "refers later");
    assert!(taken(&mut schedule).is_empty());
    schedule.release(first[0].0);
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["removes"]);
    assert_eq!(schedule.extend_locks(&[(second[0].0, shared(&[9]))]), [true]);
    schedule.release(second[0].0);
    assert_eq!(names(&taken(&mut schedule)), ["refers later"]);
    assert_eq!(schedule.lock_table.keys.len(), 1);
}

#[test]
fn a_write_that_waits_for_extended_locks_blocks_later_ones() {
    let mut schedule = ConflictScheduler::default();
    // Document 9 has alias 1, which is known only after the look-up.
    schedule.push(exclusive(&[1]), 1, "writes by name");
    schedule.push(exclusive(&[9]), 1, "removes by number");
    schedule.push(exclusive(&[3]), 1, "has nothing to do with it");
    let first = taken(&mut schedule);
    assert_eq!(first.len(), 3);
    let tickets: Vec<Ticket> = first.iter().map(|one| one.0).collect();
    let more = [exclusive(&[9]), exclusive(&[1]), LockSet::default()];
    let group: Vec<(Ticket, LockSet)> = tickets.into_iter().zip(more.clone()).collect();
    assert_eq!(schedule.extend_locks(&group), [false, false, true]);
    for (one, more) in first.into_iter().zip(more).take(2) {
        schedule.put_back(one.0, one.1, more);
    }
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["writes by name"]);
    schedule.release(second[0].0);
    assert_eq!(names(&taken(&mut schedule)), ["removes by number"]);
}

#[test]
fn a_write_may_rely_on_what_it_changes() {
    let mut schedule = ConflictScheduler::default();
    let both = LockSet { exclusive: vec![name(1)], shared: vec![name(1)], ..LockSet::default() };
    schedule.push(both, 1, "refers to itself");
    let first = taken(&mut schedule);
    assert_eq!(first.len(), 1);
    schedule.release(first[0].0);
    assert!(schedule.lock_table.keys.is_empty());
}

fn locks() -> impl Strategy<Value = LockSet> {
    let keys = || proptest::collection::vec(0_u128..6, 0..3);
    (keys(), keys(), 0..20).prop_map(|(exclusive, shared, database)| LockSet {
        locks_database: database == 0,
        exclusive: exclusive.into_iter().map(name).collect(),
        shared: shared.into_iter().map(name).collect(),
    })
}

proptest! {
    /// For any sequence of events: running writes do not conflict, conflicting ones run in the
    /// order of arrival, and all run in the end.
    #[test]
    fn those_that_run_never_conflict(
        writes in proptest::collection::vec((locks(), 0_usize..4), 1..60),
        most in 1_usize..5,
    ) {
        let mut schedule = ConflictScheduler::default();
        let all: Vec<LockSet> = writes.iter().map(|(locks, _)| locks.clone()).collect();
        let mut running: HashMap<usize, Ticket> = HashMap::new();
        let mut begun: Vec<usize> = Vec::new();
        let conflict = |one: &LockSet, other: &LockSet| {
            let has = |keys: &[LockKey], key: &LockKey| keys.contains(key);
            one.locks_database || other.locks_database
                || one.exclusive.iter().any(|key| has(&other.exclusive, key) || has(&other.shared, key))
                || one.shared.iter().any(|key| has(&other.exclusive, key))
        };
        for (number, (locks, ends)) in writes.into_iter().enumerate() {
            schedule.push(locks, 1, number);
            for one in schedule.admit(most) {
                for other in running.keys() {
                    prop_assert!(!conflict(&all[one.1], &all[*other]));
                }
                for earlier in 0..one.1 {
                    prop_assert!(begun.contains(&earlier) || !conflict(&all[earlier], &all[one.1]));
                }
                running.insert(one.1, one.0);
                begun.push(one.1);
            }
            for number in running.keys().copied().take(ends).collect::<Vec<_>>() {
                schedule.release(running.remove(&number).unwrap());
            }
        }
        while schedule.waiting() > 0 {
            running.drain().for_each(|(_, ticket)| schedule.release(ticket));
            let taken = schedule.admit(most);
            prop_assert!(!taken.is_empty());
            running.extend(taken.into_iter().map(|one| (one.1, one.0)));
        }
        running.drain().for_each(|(_, ticket)| schedule.release(ticket));
        prop_assert!(schedule.lock_table.keys.is_empty() && !schedule.lock_table.is_database_locked);
    }
}
