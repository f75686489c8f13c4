//! Accepted time under wall clocks that jump, drift and are set between two runs.

use super::*;
use crate::entropy::{Entropy, SeededEntropy};

const BEGIN_US: i64 = 1_790_000_000_000_000;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 86_400 * SECOND;
const YEAR: i64 = 365 * DAY;

const POLICY: ClockPolicy = ClockPolicy {
    jump_max: Duration::from_secs(300),
    start_jump_max: Duration::from_secs(31 * 86_400),
};

/// A machine whose wall clock is set at will, and a clock on it.
struct Machine {
    wall_us: i64,
    elapsed_us: u64,
    boot: &'static str,
    model: ClockModel,
}

fn reading(wall_us: i64, elapsed_us: u64) -> ClockReading {
    ClockReading {
        wall: Timestamp::from_micros(wall_us),
        elapsed: Duration::from_micros(elapsed_us),
    }
}

impl Machine {
    fn new() -> Self {
        let elapsed_us = 7_000_000;
        Self {
            wall_us: BEGIN_US,
            elapsed_us,
            boot: "a",
            model: ClockModel::begin(reading(BEGIN_US, elapsed_us), POLICY),
        }
    }

    fn reading(&self) -> ClockReading {
        reading(self.wall_us, self.elapsed_us)
    }

    fn pass(&mut self, us: i64) {
        self.wall_us += us;
        self.elapsed_us += us.unsigned_abs();
    }

    /// Microseconds since the beginning.
    fn now(&mut self) -> i64 {
        let reading = self.reading();
        self.model.observe(reading).as_micros() - BEGIN_US
    }

    /// Stops and starts again; what passes meanwhile is up to the caller.
    fn restart(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        self.now();
        let record = self.model.record(self.boot);
        meanwhile(self);
        self.model = ClockModel::resume(&record, self.boot, self.reading(), POLICY);
    }

    fn reboot(&mut self) {
        (self.boot, self.elapsed_us) = ("b", 1_000_000);
    }
}

#[test]
fn a_small_jump_forward_is_accepted_and_many_are_bounded_like_a_large_one() {
    let mut machine = Machine::new();
    machine.wall_us += 4 * MINUTE;
    assert_eq!(machine.now(), 4 * MINUTE);
    machine.wall_us += 4 * MINUTE;
    assert_eq!(machine.now(), 4 * MINUTE);
    assert_eq!(machine.model.state(), ClockState::Held);
    // The allowance comes back with time.
    machine.pass(60 * MINUTE);
    assert_eq!(machine.now(), 68 * MINUTE);
    assert_eq!(machine.model.state(), ClockState::Following);
}

#[test]
fn readings_a_microsecond_apart_slew_and_recover_like_rare_ones() {
    let mut machine = Machine::new();
    machine.wall_us += 5 * MINUTE;
    machine.now();
    machine.wall_us -= MINUTE;
    let before = machine.now();
    for _ in 0..80_000 {
        machine.pass(1);
        machine.now();
    }
    assert_eq!(machine.now() - before, 70_000);
    assert_eq!(machine.model.allowance_us, 80_000 / 12);
}

#[test]
fn a_large_jump_forward_is_held_until_it_is_taken_back() {
    let mut machine = Machine::new();
    machine.wall_us += 10 * YEAR;
    assert_eq!(machine.now(), 0);
    machine.pass(MINUTE);
    assert_eq!(machine.now(), MINUTE);
    assert_eq!(machine.model.state(), ClockState::Held);
    assert_eq!(machine.model.offset_us(), 10 * YEAR);
    machine.wall_us -= 10 * YEAR;
    machine.pass(MINUTE);
    assert_eq!(machine.now(), 2 * MINUTE);
    assert_eq!(machine.model.state(), ClockState::Following);
}

