//! The beginning, the repetitions and the end of faults.

use super::*;

fn reasons(name: &str) -> Vec<String> {
    let active = active().into_iter();
    let of_name = active.filter(|condition| condition.name == name);
    of_name.map(|condition| condition.reason).collect()
}

#[test]
fn a_fault_begins_once_and_ends_once() {
    let condition = Condition::new("test_once", "disk");
    assert!(!condition.end());
    assert!(condition.begin("full"));
    assert!(!condition.begin("still full"));
    assert_eq!(reasons("test_once"), ["still full"]);
    assert!(condition.end());
    assert!(!condition.end());
    assert!(reasons("test_once").is_empty());
    assert!(condition.begin("full again"));
}

#[test]
fn a_holder_that_goes_away_takes_its_fault_along() {
    let (first, second) = (Condition::new("test_drop", "a"), Condition::new("test_drop", "a"));
    first.begin("one");
    second.begin("two");
    // Two holders of one subject are one line of the list.
    assert_eq!(reasons("test_drop"), ["one"]);
    drop(first);
    assert_eq!(reasons("test_drop"), ["two"]);
    drop(second);
    assert!(reasons("test_drop").is_empty());
}

#[test]
fn many_subjects_of_one_name_are_counted_not_listed() {
    let held: Vec<Condition> = (0..SUBJECTS_SHOWN_MAX + 3)
        .map(|number| Condition::new("test_many", format!("subject {number:02}")))
        .collect();
    for condition in &held {
        condition.begin("full");
    }
    let listed: Vec<String> = active()
        .into_iter()
        .filter(|condition| condition.name == "test_many")
        .map(|condition| condition.subject)
        .collect();
    assert_eq!(listed.len(), SUBJECTS_SHOWN_MAX + 1);
    assert_eq!(listed.last().unwrap(), "3 others");
    assert_eq!(counts()["test_many"], SUBJECTS_SHOWN_MAX + 3);
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let condition = Condition::new("test_long", "a");
    condition.begin("ü".repeat(REASON_BYTES_MAX));
    let kept = &reasons("test_long")[0];
    assert!(kept.len() <= REASON_BYTES_MAX + '…'.len_utf8(), "{kept}");
    assert!(kept.ends_with("ü…"));
}
