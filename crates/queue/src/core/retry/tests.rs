//! Delays at their edges.

use super::*;

fn policy(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
    RetryPolicy { backoff, base_ms: 100, max_ms: 1_000, jitter }
}

#[test]
fn delays_grow_as_named_and_stop_at_the_longest() {
    let delays = |backoff| {
        [1, 2, 3, 5, 60, u16::MAX].map(|failed| delay_ms(&policy(backoff, Jitter::None), failed, 7))
    };
    assert_eq!(delays(Backoff::Fixed), [100; 6]);
    assert_eq!(delays(Backoff::Linear), [100, 200, 300, 500, 1_000, 1_000]);
    assert_eq!(delays(Backoff::Exponential), [100, 200, 400, 1_000, 1_000, 1_000]);
}

#[test]
fn jitter_stays_in_its_range() {
    for salt in 0..1_000 {
        let full = delay_ms(&policy(Backoff::Fixed, Jitter::Full), 1, mix(1, salt));
        let equal = delay_ms(&policy(Backoff::Fixed, Jitter::Equal), 1, mix(2, salt));
        assert!(full <= 100 && (50..=100).contains(&equal));
    }
    let fixed = policy(Backoff::Fixed, Jitter::Full);
    assert_eq!(delay_ms(&fixed, 1, 0), 0);
    assert_eq!(delay_ms(&fixed, 1, u64::MAX), 100);
}
