//! A partition's time while the program's clock goes on, is a little behind, and becomes another
//! one.

use egret_base::ManualClock;

use super::*;

const BEGIN_MS: u64 = 1_790_000_000_000;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn clock() -> Arc<ManualClock> {
    let begin = Timestamp::from_micros(BEGIN_MS as i64 * 1_000);
    Arc::new(ManualClock::starting_at(begin))
}

/// Milliseconds since the beginning.
fn elapsed_ms(clock: &mut MonotonicClock) -> u64 {
    clock.now().as_millis_unsigned() - BEGIN_MS
}

#[test]
fn a_clock_that_is_a_little_behind_is_waited_for_without_standing_still() {
    let clock = clock();
    let mut steady = MonotonicClock::new(clock.clone(), BEGIN_MS);
    clock.advance(Duration::from_millis(800));
    assert_eq!(elapsed_ms(&mut steady), 800);
    clock.set_back(Duration::from_millis(100));
    clock.advance(Duration::from_millis(80));
    assert_eq!(elapsed_ms(&mut steady), 870);
    clock.advance(Duration::from_secs(10));
    assert_eq!(elapsed_ms(&mut steady), 10_780);
    assert!(!steady.is_step_due());
}

#[test]
fn another_time_in_either_direction_is_one_step() {
    let clock = clock();
    let mut steady = MonotonicClock::new(clock.clone(), BEGIN_MS);
    let year_ms = YEAR.as_millis() as i64;
    clock.set_forward(YEAR);
    clock.advance(Duration::from_millis(500));
    assert_eq!(elapsed_ms(&mut steady), 500);
    let step = steady.take_step().expect("it is due");
    assert_eq!((step.by_ms, step.now), (year_ms, clock.now()));
    assert_eq!(steady.now(), clock.now());
    assert_eq!(steady.take_step(), None);
    clock.set_back(YEAR);
    clock.advance(Duration::from_millis(500));
    steady.now();
    let step = steady.take_step().expect("it is due");
    assert_eq!((step.by_ms, step.now), (-year_ms, clock.now()));
    assert_eq!(elapsed_ms(&mut steady), 1_000);
}

#[test]
fn nothing_is_lost_of_many_short_times() {
    let clock = clock();
    let mut steady = MonotonicClock::new(clock.clone(), BEGIN_MS + 900);
    for _ in 0..8_000 {
        clock.advance(Duration::from_micros(1));
        steady.now();
    }
    assert_eq!(elapsed_ms(&mut steady), 907);
}
