//! Claiming tasks and reporting their outcome.

use std::borrow::Cow;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_queue::model::Lease;
use egret_queue::{Defer, Format, Manifest, QueueError, Queues, ReportKind, WorkSpec, check_batch};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::QueuesState;
use super::request::{ClaimRequest, base64, parse_content, raw};
use super::task::{LeasedTask, LeasedTasks, ReportOutcome, ReportOutcomes};
use crate::access::Caller;
use crate::extract::{Json, JsonText, Path};
use crate::problem::Problem;
use crate::queue::{self, ReportItem, invalid, truncate_at_char};

/// Claim tasks
///
/// Ready tasks are leased to the caller; if there is none, the request waits for the first one. A
/// worker reports the outcome of a task before its lease ends, or sends heartbeats.
#[utoipa::path(post, path = "/v1/queues/{queue}/claim", operation_id = "claimTasks", tag = "queue",
    extensions(("x-egret-lasting" = json!(true))),
    security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body = Option<ClaimRequest>,
    responses(
        (status = 200, description = "The tasks; none if no task was ready.",
            body = LeasedTasks),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn claim(
    State(state): State<QueuesState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Option<JsonText>,
) -> Result<Response, Problem> {
    let request = match &body {
        Some(body) => body.read()?,
        None => ClaimRequest::default(),
    };
    let tasks_max = queue::claim_max(request.max.unwrap_or(1))?;
    let timeout = queue::wait_duration(request.wait_ms)?;
    let spec = WorkSpec {
        queues: vec![name],
        worker: request.worker.into_owned(),
        lease_ms: request.lease_ms,
    };
    let claimed = state.queues.claim(caller.tenant(), &spec, tasks_max, timeout);
    let tasks = state.run_until_stopping(claimed).await?;
    let items: Result<_, _> = tasks.iter().map(LeasedTask::from_owned_task).collect();
    Ok(Json(LeasedTasks { items: items? }).into_response())
}

/// The completion of a task.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Completion<'a> {
    /// The lease, exactly as it was received with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// The result, any JSON.
    #[serde(borrow, default, deserialize_with = "raw")]
    #[schema(value_type = Option<serde_json::Value>, example = json!({"sent": true}))]
    result: Option<&'a RawValue>,
    /// The result as bytes, in base64.
    #[serde(default, deserialize_with = "base64")]
    #[schema(value_type = String)]
    result_base64: Option<Vec<u8>>,
    /// Names of attachments that were sent under this lease and belong to the result.
    #[serde(default)]
    attachments: Vec<String>,
}

/// The failure of an attempt.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure<'a> {
    /// The lease, exactly as it was received with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// The reason; 8,000 bytes are kept.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    error: Cow<'a, str>,
    /// Whether a retry cannot help: the task is dead at once.
    #[serde(default)]
    permanent: bool,
}

/// A request to retry the task after a delay. The attempt counts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nack<'a> {
    /// The lease, exactly as it was received with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// The delay until the task is ready again, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
    /// The reason; 8,000 bytes are kept.
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    reason: Cow<'a, str>,
}

/// A request to postpone the task. The attempt does not count.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snooze<'a> {
    /// The lease, exactly as it was received with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// The delay until the task is ready again, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
}

/// The release of a task without work. The attempt does not count.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release<'a> {
    /// The lease, exactly as it was received with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
}

/// A heartbeat, which extends the lease.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Heartbeat<'a> {
    /// The lease, exactly as it was received with the task.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: Cow<'a, str>,
    /// The duration of the lease from now on, in milliseconds; the queue's setting when absent.
    lease_ms: Option<u64>,
}

