//! Functions of time: what a number of seconds since 1970 is in the calendar, UTC.
//!
//! Times far from ours, infinities and NaN have a place in the calendar as well, the one Prometheus
//! gives them: it counts in 64 bits, which wrap around.

use super::math::UnaryMathFn;

const DAY: u64 = 86_400;

/// Whole centuries of 400 years, in seconds and in years, that are added so that 1970 and what is
/// before it count from a first of March long ago.
const YEARS_BEFORE: u64 = 292_277_022_400;
const SECONDS_BEFORE: u64 = YEARS_BEFORE / 400 * 146_097 * DAY + 719_468 * DAY;

pub(super) fn lookup(name: &str) -> Option<UnaryMathFn> {
    Some(match name {
        "minute" => |at, _| Some((shifted_seconds(at) % 3600 / 60) as f64),
        "hour" => |at, _| Some((shifted_seconds(at) % DAY / 3600) as f64),
        "day_of_week" => |at, _| Some(((shifted_seconds(at) / DAY + 3) % 7) as f64),
        "day_of_month" => |at, _| Some(Date::from_seconds(at).day as f64),
        "day_of_year" => |at, _| Some(Date::from_seconds(at).day_of_year() as f64),
        "days_in_month" => |at, _| Some(Date::from_seconds(at).days_in_month() as f64),
        "month" => |at, _| Some(Date::from_seconds(at).month as f64),
        "year" => |at, _| Some(Date::from_seconds(at).year as f64),
        _ => return None,
    })
}

/// Seconds since a first of March. What is no number of 64 bits is taken for the smallest of them.
fn shifted_seconds(time: f64) -> u64 {
    let fits_i64 = (-(2_f64.powi(63))..2_f64.powi(63)).contains(&time);
    let whole = if fits_i64 { time as i64 } else { i64::MIN };
    SECONDS_BEFORE.wrapping_add_signed(whole)
}

struct Date {
    year: i64,
    month: u64,
    day: u64,
    /// Since the first of March.
    days: u64,
}

impl Date {
    /// A year is taken to begin in March, so that the leap day is its last.
    fn from_seconds(at: f64) -> Self {
        let days = shifted_seconds(at) / DAY;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let days = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * days + 2) / 153;
        let is_next = month >= 10;
        let years = (era * 400 + year_of_era).wrapping_sub(YEARS_BEFORE);
        Self {
            year: years.cast_signed() + i64::from(is_next),
            month: if is_next { month - 9 } else { month + 3 },
            day: days - (153 * month + 2) / 5 + 1,
            days,
        }
    }

    fn is_leap(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    fn day_of_year(&self) -> u64 {
        match self.days.checked_sub(306) {
            Some(since_january) => since_january + 1,
            None => self.days + 60 + u64::from(self.is_leap()),
        }
    }

    fn days_in_month(&self) -> u64 {
        match self.month {
            2 => 28 + u64::from(self.is_leap()),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}
