//! Working: taking tasks, and saying what became of them.

use std::borrow::Cow;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_queue::model::Lease;
use egret_queue::{Defer, Format, Manifest, QueueError, Queues, Said, WorkSpec, check_batch};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Door;
use super::request::{ClaimRequest, base64, content, raw};
use super::task::{LeasedTask, LeasedTasks, ReportOutcome, ReportOutcomes};
use crate::access::Caller;
use crate::extract::{Json, JsonText, Path};
use crate::problem::Problem;
use crate::queue::{self, Word, invalid, words};

/// Take tasks
///
/// Leases tasks that are ready, or waits for the first to be. Whoever takes a task says what became of
/// it before the lease ends, or sends heartbeats.
#[utoipa::path(post, path = "/v1/queues/{queue}/claim", operation_id = "claimTasks", tag = "queue",
    extensions(("x-egret-lasting" = json!(true))),
    security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body = Option<ClaimRequest>,
    responses(
        (status = 200, description = "The tasks; none where there was nothing to do.",
            body = LeasedTasks),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn claim(
    State(door): State<Door>,
    caller: Caller,
    Path(name): Path<String>,
    body: Option<JsonText>,
) -> Result<Response, Problem> {
    let request = match &body {
        Some(body) => body.read()?,
        None => ClaimRequest::default(),
    };
    let most = queue::claim_max(request.max.unwrap_or(1))?;
    let patience = queue::patience(request.wait_ms)?;
    let spec = WorkSpec {
        queues: vec![name],
        worker: request.worker.into_owned(),
        lease_ms: request.lease_ms,
    };
    let claimed = door.queues.claim(caller.tenant(), &spec, most, patience);
    let tasks = door.waiting(claimed).await?;
    let items: Result<_, _> = tasks.iter().map(LeasedTask::of).collect();
    Ok(Json(LeasedTasks { items: items? }).into_response())
}

/// The task is done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Completion<'a> {
    /// The lease, as it came with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// What came of it: any JSON.
    #[serde(borrow, default, deserialize_with = "raw")]
    #[schema(value_type = Option<serde_json::Value>, example = json!({"sent": true}))]
    result: Option<&'a RawValue>,
    /// The same where it is bytes, in base64.
    #[serde(default, deserialize_with = "base64")]
    #[schema(value_type = String)]
    result_base64: Option<Vec<u8>>,
    /// Names of attachments that were sent under this lease and belong to the result.
    #[serde(default)]
    attachments: Vec<String>,
}

/// The attempt failed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure<'a> {
    /// The lease, as it came with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// Why; 8,000 bytes are kept.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    error: Cow<'a, str>,
    /// Whether trying again cannot help: the task is dead at once.
    #[serde(default)]
    permanent: bool,
}

/// Not now: again after a delay. The attempt counts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nack<'a> {
    /// The lease, as it came with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// Not before so many milliseconds have passed.
    #[serde(default)]
    delay_ms: u64,
    /// Why; 8,000 bytes are kept.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    reason: Cow<'a, str>,
}

/// Not yet: again after a delay. The attempt does not count.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snooze<'a> {
    /// The lease, as it came with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// Not before so many milliseconds have passed.
    #[serde(default)]
    delay_ms: u64,
}

/// Given back at once, unworked. The attempt does not count.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release<'a> {
    /// The lease, as it came with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
}

/// Still at work: the lease begins anew.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Heartbeat<'a> {
    /// The lease, as it came with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// How long it lasts from now on, in milliseconds; as the queue says when absent.
    lease_ms: Option<u64>,
}

