//! `egret queue work`: a command per task. Here is the loop that claims; `attempt.rs` is the life
//! of one attempt with its lease, `child.rs` the command's process.

mod attempt;
mod child;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use egret_base::settings::ConfigDuration;
use serde::Deserialize;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::attempt::{AttemptOutcome, LeasedTask, run_attempt};
use super::payload::unexpected;
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::{heard, is_ignored};

/// How long the server holds a claim for which there is nothing.
const CLAIM_WAIT_MS: u64 = 30_000;

/// Tasks of one claim.
const CLAIM_MAX: u64 = 1_000;

/// Waits between retries, each longer than the one before.
#[derive(Debug)]
pub(in crate::commands) struct ReconnectBackoff {
    next: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        Self {
            next: Duration::from_millis(200),
        }
    }
}

impl ReconnectBackoff {
    const MAX: Duration = Duration::from_secs(5);

    pub(in crate::commands) async fn wait(&mut self) {
        let now = self.next;
        self.next = (now * 2).min(Self::MAX);
        tokio::time::sleep(now).await;
    }
}

/// Streams of SIGINT and SIGTERM.
struct ShutdownSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl ShutdownSignals {
    fn new() -> Self {
        let is_ignored = is_ignored(SignalKind::interrupt());
        // Where a signal cannot be heard, it ends the program as it always does.
        Self {
            interrupt: (!is_ignored)
                .then(|| signal(SignalKind::interrupt()).ok())
                .flatten(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            () = heard(&mut self.interrupt) => {}
            () = heard(&mut self.terminate) => {}
        }
    }
}

/// Waits for SIGINT or SIGTERM.
pub(in crate::commands) async fn interrupted() {
    ShutdownSignals::new().next().await;
}

/// How urgently the user wants the worker to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StopRequest {
    No,
    /// Running commands may finish; no further task is claimed.
    Finish,
    /// Running commands are killed, and their tasks are released.
    GiveBack,
}

/// What all attempts of a worker share.
struct WorkerContext {
    api: Api,
    queue: String,
    command: Vec<OsString>,
    lease: Option<ConfigDuration>,
    timeout: Option<ConfigDuration>,
    worker: String,
    output: Output,
    stop: watch::Receiver<StopRequest>,
}

/// Limits of a worker: attempts at a time, and when it stops by itself.
struct WorkLimits {
    slots: u64,
    max_tasks: Option<u64>,
    until_empty: bool,
}

impl WorkLimits {
    fn are_set(&self) -> bool {
        self.max_tasks.is_some() || self.until_empty
    }
}

pub(super) async fn run(work: cli::Work, api: &Api, output: Output) -> Result<(), Failure> {
    let (tell, stop) = watch::channel(StopRequest::No);
    let bounds = WorkLimits {
        slots: u64::from(work.slots),
        max_tasks: if work.once { Some(1) } else { work.max_tasks },
        until_empty: work.until_empty,
    };
    let crew = Arc::new(WorkerContext {
        api: api.clone(),
        worker: work.worker.unwrap_or_else(own_name),
        queue: work.queue,
        command: work.command,
        lease: work.lease,
        timeout: work.timeout,
        output,
        stop,
    });
    let listening = tokio::spawn(async move {
        let mut interrupts = ShutdownSignals::new();
        interrupts.next().await;
        output.remark("stopping when the running tasks have finished; interrupt again to return them to the queue");
        tell.send_replace(StopRequest::Finish);
        interrupts.next().await;
        tell.send_replace(StopRequest::GiveBack);
        // The channel stays open as long as a receiver exists.
        tell.closed().await;
    });
    let mut shift = WorkLoop {
        running: JoinSet::new(),
        begun: 0,
        failed: 0,
        broken: None,
    };
    let worked = shift.work(&crew, &bounds).await;
    shift.finish().await;
    listening.abort();
    worked?;
    match shift.broken {
        Some(failure) => Err(failure),
        None if shift.failed > 0 && bounds.are_set() => Err(Failure::failed(
            "attempts_failed",
            format!(
                "{} of {} attempts did not complete their task",
                shift.failed, shift.begun
            ),
        )),
        None => Ok(()),
    }
}

