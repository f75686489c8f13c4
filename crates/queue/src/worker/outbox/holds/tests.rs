//! What is looked at while a role is held back.

use super::*;

/// Holds of a role that has rows for one queue more than are held; none of them exists. The role is left alone for as long
/// as any test takes.
fn with_held_role() -> Holds {
    let mut holds = Holds::new("shop");
    for number in 0..=MISSING_HELD_MAX {
        let row = OutboxRow {
            queue: format!("new-{number}"),
            enqueued_by: "greedy".to_owned(),
            ..OutboxRow::default()
        };
        let verdict = holds.hold(&row, Presence::Missing, &QueueError::Stopping);
        assert_eq!(verdict, Verdict::Waits);
    }
    let role = holds.by_role.get_mut("greedy").unwrap();
    role.until += Duration::from_secs(3_600);
    holds
}

fn existing() -> Vec<String> {
    vec!["mail".to_owned()]
}

#[test]
fn after_a_look_at_all_queues_only_existing_ones_are_looked_at_for_a_while() {
    let mut holds = with_held_role();
    let first = holds.held(existing);
    assert_eq!(first.roles, ["greedy"]);
    assert!(!first.is_only_existing);
    holds.pace(&first, Duration::from_secs(3_600));
    let next = holds.held(existing);
    assert!(next.is_only_existing);
    assert_eq!(next.existing, ["mail"]);
    // That existing queues have no rows says nothing of the others.
    holds.keep(&next);
    assert_eq!(holds.len(), MISSING_HELD_MAX);
    assert!(holds.waiting_role().is_some());
    // Nor is anything of these to be tried before the next look at all.
    assert_eq!(holds.next_trial(), Some(holds.whole_look_at));
    holds.pace(&next, Duration::ZERO);
    assert!(holds.held(existing).is_only_existing);
}

#[test]
fn looks_at_all_queues_follow_each_other_while_no_role_is_held_back() {
    let mut holds = Holds::new("shop");
    let all = holds.held(existing);
    assert_eq!(all, HeldRows::default());
    holds.pace(&all, Duration::from_secs(3_600));
    assert_eq!(holds.held(existing), HeldRows::default());
}