/// A word about a task, under the name of what it says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report<'a> {
    /// It is done.
    #[serde(borrow)]
    Complete(Completion<'a>),
    /// The attempt failed.
    #[serde(borrow)]
    Fail(Failure<'a>),
    /// Again after a delay; the attempt counts.
    #[serde(borrow)]
    Nack(Nack<'a>),
    /// Again after a delay; the attempt does not count.
    #[serde(borrow)]
    Snooze(Snooze<'a>),
    /// Given back.
    #[serde(borrow)]
    Release(Release<'a>),
    /// Still at work.
    #[serde(borrow)]
    Heartbeat(Heartbeat<'a>),
}

/// What a worker says, and by which lease; attachments come apart.
type Told<'s> = Result<(&'s str, Said, &'s [u8], Format), QueueError>;

/// What has no result.
fn plain<'s>(lease: &'s str, said: Said, text: &'s [u8]) -> Told<'s> {
    Ok((lease, said, text, Format::Bytes))
}

impl Report<'_> {
    fn told(&self) -> Told<'_> {
        let defer = |delay_ms, how| Said::Defer { delay_ms, how };
        match self {
            Report::Complete(done) => {
                let (text, format) = content("result", done.result, done.result_base64.as_deref())?;
                Ok((&*done.lease, Said::Complete, text, format))
            }
            Report::Fail(failure) => {
                let permanent = failure.permanent;
                let said = Said::Fail { permanent };
                plain(&failure.lease, said, words(&failure.error))
            }
            Report::Nack(nack) => {
                let said = defer(nack.delay_ms, Defer::Nack);
                plain(&nack.lease, said, words(&nack.reason))
            }
            Report::Snooze(snooze) => {
                plain(&snooze.lease, defer(snooze.delay_ms, Defer::Snooze), &[])
            }
            Report::Release(release) => plain(&release.lease, defer(0, Defer::Release), &[]),
            Report::Heartbeat(beat) => {
                let lease_ms = beat.lease_ms.unwrap_or(0);
                plain(&beat.lease, Said::Heartbeat { lease_ms }, &[])
            }
        }
    }
}

impl Report<'_> {
    fn attachments(&self) -> &[String] {
        match self {
            Report::Complete(done) => &done.attachments,
            _ => &[],
        }
    }
}

fn lease(text: &str) -> Result<Lease, QueueError> {
    text.parse().map_err(|reason| invalid("lease", reason))
}

/// A report with its lease as bytes, and what it names.
async fn read<'s>(
    queues: &Queues,
    tenant: &str,
    report: &'s Report<'_>,
) -> Result<
    (
        [u8; 16],
        (&'s str, Said, &'s [u8], Format),
        Option<Manifest>,
    ),
    QueueError,
> {
    let told = report.told()?;
    let lease = lease(told.0)?.to_bytes();
    let manifest = queue::manifest(queues, tenant, &lease, report.attachments()).await?;
    Ok((lease, told, manifest))
}

/// Says one word about the task of the path.
async fn say(
    queues: &Queues,
    caller: &Caller,
    id: &str,
    report: Report<'_>,
) -> Result<StatusCode, Problem> {
    let id = queue::id(id)?;
    let (text, said, content, format) = report.told()?;
    let lease = lease(text)?;
    if !lease.is_of(id) {
        return Err(invalid("lease", format!("it is not one of task {id}")).into());
    }
    let lease = lease.to_bytes();
    let manifest = queue::manifest(queues, caller.tenant(), &lease, report.attachments()).await?;
    let word = Word {
        lease: &lease,
        said,
        text: content,
        format,
        manifest: manifest.as_ref(),
    };
    let outcomes = queue::report(queues, caller, std::iter::once(Ok(word))).await?;
    // An outcome is missing only where the engine is gone.
    let outcome = outcomes.into_iter().next();
    outcome.unwrap_or(Err(QueueError::Stopping))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Complete a task
///
/// Result and state change in one record. Completed again by the same lease, it is accepted again, and the
/// first result stays.
#[utoipa::path(post, path = "/v1/tasks/{id}/complete", operation_id = "completeTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Completion,
    responses(
        (status = 204, description = "It is completed."),
        (status = 409, description = "The lease is over.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn complete_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    say(&queues, &caller, &id, Report::Complete(body.read()?)).await
}

/// Fail an attempt
///
/// The task is tried again by its retry policy; after the last attempt, or when `permanent`, it is dead.
#[utoipa::path(post, path = "/v1/tasks/{id}/fail", operation_id = "failTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Failure,
    responses(
        (status = 204, description = "The attempt has failed."),
        (status = 409, description = "The lease is over.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn fail_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    say(&queues, &caller, &id, Report::Fail(body.read()?)).await
}

/// Try a task again later
///
/// The attempt counts; after the last one the task is dead.
#[utoipa::path(post, path = "/v1/tasks/{id}/nack", operation_id = "nackTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Nack,
    responses(
        (status = 204, description = "It will be tried again."),
        (status = 409, description = "The lease is over.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn nack_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    say(&queues, &caller, &id, Report::Nack(body.read()?)).await
}

/// Put a task off
///
/// The attempt does not count.
#[utoipa::path(post, path = "/v1/tasks/{id}/snooze", operation_id = "snoozeTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Snooze,
    responses(
        (status = 204, description = "It is put off."),
        (status = 409, description = "The lease is over.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn snooze_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    say(&queues, &caller, &id, Report::Snooze(body.read()?)).await
}

/// Give a task back
///
/// Unworked; another worker may have it at once. The attempt does not count.
#[utoipa::path(post, path = "/v1/tasks/{id}/release", operation_id = "releaseTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Release,
    responses(
        (status = 204, description = "It is given back."),
        (status = 409, description = "The lease is over.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn release_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    say(&queues, &caller, &id, Report::Release(body.read()?)).await
}

/// Keep a task
///
/// The lease begins anew. Send one at a third of the time that it lasts.
#[utoipa::path(post, path = "/v1/tasks/{id}/heartbeat", operation_id = "heartbeatTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Heartbeat,
    responses(
        (status = 204, description = "The lease has begun anew."),
        (status = 409, description = "The lease is over.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn heartbeat_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    say(&queues, &caller, &id, Report::Heartbeat(body.read()?)).await
}

/// Say what became of several tasks
///
/// Up to 1,000 reports, each answered by itself, in their order.
#[utoipa::path(post, path = "/v1/reports", operation_id = "reportTasks", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    request_body = Vec<Report>,
    responses(
        (status = 200, description = "What became of each report.", body = ReportOutcomes),
        (status = 429, description = "There are more than 1,000.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn report(
    State(queues): State<Queues>,
    caller: Caller,
    body: JsonText,
) -> Result<Response, Problem> {
    let reports: Vec<Report<'_>> = body.read()?;
    check_batch(reports.len())?;
    let mut all = Vec::with_capacity(reports.len());
    for report in &reports {
        all.push(read(&queues, caller.tenant(), report).await);
    }
    let words = all.iter().map(|told| match told {
        Ok((lease, (_, said, text, format), manifest)) => Ok(Word {
            lease,
            said: *said,
            text,
            format: *format,
            manifest: manifest.as_ref(),
        }),
        Err(error) => Err(error.clone()),
    });
    let outcomes = queue::report(&queues, &caller, words).await?;
    let items = outcomes.into_iter().map(ReportOutcome::from).collect();
    Ok(Json(ReportOutcomes { items }).into_response())
}
