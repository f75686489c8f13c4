//! Conversions between messages of the contract and types of the engine.

use std::collections::BTreeMap;

use egret_base::CodedError;
use egret_proto::queue::v1;
use egret_proto::queue::v1::task_report::Report;
use egret_queue::model::{Backoff, Jitter, Retention, RetryPolicy, TaskId, TaskState};
use egret_queue::{
    Attachment, AttemptView, Defer, EnqueueReceipt, Format, MissedTickPolicy, NewSchedule, NewTask,
    QueueError, QueueView, ReportKind, ScheduleView, SettingsChange, TaskView,
};

use crate::problem::error_detail;
use crate::queue::{invalid, truncate_at_char};

pub(super) fn parse_format(number: i32) -> Result<Format, QueueError> {
    match number {
        0 => Ok(Format::Bytes),
        1 => Ok(Format::Json),
        other => Err(invalid("format", format!("{other} is not a known number"))),
    }
}

pub(super) fn parse_retry(retry: &v1::RetryPolicy) -> Result<RetryPolicy, QueueError> {
    let defaults = RetryPolicy::default();
    let or_default =
        |requested: u64, default: u64| if requested == 0 { default } else { requested };
    let base_ms = or_default(retry.base_ms, defaults.base_ms);
    Ok(RetryPolicy {
        backoff: match retry.backoff {
            0 | 3 => Backoff::Exponential,
            1 => Backoff::Fixed,
            2 => Backoff::Linear,
            other => {
                return Err(invalid("retry.backoff", format!("{other} is not a known number")));
            }
        },
        jitter: match retry.jitter {
            0 | 2 => Jitter::Full,
            1 => Jitter::None,
            3 => Jitter::Equal,
            other => {
                return Err(invalid("retry.jitter", format!("{other} is not a known number")));
            }
        },
        base_ms,
        max_ms: or_default(retry.max_ms, defaults.max_ms.max(base_ms)),
    })
}

/// A new task; `after` are the ids it waits for, read already.
pub(super) fn new_task<'a>(
    task: &'a v1::NewTask,
    after: &'a [TaskId],
) -> Result<NewTask<'a>, QueueError> {
    let mut metadata = BTreeMap::new();
    for (name, value) in &task.metadata {
        metadata.insert(name.as_str(), value.as_str());
    }
    Ok(NewTask {
        payload: &task.payload,
        format: parse_format(task.format)?,
        priority: task.priority,
        ordering_key: &task.ordering_key,
        run_at_ms: u64::try_from(task.run_at_ms)
            .map_err(|_| invalid("run_at_ms", "it is before 1970"))?,
        delay_ms: task.delay_ms,
        max_attempts: task.max_attempts,
        retry: task.retry.as_ref().map(parse_retry).transpose()?,
        timeout_ms: task.timeout_ms,
        unique_key: &task.unique_key,
        unique_window_ms: task.unique_window_ms,
        tags: &task.tags,
        metadata,
        traceparent: &task.traceparent,
        tracestate: &task.tracestate,
        callback_url: &task.callback_url,
        after,
    })
}

pub(super) fn parse_ids(after: &[String]) -> Result<Vec<TaskId>, QueueError> {
    let parse = |id: &String| id.parse().map_err(|reason| invalid("after", reason));
    after.iter().map(parse).collect()
}

/// A report's kind, text and format. A heartbeat without a time extends the lease by `lease_ms`.
pub(super) fn parse_report(
    report: &v1::TaskReport,
    lease_ms: u64,
) -> Result<(ReportKind, &[u8], Format), QueueError> {
    Ok(match &report.report {
        Some(Report::Completed(done)) => {
            (ReportKind::Complete, &done.result, parse_format(done.format)?)
        }
        Some(Report::Failed(failed)) => {
            let permanent = failed.permanent;
            (ReportKind::Fail { permanent }, truncate_at_char(&failed.error), Format::Bytes)
        }
        Some(Report::Nack(nack)) => {
            let (delay_ms, how) = (nack.delay_ms, Defer::Nack);
            (
                ReportKind::Defer { delay_ms, mode: how },
                truncate_at_char(&nack.reason),
                Format::Bytes,
            )
        }
        Some(Report::Snooze(snooze)) => {
            let (delay_ms, how) = (snooze.delay_ms, Defer::Snooze);
            (ReportKind::Defer { delay_ms, mode: how }, &[], Format::Bytes)
        }
        Some(Report::Release(_)) => {
            let (delay_ms, how) = (0, Defer::Release);
            (ReportKind::Defer { delay_ms, mode: how }, &[], Format::Bytes)
        }
        Some(Report::Heartbeat(heartbeat)) => {
            let lease_ms = match heartbeat.lease_ms {
                0 => lease_ms,
                asked => asked,
            };
            (ReportKind::Heartbeat { lease_ms }, &[], Format::Bytes)
        }
        None => return Err(invalid("report", "it is empty")),
    })
}

