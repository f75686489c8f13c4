//! Which receivers get a slot, and which have to leave it to others.

use super::*;

const QUICK_ANSWER: Delivery = Delivery::Answered(Duration::from_millis(5));

fn no_answer() -> Delivery {
    Delivery::Unanswered("no answer in time".to_owned())
}

fn is_granted(slots: &mut Slots, receiver: &str, tenant: &str) -> bool {
    slots.acquire(receiver, tenant, 0) == Admission::Granted
}

#[test]
fn a_receiver_that_hangs_leaves_slots_to_others() {
    let mut slots = Slots::new(32, 8);
    let taken = (0..100).filter(|_| is_granted(&mut slots, "dead:80", "a"));
    assert_eq!(taken.count(), 8);
    assert!(is_granted(&mut slots, "alive:80", "a"));
    assert!(is_granted(&mut slots, "alive:80", "b"));
}

#[test]
fn many_names_of_dead_receivers_leave_half_to_quick_ones() {
    let mut slots = Slots::new(32, 8);
    assert!(is_granted(&mut slots, "alive:80", "b"));
    slots.release("alive:80", "b", QUICK_ANSWER, 0);
    let names: Vec<String> = (0..100).map(|at| format!("dead-{at}:80")).collect();
    let taken = names.iter().filter(|name| is_granted(&mut slots, name, "a"));
    assert_eq!(taken.count(), 16);
    assert!(is_granted(&mut slots, "alive:80", "b"));
    for name in &names[..16] {
        slots.release(name, "a", no_answer(), 0);
    }
    slots.release("alive:80", "b", QUICK_ANSWER, 0);
    assert_eq!((slots.in_progress(), slots.slow_in_progress), (0, 0));
}

#[test]
fn one_tenant_does_not_take_all_slots() {
    let mut slots = Slots::new(32, 32);
    for receiver in ["x:80", "y:80"] {
        is_granted(&mut slots, receiver, "a");
        slots.release(receiver, "a", QUICK_ANSWER, 0);
    }
    let taken = (0..100).filter(|_| is_granted(&mut slots, "x:80", "a"));
    assert_eq!(taken.count(), 24);
    assert!(is_granted(&mut slots, "y:80", "b"));
}

#[test]
fn an_unreachable_receiver_is_tried_by_one_request_at_a_time() {
    let mut slots = Slots::new(32, 8);
    for _ in 0..3 {
        assert!(is_granted(&mut slots, "dead:80", "a"));
    }
    assert!(!slots.release("dead:80", "a", no_answer(), 0));
    assert!(!slots.release("dead:80", "a", no_answer(), 0));
    assert!(slots.release("dead:80", "a", no_answer(), 0));
    assert_eq!(slots.unreachable_count(), 1);
    let left_alone = Admission::Unreachable("no answer in time".to_owned());
    assert_eq!(slots.acquire("dead:80", "a", 999), left_alone);
    assert_eq!(slots.acquire("dead:80", "a", 1_000), Admission::Granted);
    assert_eq!(slots.acquire("dead:80", "a", 1_000), left_alone);
    slots.release("dead:80", "a", no_answer(), 1_000);
    assert_eq!(slots.acquire("dead:80", "a", 2_999), left_alone);
    assert_eq!(slots.acquire("dead:80", "a", 3_000), Admission::Granted);
    assert!(!slots.release("dead:80", "a", QUICK_ANSWER, 3_000));
    assert_eq!(slots.unreachable_count(), 0);
}

#[test]
fn one_tenant_makes_no_receiver_unreachable_for_another() {
    let mut slots = Slots::new(32, 8);
    for _ in 0..3 {
        assert!(is_granted(&mut slots, "shared:80", "a"));
    }
    for _ in 0..3 {
        slots.release("shared:80", "a", no_answer(), 0);
    }
    assert!(!is_granted(&mut slots, "shared:80", "a"));
    assert!(is_granted(&mut slots, "shared:80", "b"));
    assert_eq!(slots.unreachable_count(), 1);
}

#[test]
fn a_receiver_is_host_and_port() {
    let receiver = receiver_of("https://user:secret@Example.org/hook?token=x");
    assert_eq!(receiver, "example.org:443");
    assert_eq!(receiver_of("nothing"), "");
}