/// Host and process id.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "egret",
        host => host,
    };
    format!("{host}/{}", std::process::id())
}

/// The running attempts, and counts of those that have ended.
struct WorkLoop {
    running: JoinSet<AttemptOutcome>,
    begun: u64,
    failed: u64,
    /// The failure for which no further task can be worked on.
    broken: Option<Failure>,
}

impl WorkLoop {
    /// Claims tasks and starts attempts until the worker is to stop; attempts that run then go on.
    async fn work(
        &mut self,
        crew: &Arc<WorkerContext>,
        bounds: &WorkLimits,
    ) -> Result<(), Failure> {
        let mut stop = crew.stop.clone();
        let mut backoff = ReconnectBackoff::default();
        let mut reached = false;
        loop {
            while let Some(done) = self.running.try_join_next() {
                self.note(done);
            }
            let left = bounds.max_tasks.map_or(CLAIM_MAX, |most| most - self.begun);
            if left == 0 || self.broken.is_some() || *stop.borrow() > StopRequest::No {
                return Ok(());
            }
            let busy = self.running.len() as u64;
            let free = (bounds.slots - busy).min(left).min(CLAIM_MAX);
            if free == 0 {
                self.wait_for_one(&mut stop).await;
                continue;
            }
            // The first claim tells at once whether there is a server that it can be asked of.
            let waits = reached && !bounds.until_empty;
            let wait_ms = if waits { CLAIM_WAIT_MS } else { 0 };
            // A claim whose request is dropped leases nothing.
            let claimed = tokio::select! {
                biased;
                _ = stop.changed() => continue,
                claimed = claim(crew, free, wait_ms) => claimed,
            };
            match claimed {
                Ok(tasks) if tasks.is_empty() && bounds.until_empty => {
                    if self.running.is_empty() {
                        return Ok(());
                    }
                    self.wait_for_one(&mut stop).await;
                }
                Ok(tasks) => {
                    (reached, backoff) = (true, ReconnectBackoff::default());
                    for task in tasks {
                        self.begun += 1;
                        self.running.spawn(run_attempt(crew.clone(), task));
                    }
                }
                Err(failure) if failure.retryable && reached => {
                    crew.output.remark(&format!("{failure}: retrying"));
                    tokio::select! {
                        () = backoff.wait() => {}
                        _ = stop.changed() => {}
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn wait_for_one(&mut self, stop: &mut watch::Receiver<StopRequest>) {
        tokio::select! {
            Some(done) = self.running.join_next() => self.note(done),
            _ = stop.changed() => {}
        }
    }

    async fn finish(&mut self) {
        while let Some(done) = self.running.join_next().await {
            self.note(done);
        }
    }

    fn note(&mut self, done: Result<AttemptOutcome, tokio::task::JoinError>) {
        match done {
            Ok(AttemptOutcome::Completed) => {}
            Ok(AttemptOutcome::NotCompleted) => self.failed += 1,
            Ok(AttemptOutcome::CannotRun(failure)) => {
                self.failed += 1;
                self.broken = Some(failure);
            }
            Err(error) => self.broken = Some(Failure::failed("worker", error.to_string())),
        }
    }
}

#[derive(Deserialize)]
struct ClaimResponse {
    items: Vec<LeasedTask>,
}

async fn claim(crew: &WorkerContext, max: u64, wait_ms: u64) -> Result<Vec<LeasedTask>, Failure> {
    let mut asked = json!({"max": max, "wait_ms": wait_ms, "worker": crew.worker});
    if let Some(lease) = crew.lease {
        asked["lease_ms"] = json!(lease.0);
    }
    let path = ["queues", &crew.queue, "claim"];
    let answer = crew.api.post_text(&path, asked.to_string()).await?;
    let claimed: ClaimResponse =
        serde_json::from_slice(&answer).map_err(|error| unexpected(&error))?;
    Ok(claimed.items)
}