/// The attachments that a report names.
pub(super) fn attachments(report: &v1::TaskReport) -> &[String] {
    match &report.report {
        Some(Report::Completed(done)) => &done.attachments,
        _ => &[],
    }
}

fn retention(retention: v1::Retention) -> Retention {
    Retention { age_ms: retention.age_ms, count: retention.count }
}

pub(super) fn parse_settings(change: &v1::QueueSettings) -> Result<SettingsChange, QueueError> {
    Ok(SettingsChange {
        max_attempts: change.max_attempts,
        retry: change.retry.as_ref().map(parse_retry).transpose()?,
        lease_ms: change.lease_ms,
        timeout_ms: change.timeout_ms,
        concurrency: change.concurrency,
        key_concurrency: change.key_concurrency,
        rate_per_second: change.rate_per_second,
        rate_burst: change.rate_burst,
        completed: change.completed.map(retention),
        dead: change.dead.map(retention),
        cancelled: change.cancelled.map(retention),
        unique_window_ms: change.unique_window_ms,
        aging_ms: change.aging_ms,
    })
}

/// A queue as clients see it.
pub(super) fn queue_info(view: &QueueView) -> v1::QueueInfo {
    let settings = &view.settings;
    let to_retention = |retention: Retention| {
        Some(v1::Retention { age_ms: retention.age_ms, count: retention.count })
    };
    v1::QueueInfo {
        name: view.name.clone(),
        settings: Some(v1::QueueSettings {
            max_attempts: Some(u32::from(settings.max_attempts)),
            retry: Some(retry_policy(&settings.retry)),
            lease_ms: Some(settings.lease_ms),
            timeout_ms: Some(settings.timeout_ms),
            concurrency: Some(settings.concurrency),
            key_concurrency: Some(settings.key_concurrency),
            rate_per_second: Some(settings.rate_per_second),
            rate_burst: Some(settings.rate_burst),
            completed: to_retention(settings.completed),
            dead: to_retention(settings.dead),
            cancelled: to_retention(settings.cancelled),
            unique_window_ms: Some(settings.unique_window_ms),
            aging_ms: Some(settings.aging_ms),
        }),
        paused: view.paused,
        draining: view.draining,
        created_at_ms: view.created_ms as i64,
        counts: Some(v1::TaskCounts {
            waiting: view.count(TaskState::Waiting),
            delayed: view.count(TaskState::Delayed),
            ready: view.count(TaskState::Ready),
            leased: view.count(TaskState::Leased),
            completed: view.count(TaskState::Completed),
            dead: view.count(TaskState::Dead),
            cancelled: view.count(TaskState::Cancelled),
        }),
        oldest_ready_ms: view.oldest_ready_ms,
        unavailable_partitions: partition_numbers(&view.unavailable),
    }
}

pub(super) fn partition_numbers(numbers: &[usize]) -> Vec<u32> {
    let numbers = numbers.iter();
    // There are no more than `queue.partitions`, which is a `u32`.
    numbers.filter_map(|number| u32::try_from(*number).ok()).collect()
}

fn retry_policy(retry: &RetryPolicy) -> v1::RetryPolicy {
    v1::RetryPolicy {
        backoff: match retry.backoff {
            Backoff::Fixed => 1,
            Backoff::Linear => 2,
            Backoff::Exponential => 3,
        },
        base_ms: retry.base_ms,
        max_ms: retry.max_ms,
        jitter: match retry.jitter {
            Jitter::None => 1,
            Jitter::Full => 2,
            Jitter::Equal => 3,
        },
    }
}

/// The state with this number; `None` for all.
pub(super) fn parse_state(number: i32) -> Result<Option<TaskState>, QueueError> {
    if number == 0 {
        return Ok(None);
    }
    let known = u8::try_from(number - 1).ok().and_then(TaskState::from_number);
    let unknown = || invalid("state", format!("{number} is not a known number"));
    known.map(Some).ok_or_else(unknown)
}

pub(super) fn parse_states(numbers: &[i32]) -> Result<Vec<TaskState>, QueueError> {
    let parse =
        |number: &i32| parse_state(*number)?.ok_or_else(|| invalid("state", "it is missing"));
    numbers.iter().map(parse).collect()
}

pub(super) fn state_number(state: TaskState) -> i32 {
    state as i32 + 1
}

