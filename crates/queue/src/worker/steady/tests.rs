//! What is told while the wall clock goes on, is set back, and comes up again.

use egret_base::ManualClock;

use super::*;

const BEGIN_MS: u64 = 1_790_000_000_000;

fn clock() -> Arc<ManualClock> {
    let begin = Timestamp::from_micros(BEGIN_MS as i64 * 1_000);
    Arc::new(ManualClock::starting_at(begin))
}

/// Milliseconds since the beginning.
fn told(steady: &mut Steady) -> u64 {
    steady.now().as_millis_unsigned() - BEGIN_MS
}

#[test]
fn it_follows_the_wall_clock_forward_and_not_back() {
    let clock = clock();
    let mut steady = Steady::new(clock.clone(), 0);
    assert_eq!(told(&mut steady), 0);
    clock.advance(Duration::from_millis(800));
    assert_eq!(told(&mut steady), 800);
    clock.set_back(Duration::from_secs(10));
    assert_eq!(told(&mut steady), 800);
    clock.advance(Duration::from_millis(800));
    assert_eq!(told(&mut steady), 1_500);
    // The wall clock has come up with it after eight times as long as it was set back.
    clock.advance(Duration::from_secs(79));
    let wall_ms = 800 + 800 + 79_000 - 10_000;
    assert!(told(&mut steady) > wall_ms);
    clock.advance(Duration::from_secs(2));
    assert_eq!(told(&mut steady), wall_ms + 2_000);
}

#[test]
fn nothing_is_lost_of_many_short_times() {
    let clock = clock();
    let mut steady = Steady::new(clock.clone(), BEGIN_MS + 3_600_000);
    for _ in 0..8_000 {
        clock.advance(Duration::from_micros(1));
        steady.now();
    }
    assert_eq!(told(&mut steady), 3_600_007);
}
