//! What is looked at while a role is held back.

use super::*;

/// Holds of a role that has rows for one queue more than are held; none of them exists. The role is
/// left alone for as long as any test takes.
fn with_held_role() -> HoldTable {
    let mut holds = HoldTable::new("shop");
    for number in 0..=MISSING_QUEUES_HELD_MAX {
        let row = OutboxRow {
            queue: format!("new-{number}"),
            enqueued_by: "greedy".to_owned(),
            ..OutboxRow::default()
        };
        let verdict = holds.hold(&row, Presence::Missing, &QueueError::Stopping);
        assert_eq!(verdict, RowDecision::Waiting);
    }
    let role = holds.by_role.get_mut("greedy").unwrap();
    role.until += Duration::from_secs(3_600);
    holds
}

fn existing() -> Vec<String> {
    vec!["mail".to_owned()]
}

#[test]
fn of_a_role_that_is_held_only_queues_that_exist_are_looked_at() {
    let mut holds = with_held_role();
    let held = holds.held_rows(1_000, 1, existing);
    assert_eq!((held.roles.len(), &*held.roles[0]), (1, "greedy"));
    assert_eq!(held.existing, ["mail"]);
    // Those of the role that do not exist are not looked at either when the pause of each is over.
    for hold in holds.by_queue.values_mut() {
        hold.pause.until = Instant::now();
    }
    let held = holds.held_rows(1_000, 1, existing);
    assert!(held.queues.is_empty());
    // That nothing else has rows says nothing of them.
    holds.retain_held(&held);
    assert_eq!(holds.len(), MISSING_QUEUES_HELD_MAX);
    assert!(holds.waiting_role().is_some());
    // Nor is anything of them to be tried before the role is.
    assert_eq!(holds.next_retry_at(), Some(holds.by_role["greedy"].until));
}

#[test]
fn a_role_that_is_tried_again_and_has_no_rows_is_forgotten_with_its_queues() {
    let mut holds = with_held_role();
    let now = Instant::now();
    let pauses = holds.by_queue.values_mut().map(|hold| &mut hold.pause);
    pauses.chain(holds.by_role.values_mut()).for_each(|pause| pause.until = now);
    let held = holds.held_rows(1_000, 1, existing);
    assert!(held.roles.is_empty() && held.existing.is_empty());
    holds.retain_held(&held);
    assert_eq!(holds.len(), 0);
    assert_eq!(holds.waiting_role(), None);
}

/// Of more queues some are new: their rows fill a batch.
#[test]
fn each_role_is_looked_at_for_all_queues_that_exist_and_a_batch_of_others() {
    let mut holds = HoldTable::new("shop");
    let expected = |role_queues_max, queues: &[&str]| HeldRows {
        queues: queues.iter().map(ToString::to_string).collect(),
        role_queues_max,
        ..HeldRows::default()
    };
    assert_eq!(holds.held_rows(1_000, 5, existing), expected(1_005, &[]));
    let row = OutboxRow { queue: "new".to_owned(), ..OutboxRow::default() };
    holds.hold(&row, Presence::Missing, &QueueError::Stopping);
    assert_eq!(holds.held_rows(1_000, 5, existing), expected(1_006, &["new"]));
}
