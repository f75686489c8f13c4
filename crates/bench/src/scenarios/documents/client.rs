//! A client: a connection on which one request follows the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};

use super::workload::LiveDocuments;
use crate::http1::Connection;
use crate::record::Recorder;
use crate::schedule::{ArrivalSchedule, Spacing, arrival_schedule};
use crate::steady::RateCounter;

#[derive(Clone, Debug)]
pub(super) struct ApiAddress {
    pub(super) host: String,
    pub(super) token: String,
    pub(super) database: String,
}

/// When requests are due, for all clients together.
pub(super) struct RequestSchedule {
    /// Known once the first request is asked for.
    start_time: OnceLock<Instant>,
    duration: Duration,
    schedule: Option<Mutex<ArrivalSchedule>>,
    /// Set when the load is stopped early.
    is_stopped: AtomicBool,
    /// Counts requests that have ended.
    pub(super) counter: RateCounter,
}

impl RequestSchedule {
    /// A schedule that begins with the first request: a closed loop, or an open loop of `rate`.
    pub(super) fn new(duration: Duration, rate: Option<f64>, seed: u64) -> Self {
        let schedule =
            rate.map(|rate| Mutex::new(arrival_schedule(Spacing::Poisson, rate, duration, seed)));
        Self {
            start_time: OnceLock::new(),
            duration,
            schedule,
            is_stopped: AtomicBool::new(false),
            counter: RateCounter::default(),
        }
    }

    /// Nothing more is due.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// When the first request was asked for; now, where none was.
    pub(super) fn start_time(&self) -> Instant {
        *self.start_time.get_or_init(Instant::now)
    }

    /// Waits until the next request is due; `None` when the schedule has ended.
    fn await_next(&self) -> Option<Instant> {
        let (begin, now) = (self.start_time(), Instant::now());
        if now >= begin + self.duration || self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let Some(schedule) = &self.schedule else {
            return Some(now);
        };
        let due = schedule.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        let due = begin + due;
        std::thread::sleep(due.saturating_duration_since(now));
        Some(due)
    }
}

pub(super) struct DocumentsClient {
    address: ApiAddress,
    connection: Connection,
    schedule: Arc<RequestSchedule>,
    origin: Instant,
    pub(super) recorder: Recorder,
    /// Requests that were sent.
    pub(super) requests: u64,
    /// What it has made, of the volume mix.
    pub(super) live_documents: LiveDocuments,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WriteReply {
    pub(super) status: u64,
    /// Of a write by identity: the document.
    pub(super) id: String,
}

impl DocumentsClient {
    /// Connects.
    ///
    /// # Errors
    /// If the connection cannot be established.
    pub(super) fn open(
        address: ApiAddress,
        schedule: Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(&address.host)?,
            address,
            schedule,
            origin,
            recorder: Recorder::default(),
            requests: 0,
            live_documents: LiveDocuments::default(),
        })
    }

    /// Gets ready for operations, so that no memory is asked for by all clients together in the
    /// midst of load.
    pub(super) fn preallocate(&mut self, operations: &[&str]) {
        self.recorder.preallocate(operations);
        self.live_documents = LiveDocuments::preallocated();
    }

    /// Sends a request when it is due, recorded under `name`; `None` when the schedule has ended. A
    /// status that is not in `expected` counts as a failure.
    ///
    /// # Errors
    /// When the connection is lost.
    pub(super) fn send_when_due(
        &mut self,
        name: &'static str,
        method: &str,
        path: &str,
        body: &str,
        expected: &[u64],
    ) -> Result<Option<WriteReply>> {
        let Some(due) = self.schedule.await_next() else {
            return Ok(None);
        };
        let begun = Instant::now();
        let reply = self.send(method, path, body)?;
        let ended = Instant::now();
        self.schedule.counter.add(ended - due);
        let [due, begun, ended] =
            [due, begun, ended].map(|moment| moment.saturating_duration_since(self.origin));
        self.requests += 1;
        if expected.contains(&reply.status) {
            self.recorder.record_success(name, due, begun, ended);
        } else {
            let cause = format!("{name} {}", reply.status);
            self.recorder.record_failure(&cause, due, begun, ended);
        }
        Ok(Some(reply))
    }

    /// Sends a request at once, without recording it.
    ///
    /// # Errors
    /// When the connection is lost.
    pub(super) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<WriteReply> {
        let ApiAddress { host, token, database } = &self.address;
        let content_type =
            if path.ends_with("/import") { "application/x-ndjson" } else { "application/json" };
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = format!(
            "{method} /v1/{path}{separator}database={database} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let is_write = method == "POST";
        let (status, id) = self
            .connection
            .exchange(request.as_bytes(), |body| is_write.then(|| parse_id(body)).flatten())?;
        Ok(WriteReply { status, id: id.unwrap_or_default() })
    }

    /// Sends a request at once, as preparation that must succeed.
    ///
    /// # Errors
    /// When the connection is lost, or the status is no success.
    pub(super) fn send_checked(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<WriteReply> {
        let reply = self.send(method, path, body)?;
        let status = reply.status;
        ensure!(status / 100 == 2, "{method} {path} returned {status}");
        Ok(reply)
    }
}

/// The id in `{"id":"…"}`.
fn parse_id(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("\"id\":\"")?;
    Some(rest.split('"').next()?.to_owned())
}

/// Runs `work` for each client number on a thread of its own, and returns all results.
///
/// # Errors
/// That of the first client that failed.
pub(super) async fn run_on_threads<T: Send + 'static>(
    clients: u32,
    work: impl Fn(u32) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let work = Arc::new(work);
    // Not the runtime's threads: there are 512 of them, and clients wait for each other.
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let work = work.clone();
            std::thread::spawn(move || work(number))
        })
        .collect();
    let joined = tokio::task::spawn_blocking(move || {
        let all = threads.into_iter().map(std::thread::JoinHandle::join);
        all.collect::<Vec<_>>()
    });
    let mut results = Vec::new();
    for result in joined.await? {
        results.push(result.map_err(|_| anyhow!("a client panicked"))??);
    }
    if results.is_empty() {
        bail!("there are no clients");
    }
    Ok(results)
}
