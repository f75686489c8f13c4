//! Schedules over HTTP: a task per tick of a cron expression.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_base::Timestamp;
use egret_queue::{MissedTickPolicy, NewSchedule, QueueError, Queues, ScheduleView};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::answer::{Retry, to_timestamp};
use super::request::TaskRequest;
use super::task::{encode_content, non_empty, optional_timestamp};
use super::trace::TraceContext;
use crate::access::Caller;
use crate::extract::{Json, JsonText, Nothing, Path};
use crate::problem::Problem;
use crate::queue::{invalid, rights};

/// Number of coming runs that are shown.
const NEXT_RUNS_SHOWN: usize = 5;

/// What to do about runs that were missed while Egret was down.
#[derive(Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum MissedRuns {
    /// The missed runs are skipped.
    #[default]
    Skip,
    /// One task is created for all missed runs.
    One,
    /// A task is created for each missed run, up to 1,000.
    All,
}

/// A new schedule, or the replacement of the existing one of this name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleRequest<'a> {
    /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first; or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. If both fields of days are given, a
    /// match of either suffices.
    #[serde(borrow)]
    #[schema(value_type = String, example = "30 8 * * MON-FRI")]
    cron: Cow<'a, str>,
    /// The time zone, a name of the IANA database; UTC when absent.
    #[serde(borrow, default)]
    #[schema(value_type = String, example = "Europe/Zurich")]
    time_zone: Cow<'a, str>,
    /// The queue of its tasks.
    #[serde(borrow)]
    #[schema(value_type = String, example = "reports")]
    queue: Cow<'a, str>,
    /// The task of each run. It cannot have a time, a unique key or tasks to wait for.
    #[serde(borrow)]
    task: Option<Box<TaskRequest<'a>>>,
    /// What to do about runs that were missed while Egret was down; `skip` when absent.
    missed: Option<MissedRuns>,
    /// Whether the schedule is paused; unchanged when absent.
    paused: Option<bool>,
}

/// A schedule, which creates a task at each run of a cron expression.
#[derive(Serialize, ToSchema)]
pub(super) struct Schedule<'a> {
    /// Its name, unique within the tenant.
    #[schema(example = "daily-report")]
    name: &'a str,
    /// Its expression.
    #[schema(example = "30 8 * * MON-FRI")]
    cron: &'a str,
    /// Its time zone.
    #[schema(example = "Europe/Zurich")]
    time_zone: &'a str,
    /// The queue of its tasks.
    #[schema(example = "reports")]
    queue: &'a str,
    /// The task of each run.
    task: ScheduledTask<'a>,
    /// What to do about runs that were missed while Egret was down.
    missed: MissedRuns,
    /// Whether the schedule is paused.
    paused: bool,
    /// The next run, RFC 3339; null if there is none.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    /// The next five runs, RFC 3339.
    #[schema(value_type = Vec<String>)]
    next_runs: Vec<Timestamp>,
    /// The last run, RFC 3339; null if there was none.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_at: Option<Timestamp>,
    /// The task of the last run; null while the run waits.
    last_task: Option<String>,
    /// Whether the last run waits because the tenant has reached its limit of tasks.
    waiting: bool,
}

/// The task of a schedule, with the fields that were given.
#[derive(Serialize, ToSchema)]
struct ScheduledTask<'a> {
    /// The payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The priority, from 0 to 9; 9 is the highest.
    priority: u8,
    /// Its ordering key.
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
    /// Attempts before the task is dead, if the queue's setting is overridden.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u16>,
    /// How long the task waits between attempts, if the queue's policy is overridden.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
    /// The longest duration of an attempt, in milliseconds, if the queue's setting is overridden.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// Whether payload, tags and metadata are omitted: a list has at most 8 MiB of them. Getting
    /// the schedule by its name returns them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    omitted: bool,
    /// Tags by which tasks can be listed.
    tags: &'a [String],
    /// Names and values.
    metadata: &'a BTreeMap<String, String>,
    /// The URL that gets a POST request when the task has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<&'a str>,
}

/// The caller's schedules, in order of names.
#[derive(Serialize, ToSchema)]
pub(super) struct ScheduleList<'a> {
    /// The schedules.
    items: Vec<Schedule<'a>>,
}

impl<'a> From<&'a ScheduleView> for Schedule<'a> {
    fn from(view: &'a ScheduleView) -> Self {
        let (payload, payload_base64) = encode_content(&view.payload, view.format);
        let upcoming = view.upcoming_ticks(NEXT_RUNS_SHOWN);
        Self {
            name: &view.name,
            cron: &view.cron,
            time_zone: non_empty(&view.time_zone).unwrap_or("UTC"),
            queue: &view.queue,
            task: ScheduledTask {
                payload,
                payload_base64,
                omitted: view.is_brief,
                priority: view.priority,
                ordering_key: non_empty(&view.ordering_key),
                max_attempts: view.options.max_attempts,
                retry: view.options.retry.map(Retry::from),
                timeout_ms: view.options.timeout_ms,
                tags: &view.tags,
                metadata: &view.metadata,
                callback_url: non_empty(&view.callback_url),
            },
            missed: match view.missed {
                MissedTickPolicy::Skip => MissedRuns::Skip,
                MissedTickPolicy::One => MissedRuns::One,
                MissedTickPolicy::All => MissedRuns::All,
            },
            paused: view.paused,
            next_at: upcoming.first().map(|run| to_timestamp(*run)),
            next_runs: upcoming.into_iter().map(to_timestamp).collect(),
            last_at: optional_timestamp(view.last_ms),
            last_task: view.last_task.map(|id| id.to_string()),
            waiting: view.waits_for_room,
        }
    }
}

