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
use crate::schedule::{ArrivalSchedule, Spacing, arrival_schedule};

/// The names of reads in results: all, those of the last hour, and older ones.
pub(super) const READ: &str = "read";
const READ_HOT: &str = "read_hot";
const READ_COLD: &str = "read_cold";

/// Of all readers, at most so many answers are kept, evenly over the load where there are more: one
/// in [`CHECKED_ONE_IN`] at first.
const CHECKED_ANSWERS_MAX: usize = 2_000;
const CHECKED_ONE_IN: u64 = 7;

/// Longer answers are not kept.
const CHECKED_BYTES_MAX: usize = 1 << 20;

/// What the readers share: whose turn it is.
pub(super) struct QueryTurns {
    state: Mutex<(u64, Option<ArrivalSchedule>)>,
}

impl QueryTurns {
    /// As fast as answers come, or by a schedule of so many a second.
    pub(super) fn new(rate: Option<f64>, clock: &Clock, seed: u64) -> Self {
        let length = clock.end - clock.start;
        let schedule = rate.map(|rate| arrival_schedule(Spacing::Poisson, rate, length, seed));
        Self { state: Mutex::new((0, schedule)) }
    }

    /// The number of the next query and when it is due; `None` when the schedule has ended.
    fn next_turn(&self, clock: &Clock) -> Option<(u64, Instant)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let due = match &mut state.1 {
            Some(schedule) => clock.start + schedule.next()?,
            None => Instant::now(),
        };
        state.0 += 1;
        Some((state.0 - 1, due))
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
    pub(super) unchecked_answers: Vec<UncheckedAnswer>,
    /// How many queries could not be asked, as there was not enough to ask about.
    pub(super) skipped: u64,
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
    pub(super) acked_steps: Arc<AckedSteps>,
    pub(super) clock: Arc<Clock>,
    pub(super) turns: Arc<QueryTurns>,
    pub(super) readers: u32,
}

impl Reader {
    /// Asks until the clock ends.
    ///
    /// # Errors
    /// When the connection is lost.
    pub(super) fn run(self) -> Result<ReaderResult> {
        let mut connection = Connection::open(&self.system.address.host)?;
        let mut result = ReaderResult::default();
        let operation_indexes =
            [READ, READ_HOT, READ_COLD].map(|name| result.recorder.operation_index(name));
        while let Some((number, due)) = self.turns.next_turn(&self.clock) {
            if !self.sleep_until(due) {
                break;
            }
            let fleet = self.catalog.fleet();
            let Some(query) = SeriesQuery::choose(fleet, number, self.acked_steps.acknowledged())
            else {
                result.skipped += 1;
                // There is more after a moment.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let request = self.system.request("GET", &query.path(self.system.api));
            let begun = Instant::now();
            let (status, body) = connection.exchange(&request, |body| body.to_vec())?;
            let ended = Instant::now();
            if !self.clock.is_in_window(due) {
                continue;
            }
            let [due, begun, ended] = [due, begun, ended].map(|moment| self.clock.offset(moment));
            if status != 200 {
                let cause = format!("read {status}");
                result.recorder.record_failure(&cause, due, begun, ended);
                continue;
            }
            let age_index = if query.is_hot { operation_indexes[1] } else { operation_indexes[2] };
            for index in [operation_indexes[0], age_index] {
                result.recorder.record_success_at(index, due, begun, ended);
            }
            result.recorder.record_phase(READ, query.kind().name, ended - begun);
            self.process_answer(&mut result, query, body, number);
        }
        Ok(result)
    }

    /// Whether it is still to be done then.
    fn sleep_until(&self, due: Instant) -> bool {
        let remaining = due.saturating_duration_since(Instant::now());
        std::thread::sleep(remaining);
        !self.clock.has_ended(Instant::now())
    }

    /// Looks at an answer and keeps some.
    fn process_answer(
        &self,
        result: &mut ReaderResult,
        query: SeriesQuery,
        body: Vec<u8>,
        number: u64,
    ) {
        let has_room = result.unchecked_answers.len() < CHECKED_ANSWERS_MAX / self.readers as usize;
        if number.is_multiple_of(CHECKED_ONE_IN) && has_room && body.len() <= CHECKED_BYTES_MAX {
            result.keep_answer(UncheckedAnswer { query, body });
        } else {
            result.count_answer(&query, &body);
        }
    }
}

impl ReaderResult {
    /// Looks at an answer, and keeps it to be checked value by value.
    pub(super) fn keep_answer(&mut self, answer: UncheckedAnswer) {
        self.count_answer(&answer.query, &answer.body);
        self.unchecked_answers.push(answer);
    }

    /// Looks at an answer: whether there is something in it, and how many series.
    fn count_answer(&mut self, query: &SeriesQuery, body: &[u8]) {
        self.answers += 1;
        let count = answer::count_series(body);
        if count == 0 {
            self.empty += 1;
        } else if !query.expr.can_filter() {
            let text = query.expr.to_string();
            let series_counts = self
                .counts
                .entry(text)
                .or_insert_with(|| SeriesCounts { query: query.clone(), answers: BTreeMap::new() });
            *series_counts.answers.entry(count).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
