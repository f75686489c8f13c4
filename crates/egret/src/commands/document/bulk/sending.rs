//! Lines on their way: what the server cannot take at the moment is sent again, until each line is
//! answered for good.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde::Deserialize;

use crate::api::{Api, RawRequest};
use crate::cli::ImportDocuments;
use crate::commands::document::reasons::DocumentProblem;
use crate::commands::document::request::queried;
use crate::commands::queue::{ReconnectBackoff, unexpected};
use crate::failure::{Exit, Failure};
use crate::output::{Output, duration};

/// How long lines are sent again while none of them is answered for good: a server that recovers
/// from a crash may take minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Lines of a request that are sent again, unless fewer are left: below this a request costs more
/// than its lines.
const LINES_MIN: usize = 16;

/// Error codes of a server that is up but has too much to do. Every other retryable error means
/// that the server or something behind it was away.
const TOO_MUCH: [&str; 3] = ["overloaded", "limit_exceeded", "server_busy"];

/// Error code of a request that has more bytes than the server takes.
const TOO_LARGE: &str = "body_too_large";

/// Final outcomes of lines.
#[derive(Debug, Default)]
pub(super) struct ImportTotals {
    pub(super) created: u64,
    pub(super) changed: u64,
    pub(super) unchanged: u64,
    /// Rejected lines, by their index from 0, with the reason.
    pub(super) refused: Vec<(usize, DocumentProblem)>,
}

/// The response of the server to one request.
#[derive(Debug, Deserialize)]
struct ImportResponse {
    created: u64,
    changed: u64,
    unchanged: u64,
    refused: Vec<RejectedLine>,
    /// Epoch of the process that writes in that database.
    epoch: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct RejectedLine {
    line: usize,
    problem: DocumentProblem,
}

/// Lines that are to be sent again.
struct RetryLines {
    places: Vec<usize>,
    /// The reason for the first of them.
    why: Failure,
}

/// Sends lines to a collection.
pub(super) struct ChunkSender<'a> {
    api: &'a Api,
    collection: &'a str,
    query: Vec<(String, String)>,
    output: Output,
    patience: Duration,
    /// Whether the server has ever answered: if not, no line is sent again.
    is_heard: AtomicBool,
    /// Whether lines wait to be sent again, and it was said why.
    is_waiting: AtomicBool,
    was_away: AtomicBool,
    /// Epoch of the last response; 0 before the first one.
    epoch: AtomicI64,
}

impl<'a> ChunkSender<'a> {
    pub(super) fn new(api: &'a Api, command: &'a ImportDocuments, output: Output) -> Self {
        let mut query = queried(&command.place);
        if command.relaxed {
            query.push(("durability".to_owned(), "relaxed".to_owned()));
        }
        Self {
            api,
            collection: &command.collection,
            query,
            output,
            patience: PATIENCE,
            is_heard: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            was_away: AtomicBool::new(false),
            epoch: AtomicI64::new(0),
        }
    }

    /// Whether the server was unreachable for a time, or another process writes there now.
    pub(super) fn was_away(&self) -> bool {
        self.was_away.load(Ordering::Relaxed)
    }

    /// Sends lines until each is answered for good. Those that may be taken later come again, after
    /// pauses that grow, and fewer at a time: what may wait at the server may be less than all of
    /// them. Empty lines are left out.
    ///
    /// # Errors
    /// What does not go away by itself, or has not for [`PATIENCE`].
    pub(super) async fn deliver(&self, text: &[u8]) -> Result<ImportTotals, Failure> {
        let texts: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let is_line = |place: &usize| !texts[*place].trim_ascii().is_empty();
        let mut left: Vec<usize> = (0..texts.len()).filter(is_line).collect();
        let mut answer = ImportTotals::default();
        let mut portion = left.len();
        let (mut backoff, mut since) = (ReconnectBackoff::default(), None);
        while !left.is_empty() {
            let rest = left.split_off(portion.min(left.len()));
            let sent = std::mem::replace(&mut left, rest);
            let Some(RetryLines { mut places, why }) =
                self.once(&texts, &sent, &mut answer).await?
            else {
                self.is_waiting.store(false, Ordering::Relaxed);
                (backoff, since) = (ReconnectBackoff::default(), None);
                continue;
            };
            if places.len() < sent.len() {
                (backoff, since) = (ReconnectBackoff::default(), None);
            }
            // The order of these stays.
            places.append(&mut left);
            left = places;
            let begun: Instant = *since.get_or_insert_with(Instant::now);
            if begun.elapsed() >= self.patience {
                return Err(self.given_up(left.len(), why));
            }
            self.wait(&why, &mut backoff).await;
            portion = (portion / 2).max(LINES_MIN);
        }
        answer.refused.sort_by_key(|(place, _)| *place);
        Ok(answer)
    }

