//! Ticks in time zones, and those that were missed.

use super::*;

fn rhythm(cron: &str, zone: &str) -> Rhythm {
    Rhythm::new(cron, zone).unwrap()
}

fn ms(text: &str) -> u64 {
    let time: egret_base::Timestamp = text.parse().unwrap();
    time.as_millis_unsigned()
}

fn after(cron: &str, zone: &str, from: &str) -> String {
    let next = rhythm(cron, zone).after(ms(from));
    egret_base::Timestamp::from_micros(next as i64 * 1_000).to_string()
}

#[test]
fn expressions_tick_in_their_zone() {
    let next = after("30 8 * * MON", "Europe/Zurich", "2026-11-21T12:00:00Z");
    assert_eq!(next, "2026-11-23T07:30:00.000000Z");
    let next = after("*/10 * * * * *", "", "2026-11-21T12:00:05Z");
    assert_eq!(next, "2026-11-21T12:00:10.000000Z");
    let next = after("* * * * * *", "", "2026-11-21T12:00:05.250Z");
    assert_eq!(next, "2026-11-21T12:00:06.000000Z");
    // 02:30 does not exist on the day of the change: the tick comes when the clock has gone on.
    let next = after("30 2 * * *", "Europe/Zurich", "2026-03-28T12:00:00Z");
    assert_eq!(next, "2026-03-29T01:00:00.000000Z");
    // 02:30 comes twice: the tick comes once.
    let first = after("30 2 * * *", "Europe/Zurich", "2026-10-24T12:00:00Z");
    assert_eq!(first, "2026-10-25T00:30:00.000000Z");
    let second = after("30 2 * * *", "Europe/Zurich", &first);
    assert_eq!(second, "2026-10-26T01:30:00.000000Z");
}

#[test]
fn what_is_no_rhythm_is_refused() {
    for (cron, zone) in [
        ("", ""),
        ("* * *", ""),
        ("61 * * * *", ""),
        ("* * * * *", "Mars/Base"),
    ] {
        assert!(Rhythm::new(cron, zone).is_err(), "{cron} {zone}");
    }
    assert_eq!(rhythm("0 0 30 2 *", "").after(0), NEVER_MS);
}

#[test]
fn missed_ticks_are_left_out_or_made_up_for() {
    let (every_minute, tick, now) = (
        rhythm("* * * * *", ""),
        ms("2026-11-21T12:00:00Z"),
        ms("2026-11-21T12:05:30Z"),
    );
    let next_ms = ms("2026-11-21T12:06:00Z");
    for (missed, tasks) in [(Missed::Skip, 0), (Missed::One, 1), (Missed::All, 6)] {
        assert_eq!(
            due(&every_minute, missed, tick, now),
            Due { tasks, next_ms }
        );
        let on_time = due(&every_minute, missed, tick, tick + 1);
        assert_eq!(on_time.tasks, 1);
    }
    let year = now + 366 * 86_400_000;
    assert_eq!(
        due(&every_minute, Missed::All, tick, year).tasks,
        MISSED_MAX
    );
    assert!(due(&every_minute, Missed::Skip, tick, year).next_ms > year);
}
