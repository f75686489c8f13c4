//! Which actions a caller may take in which queues, for HTTP and gRPC alike.
//!
//! | action | operations |
//! |---|---|
//! | `produce` | enqueue; read and await a task by its id |
//! | `work` | claim, report, send attachments |
//! | `operate` | make, change, pause, purge, delete queues and schedules; cancel, requeue, delete |
//! | | tasks; without the payloads of either |
//! | `read` | look at queues, schedules and tasks; watch |
//! | `write` | `produce`, `work` and `operate`, but for reading results |

use std::sync::Arc;

use egret_queue::model::TaskId;
use egret_queue::{Detail, QueueError, QueueFilter, Queues, ScheduleView, TaskView};

use crate::access::Caller;
use crate::problem::Problem;
use crate::tokens::{Reach, TokenError};

const AREA: &str = "queue";

pub(crate) const PRODUCE: &[&str] = &["produce", "write"];
pub(crate) const WORK: &[&str] = &["work", "write"];
pub(crate) const OPERATE: &[&str] = &["operate", "write"];
pub(crate) const READ: &[&str] = &["read"];
pub(crate) const READ_RESULT: &[&str] = &["read", "produce"];

/// The queues in which a caller may do one of `actions`.
pub(crate) fn reach(caller: &Caller, actions: &[&str]) -> Reach {
    caller.reach(AREA, actions)
}

/// Insists that a caller may do one of `actions` in a queue.
///
/// # Errors
/// [`TokenError::ScopeMissing`], whether there is such a queue or not.
pub(crate) fn require(caller: &Caller, queue: &str, actions: &[&str]) -> Result<(), TokenError> {
    caller.require_part(AREA, queue, actions)
}

/// Insists that a caller may do one of `actions` in the queue of a task.
///
/// # Errors
/// [`QueueError::TaskNotFound`], be it that there is no such task or that it is in a queue of which
/// the caller must not know.
pub(crate) async fn require_task(
    queues: &Queues,
    caller: &Caller,
    id: TaskId,
    actions: &[&str],
) -> Result<(), QueueError> {
    let reach = reach(caller, actions);
    if reach == Reach::All {
        return Ok(());
    }
    let task = queues.task(caller.tenant(), id, Detail::Brief).await?;
    if reach.covers(&task.queue) {
        Ok(())
    } else {
        Err(QueueError::TaskNotFound { id: id.to_string() })
    }
}

/// Insists that a caller may delete a task, or a callback by its id: that takes operating the queue
/// of the task whose end it reports.
///
/// # Errors
/// As those of [`require_task`].
pub(crate) async fn require_deletion(
    queues: &Queues,
    caller: &Caller,
    id: TaskId,
) -> Result<(), QueueError> {
    let reach = reach(caller, OPERATE);
    if reach == Reach::All {
        return Ok(());
    }
    let queue = queues.queue_to_delete_in(caller.tenant(), id).await?;
    if reach.covers(&queue) { Ok(()) } else { Err(QueueError::TaskNotFound { id: id.to_string() }) }
}

/// How much of a task of `queue` a caller is shown that has changed it: to operate a queue is not
/// to read payloads and results.
fn visible_detail(caller: &Caller, queue: &str) -> Detail {
    if reach(caller, READ_RESULT).covers(queue) { Detail::Whole } else { Detail::Brief }
}

/// A task that a caller has changed, with as much of it as the caller may read.
///
/// # Errors
/// [`QueueError::TaskNotFound`] when it has gone meanwhile.
pub(crate) async fn view_changed_task(
    queues: &Queues,
    caller: &Caller,
    id: TaskId,
) -> Result<TaskView, QueueError> {
    let tenant = caller.tenant();
    let brief = queues.task(tenant, id, Detail::Brief).await?;
    match visible_detail(caller, &brief.queue) {
        Detail::Whole => queues.task(tenant, id, Detail::Whole).await,
        Detail::Brief => Ok(brief),
    }
}

/// A schedule that a caller has changed, with as much of it as the caller may read.
pub(crate) fn view_changed_schedule(caller: &Caller, view: ScheduleView) -> ScheduleView {
    if reach(caller, READ).covers(&view.queue) { view } else { view.into_brief() }
}

/// Insists that a caller may let tasks wait for these: it may read or enqueue in their queues.
///
/// # Errors
/// As [`require_task`].
pub(crate) async fn require_dependencies<'a>(
    queues: &Queues,
    caller: &Caller,
    after: impl Iterator<Item = &'a str>,
) -> Result<(), QueueError> {
    const AWAIT: &[&str] = &["read", "produce", "write"];
    if reach(caller, AWAIT) == Reach::All {
        return Ok(());
    }
    for id in after.filter_map(|text| text.parse().ok()) {
        require_task(queues, caller, id, AWAIT).await?;
    }
    Ok(())
}

/// Insists that a caller may change an existing schedule.
///
/// # Errors
/// [`QueueError::ScheduleNotFound`] for one of a queue of which the caller must not know, and for
/// none.
pub(crate) async fn require_schedule(
    queues: &Queues,
    caller: &Caller,
    name: &str,
    actions: &[&str],
) -> Result<(), QueueError> {
    let reach = reach(caller, actions);
    if reach == Reach::All {
        return Ok(());
    }
    let schedule = queues.schedule(caller.tenant(), name).await?;
    if reach.covers(&schedule.queue) {
        Ok(())
    } else {
        Err(QueueError::ScheduleNotFound { name: name.to_owned() })
    }
}

/// Insists that a schedule of this name is the caller's to change, or that there is none.
///
/// # Errors
/// [`TokenError::ScopeMissing`] where it makes tasks in a queue that the caller does not operate.
pub(crate) async fn require_schedule_name(
    queues: &Queues,
    caller: &Caller,
    name: &str,
) -> Result<(), Problem> {
    match queues.schedule(caller.tenant(), name).await {
        Ok(schedule) if !reach(caller, OPERATE).covers(&schedule.queue) => {
            Err(TokenError::ScopeMissing { scope: format!("{AREA}:operate") }.into())
        }
        Ok(_) | Err(QueueError::ScheduleNotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The filter by which a partition refuses reports on tasks of other queues; `None` for a caller
/// that may work in all of them.
pub(crate) fn work_filter(caller: &Caller) -> Option<QueueFilter> {
    queue_filter(caller, WORK)
}

/// The filter of the queues whose changes a caller may watch.
pub(crate) fn watch_filter(caller: &Caller) -> Option<QueueFilter> {
    queue_filter(caller, READ)
}

fn queue_filter(caller: &Caller, actions: &[&str]) -> Option<QueueFilter> {
    match reach(caller, actions) {
        Reach::All => None,
        parts => Some(Arc::new(move |queue: &str| parts.covers(queue))),
    }
}