/// A worker's report about a task, under the name of its kind.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report<'a> {
    /// The task is completed.
    #[serde(borrow)]
    Complete(Completion<'a>),
    /// The failure of an attempt.
    #[serde(borrow)]
    Fail(Failure<'a>),
    /// The task is retried after a delay; the attempt counts.
    #[serde(borrow)]
    Nack(Nack<'a>),
    /// The task is postponed; the attempt does not count.
    #[serde(borrow)]
    Snooze(Snooze<'a>),
    /// The task is released without work.
    #[serde(borrow)]
    Release(Release<'a>),
    /// The worker continues, and the lease is extended.
    #[serde(borrow)]
    Heartbeat(Heartbeat<'a>),
}

/// A parsed report: lease, kind, text and format. Attachments are read separately.
type ParsedReport<'s> = Result<(&'s str, ReportKind, &'s [u8], Format), QueueError>;

/// A report without a result.
fn report_without_result<'s>(lease: &'s str, kind: ReportKind, text: &'s [u8]) -> ParsedReport<'s> {
    Ok((lease, kind, text, Format::Bytes))
}

impl Report<'_> {
    fn parse(&self) -> ParsedReport<'_> {
        let defer = |delay_ms, how| ReportKind::Defer { delay_ms, mode: how };
        match self {
            Report::Complete(completion) => {
                let (text, format) = parse_content(
                    "result",
                    completion.result,
                    completion.result_base64.as_deref(),
                )?;
                Ok((&*completion.lease, ReportKind::Complete, text, format))
            }
            Report::Fail(failure) => {
                let permanent = failure.permanent;
                let kind = ReportKind::Fail { permanent };
                report_without_result(&failure.lease, kind, truncate_at_char(&failure.error))
            }
            Report::Nack(nack) => {
                let said = defer(nack.delay_ms, Defer::Nack);
                report_without_result(&nack.lease, said, truncate_at_char(&nack.reason))
            }
            Report::Snooze(snooze) => {
                report_without_result(&snooze.lease, defer(snooze.delay_ms, Defer::Snooze), &[])
            }
            Report::Release(release) => {
                report_without_result(&release.lease, defer(0, Defer::Release), &[])
            }
            Report::Heartbeat(beat) => {
                let lease_ms = beat.lease_ms.unwrap_or(0);
                report_without_result(&beat.lease, ReportKind::Heartbeat { lease_ms }, &[])
            }
        }
    }
}

impl Report<'_> {
    fn attachments(&self) -> &[String] {
        match self {
            Report::Complete(completion) => &completion.attachments,
            _ => &[],
        }
    }
}

fn parse_lease(text: &str) -> Result<Lease, QueueError> {
    text.parse().map_err(|reason| invalid("lease", reason))
}

/// A report with its lease decoded, and the manifest of the attachments that it names.
async fn resolve_report<'s>(
    queues: &Queues,
    tenant: &str,
    report: &'s Report<'_>,
) -> Result<([u8; 16], (&'s str, ReportKind, &'s [u8], Format), Option<Manifest>), QueueError> {
    let parsed = report.parse()?;
    let lease = parse_lease(parsed.0)?.to_bytes();
    let manifest = queue::find_manifest(queues, tenant, &lease, report.attachments()).await?;
    Ok((lease, parsed, manifest))
}

/// Submits one report on the task of the path.
async fn submit_report(
    queues: &Queues,
    caller: &Caller,
    id: &str,
    report: Report<'_>,
) -> Result<StatusCode, Problem> {
    let id = queue::parse_task_id(id)?;
    let (text, kind, content, format) = report.parse()?;
    let lease = parse_lease(text)?;
    if !lease.belongs_to(id) {
        return Err(invalid("lease", format!("it is not a lease of task {id}")).into());
    }
    let lease = lease.to_bytes();
    let manifest =
        queue::find_manifest(queues, caller.tenant(), &lease, report.attachments()).await?;
    let item =
        ReportItem { lease: &lease, kind, text: content, format, manifest: manifest.as_ref() };
    let outcomes = queue::report_tasks(queues, caller, std::iter::once(Ok(item))).await?;
    // An outcome is missing only where the engine is gone.
    let outcome = outcomes.into_iter().next();
    outcome.unwrap_or(Err(QueueError::Stopping))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Complete a task
///
/// The result is stored and the state is changed in one record. A repeated completion with the same
/// lease is accepted; the first result is kept.
#[utoipa::path(post, path = "/v1/tasks/{id}/complete", operation_id = "completeTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Completion,
    responses(
        (status = 204, description = "The task is completed."),
        (status = 409, description = "The lease has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn complete_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    submit_report(&queues, &caller, &id, Report::Complete(body.read()?)).await
}

/// Fail an attempt
///
/// The task is retried by its retry policy; after the last attempt, or with `permanent`, it is
/// dead.
#[utoipa::path(post, path = "/v1/tasks/{id}/fail", operation_id = "failTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Failure,
    responses(
        (status = 204, description = "The attempt has failed."),
        (status = 409, description = "The lease has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn fail_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    submit_report(&queues, &caller, &id, Report::Fail(body.read()?)).await
}

/// Retry a task later
///
/// The attempt counts; after the last one the task is dead.
#[utoipa::path(post, path = "/v1/tasks/{id}/nack", operation_id = "nackTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Nack,
    responses(
        (status = 204, description = "The task will be retried."),
        (status = 409, description = "The lease has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn nack_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    submit_report(&queues, &caller, &id, Report::Nack(body.read()?)).await
}

/// Postpone a task
///
/// The attempt does not count.
#[utoipa::path(post, path = "/v1/tasks/{id}/snooze", operation_id = "snoozeTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Snooze,
    responses(
        (status = 204, description = "The task is postponed."),
        (status = 409, description = "The lease has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn snooze_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    submit_report(&queues, &caller, &id, Report::Snooze(body.read()?)).await
}

/// Release a task
///
/// The task is released without work; another worker can get it at once. The attempt does not
/// count.
#[utoipa::path(post, path = "/v1/tasks/{id}/release", operation_id = "releaseTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Release,
    responses(
        (status = 204, description = "The task is released."),
        (status = 409, description = "The lease has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn release_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    submit_report(&queues, &caller, &id, Report::Release(body.read()?)).await
}

/// Extend the lease of a task
///
/// A heartbeat restarts the duration of the lease. Send one after a third of that duration.
#[utoipa::path(post, path = "/v1/tasks/{id}/heartbeat", operation_id = "heartbeatTask", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    params(("id" = String, Path, description = "The task's id.")), request_body = Heartbeat,
    responses(
        (status = 204, description = "The lease is extended."),
        (status = 409, description = "The lease has ended.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn heartbeat_task(
    State(queues): State<Queues>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<StatusCode, Problem> {
    submit_report(&queues, &caller, &id, Report::Heartbeat(body.read()?)).await
}

/// Report the outcomes of several tasks
///
/// The body has up to 1,000 reports. The response has the outcome of each, in the same order.
#[utoipa::path(post, path = "/v1/reports", operation_id = "reportTasks", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:work"]), ("token" = ["queue:write"])),
    request_body = Vec<Report>,
    responses(
        (status = 200, description = "The outcome of each report.", body = ReportOutcomes),
        (status = 429, description = "The request has more than 1,000 reports.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn report(
    State(queues): State<Queues>,
    caller: Caller,
    body: JsonText,
) -> Result<Response, Problem> {
    let reports: Vec<Report<'_>> = body.read()?;
    check_batch(reports.len())?;
    let mut resolved = Vec::with_capacity(reports.len());
    for report in &reports {
        resolved.push(resolve_report(&queues, caller.tenant(), report).await);
    }
    let words = resolved.iter().map(|result| match result {
        Ok((lease, (_, kind, text, format), manifest)) => Ok(ReportItem {
            lease,
            kind: *kind,
            text,
            format: *format,
            manifest: manifest.as_ref(),
        }),
        Err(error) => Err(error.clone()),
    });
    let outcomes = queue::report_tasks(&queues, &caller, words).await?;
    let items = outcomes.into_iter().map(ReportOutcome::from).collect();
    Ok(Json(ReportOutcomes { items }).into_response())
}
