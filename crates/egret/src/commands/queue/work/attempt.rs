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
use crate::commands::queue::payload::{Content, TaskFields, raw};
use crate::failure::Failure;

/// How long after a lease's end the server is asked whether it was.
const AFTER_END: Duration = Duration::from_millis(50);

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
        let mut told = vec![
            ("EGRET_TASK_ID", self.id.clone()),
            ("EGRET_QUEUE", self.queue.clone()),
            ("EGRET_ATTEMPT", self.attempt.to_string()),
            ("EGRET_MAX_ATTEMPTS", self.max_attempts.to_string()),
            ("EGRET_PRIORITY", self.priority.to_string()),
            (
                "EGRET_ORDERING_KEY",
                self.ordering_key.clone().unwrap_or_default(),
            ),
            ("EGRET_TAGS", self.tags.join(",")),
            ("EGRET_METADATA", metadata),
        ];
        let traces = [
            ("TRACEPARENT", &self.traceparent),
            ("TRACESTATE", &self.tracestate),
        ];
        for (name, value) in traces {
            told.extend(value.clone().map(|value| (name, value)));
        }
        told
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
    GivenBack,
}

/// Works on a task, from its claim to the report.
pub(super) async fn run_attempt(crew: Arc<WorkerContext>, mut task: LeasedTask) -> AttemptOutcome {
    let begun = Instant::now();
    let content = Content::of(task.payload.take(), task.payload_base64.take().as_deref());
    let payload = content
        .map(|content| content.bytes().to_vec())
        .unwrap_or_default();
    let running = match ChildProcess::start(&crew.command, task.environment()) {
        Ok(running) => running,
        Err(error) => return crew.unstartable(&task, begun, &error).await,
    };
    let group = running.group();
    let mut job = pin!(running.run(payload));
    let over = tokio::select! {
        ended = &mut job => AttemptEnd::Ended(ended),
        () = crew.keep(&task) => AttemptEnd::LeaseLost,
        timeout = crew.time_out() => AttemptEnd::TimedOut(timeout),
        () = crew.given_back() => AttemptEnd::GivenBack,
    };
    let (word, body) = match over {
        AttemptEnd::Ended(Ok(ended)) => match ended.failure() {
            Some(reason) => ("fail", failing(&reason)),
            None => ("complete", completing(ended.stdout)),
        },
        AttemptEnd::Ended(Err(error)) => (
            "fail",
            failing(&format!("cannot wait for the command: {error}")),
        ),
        AttemptEnd::LeaseLost => {
            let _ = child::end(group, job).await;
            let reason =
                "the lease has ended: the attempt took too long, or the task was cancelled";
            return crew.tell(&task, begun, "lease_lost", Some(reason));
        }
        AttemptEnd::TimedOut(after) => {
            // What it says on its way out is no reason.
            let _ = child::end(group, job).await;
            (
                "fail",
                failing(&format!(
                    "killed: it ran for more than {after:?} (--timeout)"
                )),
            )
        }
        AttemptEnd::GivenBack => {
            let _ = child::end(group, job).await;
            ("release", TaskFields::new())
        }
    };
    crew.report(&task, begun, word, body).await
}

fn failing(reason: &str) -> TaskFields {
    TaskFields::from([("error".to_owned(), raw(&reason))])
}

fn completing(stdout: Vec<u8>) -> TaskFields {
    let mut members = TaskFields::new();
    Content::printed(stdout).put("result", &mut members);
    members
}

/// Whether a refusal means that the worker's lease is lost.
fn is_lost(failure: &Failure) -> bool {
    matches!(failure.code.as_str(), "lease_lost" | "task_not_found")
}

impl WorkerContext {
    async fn say(
        &self,
        task: &LeasedTask,
        word: &str,
        mut body: TaskFields,
    ) -> Result<(), Failure> {
        body.insert("lease".to_owned(), raw(&task.lease));
        let body = raw(&body).get().to_owned();
        let said = self.api.post_text(&["tasks", &task.id, word], body).await;
        said.map(drop)
    }

    /// Sends heartbeats; returns when the lease is lost.
    async fn keep(&self, task: &LeasedTask) {
        let mut body = TaskFields::new();
        if let Some(lease) = self.lease {
            body.insert("lease_ms".to_owned(), raw(&lease.0));
        }
        let lease = task.lease();
        let mut until = Instant::now() + lease;
        let mut next = Instant::now() + lease / 3;
        // A lease that ends early ends with the attempt's timeout: then it is time to ask.
        let mut early = early_end(task).map(|left| Instant::now() + left + AFTER_END);
        loop {
            let beat = early.map_or(next, |early| early.min(next));
            tokio::time::sleep_until(beat).await;
            early = early.filter(|early| *early > beat);
            let now = Instant::now();
            match self.say(task, "heartbeat", body.clone()).await {
                Ok(()) => (until, next) = (now + lease, now + lease / 3),
                Err(failure) if is_lost(&failure) => return,
                Err(_) if Instant::now() >= until => return,
                // While the server cannot be reached, the lease lasts as it was.
                Err(_) => next = Instant::now() + (lease / 10).min(Duration::from_secs(1)),
            }
        }
    }

