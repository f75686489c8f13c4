//! Functions of time: what a number of seconds since 1970 is in the calendar, UTC.

use super::math::OfFloat;

const DAY: i64 = 86_400;

pub(super) fn lookup(name: &str) -> Option<OfFloat> {
    Some(match name {
        "minute" => |at, _| Some((seconds(at).rem_euclid(3600) / 60) as f64),
        "hour" => |at, _| Some((seconds(at).rem_euclid(DAY) / 3600) as f64),
        "day_of_week" => |at, _| Some((seconds(at).div_euclid(DAY) + 4).rem_euclid(7) as f64),
        "day_of_month" => |at, _| Some(date(at).2 as f64),
        "day_of_year" => |at, _| {
            let (year, ..) = date(at);
            Some((seconds(at).div_euclid(DAY) - days_before(year, 1) + 1) as f64)
        },
        "days_in_month" => |at, _| {
            let (year, month, _) = date(at);
            let next = if month == 12 {
                days_before(year + 1, 1)
            } else {
                days_before(year, month + 1)
            };
            Some((next - days_before(year, month)) as f64)
        },
        "month" => |at, _| Some(date(at).1 as f64),
        "year" => |at, _| Some(date(at).0 as f64),
        _ => return None,
    })
}

/// Whole seconds, kept within what a calendar can bear.
fn seconds(at: f64) -> i64 {
    (at as i64).clamp(-(1 << 50), 1 << 50)
}

/// Days from 1970 to the first of a month; the year is taken to begin in March, so that the leap day is its last.
fn days_before(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month, day.
fn date(at: f64) -> (i64, i64, i64) {
    let days = seconds(at).div_euclid(DAY) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}
