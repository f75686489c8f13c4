//! Which errors are worth another attempt, and when.

use super::*;

#[test]
fn a_restart_is_transient_and_a_mistake_is_not() {
    for code in ["57P01", "57P02", "57P03", "08006", "25006", "53300"] {
        assert!(is_transient_code(&SqlState::from_code(code)), "{code}");
    }
    for code in ["42601", "23505", "40001", "28P01"] {
        assert!(!is_transient_code(&SqlState::from_code(code)), "{code}");
    }
}

#[test]
fn waits_double_up_to_a_bound() {
    let policy = Policy::default();
    assert_eq!(policy.wait(1), Duration::from_millis(50));
    assert_eq!(policy.wait(3), Duration::from_millis(200));
    assert_eq!(policy.wait(1_000), policy.longest_wait);
}
