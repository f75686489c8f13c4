//! Whose turn it is.

use super::*;

#[test]
fn a_schedule_does_not_wait_for_readers() {
    let clock = Clock::new(Duration::from_secs(1), Duration::from_secs(9));
    let turns = QueryTurns::new(Some(50.0), &clock, 1);
    let due: Vec<(u64, Instant)> = std::iter::from_fn(|| turns.next_turn(&clock)).collect();
    assert!((400..600).contains(&due.len()), "{} in ten seconds", due.len());
    assert!(due.windows(2).all(|two| two[0].0 + 1 == two[1].0 && two[0].1 <= two[1].1));
    assert!(due.iter().all(|(_, due)| (clock.start..clock.end).contains(due)));
}

#[test]
fn without_a_rate_every_turn_is_now() {
    let clock = Clock::new(Duration::ZERO, Duration::from_secs(1));
    let turns = QueryTurns::new(None, &clock, 1);
    let begun = Instant::now();
    let (first, second) = (turns.next_turn(&clock).unwrap(), turns.next_turn(&clock).unwrap());
    assert_eq!((first.0, second.0), (0, 1));
    assert!(begun <= first.1 && first.1 <= second.1);
}
