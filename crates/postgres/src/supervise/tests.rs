//! Backoff grows, is bounded, and forgets.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

#[test]
fn waits_double_up_to_a_bound_and_a_loop_is_called_one() {
    let mut restarts = RestartHistory::default();
    let decisions: Vec<Decision> = (0..12).map(|second| restarts.record_exit(at(second))).collect();
    assert_eq!(decisions[0].wait, Duration::from_millis(100));
    assert_eq!(decisions[1].wait, Duration::from_millis(200));
    assert_eq!(decisions[11].wait, LONGEST_WAIT);
    assert!(!decisions[3].is_crash_loop);
    assert!(decisions[4].is_crash_loop);
}

#[test]
fn old_ends_are_forgotten() {
    let mut restarts = RestartHistory::default();
    for second in 0..5 {
        restarts.record_exit(at(second));
    }
    let later = restarts.record_exit(at(1_000));
    assert_eq!(later.wait, FIRST_WAIT);
    assert!(!later.is_crash_loop);
}

#[test]
fn a_start_that_is_put_off_waits_longer_and_is_no_end() {
    let mut restarts = RestartHistory::default();
    let mut decision = restarts.record_exit(at(0));
    for _ in 0..20 {
        decision = decision.with_longer_wait();
    }
    assert_eq!(decision.wait, LONGEST_WAIT);
    assert!(!decision.is_crash_loop);
    assert_eq!(restarts.record_exit(at(1)).exit_count, 2);
}

#[test]
fn a_server_that_could_not_be_started_for_another_reason_has_not_ended() {
    let mut restarts = RestartHistory::default();
    for second in 0..20 {
        let decision = restarts.decide(at(second));
        assert_eq!(decision.wait, FIRST_WAIT);
        assert!(!decision.is_crash_loop);
    }
    assert_eq!(restarts.record_exit(at(20)).exit_count, 1);
}
