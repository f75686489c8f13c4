//! What is lost and what is done twice.

use super::*;

#[test]
fn every_task_is_accounted_for() {
    let mut ledger = Ledger::default();
    for number in [0, 1, 63, 64, 1_000] {
        ledger.accept(number);
        ledger.deliver(number);
    }
    for number in [0, 63, 1_000] {
        ledger.complete(number);
    }
    assert_eq!((ledger.accepted(), ledger.lost(), ledger.duplicated), (5, 2, 0));
    ledger.deliver(64);
    ledger.complete(1_000);
    assert_eq!((ledger.lost(), ledger.duplicated), (2, 2));
    // Its acknowledgement to the producer was lost: the task does not count as lost.
    ledger.complete(2_000);
    assert_eq!(ledger.lost(), 2);
}
