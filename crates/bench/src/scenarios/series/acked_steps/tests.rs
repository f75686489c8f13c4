//! Which writer waits for which.

use super::*;

#[test]
fn the_slowest_decides() {
    let frontier = AckedSteps::new(3);
    assert_eq!(frontier.acknowledged(), 0);
    frontier.advance(0, 7);
    frontier.advance(1, 5);
    assert_eq!(frontier.acknowledged(), 0);
    frontier.advance(2, 6);
    assert_eq!(frontier.acknowledged(), 5);
}

#[test]
fn who_is_far_ahead_waits_until_the_others_have_come() {
    let frontier = AckedSteps::new(2);
    frontier.advance(0, LEAD_MAX);
    // Not far enough to wait.
    frontier.await_others(LEAD_MAX, || panic!("nothing to wait for"));
    std::thread::scope(|scope| {
        let ahead = scope.spawn(|| {
            frontier.await_others(LEAD_MAX + 3, || false);
            frontier.acknowledged()
        });
        for step in 1..=3 {
            frontier.advance(1, step);
        }
        assert_eq!(ahead.join().unwrap(), 3);
    });
}

#[test]
fn nobody_waits_for_one_that_has_failed_or_after_the_end() {
    let frontier = AckedSteps::new(2);
    frontier.await_others(10 * LEAD_MAX, || true);
    frontier.abandon();
    frontier.await_others(10 * LEAD_MAX, || false);
    assert!(frontier.is_abandoned());
}