    /// Sends lines once. Without any that may be taken later, each is answered for good.
    async fn once(
        &self,
        texts: &[&[u8]],
        places: &[usize],
        answer: &mut ImportTotals,
    ) -> Result<Option<RetryLines>, Failure> {
        let lines: Vec<&[u8]> = places.iter().map(|place| texts[*place]).collect();
        let path = ["collections", self.collection, "import"].map(str::to_owned);
        let raw = RawRequest {
            query: self.query.clone(),
            body: Some(("application/x-ndjson", lines.join(&b'\n'))),
            ..RawRequest::new(Method::POST, path.into())
        };
        let body = match self.api.raw(raw).await {
            Ok(said) => said.body,
            Err(why) if self.may_pass(&why) => {
                let places = places.to_vec();
                return Ok(Some(RetryLines { places, why }));
            }
            Err(why) if why.code == TOO_LARGE => {
                return self.apart(texts, places, answer, why).await;
            }
            Err(failure) => return Err(failure),
        };
        self.is_heard.store(true, Ordering::Relaxed);
        let said: ImportResponse =
            serde_json::from_slice(&body).map_err(|error| unexpected(&error))?;
        let epoch = said.epoch.unwrap_or_default();
        if ![0, epoch].contains(&self.epoch.swap(epoch, Ordering::Relaxed)) {
            self.was_away.store(true, Ordering::Relaxed);
        }
        answer.created += said.created;
        answer.changed += said.changed;
        answer.unchanged += said.unchanged;
        let (mut later, mut why) = (Vec::new(), None);
        for RejectedLine { line, problem } in said.refused {
            let place = line.checked_sub(1).and_then(|place| places.get(place));
            let Some(place) = place else {
                let lines = places.len();
                return Err(unexpected(&format!("line {line} of {lines} is refused")));
            };
            if problem.retryable {
                later.push(*place);
                why.get_or_insert(problem);
            } else {
                answer.refused.push((*place, problem))
            }
        }
        Ok(why.map(|problem| RetryLines {
            places: later,
            why: problem.failure(),
        }))
    }

    /// Sends lines that are too long together in two halves; one that is too long by itself is
    /// refused.
    async fn apart(
        &self,
        texts: &[&[u8]],
        places: &[usize],
        answer: &mut ImportTotals,
        why: Failure,
    ) -> Result<Option<RetryLines>, Failure> {
        if let [place] = places {
            answer.refused.push((*place, DocumentProblem::of(why)));
            return Ok(None);
        }
        let (first, second) = places.split_at(places.len() / 2);
        let first = Box::pin(self.once(texts, first, answer)).await?;
        let second = Box::pin(self.once(texts, second, answer)).await?;
        Ok(match (first, second) {
            (Some(mut first), Some(second)) => {
                first.places.extend(second.places);
                Some(first)
            }
            (first, second) => first.or(second),
        })
    }

    /// Whether a request may be answered later that was not now.
    fn may_pass(&self, failure: &Failure) -> bool {
        let is_there = failure.exit != Exit::Unreachable || self.is_heard.load(Ordering::Relaxed);
        failure.retryable && is_there
    }

    async fn wait(&self, why: &Failure, backoff: &mut ReconnectBackoff) {
        if !TOO_MUCH.contains(&why.code.as_str()) {
            self.was_away.store(true, Ordering::Relaxed);
        }
        if !self.is_waiting.swap(true, Ordering::Relaxed) {
            self.output.remark(&format!("{why}: retrying"));
        }
        backoff.wait().await;
    }

    fn given_up(&self, lines: usize, why: Failure) -> Failure {
        let tried = duration(self.patience.as_millis() as u64);
        let message = format!("gave up on {lines} lines after retrying for {tried}: {why}");
        Failure { message, ..why }
    }
}

#[cfg(test)]
mod tests;
