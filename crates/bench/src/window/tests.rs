//! Clocks that jump void the window, clocks that are corrected gently do not.

use super::*;

fn check(wall_seconds: f64, monotonic_seconds: f64) -> Option<f64> {
    let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let after = if wall_seconds < 0.0 {
        before - Duration::from_secs_f64(-wall_seconds)
    } else {
        before + Duration::from_secs_f64(wall_seconds)
    };
    clock_jump(before, after, Duration::from_secs_f64(monotonic_seconds))
}

#[test]
fn a_jump_is_seen_in_both_directions() {
    assert_eq!(check(20.0, 20.0), None);
    assert_eq!(check(20.05, 20.0), None);
    assert_eq!(check(3_600.5, 3_600.0), None);
    assert_eq!(check(21.0, 20.0), Some(1.0));
    assert_eq!(check(19.0, 20.0), Some(-1.0));
    assert_eq!(check(-5.0, 20.0), Some(-25.0));
}