/// A task as clients see it.
pub(super) fn task(view: &TaskView) -> v1::Task {
    let attempt = |attempt: &AttemptView| v1::Attempt {
        number: u32::from(attempt.number),
        worker: attempt.worker.clone(),
        started_at_ms: attempt.started_ms as i64,
        ended_at_ms: attempt.ended_ms as i64,
        outcome: attempt.outcome.to_owned(),
        error: attempt.error.clone(),
    };
    v1::Task {
        id: view.id.to_string(),
        queue: view.queue.clone(),
        state: state_number(view.state),
        priority: u32::from(view.priority),
        ordering_key: view.ordering_key.clone(),
        created_at_ms: view.id.created_ms() as i64,
        run_at_ms: view.run_at_ms as i64,
        lease_until_ms: view.lease_until_ms as i64,
        ended_at_ms: view.ended_ms as i64,
        attempts: u32::from(view.attempts),
        max_attempts: u32::from(view.max_attempts),
        history: view.history.iter().map(attempt).collect(),
        payload: view.payload.clone().into(),
        format: view.format as i32,
        result: view.result.clone().into(),
        result_format: view.result_format as i32,
        error: view.error.clone(),
        tags: view.tags.clone(),
        metadata: view.metadata.clone().into_iter().collect(),
        traceparent: view.traceparent.clone(),
        tracestate: view.tracestate.clone(),
        callback_url: view.callback_url.clone(),
        after: view.after.iter().map(ToString::to_string).collect(),
        unique_key: view.unique_key.clone(),
        attachments: view.attachments.iter().map(attachment).collect(),
    }
}

fn attachment(attachment: &Attachment) -> v1::Attachment {
    v1::Attachment {
        name: attachment.name.clone(),
        content_type: attachment.content_type.clone(),
        size_bytes: attachment.size_bytes,
        crc32c: attachment.crc32c,
    }
}

/// The outcome of a new task, with its index in the call.
pub(super) fn to_enqueued(
    index: usize,
    outcome: &Result<EnqueueReceipt, QueueError>,
) -> v1::Enqueued {
    let (id, replayed) = match outcome {
        Ok(enqueued) => (enqueued.id.to_string(), enqueued.replayed),
        Err(_) => (String::new(), false),
    };
    v1::Enqueued { number: index as u64, id, replayed, error: outcome.as_ref().err().map(to_error) }
}

pub(super) fn to_error(queue_error: &QueueError) -> v1::Error {
    v1::Error {
        code: queue_error.code().to_owned(),
        message: error_detail(queue_error),
        retryable: queue_error.retryable(),
    }
}

/// A schedule to be made.
pub(super) fn new_schedule(schedule: &v1::Schedule) -> Result<NewSchedule<'_>, QueueError> {
    let task = schedule.task.as_ref();
    let task = task.ok_or_else(|| invalid("task", "it is missing"))?;
    if !task.after.is_empty() {
        return Err(invalid("after", "it cannot be set on the task of a schedule"));
    }
    Ok(NewSchedule {
        name: &schedule.name,
        cron: &schedule.cron,
        time_zone: &schedule.time_zone,
        queue: &schedule.queue,
        task: new_task(task, &[])?,
        missed: match schedule.missed {
            0 | 1 => MissedTickPolicy::Skip,
            2 => MissedTickPolicy::One,
            3 => MissedTickPolicy::All,
            other => {
                return Err(invalid("missed", format!("{other} is not a known number")));
            }
        },
        paused: schedule.paused,
    })
}

/// A schedule as clients see it.
pub(super) fn schedule(view: &ScheduleView) -> v1::Schedule {
    v1::Schedule {
        name: view.name.clone(),
        cron: view.cron.clone(),
        time_zone: view.time_zone.clone(),
        queue: view.queue.clone(),
        task: Some(v1::NewTask {
            payload: view.payload.clone().into(),
            format: view.format as i32,
            priority: Some(u32::from(view.priority)),
            ordering_key: view.ordering_key.clone(),
            max_attempts: view.options.max_attempts.map(u32::from),
            retry: view.options.retry.as_ref().map(retry_policy),
            timeout_ms: view.options.timeout_ms.unwrap_or_default(),
            tags: view.tags.clone(),
            metadata: view.metadata.clone().into_iter().collect(),
            callback_url: view.callback_url.clone(),
            ..v1::NewTask::default()
        }),
        missed: match view.missed {
            MissedTickPolicy::Skip => 1,
            MissedTickPolicy::One => 2,
            MissedTickPolicy::All => 3,
        },
        paused: view.paused,
        next_at_ms: view.next_ms as i64,
        last_at_ms: view.last_ms as i64,
        last_task: view.last_task.map(|id| id.to_string()).unwrap_or_default(),
        waiting: view.waits_for_room,
    }
}
