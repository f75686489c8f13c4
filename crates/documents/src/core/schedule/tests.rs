//! Which writes run beside each other.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn name(number: u128) -> Key {
    Key::Name(TenantId(1), Uuid::from_u128(number))
}

fn alone(numbers: &[u128]) -> Claims {
    Claims {
        alone: numbers.iter().copied().map(name).collect(),
        ..Claims::default()
    }
}

fn shared(numbers: &[u128]) -> Claims {
    Claims {
        shared: numbers.iter().copied().map(name).collect(),
        ..Claims::default()
    }
}

fn taken(schedule: &mut Schedule<&'static str>) -> Vec<Taken<&'static str>> {
    schedule.take(256)
}

fn names(taken: &[Taken<&'static str>]) -> Vec<&'static str> {
    taken.iter().map(|one| one.write).collect()
}

#[test]
fn writes_of_different_documents_are_a_group_and_of_the_same_are_not() {
    let mut schedule = Schedule::default();
    schedule.push(alone(&[1]), 1, "a");
    schedule.push(alone(&[2]), 1, "b");
    schedule.push(alone(&[1]), 1, "again a");
    let first = taken(&mut schedule);
    assert_eq!(names(&first), ["a", "b"]);
    assert!(taken(&mut schedule).is_empty());
    schedule.release(first[0].ticket);
    assert_eq!(names(&taken(&mut schedule)), ["again a"]);
    assert_eq!(schedule.deferred(), 1);
}

#[test]
fn a_target_may_be_shared_and_its_removal_waits_and_is_waited_for() {
    let mut schedule = Schedule::default();
    schedule.push(shared(&[7]), 1, "refers");
    schedule.push(shared(&[7]), 1, "refers too");
    schedule.push(alone(&[7]), 1, "removes");
    schedule.push(shared(&[7]), 1, "refers later");
    let first = taken(&mut schedule);
    assert_eq!(names(&first), ["refers", "refers too"]);
    schedule.release(first[0].ticket);
    assert!(taken(&mut schedule).is_empty(), "one still relies on it");
    schedule.release(first[1].ticket);
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["removes"]);
    schedule.release(second[0].ticket);
    assert_eq!(names(&taken(&mut schedule)), ["refers later"]);
}

#[test]
fn what_claims_everything_is_alone() {
    let mut schedule = Schedule::default();
    schedule.push(alone(&[1]), 1, "before");
    schedule.push(Claims::everything(), 1, "everything");
    schedule.push(alone(&[2]), 1, "after");
    let first = taken(&mut schedule);
    assert_eq!(names(&first), ["before"]);
    assert!(taken(&mut schedule).is_empty());
    schedule.release(first[0].ticket);
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["everything"]);
    assert!(taken(&mut schedule).is_empty());
    schedule.release(second[0].ticket);
    assert_eq!(names(&taken(&mut schedule)), ["after"]);
}

#[test]
fn a_claim_found_out_later_is_had_or_waited_for() {
    let mut schedule = Schedule::default();
    schedule.push(alone(&[1]), 1, "removes");
    schedule.push(shared(&[5]), 1, "refers");
    let mut first = taken(&mut schedule);
    assert_eq!(
        schedule.claim(vec![(first[0].ticket, alone(&[5]))]),
        [false]
    );
    let removes = first.remove(0);
    schedule.put_back(removes, alone(&[5]));
    schedule.push(shared(&[5]), 1, "refers later");
    assert!(taken(&mut schedule).is_empty());
    schedule.release(first[0].ticket);
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["removes"]);
    assert_eq!(
        schedule.claim(vec![(second[0].ticket, shared(&[9]))]),
        [true]
    );
    schedule.release(second[0].ticket);
    assert_eq!(names(&taken(&mut schedule)), ["refers later"]);
    assert_eq!(schedule.held.keys.len(), 1);
}

#[test]
fn who_cannot_have_what_is_found_out_holds_up_those_behind() {
    let mut schedule = Schedule::default();
    // The document 9 is called 1: that is found out when it is looked up.
    schedule.push(alone(&[1]), 1, "writes by name");
    schedule.push(alone(&[9]), 1, "removes by number");
    schedule.push(alone(&[3]), 1, "has nothing to do with it");
    let first = taken(&mut schedule);
    assert_eq!(first.len(), 3);
    let tickets: Vec<Ticket> = first.iter().map(|one| one.ticket).collect();
    let more = [alone(&[9]), alone(&[1]), Claims::default()];
    let group = tickets.iter().copied().zip(more.clone()).collect();
    assert_eq!(schedule.claim(group), [false, false, true]);
    for (one, more) in first.into_iter().zip(more).take(2) {
        schedule.put_back(one, more);
    }
    let second = taken(&mut schedule);
    assert_eq!(names(&second), ["writes by name"]);
    schedule.release(second[0].ticket);
    assert_eq!(names(&taken(&mut schedule)), ["removes by number"]);
}

#[test]
fn a_write_may_rely_on_what_it_changes() {
    let mut schedule = Schedule::default();
    let both = Claims {
        alone: vec![name(1)],
        shared: vec![name(1)],
        ..Claims::default()
    };
    schedule.push(both, 1, "refers to itself");
    let first = taken(&mut schedule);
    assert_eq!(first.len(), 1);
    schedule.release(first[0].ticket);
    assert!(schedule.held.keys.is_empty());
}

fn claims() -> impl Strategy<Value = Claims> {
    let keys = || proptest::collection::vec(0_u128..6, 0..3);
    (keys(), keys(), 0..20).prop_map(|(alone, shared, everything)| Claims {
        everything: everything == 0,
        alone: alone.into_iter().map(name).collect(),
        shared: shared.into_iter().map(name).collect(),
    })
}

proptest! {
    /// Whatever comes and ends: none that run conflict, those that conflict run in the order in which they came, all run in the end.
    #[test]
    fn those_that_run_never_conflict(
        writes in proptest::collection::vec((claims(), 0_usize..4), 1..60),
        most in 1_usize..5,
    ) {
        let mut schedule = Schedule::default();
        let all: Vec<Claims> = writes.iter().map(|(claims, _)| claims.clone()).collect();
        let mut running: HashMap<usize, Ticket> = HashMap::new();
        let mut begun: Vec<usize> = Vec::new();
        let conflict = |one: &Claims, other: &Claims| {
            let has = |keys: &[Key], key: &Key| keys.contains(key);
            one.everything || other.everything
                || one.alone.iter().any(|key| has(&other.alone, key) || has(&other.shared, key))
                || one.shared.iter().any(|key| has(&other.alone, key))
        };
        for (number, (claims, ends)) in writes.into_iter().enumerate() {
            schedule.push(claims, 1, number);
            for one in schedule.take(most) {
                for other in running.keys() {
                    prop_assert!(!conflict(&all[one.write], &all[*other]));
                }
                for earlier in 0..one.write {
                    prop_assert!(begun.contains(&earlier) || !conflict(&all[earlier], &all[one.write]));
                }
                running.insert(one.write, one.ticket);
                begun.push(one.write);
            }
            for number in running.keys().copied().take(ends).collect::<Vec<_>>() {
                schedule.release(running.remove(&number).unwrap());
            }
        }
        while schedule.waiting() > 0 {
            running.drain().for_each(|(_, ticket)| schedule.release(ticket));
            let taken = schedule.take(most);
            prop_assert!(!taken.is_empty());
            running.extend(taken.into_iter().map(|one| (one.write, one.ticket)));
        }
        running.drain().for_each(|(_, ticket)| schedule.release(ticket));
        prop_assert!(schedule.held.keys.is_empty() && !schedule.held.everything);
    }
}
