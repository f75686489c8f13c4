//! Names, and limits of violations.

use super::*;

#[test]
fn names() {
    let longest = "a".repeat(63);
    for good in ["a", "flights", "a-b_c9", &longest] {
        assert_eq!(good.parse::<CollectionName>().unwrap().as_str(), good);
    }
    let long = "a".repeat(64);
    for bad in ["", "A", "9a", "_a", "-a", "a b", "a/b", "ä", "a\0", &long] {
        let message = bad.parse::<CollectionName>().unwrap_err();
        assert!(message.contains("is not a valid name"), "{message}");
    }
}

#[test]
fn a_long_violation_is_cut_between_characters() {
    let long = "ä".repeat(5_000);
    let violation = Violation::new(&long, &long);
    assert!(violation.pointer.len() <= VIOLATION_BYTES_MAX + '…'.len_utf8());
    assert!(violation.message.ends_with("ä…"));
}

#[test]
fn the_id_of_a_document_is_a_uuid_of_version_7() {
    assert!("0197a3c2-7a53-7c11-9d2e-3f1c5a7b9d10".parse::<DocumentId>().is_ok());
    assert!("0197a3c2-7a53-4c11-9d2e-3f1c5a7b9d10".parse::<DocumentId>().is_err());
}
