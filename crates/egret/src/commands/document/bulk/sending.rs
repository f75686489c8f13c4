//! Lines on their way: what the server cannot take at the moment is sent again, until each line is
//! answered for good.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde::Deserialize;

use crate::api::{Api, RawRequest};
use crate::cli::ImportDocuments;
use crate::commands::document::reasons::DocumentProblem;
use crate::commands::document::request::database_parameters;
use crate::commands::queue::{ReconnectBackoff, unexpected};
use crate::failure::{Exit, Failure};
use crate::output::{Output, format_duration};

/// How long lines are sent again while none of them is answered for good: a server that recovers
/// from a crash may take minutes.
const RETRY_TIMEOUT: Duration = Duration::from_secs(300);

/// Lines of a request that are sent again, unless fewer are left: below this a request costs more
/// than its lines.
const LINES_MIN: usize = 16;

/// Error codes of a server that is up but has too much to do. Every other retryable error means
/// that the server or something behind it was away.
const OVERLOAD_CODES: [&str; 3] = ["overloaded", "limit_exceeded", "server_busy"];

/// Error code of a request that has more bytes than the server takes.
const TOO_LARGE_CODE: &str = "body_too_large";

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
    indices: Vec<usize>,
    /// The reason for the first of them.
    reason: Failure,
}

/// Sends lines to a collection.
pub(super) struct ChunkSender<'a> {
    api: &'a Api,
    collection: &'a str,
    query: Vec<(String, String)>,
    output: Output,
    retry_timeout: Duration,
    /// Whether the server has ever answered: if not, no line is sent again.
    has_responded: AtomicBool,
    /// Whether lines wait to be sent again, and it was said why.
    is_waiting: AtomicBool,
    was_unreachable: AtomicBool,
    /// Epoch of the last response; 0 before the first one.
    epoch: AtomicI64,
}

impl<'a> ChunkSender<'a> {
    pub(super) fn new(api: &'a Api, command: &'a ImportDocuments, output: Output) -> Self {
        let mut query = database_parameters(&command.place);
        if command.relaxed {
            query.push(("durability".to_owned(), "relaxed".to_owned()));
        }
        Self {
            api,
            collection: &command.collection,
            query,
            output,
            retry_timeout: RETRY_TIMEOUT,
            has_responded: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            was_unreachable: AtomicBool::new(false),
            epoch: AtomicI64::new(0),
        }
    }

    /// Whether the server was unreachable for a time, or another process writes there now.
    pub(super) fn was_unreachable(&self) -> bool {
        self.was_unreachable.load(Ordering::Relaxed)
    }

    /// Sends lines until each is answered for good. Those that may be taken later come again, after
    /// pauses that grow, and fewer at a time: what may wait at the server may be less than all of
    /// them. Empty lines are left out.
    ///
    /// # Errors
    /// What does not go away by itself, or has not for [`RETRY_TIMEOUT`].
    pub(super) async fn deliver(&self, text: &[u8]) -> Result<ImportTotals, Failure> {
        let texts: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let is_line = |index: &usize| !texts[*index].trim_ascii().is_empty();
        let mut pending: Vec<usize> = (0..texts.len()).filter(is_line).collect();
        let mut totals = ImportTotals::default();
        let mut batch_size = pending.len();
        let (mut backoff, mut failing_since) = (ReconnectBackoff::default(), None);
        while !pending.is_empty() {
            let rest = pending.split_off(batch_size.min(pending.len()));
            let batch = std::mem::replace(&mut pending, rest);
            let Some(RetryLines { indices: mut places, reason: why }) =
                self.send_once(&texts, &batch, &mut totals).await?
            else {
                self.is_waiting.store(false, Ordering::Relaxed);
                (backoff, failing_since) = (ReconnectBackoff::default(), None);
                continue;
            };
            if places.len() < batch.len() {
                (backoff, failing_since) = (ReconnectBackoff::default(), None);
            }
            // The order of these stays.
            places.append(&mut pending);
            pending = places;
            let first_failure: Instant = *failing_since.get_or_insert_with(Instant::now);
            if first_failure.elapsed() >= self.retry_timeout {
                return Err(self.timeout_failure(pending.len(), why));
            }
            self.wait(&why, &mut backoff).await;
            batch_size = (batch_size / 2).max(LINES_MIN);
        }
        totals.refused.sort_by_key(|(place, _)| *place);
        Ok(totals)
    }

