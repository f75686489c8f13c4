//! Peers of different speed.

use super::*;

const LIMIT: PaceLimit = PaceLimit { timeout: Duration::from_secs(30), bytes_per_second: 1_000 };

/// Seconds until a peer is ended that transfers `bytes` every `interval` seconds, within an hour.
fn seconds_until_end(bytes: u64, interval: u64) -> Option<u64> {
    let start = Instant::now();
    let mut pace = Pace::new(LIMIT);
    let mut now = start;
    while now < start + Duration::from_secs(3_600) {
        let deadline = pace.begin_wait(now);
        now += Duration::from_secs(interval);
        if deadline <= now {
            return Some((deadline - start).as_secs());
        }
        pace.record_progress(now, bytes);
    }
    None
}

#[test]
fn a_silent_peer_is_ended_at_the_timeout() {
    assert_eq!(seconds_until_end(0, 100), Some(30));
    assert_eq!(seconds_until_end(1_000_000, 31), Some(30));
}

#[test]
fn a_peer_below_the_rate_is_ended_and_one_at_the_rate_is_not() {
    assert_eq!(seconds_until_end(1, 1), Some(30));
    assert_eq!(seconds_until_end(500, 1), Some(59));
    assert_eq!(seconds_until_end(1_000, 1), None);
    assert_eq!(seconds_until_end(20_000, 20), None);
}

#[test]
fn time_in_which_the_server_does_not_wait_is_not_counted() {
    let start = Instant::now();
    let mut pace = Pace::new(LIMIT);
    pace.record_progress(start, 10);
    assert!(!pace.is_waiting());
    let later = start + Duration::from_secs(1_000);
    assert_eq!(pace.begin_wait(later), later + Duration::from_secs(30));
}