fn schedule_response(view: &ScheduleView) -> Response {
    Json(Schedule::from(view)).into_response()
}

/// List the schedules
///
/// The list has the schedules of the caller's tenant whose queues the token may read, in order of
/// names. Payloads, tags and metadata beyond 8 MiB are omitted.
#[utoipa::path(get, path = "/v1/schedules", operation_id = "listSchedules", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:read"])),
    responses((status = 200, description = "The schedules.", body = ScheduleList)))]
pub(super) async fn list_schedules(
    State(queues): State<Queues>,
    caller: Caller,
) -> Result<Response, Problem> {
    let views = queues.schedules(caller.tenant()).await?;
    let reach = rights::reach(&caller, rights::READ);
    let items = views.iter().filter(|view| reach.covers(&view.queue)).map(Schedule::from).collect();
    Ok(Json(ScheduleList { items }).into_response())
}

/// Create or replace a schedule
///
/// An existing schedule is replaced. The rules for its name are those of queues.
#[utoipa::path(put, path = "/v1/schedules/{schedule}", operation_id = "putSchedule", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("schedule" = String, Path, description = "The schedule's name.")),
    request_body = ScheduleRequest,
    responses(
        (status = 201, description = "The schedule was created.", body = Schedule),
        (status = 200, description = "The schedule existed, and was replaced.", body = Schedule),
        (status = 404, description = "The queue does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "A limit on schedules or on their bytes is reached.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn put_schedule(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    body: JsonText,
) -> Result<Response, Problem> {
    let request: ScheduleRequest<'_> = body.read()?;
    rights::require(&caller, &request.queue, rights::OPERATE)?;
    rights::require_schedule_name(&queues, &caller, &name).await?;
    let existing = match queues.schedule(caller.tenant(), &name).await {
        Ok(known) => Some(known),
        Err(QueueError::ScheduleNotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    // What made the schedule is no part of the traces of its tasks.
    let untraced = TraceContext::default();
    let mut schedule = NewSchedule {
        name: &name,
        cron: &request.cron,
        time_zone: &request.time_zone,
        queue: &request.queue,
        missed: match request.missed.unwrap_or_default() {
            MissedRuns::Skip => MissedTickPolicy::Skip,
            MissedRuns::One => MissedTickPolicy::One,
            MissedRuns::All => MissedTickPolicy::All,
        },
        paused: match request.paused {
            Some(paused) => paused,
            None => existing.as_ref().is_some_and(|known| known.paused),
        },
        ..NewSchedule::default()
    };
    if let Some(task) = &request.task {
        let input = task.to_input("", &untraced)?;
        if !input.queue.is_empty() {
            return Err(invalid("task.queue", "set `queue` of the schedule instead").into());
        }
        if !input.after.is_empty() {
            return Err(invalid("after", "it cannot be set on the task of a schedule").into());
        }
        schedule.task = input.task;
    }
    let view = queues.put_schedule(caller.tenant(), &schedule).await?;
    let status = match existing {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    Ok((status, schedule_response(&view)).into_response())
}

/// Get a schedule
#[utoipa::path(get, path = "/v1/schedules/{schedule}", operation_id = "getSchedule", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:read"])),
    params(("schedule" = String, Path, description = "The schedule's name.")),
    responses(
        (status = 200, description = "The schedule.", body = Schedule),
        (status = 404, description = "No schedule has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn get_schedule(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    rights::require_schedule(&queues, &caller, &name, rights::READ).await?;
    Ok(schedule_response(&queues.schedule(caller.tenant(), &name).await?))
}

/// Delete a schedule
///
/// The tasks that it has created stay.
#[utoipa::path(delete, path = "/v1/schedules/{schedule}", operation_id = "deleteSchedule",
    tag = "queue", extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("schedule" = String, Path, description = "The schedule's name.")),
    responses(
        (status = 204, description = "The schedule is deleted."),
        (status = 404, description = "No schedule has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_schedule(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    rights::require_schedule(&queues, &caller, &name, rights::OPERATE).await?;
    queues.delete_schedule(caller.tenant(), &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a schedule
///
/// The schedule creates no task until it is resumed.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/pause", operation_id = "pauseSchedule",
    tag = "queue", extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("schedule" = String, Path, description = "The schedule's name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The schedule as it is now.", body = Schedule),
        (status = 404, description = "No schedule has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn pause_schedule(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Response, Problem> {
    rights::require_schedule(&queues, &caller, &name, rights::OPERATE).await?;
    let view = queues.set_schedule_paused(caller.tenant(), &name, true).await?;
    Ok(schedule_response(&rights::view_changed_schedule(&caller, view)))
}

/// Resume a schedule
///
/// The schedule continues with the next run from now.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/resume", operation_id = "resumeSchedule",
    tag = "queue", extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:operate"]), ("token" = ["queue:write"])),
    params(("schedule" = String, Path, description = "The schedule's name.")),
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "The schedule as it is now.", body = Schedule),
        (status = 404, description = "No schedule has this name.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn resume_schedule(
    State(queues): State<Queues>,
    caller: Caller,
    Path(name): Path<String>,
    _: Option<Json<Nothing>>,
) -> Result<Response, Problem> {
    rights::require_schedule(&queues, &caller, &name, rights::OPERATE).await?;
    let view = queues.set_schedule_paused(caller.tenant(), &name, false).await?;
    Ok(schedule_response(&rights::view_changed_schedule(&caller, view)))
}