    /// Sends lines once. Without any that may be taken later, each is answered for good.
    async fn send_once(
        &self,
        texts: &[&[u8]],
        indices: &[usize],
        totals: &mut ImportTotals,
    ) -> Result<Option<RetryLines>, Failure> {
        let lines: Vec<&[u8]> = indices.iter().map(|place| texts[*place]).collect();
        let path = ["collections", self.collection, "import"].map(str::to_owned);
        let raw = RawRequest {
            query: self.query.clone(),
            body: Some(("application/x-ndjson", lines.join(&b'\n'))),
            ..RawRequest::new(Method::POST, path.into())
        };
        let body = match self.api.send_raw(raw).await {
            Ok(response) => response.body,
            Err(reason) if self.is_transient(&reason) => {
                let places = indices.to_vec();
                return Ok(Some(RetryLines { indices: places, reason }));
            }
            Err(why) if why.code == TOO_LARGE_CODE => {
                return self.send_in_halves(texts, indices, totals, why).await;
            }
            Err(failure) => return Err(failure),
        };
        self.has_responded.store(true, Ordering::Relaxed);
        let said: ImportResponse =
            serde_json::from_slice(&body).map_err(|error| unexpected(&error))?;
        let epoch = said.epoch.unwrap_or_default();
        if ![0, epoch].contains(&self.epoch.swap(epoch, Ordering::Relaxed)) {
            self.was_unreachable.store(true, Ordering::Relaxed);
        }
        totals.created += said.created;
        totals.changed += said.changed;
        totals.unchanged += said.unchanged;
        let (mut retry_indices, mut first_problem) = (Vec::new(), None);
        for RejectedLine { line, problem } in said.refused {
            let index = line.checked_sub(1).and_then(|place| indices.get(place));
            let Some(place) = index else {
                let lines = indices.len();
                return Err(unexpected(&format!("line {line} of {lines} is refused")));
            };
            if problem.retryable {
                retry_indices.push(*place);
                first_problem.get_or_insert(problem);
            } else {
                totals.refused.push((*place, problem))
            }
        }
        Ok(first_problem
            .map(|problem| RetryLines { indices: retry_indices, reason: problem.into_failure() }))
    }

    /// Sends lines that are too long together in two halves; one that is too long by itself is
    /// refused.
    async fn send_in_halves(
        &self,
        texts: &[&[u8]],
        indices: &[usize],
        totals: &mut ImportTotals,
        reason: Failure,
    ) -> Result<Option<RetryLines>, Failure> {
        if let [index] = indices {
            totals.refused.push((*index, DocumentProblem::from_failure(reason)));
            return Ok(None);
        }
        let (first, second) = indices.split_at(indices.len() / 2);
        let first = Box::pin(self.send_once(texts, first, totals)).await?;
        let second = Box::pin(self.send_once(texts, second, totals)).await?;
        Ok(match (first, second) {
            (Some(mut first), Some(second)) => {
                first.indices.extend(second.indices);
                Some(first)
            }
            (first, second) => first.or(second),
        })
    }

    /// Whether a request may be answered later that was not now.
    fn is_transient(&self, failure: &Failure) -> bool {
        let is_reachable =
            failure.exit != Exit::Unreachable || self.has_responded.load(Ordering::Relaxed);
        failure.retryable && is_reachable
    }

    async fn wait(&self, reason: &Failure, backoff: &mut ReconnectBackoff) {
        if !OVERLOAD_CODES.contains(&reason.code.as_str()) {
            self.was_unreachable.store(true, Ordering::Relaxed);
        }
        if !self.is_waiting.swap(true, Ordering::Relaxed) {
            self.output.print_remark(&format!("{reason}: retrying"));
        }
        backoff.wait().await;
    }

    fn timeout_failure(&self, lines: usize, reason: Failure) -> Failure {
        let retried_for = format_duration(self.retry_timeout.as_millis() as u64);
        let message =
            format!("gave up on {lines} lines after retrying for {retried_for}: {reason}");
        Failure { message, ..reason }
    }
}

#[cfg(test)]
mod tests;
