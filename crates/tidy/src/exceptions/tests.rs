//! Exceptions cover exactly what they name, and a stale or unreasoned one is reported.

use super::*;

const ALLOWED: Exception = Exception {
    rule: "long-function",
    path: "a.rs",
    subject: "parse",
    reason: "one table of states",
};

#[test]
fn an_exception_covers_its_finding_only() {
    let covered = Finding::new("long-function", "a.rs", 3, "parse");
    let other = Finding::new("long-function", "a.rs", 90, "print");
    assert_eq!(apply_exceptions(&[covered, other], &[ALLOWED]), ["a.rs:90: long-function: print"]);
}

#[test]
fn a_stale_exception_and_one_without_a_reason_are_reported() {
    assert_eq!(
        apply_exceptions(&[], &[ALLOWED]),
        ["exceptions.rs: long-function for `parse` in a.rs is no longer needed: remove it"]
    );
    let covered = Finding::new("long-function", "a.rs", 3, "parse");
    let unreasoned = Exception { reason: "", ..ALLOWED };
    assert_eq!(
        apply_exceptions(&[covered], &[unreasoned]),
        ["exceptions.rs: long-function for `parse` in a.rs gives no reason"]
    );
}
