//! Cron expressions in time zones, and their ticks when clocks are changed.
//!
//! The parser searches in local time; what a local time is in real time, once, twice or never, is
//! decided here.

use std::str::FromStr;

use chrono::{DateTime, Duration, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{GapInfo, Tz};
use croner::Cron;
use croner::parser::{CronParser, Seconds};

/// A cron expression in its time zone.
///
/// It is *fixed* when its hours, minutes and seconds are plain numbers or lists of them: such ticks
/// are meant for a time of day. One comes once where its local time comes twice, the first time;
/// and at the end of the gap where its local time is left out. With `*`, a step or a range in one
/// of these fields the expression is an *interval*: a tick comes whenever the local time matches,
/// twice where it comes twice. (Vixie cron tells the two apart in much the same way, by `*`.)
#[derive(Clone, Debug)]
pub struct CronSchedule {
    cron: Cron,
    zone: Tz,
    is_interval: bool,
}

/// Why an expression or a time zone is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronScheduleError {
    /// The expression cannot be read.
    #[error("`{cron}`: {reason}")]
    Cron {
        /// The expression as it was given.
        cron: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No time zone has this name.
    #[error("`{name}` is not one of the IANA database, such as Europe/Zurich")]
    TimeZone {
        /// Name of the unknown time zone.
        name: String,
    },
}

impl CronSchedule {
    /// Reads an expression of five fields, or six with seconds first; an empty zone is UTC.
    ///
    /// # Errors
    /// [`CronScheduleError`], which says which of the two is wrong.
    pub fn new(cron: &str, zone: &str) -> Result<Self, CronScheduleError> {
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let parsed = parser.parse(cron).map_err(|error| CronScheduleError::Cron {
            cron: cron.to_owned(),
            reason: error.to_string(),
        })?;
        let zone = match zone {
            "" => Tz::UTC,
            name => Tz::from_str(name)
                .map_err(|_| CronScheduleError::TimeZone { name: name.to_owned() })?,
        };
        let fields: Vec<&str> = parsed.pattern.as_str().split_whitespace().collect();
        let of_day = if fields.len() == 5 { 2 } else { 3 };
        let mut of_day = fields.iter().take(of_day);
        let is_interval = of_day.any(|field| field.contains(['*', '/', '-']));
        Ok(Self { cron: parsed, zone, is_interval })
    }

    /// Reads an expression that is new: of five fields, or six with seconds first, without a field
    /// for years and without empty items in lists, of which [`CronSchedule::new`] goes on reading
    /// what is stored.
    ///
    /// # Errors
    /// Those of [`CronSchedule::new`].
    pub fn parse_strict(cron: &str, zone: &str) -> Result<Self, CronScheduleError> {
        let schedule = Self::new(cron, zone)?;
        match find_likely_mistake(cron) {
            None => Ok(schedule),
            Some(reason) => Err(CronScheduleError::Cron { cron: cron.to_owned(), reason }),
        }
    }

    /// The first tick after a time, both in Unix milliseconds, if there is one.
    pub fn next_after(&self, ms: u64) -> Option<u64> {
        // Ticks are whole seconds; the search would carry a fraction on.
        let seconds = i64::try_from(ms / 1_000).ok()?;
        let from = DateTime::from_timestamp(seconds, 0)?.with_timezone(&self.zone);
        let next = if self.is_interval {
            let candidates = [self.next_in_interval(&from), self.next_repeated(&from)];
            candidates.into_iter().flatten().min()
        } else {
            self.next_fixed(&from)
        };
        let next_ms = u64::try_from(next?.timestamp_millis()).ok()?;
        assert!(next_ms > ms, "tick {next_ms} does not come after {ms}");
        Some(next_ms)
    }

    /// The next local time of the expression, as if no clock were ever changed.
    fn next_local(&self, after: NaiveDateTime) -> Option<NaiveDateTime> {
        let next = self.cron.find_next_occurrence(&after.and_utc(), false);
        next.ok().map(|found| found.naive_utc())
    }

    fn gap_end(&self, local: NaiveDateTime) -> Option<DateTime<Tz>> {
        GapInfo::new(&local, &self.zone)?.end
    }

    /// The next tick of a fixed time of day.
    fn next_fixed(&self, from: &DateTime<Tz>) -> Option<DateTime<Tz>> {
        let mut local = from.naive_local();
        loop {
            local = self.next_local(local)?;
            let tick = match self.zone.from_local_datetime(&local) {
                MappedLocalTime::Single(tick) | MappedLocalTime::Ambiguous(tick, _) => tick,
                MappedLocalTime::None => self.gap_end(local)?,
            };
            if tick > *from {
                return Some(tick);
            }
        }
    }

    /// The next tick of an interval whose local time is ahead of that of `from`.
    fn next_in_interval(&self, from: &DateTime<Tz>) -> Option<DateTime<Tz>> {
        let mut local = from.naive_local();
        loop {
            local = self.next_local(local)?;
            let candidates = match self.zone.from_local_datetime(&local) {
                MappedLocalTime::Single(tick) => [Some(tick), None],
                MappedLocalTime::Ambiguous(first, second) => [Some(first), Some(second)],
                MappedLocalTime::None => {
                    local = self.gap_end(local)?.naive_local() - Duration::seconds(1);
                    continue;
                }
            };
            if let Some(tick) = candidates.into_iter().flatten().find(|tick| tick > from) {
                return Some(tick);
            }
        }
    }

    /// The next tick of an interval whose local time has been, and comes once more because clocks
    /// are about to be turned back.
    fn next_repeated(&self, from: &DateTime<Tz>) -> Option<DateTime<Tz>> {
        let repeated = self.zone.from_local_datetime(&from.naive_local());
        let MappedLocalTime::Ambiguous(first, second) = repeated else {
            return None;
        };
        if first != *from {
            return None;
        }
        let offset = |seconds| {
            let utc = DateTime::from_timestamp(seconds, 0).map(|utc| utc.naive_utc());
            utc.map(|utc| self.zone.offset_from_utc_datetime(&utc).fix())
        };
        // Clocks are turned back in between.
        let (mut before, mut turned) = (first.timestamp(), second.timestamp());
        while turned - before > 1 {
            let middle = before.midpoint(turned);
            if offset(middle) == offset(before) { before = middle } else { turned = middle }
        }
        let start = self.zone.timestamp_opt(turned, 0).single()?;
        let local = self.next_local(start.naive_local() - Duration::seconds(1))?;
        match self.zone.from_local_datetime(&local) {
            MappedLocalTime::Ambiguous(_, second) => Some(second),
            // The local time is ahead of all that come twice.
            _ => None,
        }
    }
}

/// Finds what the parser accepts but is most likely a mistake; returns what is wrong with it.
fn find_likely_mistake(cron: &str) -> Option<String> {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    if fields.len() > 6 {
        let count = fields.len();
        return Some(format!(
            "it has {count} fields: there are five, or six with seconds first, and none for years"
        ));
    }
    let empty = fields.iter().find(|field| {
        // `+` goes before all items of the days of the week.
        let items = field.strip_prefix('+').unwrap_or(field);
        items.split(',').any(str::is_empty)
    });
    empty.map(|field| format!("`{field}` has an empty item"))
}

#[cfg(test)]
mod tests;
