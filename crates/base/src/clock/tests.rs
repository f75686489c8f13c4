//! Rendering, parsing and arithmetic of timestamps.

use super::*;

#[test]
fn renders_and_parses_rfc3339() {
    let moment = Timestamp::from_micros(1_795_248_000_000_001);
    assert_eq!(moment.to_string(), "2026-11-21T08:00:00.000001Z");
    assert_eq!(moment.to_string().parse::<Timestamp>(), Ok(moment));
    assert!("yesterday".parse::<Timestamp>().is_err());
}

#[test]
fn arithmetic_saturates() {
    let end = Timestamp::from_micros(i64::MAX);
    assert_eq!(end.plus(Duration::from_secs(1)), end);
    let start = Timestamp::from_micros(0);
    assert_eq!(start.since(end), Duration::ZERO);
    assert_eq!(start.plus(Duration::from_millis(5)).since(start), Duration::from_millis(5));
}

#[test]
fn manual_clock_moves_only_when_told() {
    let clock = ManualClock::starting_at(Timestamp::from_micros(10));
    assert_eq!(clock.now(), clock.now());
    clock.advance(Duration::from_micros(5));
    assert_eq!(clock.now().as_micros(), 15);
}
