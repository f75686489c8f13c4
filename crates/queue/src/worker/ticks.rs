//! What ticks of schedules are: cron expressions in time zones.

use std::str::FromStr;

use chrono::{DateTime, TimeZone};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use egret_log::Seq;

use super::partition::ReadRecord;
use super::turn::Turn;
use crate::api::schedules::{Description, Missed};
use crate::core::command::Command;
use crate::error::QueueError;
use crate::store::{content, record};

/// A tick that is this late has been missed, in milliseconds.
const LATE_MS: u64 = 10_000;

/// Tasks that stand for missed ticks at once.
const MISSED_MAX: u32 = 1_000;

/// Where no tick ever comes again, in Unix milliseconds: the end of time.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// A cron expression in its time zone.
#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    cron: Cron,
    zone: Tz,
}

impl Rhythm {
    /// Reads an expression of five fields, or six with seconds first; an empty zone is UTC.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub fn new(cron: &str, zone: &str) -> Result<Self, QueueError> {
        let invalid = |what, reason| QueueError::Invalid { what, reason };
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let parsed = parser
            .parse(cron)
            .map_err(|error| invalid("cron", format!("`{cron}`: {error}")))?;
        let zone = match zone {
            "" => Tz::UTC,
            name => Tz::from_str(name).map_err(|_| {
                invalid(
                    "time_zone",
                    format!("`{name}` is not one of the IANA database, such as Europe/Zurich"),
                )
            })?,
        };
        Ok(Self { cron: parsed, zone })
    }

    /// The first tick after a time, both in Unix milliseconds.
    pub fn after(&self, ms: u64) -> u64 {
        // Ticks are at whole seconds: what is behind the point would be carried from one to the next.
        let known = i64::try_from(ms - ms % 1_000).ok();
        let from: Option<DateTime<Tz>> =
            known.and_then(|ms| self.zone.timestamp_millis_opt(ms).single());
        let next = from.and_then(|from| self.cron.find_next_occurrence(&from, false).ok());
        next.map_or(NEVER_MS, |next| {
            u64::try_from(next.timestamp_millis()).unwrap_or(NEVER_MS)
        })
    }
}

/// What a schedule does when its tick has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    tasks: u32,
    next_ms: u64,
}

/// Decides on the ticks from `tick_ms` up to now.
fn due(rhythm: &Rhythm, missed: Missed, tick_ms: u64, now_ms: u64) -> Due {
    let (mut ticks, mut next_ms, mut last_ms) = (0, tick_ms, tick_ms);
    while next_ms <= now_ms && ticks < MISSED_MAX {
        ticks += 1;
        last_ms = next_ms;
        next_ms = rhythm.after(next_ms);
    }
    if next_ms <= now_ms {
        next_ms = rhythm.after(now_ms);
        last_ms = now_ms;
    }
    let on_time = now_ms.saturating_sub(last_ms) < LATE_MS;
    let tasks = match missed {
        Missed::Skip => u32::from(on_time),
        Missed::One => 1,
        Missed::All => ticks,
    };
    Due { tasks, next_ms }
}

/// Makes the tasks of ticks that have come.
pub(crate) fn run(turn: &mut Turn<'_>, read: &ReadRecord) {
    let now_ms = turn.now.as_millis_unsigned();
    if turn.state.next_tick_ms().is_none_or(|next| next > now_ms) {
        return;
    }
    let come: Vec<(String, String, u64, u64)> = turn
        .state
        .schedules()
        .filter(|(_, _, schedule)| !schedule.paused && schedule.next_ms <= now_ms)
        .map(|(tenant, name, it)| (tenant.into(), name.into(), it.record, it.next_ms))
        .collect();
    for (tenant, name, seq, tick_ms) in come {
        let due = match described(read, seq) {
            Ok((rhythm, missed)) => due(&rhythm, missed, tick_ms, now_ms),
            Err(error) => {
                tracing::error!(schedule = name, %error, "a schedule cannot be read and rests");
                Due {
                    tasks: 0,
                    next_ms: NEVER_MS,
                }
            }
        };
        let ticked = turn.run(&Command::Tick {
            tenant: &tenant,
            name: &name,
            tick_ms,
            next_ms: due.next_ms,
            tasks: due.tasks,
        });
        debug_assert!(ticked.is_ok(), "the schedule was just there");
    }
}

fn described(read: &ReadRecord, seq: u64) -> Result<(Rhythm, Missed), QueueError> {
    let record = read(Seq(seq))?;
    let Command::PutSchedule(put) = record::decode(&record)? else {
        return Err(QueueError::Invalid {
            what: "schedule",
            reason: format!("record {seq} holds none"),
        });
    };
    let description = Description::take(content::take(put.task.content)?.private.schedule)?;
    let rhythm = Rhythm::new(description.cron, description.time_zone)?;
    Ok((rhythm, description.missed))
}

#[cfg(test)]
mod tests;
