//! What each sender sends, and when.

use super::*;

fn sending(series: u32, writers: u32, batch: u32) -> WriteParams {
    WriteParams {
        fleet: Fleet { seed: 1, series, begin_ms: 0 },
        writers,
        batch,
        protocol: Protocol::Rw1,
    }
}

#[test]
fn every_series_has_one_writer() {
    for writers in [1, 3, 16] {
        let sending = sending(10_000, writers, 2_000);
        let ranges: Vec<_> = (0..writers).map(|writer| sending.series_range(writer)).collect();
        assert_eq!((ranges[0].start, ranges[writers as usize - 1].end), (0, 10_000));
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start));
    }
}

#[test]
fn a_request_is_filled_with_later_steps_where_series_are_few() {
    assert_eq!(sending(10_000, 16, 2_000).steps_per_request(), 3);
    assert_eq!(sending(10_000, 5, 2_000).steps_per_request(), 1);
    assert_eq!(sending(1_000_000, 16, 2_000).steps_per_request(), 1);
}

#[test]
fn what_is_due_does_not_wait_for_what_was_slow() {
    let begin = Instant::now();
    let gap = Duration::from_nanos(333_333);
    let pace = SendSchedule { begin, interval: Some(gap) };
    // Long past: it is due when it was due, not now.
    let past = SendSchedule { begin: begin - Duration::from_secs(60), interval: Some(gap) };
    assert_eq!(past.await_due(3), past.begin + gap * 3);
    let due = pace.await_due(3);
    assert_eq!(due, begin + gap * 3);
    assert!(Instant::now() >= due);
}

#[test]
fn only_what_was_to_begin_in_the_window_counts() {
    let clock = Clock::new(Duration::from_secs(3), Duration::from_secs(10));
    let second = Duration::from_secs(1);
    assert!(!clock.is_in_window(clock.start));
    assert!(clock.is_in_window(clock.origin) && clock.is_in_window(clock.end - second));
    assert!(!clock.is_in_window(clock.end));
    assert_eq!(clock.offset(clock.origin + second), second);
    assert_eq!(clock.window(), 10 * second);
    assert!(clock.has_ended(clock.end) && !clock.has_ended(clock.start));
    clock.stop();
    assert!(clock.has_ended(clock.start));
    // It was stopped before the window.
    assert_eq!(clock.window(), Duration::ZERO);
}
