//! Ticks in time zones, when clocks are changed, and against what local time says second by second.

use proptest::prelude::*;

use super::*;

fn rhythm(cron: &str, zone: &str) -> CronSchedule {
    CronSchedule::new(cron, zone).unwrap()
}

fn ms(text: &str) -> u64 {
    let time: crate::Timestamp = text.parse().unwrap();
    time.as_millis_unsigned()
}

fn text(ms: u64) -> String {
    let time = DateTime::from_timestamp_millis(ms as i64).unwrap();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn after(cron: &str, zone: &str, from: &str) -> String {
    text(rhythm(cron, zone).next_after(ms(from)).unwrap())
}

/// The ticks after `from` until `to`, this one included: hours and minutes in UTC.
fn ticks(cron: &str, zone: &str, from: &str, to: &str) -> String {
    let rhythm = rhythm(cron, zone);
    let ticks = std::iter::successors(Some(ms(from)), |tick| rhythm.next_after(*tick))
        .skip(1)
        .take_while(|tick| *tick <= ms(to));
    let times = ticks.map(|tick| text(tick)[11..16].to_owned());
    times.collect::<Vec<_>>().join(" ")
}

#[test]
fn expressions_tick_in_their_zone() {
    let next = after("30 8 * * MON", "Europe/Zurich", "2026-11-21T12:00:00Z");
    assert_eq!(next, "2026-11-23T07:30:00Z");
    let next = after("*/10 * * * * *", "", "2026-11-21T12:00:05Z");
    assert_eq!(next, "2026-11-21T12:00:10Z");
    let next = after("@hourly", "Asia/Kolkata", "2026-11-21T12:00:00Z");
    assert_eq!(next, "2026-11-21T12:30:00Z");
}

#[test]
fn ticks_are_whole_seconds_whenever_they_are_asked_for() {
    let next = rhythm("*/10 * * * * *", "").next_after(ms("2026-11-21T12:00:05Z") + 300);
    assert_eq!(next, Some(ms("2026-11-21T12:00:10Z")));
    let next = rhythm("* * * * *", "").next_after(ms("2026-11-21T11:59:59Z") + 500);
    assert_eq!(next, Some(ms("2026-11-21T12:00:00Z")));
}

#[test]
fn what_is_no_rhythm_is_refused() {
    for cron in ["", "* * *", "61 * * * *"] {
        let refused = CronSchedule::new(cron, "").unwrap_err();
        assert!(matches!(refused, CronScheduleError::Cron { .. }), "{refused}");
    }
    // Stored ones go on.
    for cron in ["0 0 8 * * * 2027", "0,,30 * * * *", "0 8, * * *", "0 8 13 * +", "0 8 13 * +,FRI"]
    {
        let refused = CronSchedule::parse_strict(cron, "").unwrap_err();
        assert!(matches!(refused, CronScheduleError::Cron { .. }), "{refused}");
    }
    assert!(CronSchedule::new("0 0 8 * * * 2027", "").is_ok());
    for cron in ["0 8 * * *", "0 0 8,20 * * MON-FRI", "@daily", "  0 8 * * * "] {
        assert!(CronSchedule::parse_strict(cron, "").is_ok(), "{cron}");
    }
    let refused = CronSchedule::new("* * * * *", "Mars/Base").unwrap_err();
    let name = "Mars/Base".to_owned();
    assert_eq!(refused, CronScheduleError::TimeZone { name });
}

#[test]
fn a_rhythm_may_have_no_tick() {
    assert_eq!(rhythm("0 0 30 2 *", "").next_after(0), None);
    assert_eq!(rhythm("* * * * *", "").next_after(u64::MAX), None);
}

#[test]
fn a_time_of_day_comes_once_in_an_hour_that_comes_twice() {
    let (from, to) = ("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z");
    for (cron, expected) in [
        ("30 2 * * *", "00:30 01:30"),
        ("15 30 2 * * *", "00:30 01:30"),
        ("0,30 2 * * *", "00:00 00:30 01:00 01:30"),
        ("0 2,3 * * *", "00:00 02:00 01:00 02:00"),
    ] {
        assert_eq!(ticks(cron, "Europe/Zurich", from, to), expected, "{cron}");
    }
    // Put or resumed while the hour comes again.
    let next = after("30 2 * * *", "Europe/Zurich", "2026-10-25T01:10:00Z");
    assert_eq!(next, "2026-10-26T01:30:00Z");
    let half_an_hour = ("2026-04-04T14:00:00Z", "2026-04-05T20:00:00Z");
    let (from, to) = half_an_hour;
    let lord_howe = ticks("45 1 * * *", "Australia/Lord_Howe", from, to);
    assert_eq!(lord_howe, "14:45 15:15");
}

#[test]
fn a_time_of_day_that_is_left_out_comes_at_the_end_of_the_gap() {
    let (from, to) = ("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z");
    for (cron, expected) in [
        ("30 2 * * *", "01:00 00:30"),
        ("15 30 2 * * *", "01:00 00:30"),
        // Two at the same time are one.
        ("0,30 2 * * *", "01:00 00:00 00:30"),
        ("0 2,3 * * *", "01:00 00:00 01:00"),
    ] {
        assert_eq!(ticks(cron, "Europe/Zurich", from, to), expected, "{cron}");
    }
    let (from, to) = ("2026-10-03T12:00:00Z", "2026-10-04T20:00:00Z");
    let lord_howe = ticks("15 2 * * *", "Australia/Lord_Howe", from, to);
    assert_eq!(lord_howe, "15:30 15:15");
}

#[test]
fn intervals_go_on_when_clocks_are_turned_back() {
    let zurich = |cron, from, to| ticks(cron, "Europe/Zurich", from, to);
    let (from, to) = ("2026-10-25T00:40:00Z", "2026-10-25T02:10:00Z");
    let expected = "00:50 01:00 01:10 01:20 01:30 01:40 01:50 02:00 02:10";
    assert_eq!(zurich("*/10 * * * *", from, to), expected);
    let (from, to) = ("2026-10-24T22:00:00Z", "2026-10-25T03:00:00Z");
    let hourly = zurich("0 * * * *", from, to);
    assert_eq!(hourly, "23:00 00:00 01:00 02:00 03:00");
    let night = zurich("30 1-3 * * *", from, to);
    assert_eq!(night, "23:30 00:30 01:30 02:30");
    // Put or resumed while the hour comes again.
    let next = after("*/10 * * * *", "Europe/Zurich", "2026-10-25T01:10:00Z");
    assert_eq!(next, "2026-10-25T01:20:00Z");
    let next = after("*/20 * * * * *", "Europe/Zurich", "2026-10-25T00:59:40Z");
    assert_eq!(next, "2026-10-25T01:00:00Z");
    // Half an hour comes again: what is hourly there is not in real time.
    let (from, to) = ("2026-04-04T14:00:00Z", "2026-04-04T17:00:00Z");
    let hourly = ticks("45 * * * *", "Australia/Lord_Howe", from, to);
    assert_eq!(hourly, "14:45 15:15 16:15");
    let hourly = ticks("0 * * * *", "Australia/Lord_Howe", from, to);
    assert_eq!(hourly, "15:30 16:30");
}

#[test]
fn intervals_go_on_when_clocks_are_put_forward() {
    let (from, to) = ("2026-03-29T00:40:00Z", "2026-03-29T01:20:00Z");
    let zurich = ticks("*/10 * * * *", "Europe/Zurich", from, to);
    assert_eq!(zurich, "00:50 01:00 01:10 01:20");
    let (from, to) = ("2026-03-28T23:30:00Z", "2026-03-29T03:00:00Z");
    let zurich = ticks("0 * * * *", "Europe/Zurich", from, to);
    assert_eq!(zurich, "00:00 01:00 02:00 03:00");
    let (from, to) = ("2026-10-03T14:00:00Z", "2026-10-03T17:00:00Z");
    let lord_howe = ticks("0 * * * *", "Australia/Lord_Howe", from, to);
    assert_eq!(lord_howe, "14:30 16:00 17:00");
}

const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Zurich",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Chatham",
];

