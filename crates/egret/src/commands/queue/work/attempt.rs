//! One attempt: the command runs, heartbeats keep the lease, and what came of it is reported.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_base::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::child::{self, ChildProcess, ProcessOutput};
use super::{ReconnectBackoff, StopRequest, WorkerContext};
use crate::commands::queue::payload::{Content, TaskFields, to_raw_value};
use crate::failure::Failure;

/// How long after a lease's end the server is asked whether it was.
const LEASE_END_MARGIN: Duration = Duration::from_millis(50);

/// A task with the lease that this worker holds on it.
#[derive(Debug, Deserialize)]
pub(super) struct LeasedTask {
    id: String,
    queue: String,
    lease: String,
    lease_until: Timestamp,
    lease_ms: u64,
    attempt: u32,
    max_attempts: u32,
    priority: u8,
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    ordering_key: Option<String>,
    tags: Vec<String>,
    metadata: BTreeMap<String, String>,
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl LeasedTask {
    /// What the command is told beside its payload.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let metadata = serde_json::to_string(&self.metadata).expect("texts are JSON");
        let mut variables = vec![
            ("EGRET_TASK_ID", self.id.clone()),
            ("EGRET_QUEUE", self.queue.clone()),
            ("EGRET_ATTEMPT", self.attempt.to_string()),
            ("EGRET_MAX_ATTEMPTS", self.max_attempts.to_string()),
            ("EGRET_PRIORITY", self.priority.to_string()),
            ("EGRET_ORDERING_KEY", self.ordering_key.clone().unwrap_or_default()),
            ("EGRET_TAGS", self.tags.join(",")),
            ("EGRET_METADATA", metadata),
        ];
        let traces = [("TRACEPARENT", &self.traceparent), ("TRACESTATE", &self.tracestate)];
        for (name, value) in traces {
            variables.extend(value.clone().map(|value| (name, value)));
        }
        variables
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

/// How an attempt ended.
pub(super) enum AttemptOutcome {
    Completed,
    NotCompleted,
    /// The command cannot be run at all.
    CannotRun(Failure),
}

/// Why the worker stops waiting for a command.
enum AttemptEnd {
    Ended(std::io::Result<ProcessOutput>),
    LeaseLost,
    TimedOut(Duration),
    Released,
}

/// Works on a task, from its claim to the report.
pub(super) async fn run_attempt(
    context: Arc<WorkerContext>,
    mut task: LeasedTask,
) -> AttemptOutcome {
    let started_at = Instant::now();
    let content = Content::from_members(task.payload.take(), task.payload_base64.take().as_deref());
    let payload = content.map(|content| content.bytes().to_vec()).unwrap_or_default();
    let process = match ChildProcess::start(&context.command, task.environment()) {
        Ok(running) => running,
        Err(error) => return context.report_unstartable(&task, started_at, &error).await,
    };
    let group = process.group();
    let mut job = pin!(process.run(payload));
    let attempt_end = tokio::select! {
        ended = &mut job => AttemptEnd::Ended(ended),
        () = context.keep_lease(&task) => AttemptEnd::LeaseLost,
        timeout = context.await_timeout() => AttemptEnd::TimedOut(timeout),
        () = context.await_release_request() => AttemptEnd::Released,
    };
    let (action, body) = match attempt_end {
        AttemptEnd::Ended(Ok(ended)) => match ended.failure() {
            Some(reason) => ("fail", failure_body(&reason)),
            None => ("complete", completion_body(ended.stdout)),
        },
        AttemptEnd::Ended(Err(error)) => {
            ("fail", failure_body(&format!("cannot wait for the command: {error}")))
        }
        AttemptEnd::LeaseLost => {
            let _ = child::terminate(group, job).await;
            let reason =
                "the lease has ended: the attempt took too long, or the task was cancelled";
            return context.print_outcome(&task, started_at, "lease_lost", Some(reason));
        }
        AttemptEnd::TimedOut(after) => {
            // What it says on its way out is no reason.
            let _ = child::terminate(group, job).await;
            ("fail", failure_body(&format!("killed: it ran for more than {after:?} (--timeout)")))
        }
        AttemptEnd::Released => {
            let _ = child::terminate(group, job).await;
            ("release", TaskFields::new())
        }
    };
    context.report(&task, started_at, action, body).await
}

fn failure_body(reason: &str) -> TaskFields {
    TaskFields::from([("error".to_owned(), to_raw_value(&reason))])
}

fn completion_body(stdout: Vec<u8>) -> TaskFields {
    let mut members = TaskFields::new();
    Content::from_output(stdout).insert_into("result", &mut members);
    members
}

/// Whether a refusal means that the worker's lease is lost.
fn is_lease_lost(failure: &Failure) -> bool {
    matches!(failure.code.as_str(), "lease_lost" | "task_not_found")
}

impl WorkerContext {
    async fn post_action(
        &self,
        task: &LeasedTask,
        action: &str,
        mut body: TaskFields,
    ) -> Result<(), Failure> {
        body.insert("lease".to_owned(), to_raw_value(&task.lease));
        let body = to_raw_value(&body).get().to_owned();
        let response = self.api.post_text(&["tasks", &task.id, action], body).await;
        response.map(drop)
    }

    /// Sends heartbeats; returns when the lease is lost.
    async fn keep_lease(&self, task: &LeasedTask) {
        let mut body = TaskFields::new();
        if let Some(lease) = self.lease {
            body.insert("lease_ms".to_owned(), to_raw_value(&lease.0));
        }
        let lease = task.lease();
        let mut lease_until = Instant::now() + lease;
        let mut next_heartbeat = Instant::now() + lease / 3;
        // A lease that ends early ends with the attempt's timeout: then it is time to ask.
        let mut early_heartbeat =
            shortened_lease(task).map(|left| Instant::now() + left + LEASE_END_MARGIN);
        loop {
            let heartbeat_at =
                early_heartbeat.map_or(next_heartbeat, |early| early.min(next_heartbeat));
            tokio::time::sleep_until(heartbeat_at).await;
            early_heartbeat = early_heartbeat.filter(|early| *early > heartbeat_at);
            let now = Instant::now();
            match self.post_action(task, "heartbeat", body.clone()).await {
                Ok(()) => (lease_until, next_heartbeat) = (now + lease, now + lease / 3),
                Err(failure) if is_lease_lost(&failure) => return,
                Err(_) if Instant::now() >= lease_until => return,
                // While the server cannot be reached, the lease lasts as it was.
                Err(_) => {
                    next_heartbeat = Instant::now() + (lease / 10).min(Duration::from_secs(1))
                }
            }
        }
    }

    async fn await_timeout(&self) -> Duration {
        match self.timeout {
            Some(span) => {
                tokio::time::sleep(span.duration()).await;
                span.duration()
            }
            None => std::future::pending().await,
        }
    }

    async fn await_release_request(&self) {
        let mut stop = self.stop.clone();
        let is_requested = stop.wait_for(|stop| *stop == StopRequest::ReleaseTasks).await.is_ok();
        if !is_requested {
            // The sender is gone: no stop will be requested.
            std::future::pending::<()>().await;
        }
    }

    /// Reports the outcome of the attempt. A server that cannot be reached is tried again for as
    /// long as the lease may last.
    async fn report(
        &self,
        task: &LeasedTask,
        started_at: Instant,
        action: &str,
        body: TaskFields,
    ) -> AttemptOutcome {
        let reason = body.get("error").and_then(|text| serde_json::from_str(text.get()).ok());
        let reason: Option<String> = reason;
        let mut backoff = ReconnectBackoff::default();
        let mut deadline = pin!(tokio::time::sleep(task.lease().max(ReconnectBackoff::MAX * 2)));
        loop {
            let failure = match self.post_action(task, action, body.clone()).await {
                Ok(()) => {
                    let outcome = match action {
                        "complete" => "completed",
                        "fail" => "failed",
                        _ => "released",
                    };
                    return self.print_outcome(task, started_at, outcome, reason.as_deref());
                }
                Err(failure) => failure,
            };
            if is_lease_lost(&failure) {
                return self.print_outcome(task, started_at, "lease_lost", Some(&failure.message));
            }
            if !failure.retryable {
                return self.report_refusal(task, started_at, action, failure).await;
            }
            self.output.print_remark(&format!("{failure}: retrying"));
            tokio::select! {
                () = backoff.wait() => {}
                () = &mut deadline => return self.print_outcome(task, started_at, "unreported", Some(&failure.message)),
            }
        }
    }

    /// A result that the server does not take fails the attempt.
    async fn report_refusal(
        &self,
        task: &LeasedTask,
        started_at: Instant,
        action: &str,
        failure: Failure,
    ) -> AttemptOutcome {
        let reason = format!("{action} was refused: {failure}");
        if action == "complete"
            && self.post_action(task, "fail", failure_body(&reason)).await.is_ok()
        {
            return self.print_outcome(task, started_at, "failed", Some(&reason));
        }
        self.print_outcome(task, started_at, "unreported", Some(&reason))
    }

    /// A command that is not there fails no task: it is given back, and the work ends.
    async fn report_unstartable(
        &self,
        task: &LeasedTask,
        started_at: Instant,
        error: &std::io::Error,
    ) -> AttemptOutcome {
        let program = self.command[0].to_string_lossy();
        let message = format!("cannot run `{program}`: {error}");
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) {
            return self.report(task, started_at, "fail", failure_body(&message)).await;
        }
        let _ = self.report(task, started_at, "release", TaskFields::new()).await;
        let failure = Failure::failed("command_not_run", message);
        AttemptOutcome::CannotRun(
            failure.with_hint("the task was released; the attempt does not count"),
        )
    }

    /// Prints a line about the attempt.
    fn print_outcome(
        &self,
        task: &LeasedTask,
        started_at: Instant,
        outcome: &str,
        error: Option<&str>,
    ) -> AttemptOutcome {
        let ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let printed = if self.output.is_json() {
            let line: Json = json!({
                "id": task.id, "queue": task.queue, "attempt": task.attempt, "outcome": outcome,
                "elapsed_ms": ms, "error": error,
            });
            self.output.print_json_line(&line)
        } else {
            let reason = error.and_then(|error| error.lines().last());
            let reason = reason.map(|reason| format!(": {}", crate::output::printable(reason)));
            self.output.print_text(&format!(
                "{}  attempt {} of {}  {outcome} after {ms} ms{}",
                task.id,
                task.attempt,
                task.max_attempts,
                reason.unwrap_or_default()
            ))
        };
        match (printed, outcome) {
            (Err(failure), _) => AttemptOutcome::CannotRun(failure),
            (Ok(()), "completed") => AttemptOutcome::Completed,
            (Ok(()), _) => AttemptOutcome::NotCompleted,
        }
    }
}

/// How long the lease lasts where that is clearly less than leases last, by this machine's clock.
fn shortened_lease(task: &LeasedTask) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let lease_end = Duration::from_millis(task.lease_until.as_millis_unsigned());
    let remaining = lease_end.saturating_sub(now);
    (remaining < task.lease() * 9 / 10).then_some(remaining)
}
