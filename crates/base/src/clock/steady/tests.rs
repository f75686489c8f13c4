//! The machine's clocks, and the record between two runs.

use super::*;

const POLICY: ClockPolicy = ClockPolicy {
    jump_max: Duration::from_secs(300),
    start_jump_max: Duration::from_secs(31 * 86_400),
};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn record(accepted: Timestamp, boot: &str) -> ClockRecord {
    ClockRecord { accepted, elapsed: elapsed(), boot: boot.to_owned() }
}

fn open(path: &Path) -> SteadyClock {
    let (clock, problems) = SteadyClock::open(path, POLICY);
    assert!(problems.is_empty(), "{problems:?}");
    clock
}

#[test]
fn it_follows_the_wall_clock_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let clock = open(&directory.path().join("clock"));
    let (before, running) = (clock.now(), clock.monotonic());
    assert!(clock.now() >= before);
    assert!(clock.monotonic() >= running);
    let status = clock.status();
    assert_eq!(status.state, ClockState::Following);
    assert!(status.accepted >= before);
}

#[test]
fn a_record_of_another_time_is_gone_on_from_and_released() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clock");
    let wall = SystemClock.now();
    let earlier = Timestamp::from_micros(wall.as_micros() - YEAR.as_micros() as i64);
    for boot in [boot_id().unwrap(), "another boot".to_owned()] {
        for accepted in [earlier, wall.plus(YEAR)] {
            std::fs::write(&path, render(&record(accepted, &boot))).unwrap();
            let clock = open(&path);
            let status = clock.status();
            assert_eq!(status.state, ClockState::Held, "{boot}, {accepted}");
            assert!(status.accepted.since(accepted) < Duration::from_secs(600));
            assert!(status.accepted >= accepted);
            drop(clock);
            // It is kept: nothing of this changes by a restart.
            let clock = open(&path);
            assert_eq!(clock.status().state, ClockState::Held);
            let released = clock.release().unwrap();
            assert_eq!(released.moved_us > 0, accepted == earlier);
            drop(clock);
            let clock = open(&path);
            assert_eq!(clock.status().state, ClockState::Following);
            assert!(clock.now() >= wall);
        }
    }
}

#[test]
fn a_damaged_record_is_kept_aside_and_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clock");
    for damaged in ["", "egret clock 2\n", "egret clock 1\naccepted_us x\n"] {
        std::fs::write(&path, damaged).unwrap();
        let (clock, problems) = SteadyClock::open(&path, POLICY);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("clock is damaged"), "{problems:?}");
        let kept = directory.path().join("clock.damaged");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), damaged);
        assert_eq!(clock.status().state, ClockState::Following);
        drop(clock);
        open(&path);
    }
}

#[test]
fn a_record_that_cannot_be_written_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, problems) = SteadyClock::open(&directory.path().join("absent/clock"), POLICY);
    assert_eq!(problems.len(), 1);
    assert!(clock.now() > Timestamp::default());
}
