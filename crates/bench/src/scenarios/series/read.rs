//! Readers: each has a connection and asks one query after the other. Every answer is looked at,
//! and some are kept to be worked out when the load is over, as that takes processor time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::acked_steps::AckedSteps;
use super::answer;
use super::evaluate::Catalog;
use super::query::SeriesQuery;
use super::system::System;
use super::write::Clock;
use crate::http1::Connection;
use crate::record::Recorder;
use crate::schedule::{ArrivalSchedule, Spacing, arrivals};

/// The names of reads in results: all, those of the last hour, and older ones.
pub(super) const READ: &str = "read";
const READ_HOT: &str = "read_hot";
const READ_COLD: &str = "read_cold";

/// Of all readers, at most so many answers are kept, evenly over the load where there are more: one
/// in [`CHECKED_ONE_IN`] at first.
const KEPT_MAX: usize = 2_000;
const KEPT_EVERY: u64 = 7;

/// Longer answers are not kept.
const KEPT_BYTES: usize = 1 << 20;

/// What the readers share: whose turn it is.
pub(super) struct Turns {
    next: Mutex<(u64, Option<ArrivalSchedule>)>,
}

impl Turns {
    /// As fast as answers come, or by a schedule of so many a second.
    pub(super) fn new(rate: Option<f64>, clock: &Clock, seed: u64) -> Self {
        let length = clock.end - clock.begin;
        let schedule = rate.map(|rate| arrivals(Spacing::Poisson, rate, length, seed));
        Self {
            next: Mutex::new((0, schedule)),
        }
    }

    /// The number of the next query and when it is due; `None` when the schedule has ended.
    fn take(&self, clock: &Clock) -> Option<(u64, Instant)> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let due = match &mut next.1 {
            Some(schedule) => clock.begin + schedule.next()?,
            None => Instant::now(),
        };
        next.0 += 1;
        Some((next.0 - 1, due))
    }
}

/// Results of one reader.
#[derive(Default)]
pub(super) struct ReaderResult {
    pub(super) recorder: Recorder,
    /// Answers in the window that had nothing in them.
    pub(super) empty: u64,
    /// By the text of a query, one that was asked and how many answers had how many series.
    pub(super) counts: HashMap<String, SeriesCounts>,
    pub(super) answers: u64,
    pub(super) kept: Vec<UncheckedAnswer>,
    /// How many queries could not be asked, as there was not enough to ask about.
    pub(super) unasked: u64,
}

/// How many series answers to the same text had, and how often.
pub(super) struct SeriesCounts {
    pub(super) query: SeriesQuery,
    pub(super) answers: BTreeMap<usize, u64>,
}

/// An answer that is still to be checked.
pub(super) struct UncheckedAnswer {
    pub(super) query: SeriesQuery,
    pub(super) body: Vec<u8>,
}

pub(super) struct Reader {
    pub(super) system: System,
    pub(super) catalog: Arc<Catalog>,
    pub(super) frontier: Arc<AckedSteps>,
    pub(super) clock: Arc<Clock>,
    pub(super) turns: Arc<Turns>,
    pub(super) readers: u32,
}

impl Reader {
    /// Asks until the clock ends.
    ///
    /// # Errors
    /// When the connection is lost.
    pub(super) fn run(self) -> Result<ReaderResult> {
        let mut connection = Connection::open(&self.system.address.host)?;
        let mut asked = ReaderResult::default();
        let places = [READ, READ_HOT, READ_COLD].map(|name| asked.recorder.operation(name));
        while let Some((number, due)) = self.turns.take(&self.clock) {
            if !self.sleep_until(due) {
                break;
            }
            let fleet = self.catalog.fleet();
            let Some(query) = SeriesQuery::choose(fleet, number, self.frontier.acknowledged())
            else {
                asked.unasked += 1;
                // There is more after a moment.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let request = self.system.request("GET", &query.path(self.system.api));
            let begun = Instant::now();
            let (status, body) = connection.exchange(&request, |body| body.to_vec())?;
            let ended = Instant::now();
            if !self.clock.counts(due) {
                continue;
            }
            let [due, begun, ended] = [due, begun, ended].map(|moment| self.clock.at(moment));
            if status != 200 {
                let cause = format!("read {status}");
                asked.recorder.failure(&cause, due, begun, ended);
                continue;
            }
            let sort = if query.hot { places[1] } else { places[2] };
            for place in [places[0], sort] {
                asked.recorder.success_of(place, due, begun, ended);
            }
            asked.recorder.phase(READ, query.kind().name, ended - begun);
            self.look(&mut asked, query, body, number);
        }
        Ok(asked)
    }

    /// Whether it is still to be done then.
    fn sleep_until(&self, due: Instant) -> bool {
        let left = due.saturating_duration_since(Instant::now());
        std::thread::sleep(left);
        !self.clock.has_ended(Instant::now())
    }

    /// Looks at an answer and keeps some.
    fn look(&self, asked: &mut ReaderResult, query: SeriesQuery, body: Vec<u8>, number: u64) {
        let room = asked.kept.len() < KEPT_MAX / self.readers as usize;
        if number.is_multiple_of(KEPT_EVERY) && room && body.len() <= KEPT_BYTES {
            asked.keep(UncheckedAnswer { query, body });
        } else {
            asked.count(&query, &body);
        }
    }
}

impl ReaderResult {
    /// Looks at an answer, and keeps it to be checked value by value.
    pub(super) fn keep(&mut self, kept: UncheckedAnswer) {
        self.count(&kept.query, &kept.body);
        self.kept.push(kept);
    }

    /// Looks at an answer: whether there is something in it, and how many series.
    fn count(&mut self, query: &SeriesQuery, body: &[u8]) {
        self.answers += 1;
        let count = answer::count(body);
        if count == 0 {
            self.empty += 1;
        } else if !query.expr.filters() {
            let text = query.expr.to_string();
            let counted = self.counts.entry(text).or_insert_with(|| SeriesCounts {
                query: query.clone(),
                answers: BTreeMap::new(),
            });
            *counted.answers.entry(count).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