    async fn time_out(&self) -> Duration {
        match self.timeout {
            Some(span) => {
                tokio::time::sleep(span.duration()).await;
                span.duration()
            }
            None => std::future::pending().await,
        }
    }

    async fn given_back(&self) {
        let mut stop = self.stop.clone();
        let is_told = stop
            .wait_for(|stop| *stop == StopRequest::GiveBack)
            .await
            .is_ok();
        if !is_told {
            // The sender is gone: no stop will be requested.
            std::future::pending::<()>().await;
        }
    }

    /// Reports the outcome of the attempt. A server that cannot be reached is tried again for as
    /// long as the lease may last.
    async fn report(
        &self,
        task: &LeasedTask,
        begun: Instant,
        word: &str,
        body: TaskFields,
    ) -> AttemptOutcome {
        let reason = body
            .get("error")
            .and_then(|text| serde_json::from_str(text.get()).ok());
        let reason: Option<String> = reason;
        let mut backoff = ReconnectBackoff::default();
        let mut give_up = pin!(tokio::time::sleep(
            task.lease().max(ReconnectBackoff::MAX * 2)
        ));
        loop {
            let failure = match self.say(task, word, body.clone()).await {
                Ok(()) => {
                    let outcome = match word {
                        "complete" => "completed",
                        "fail" => "failed",
                        _ => "released",
                    };
                    return self.tell(task, begun, outcome, reason.as_deref());
                }
                Err(failure) => failure,
            };
            if is_lost(&failure) {
                return self.tell(task, begun, "lease_lost", Some(&failure.message));
            }
            if !failure.retryable {
                return self.refused(task, begun, word, failure).await;
            }
            self.output.remark(&format!("{failure}: retrying"));
            tokio::select! {
                () = backoff.wait() => {}
                () = &mut give_up => return self.tell(task, begun, "unreported", Some(&failure.message)),
            }
        }
    }

    /// A result that the server does not take fails the attempt.
    async fn refused(
        &self,
        task: &LeasedTask,
        begun: Instant,
        word: &str,
        failure: Failure,
    ) -> AttemptOutcome {
        let reason = format!("{word} was refused: {failure}");
        if word == "complete" && self.say(task, "fail", failing(&reason)).await.is_ok() {
            return self.tell(task, begun, "failed", Some(&reason));
        }
        self.tell(task, begun, "unreported", Some(&reason))
    }

    /// A command that is not there fails no task: it is given back, and the work ends.
    async fn unstartable(
        &self,
        task: &LeasedTask,
        begun: Instant,
        error: &std::io::Error,
    ) -> AttemptOutcome {
        let program = self.command[0].to_string_lossy();
        let message = format!("cannot run `{program}`: {error}");
        if !matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::PermissionDenied
        ) {
            return self.report(task, begun, "fail", failing(&message)).await;
        }
        let _ = self.report(task, begun, "release", TaskFields::new()).await;
        let failure = Failure::failed("command_not_run", message);
        AttemptOutcome::CannotRun(
            failure.with_hint("the task was released; the attempt does not count"),
        )
    }

    /// Prints a line about the attempt.
    fn tell(
        &self,
        task: &LeasedTask,
        begun: Instant,
        outcome: &str,
        error: Option<&str>,
    ) -> AttemptOutcome {
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let told = if self.output.is_json() {
            let line: Json = json!({
                "id": task.id, "queue": task.queue, "attempt": task.attempt, "outcome": outcome,
                "elapsed_ms": ms, "error": error,
            });
            self.output.json_line(&line)
        } else {
            let reason = error.and_then(|error| error.lines().last());
            let reason = reason.map(|reason| format!(": {}", crate::output::printable(reason)));
            self.output.text(&format!(
                "{}  attempt {} of {}  {outcome} after {ms} ms{}",
                task.id,
                task.attempt,
                task.max_attempts,
                reason.unwrap_or_default()
            ))
        };
        match (told, outcome) {
            (Err(failure), _) => AttemptOutcome::CannotRun(failure),
            (Ok(()), "completed") => AttemptOutcome::Completed,
            (Ok(()), _) => AttemptOutcome::NotCompleted,
        }
    }
}

/// How long the lease lasts where that is clearly less than leases last, by this machine's clock.
fn early_end(task: &LeasedTask) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let until = Duration::from_millis(task.lease_until.as_millis_unsigned());
    let left = until.saturating_sub(now);
    (left < task.lease() * 9 / 10).then_some(left)
}
