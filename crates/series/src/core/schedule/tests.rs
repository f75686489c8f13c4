//! Times as they come.

use super::*;

#[test]
fn times_are_spread_and_stay_the_same() {
    let offsets: Vec<i64> = (0..100)
        .map(|at| Schedule::new(&format!("file;group{at}"), 60_000).first_after(0))
        .collect();
    let first_half = offsets.iter().filter(|at| **at <= 30_000).count();
    assert!((30..70).contains(&first_half), "{first_half}");
    assert!(offsets.iter().all(|at| (1..=60_000).contains(at)));
    let one = Schedule::new("a", 60_000);
    assert_eq!(one.first_after(1_000_000_007) % 60_000, one.first_after(0) % 60_000);
}

#[test]
fn the_first_time_is_after_now() {
    let schedule = Schedule::new("a", 1_000);
    let first = schedule.first_after(0);
    assert_eq!(schedule.first_after(first), first + 1_000);
    assert_eq!(schedule.first_after(first - 1), first);
}

#[test]
fn what_was_missed_is_counted() {
    let schedule = Schedule::new("a", 1_000);
    let after = |now| {
        let next = schedule.next_run(10_000, now);
        (next.at, next.missed)
    };
    assert_eq!(after(10_100), (11_000, 0));
    assert_eq!(after(11_100), (11_000, 0));
    assert_eq!(after(12_500), (12_000, 1));
    assert_eq!(after(20_000), (20_000, 9));
    let (at, missed) = after(2_000);
    assert!((2_001..=3_000).contains(&at), "{at}");
    assert_eq!(missed, 0);
}