#[test]
fn a_large_jump_back_is_held_and_a_small_one_is_slewed() {
    let mut machine = Machine::new();
    machine.wall_us -= YEAR;
    machine.pass(MINUTE);
    assert_eq!(machine.now(), MINUTE);
    assert_eq!(machine.model.state(), ClockState::Held);
    machine.wall_us += YEAR - 8 * SECOND;
    machine.pass(64 * SECOND);
    assert_eq!(machine.now(), MINUTE + 56 * SECOND);
    assert_eq!(machine.model.state(), ClockState::Following);
    machine.pass(MINUTE);
    assert_eq!(machine.now(), 2 * MINUTE + 56 * SECOND);
}

#[test]
fn a_release_accepts_the_wall_clock_in_both_directions() {
    let mut machine = Machine::new();
    for jump in [3 * YEAR, -2 * YEAR] {
        let before = machine.now();
        machine.wall_us += jump;
        assert_eq!(machine.now(), before);
        let reading = machine.reading();
        assert_eq!(machine.model.release(reading), jump);
        assert_eq!(machine.now(), before + jump);
        assert_eq!(machine.model.state(), ClockState::Following);
    }
}

#[test]
fn a_restart_on_the_same_boot_knows_how_long_it_took() {
    let mut machine = Machine::new();
    machine.restart(|machine| {
        machine.pass(DAY * 40);
        machine.wall_us += YEAR;
    });
    assert_eq!(machine.now(), 40 * DAY);
    assert_eq!(machine.model.state(), ClockState::Held);
    machine.restart(|machine| machine.wall_us -= YEAR);
    assert_eq!(machine.now(), 40 * DAY);
    assert_eq!(machine.model.state(), ClockState::Following);
}

#[test]
fn a_restart_after_a_boot_believes_weeks_and_holds_years() {
    let mut machine = Machine::new();
    machine.restart(|machine| {
        machine.pass(20 * DAY);
        machine.reboot();
    });
    assert_eq!(machine.now(), 20 * DAY);
    let mut machine = Machine::new();
    machine.restart(|machine| {
        machine.wall_us += YEAR;
        machine.reboot();
    });
    assert_eq!(machine.now(), 0);
    assert_eq!(machine.model.state(), ClockState::Held);
    let mut machine = Machine::new();
    machine.restart(|machine| {
        machine.wall_us -= YEAR;
        machine.reboot();
    });
    machine.pass(MINUTE);
    assert_eq!(machine.now(), MINUTE);
    assert_eq!(machine.model.state(), ClockState::Held);
}

/// Whatever the wall clock does, accepted time does not go back, runs at least at 7/8 of the
/// elapsed clock, and exceeds it by no more than the allowance that has come back so far.
#[test]
fn accepted_time_stays_within_its_bounds() {
    for seed in 0..2_000 {
        let random = SeededEntropy::new(seed);
        let below = |most: u64| {
            let mut bytes = [0; 8];
            random.fill(&mut bytes);
            (u64::from_le_bytes(bytes) % most) as i64
        };
        let mut machine = Machine::new();
        let (mut before, mut passed) = (0, 0);
        for _ in 0..200 {
            let us = [0, 3, 1_000, SECOND, 10 * MINUTE, DAY][below(6) as usize];
            let jump = [1, 500, SECOND, 6 * MINUTE, DAY, 20 * YEAR][below(6) as usize];
            machine.pass(us);
            match below(6) {
                0 => machine.wall_us += jump,
                1 => machine.wall_us -= jump,
                2 => machine.restart(|machine| machine.wall_us += jump),
                _ => {}
            }
            passed += us;
            let now = machine.now();
            assert!(now >= before, "seed {seed}: time went back");
            assert!(
                now - before >= us - (us + SLEW_DIVISOR) / SLEW_DIVISOR,
                "seed {seed}: too slow"
            );
            before = now;
        }
        // A restart gives the allowance back.
        let most = 5 * MINUTE * 201 + passed / 12 + 20_000;
        assert!(before <= passed + most, "seed {seed}: {before} after {passed}");
    }
}