/// When clocks are changed in one of the zones, and days when nothing happens: 2026, 2017.
const DAYS: [&str; 11] = [
    "2026-03-28T20:00:00Z",
    "2026-10-24T20:00:00Z",
    "2026-03-08T02:00:00Z",
    "2026-11-01T02:00:00Z",
    "2026-04-04T10:00:00Z",
    "2026-10-03T10:00:00Z",
    "2026-09-26T10:00:00Z",
    "2017-10-14T22:00:00Z",
    "2017-02-18T20:00:00Z",
    "2026-03-07T20:00:00Z",
    "2026-06-15T20:00:00Z",
];

const INTERVALS: [&str; 12] = [
    "* * * * *",
    "*/10 * * * *",
    "0 * * * *",
    "17 * * * *",
    "*/7 * * * *",
    "30 1-3 * * *",
    "* 2 * * *",
    "*/15 0,2 * * *",
    "*/20 * * * * *",
    "5-55/25 59 */1 * * *",
    "*/30 30 2 * * *",
    "10,40 */2 * * SUN",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// An interval ticks whenever the local time matches, and not otherwise.
    #[test]
    fn intervals_are_what_the_local_clock_says(
        cron in prop::sample::select(&INTERVALS[..]),
        zone in prop::sample::select(&ZONES[..]),
        day in prop::sample::select(&DAYS[..]),
        second in 0u64..40_000,
    ) {
        let rhythm = rhythm(cron, zone);
        let mut from = ms(day) / 1_000 + second;
        let until = from + 3_000;
        let next_second = |from: u64| rhythm.next_after(from * 1_000).map(|tick| tick / 1_000);
        let mut next = next_second(from);
        while from < until {
            from += 1;
            let local = rhythm.zone.timestamp_opt(from as i64, 0).unwrap();
            let matches = rhythm.cron.is_time_matching(&local).unwrap();
            prop_assert_eq!(next == Some(from), matches, "{} in {} at {}", cron, zone, local);
            if matches {
                next = next_second(from);
            }
        }
    }

    /// Ten minutes of real time, wherever offsets are whole multiples of them.
    #[test]
    fn ten_minutes_are_ten_minutes(
        zone in prop::sample::select(&ZONES[..7]),
        day in prop::sample::select(&DAYS[..]),
        second in 0u64..86_400,
    ) {
        let rhythm = rhythm("*/10 * * * *", zone);
        let first = rhythm.next_after(ms(day) + second * 1_000).unwrap();
        let ticks = std::iter::successors(Some(first), |tick| rhythm.next_after(*tick));
        for (number, tick) in ticks.take(60).enumerate() {
            prop_assert_eq!(tick, first + number as u64 * 600_000, "{} {}", zone, text(tick));
        }
    }

    /// A time of day comes once a day, at that time or at the end of a gap.
    #[test]
    fn a_time_of_day_comes_once_a_day(
        zone in prop::sample::select(&ZONES[..]),
        day in prop::sample::select(&DAYS[..]),
        (hour, minute) in (0u32..24, 0u32..60),
    ) {
        let rhythm = rhythm(&format!("{minute} {hour} * * *"), zone);
        let begin = ms(day) - 86_400_000;
        let ticks = std::iter::successors(rhythm.next_after(begin), |tick| rhythm.next_after(*tick));
        let mut date = None;
        for tick in ticks.take(5) {
            let local = rhythm.zone.timestamp_millis_opt(tick as i64).unwrap();
            let wanted = chrono::NaiveTime::from_hms_opt(hour, minute, 0).unwrap();
            let wanted = local.date_naive().and_time(wanted);
            let before = (local - Duration::seconds(1)).naive_local();
            let after_gap = before < wanted && wanted < local.naive_local();
            let in_time = local.naive_local() == wanted;
            prop_assert!(in_time || after_gap, "{hour}:{minute} in {zone} at {local}");
            let today = local.date_naive();
            let expected = date.map_or(today, |date: chrono::NaiveDate| date.succ_opt().unwrap());
            prop_assert_eq!(today, expected, "{}:{} in {}", hour, minute, zone);
            date = Some(today);
        }
    }
}
