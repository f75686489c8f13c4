//! Odd names, and names that are defined twice.

use super::*;

fn definitions(names: &[&str]) -> Vec<Occurrence> {
    let numbered = names.iter().enumerate();
    numbered.map(|(index, name)| Occurrence { line: index + 1, text: (*name).to_owned() }).collect()
}

#[test]
fn names_are_nouns() {
    for (name, rule) in [
        ("Told", Some("odd-type")),
        ("Whose", Some("odd-type")),
        ("Frozen", Some("participle-type")),
        ("Measured", Some("participle-type")),
        ("Restoring", Some("participle-type")),
        ("Setting", None),
        ("Feed", None),
        ("LimitExceeded", None),
        ("WriteRequest", None),
        ("S", None),
    ] {
        assert_eq!(rule_for_name(name), rule, "{name}");
    }
}

#[test]
fn a_name_is_defined_once_in_a_crate() {
    let mut names = TypeNames::default();
    names.add("crates/a/src/lib.rs", &definitions(&["Entry", "Row"]));
    names.add("crates/a/src/cache.rs", &definitions(&["Entry"]));
    names.add("crates/a/tests/it/main.rs", &definitions(&["Row"]));
    names.add("crates/b/src/lib.rs", &definitions(&["Entry"]));
    let twins: Vec<String> = names.twins().map(|finding| finding.to_string()).collect();
    assert_eq!(
        twins,
        ["crates/a/src/lib.rs:1: twin-type: Entry", "crates/a/src/cache.rs:1: twin-type: Entry"]
    );
}

#[test]
fn the_lists_do_not_overlap() {
    assert_eq!(ODD_NAMES.intersection(&MORE_ODD_NAMES).count(), 0);
    assert_eq!(ODD_NAMES.intersection(&NOUN_NAMES).count(), 0);
    assert_eq!(MORE_ODD_NAMES.intersection(&NOUN_NAMES).count(), 0);
}
