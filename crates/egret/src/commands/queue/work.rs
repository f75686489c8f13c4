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
use crate::serve::{await_signal, is_ignored};

/// How long the server holds a claim for which there is nothing.
const CLAIM_WAIT_MS: u64 = 30_000;

/// Tasks of one claim.
const CLAIM_MAX: u64 = 1_000;

/// Waits between retries, each longer than the one before.
#[derive(Debug)]
pub(in crate::commands) struct ReconnectBackoff {
    next_delay: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        Self { next_delay: Duration::from_millis(200) }
    }
}

impl ReconnectBackoff {
    const MAX: Duration = Duration::from_secs(5);

    pub(in crate::commands) async fn wait(&mut self) {
        let delay = self.next_delay;
        self.next_delay = (delay * 2).min(Self::MAX);
        tokio::time::sleep(delay).await;
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
            interrupt: (!is_ignored).then(|| signal(SignalKind::interrupt()).ok()).flatten(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            () = await_signal(&mut self.interrupt) => {}
            () = await_signal(&mut self.terminate) => {}
        }
    }
}

/// Waits for SIGINT or SIGTERM.
pub(in crate::commands) async fn wait_for_interrupt() {
    ShutdownSignals::new().next().await;
}

/// How urgently the user wants the worker to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StopRequest {
    No,
    /// Running commands may finish; no further task is claimed.
    Finish,
    /// Running commands are killed, and their tasks are released.
    ReleaseTasks,
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
    fn has_limit(&self) -> bool {
        self.max_tasks.is_some() || self.until_empty
    }
}

pub(super) async fn run(work: cli::Work, api: &Api, output: Output) -> Result<(), Failure> {
    let (stop_sender, stop) = watch::channel(StopRequest::No);
    let limits = WorkLimits {
        slots: u64::from(work.slots),
        max_tasks: if work.once { Some(1) } else { work.max_tasks },
        until_empty: work.until_empty,
    };
    let context = Arc::new(WorkerContext {
        api: api.clone(),
        worker: work.worker.unwrap_or_else(default_worker_name),
        queue: work.queue,
        command: work.command,
        lease: work.lease,
        timeout: work.timeout,
        output,
        stop,
    });
    let signal_task = tokio::spawn(async move {
        let mut interrupts = ShutdownSignals::new();
        interrupts.next().await;
        output.print_remark("stopping when the running tasks have finished; interrupt again to return them to the queue");
        stop_sender.send_replace(StopRequest::Finish);
        interrupts.next().await;
        stop_sender.send_replace(StopRequest::ReleaseTasks);
        // The channel stays open as long as a receiver exists.
        stop_sender.closed().await;
    });
    let mut work_loop =
        WorkLoop { running: JoinSet::new(), started: 0, failed: 0, fatal_failure: None };
    let result = work_loop.run(&context, &limits).await;
    work_loop.finish().await;
    signal_task.abort();
    result?;
    match work_loop.fatal_failure {
        Some(failure) => Err(failure),
        None if work_loop.failed > 0 && limits.has_limit() => Err(Failure::failed(
            "attempts_failed",
            format!(
                "{} of {} attempts did not complete their task",
                work_loop.failed, work_loop.started
            ),
        )),
        None => Ok(()),
    }
}

/// Host and process id.
fn default_worker_name() -> String {
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
    started: u64,
    failed: u64,
    /// The failure for which no further task can be worked on.
    fatal_failure: Option<Failure>,
}

impl WorkLoop {
    /// Claims tasks and starts attempts until the worker is to stop; attempts that run then go on.
    async fn run(
        &mut self,
        context: &Arc<WorkerContext>,
        limits: &WorkLimits,
    ) -> Result<(), Failure> {
        let mut stop = context.stop.clone();
        let mut backoff = ReconnectBackoff::default();
        let mut has_connected = false;
        loop {
            while let Some(ended) = self.running.try_join_next() {
                self.record_outcome(ended);
            }
            let remaining = limits.max_tasks.map_or(CLAIM_MAX, |most| most - self.started);
            if remaining == 0 || self.fatal_failure.is_some() || *stop.borrow() > StopRequest::No {
                return Ok(());
            }
            let running = self.running.len() as u64;
            let free_slots = (limits.slots - running).min(remaining).min(CLAIM_MAX);
            if free_slots == 0 {
                self.wait_for_attempt(&mut stop).await;
                continue;
            }
            // The first claim tells at once whether there is a server that it can be asked of.
            let long_polls = has_connected && !limits.until_empty;
            let wait_ms = if long_polls { CLAIM_WAIT_MS } else { 0 };
            // A claim whose request is dropped leases nothing.
            let claimed = tokio::select! {
                biased;
                _ = stop.changed() => continue,
                claimed = claim(context, free_slots, wait_ms) => claimed,
            };
            match claimed {
                Ok(tasks) if tasks.is_empty() && limits.until_empty => {
                    if self.running.is_empty() {
                        return Ok(());
                    }
                    self.wait_for_attempt(&mut stop).await;
                }
                Ok(tasks) => {
                    (has_connected, backoff) = (true, ReconnectBackoff::default());
                    for task in tasks {
                        self.started += 1;
                        self.running.spawn(run_attempt(context.clone(), task));
                    }
                }
                Err(failure) if failure.retryable && has_connected => {
                    context.output.print_remark(&format!("{failure}: retrying"));
                    tokio::select! {
                        () = backoff.wait() => {}
                        _ = stop.changed() => {}
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn wait_for_attempt(&mut self, stop: &mut watch::Receiver<StopRequest>) {
        tokio::select! {
            Some(ended) = self.running.join_next() => self.record_outcome(ended),
            _ = stop.changed() => {}
        }
    }

    async fn finish(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            self.record_outcome(ended);
        }
    }

    fn record_outcome(&mut self, ended: Result<AttemptOutcome, tokio::task::JoinError>) {
        match ended {
            Ok(AttemptOutcome::Completed) => {}
            Ok(AttemptOutcome::NotCompleted) => self.failed += 1,
            Ok(AttemptOutcome::CannotRun(failure)) => {
                self.failed += 1;
                self.fatal_failure = Some(failure);
            }
            Err(error) => self.fatal_failure = Some(Failure::failed("worker", error.to_string())),
        }
    }
}

#[derive(Deserialize)]
struct ClaimResponse {
    items: Vec<LeasedTask>,
}

async fn claim(
    context: &WorkerContext,
    max: u64,
    wait_ms: u64,
) -> Result<Vec<LeasedTask>, Failure> {
    let mut request = json!({"max": max, "wait_ms": wait_ms, "worker": context.worker});
    if let Some(lease) = context.lease {
        request["lease_ms"] = json!(lease.0);
    }
    let path = ["queues", &context.queue, "claim"];
    let answer = context.api.post_text(&path, request.to_string()).await?;
    let claimed: ClaimResponse =
        serde_json::from_slice(&answer).map_err(|error| unexpected(&error))?;
    Ok(claimed.items)
}
