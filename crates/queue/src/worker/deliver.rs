//! Delivery of claimed tasks: contents are read from the log and passed to the worker's sink.

use egret_base::{CodedError, condition};
use egret_log::{LogError, LogReader, Seq};

use crate::core::command::Command;
use crate::core::state::{ClaimedTask, State};
use crate::model::Lease;
use crate::store::{content, record};
use crate::worker::session::WorkSession;
use crate::worker::sinks::{CallbackSubject, TaskAssignment};

/// Tasks whose contents are read together, at most…
const READ_TASKS_MAX: usize = 64;

/// …and bytes of their records, except for the last one.
const READ_BYTES_MAX: usize = 1 << 20;

/// Bytes fetched from disk in one turn for workers that get tasks now, and again for those that
/// wait for theirs, but for the last read of each: meanwhile no worker of the partition gets
/// anything.
const FETCHED_BYTES_MAX: u64 = 1 << 20;

/// Part of that for one worker, except for the last read, so that one whose tasks are in memory
/// need not wait for one whose tasks are on disk.
const FETCHED_BYTES_PER_WORKER: u64 = 128 << 10;

/// Position up to which records may be fetched, in fetched bytes of the log, including those of
/// other threads.
pub(super) struct Budget(u64);

impl Budget {
    pub(crate) fn new(reader: &impl LogReader) -> Self {
        Self(reader.fetched_bytes().saturating_add(FETCHED_BYTES_MAX))
    }

    /// The part that one worker may use.
    fn share(&self, reader: &impl LogReader) -> Self {
        Self(self.0.min(reader.fetched_bytes() + FETCHED_BYTES_PER_WORKER))
    }

    pub(crate) fn is_spent(&self, reader: &impl LogReader) -> bool {
        reader.fetched_bytes() >= self.0
    }
}

/// Result of a push.
#[derive(Default)]
pub(super) struct PushResult {
    /// Number of tasks that are not to be pushed any more.
    pub count: usize,
    /// Why the next one could not be read just now.
    pub read_error: Option<LogError>,
}

pub(super) fn lease_of(claimed: &ClaimedTask) -> Lease {
    Lease { shard: claimed.task.shard, number: claimed.task.number, token: claimed.token }
}

/// Pushes tasks until the worker can take no more, or its share of the budget is spent; at least
/// one, if the worker can take it.
pub(super) fn push_tasks(
    state: &State,
    reader: &impl LogReader,
    session: &WorkSession,
    claimed: &[ClaimedTask],
    budget: &Budget,
) -> PushResult {
    let share = budget.share(reader);
    let mut pushed = PushResult::default();
    while pushed.count < claimed.len()
        && pushed.read_error.is_none()
        && !session.sink.is_full()
        && (pushed.count == 0 || !share.is_spent(reader))
    {
        let batch = push_batch(state, reader, session, &claimed[pushed.count..], &share);
        pushed.count += batch.count;
        pushed.read_error = batch.read_error;
    }
    pushed
}

fn push_batch(
    state: &State,
    reader: &impl LogReader,
    session: &WorkSession,
    claimed: &[ClaimedTask],
    budget: &Budget,
) -> PushResult {
    let mut contents = Vec::with_capacity(claimed.len().min(READ_TASKS_MAX));
    let (mut pushed, mut bytes) = (PushResult::default(), 0);
    for claimed_task in claimed.iter().take(READ_TASKS_MAX) {
        if bytes >= READ_BYTES_MAX || (pushed.count > 0 && budget.is_spent(reader)) {
            break;
        }
        match reader.read(Seq(claimed_task.record)) {
            Ok(record) => {
                pushed.count += 1;
                bytes += record.len();
                contents.push((claimed_task, record));
            }
            // For example for want of open files: nothing is wrong with the task.
            Err(error) if error.retryable() => {
                pushed.read_error = Some(error);
                break;
            }
            Err(error) => {
                pushed.count += 1;
                // The lease will expire; another attempt may find the record.
                report_damaged(format_args!("task {}: {error}", state.task_id(claimed_task.task)));
            }
        }
    }
    let mut tasks = contents.iter().filter_map(|(one, record)| {
        let assignment = build_assignment(state, one, record);
        if assignment.is_none() {
            report_damaged(format_args!("task {}: malformed", state.task_id(one.task)));
        }
        assignment
    });
    session.sink.deliver_tasks(&mut tasks);
    pushed
}

fn build_assignment<'a>(
    state: &'a State,
    claimed_task: &ClaimedTask,
    record: &'a [u8],
) -> Option<TaskAssignment<'a>> {
    let content = match record::decode(record).ok()? {
        Command::Enqueue(task) => task.content,
        Command::PutSchedule(schedule) => schedule.task.content,
        _ => return None,
    };
    let (private, content) = content::split(content).ok()?;
    let subject = state.callback_subject(claimed_task.task.number).map(|about| {
        let queue = state.queue_by_id(about.queue);
        CallbackSubject {
            task: state.task_id(about.task),
            state: about.state,
            queue: queue.map_or("", |queue| &*queue.name),
            // The queue may have been deleted before.
            tenant: match state.tenant_of_shared_record(claimed_task.record) {
                Some(tenant) => tenant,
                None => queue.map_or("", |queue| &*queue.tenant),
            },
        }
    });
    Some(TaskAssignment {
        id: state.task_id(claimed_task.task),
        queue: &state.queue_by_id(claimed_task.queue)?.name,
        lease: lease_of(claimed_task),
        lease_until_ms: claimed_task.until_ms,
        lease_ms: claimed_task.lease_ms,
        timeout_ms: claimed_task.timeout_ms,
        attempt: claimed_task.attempt,
        max_attempts: claimed_task.max_attempts,
        priority: claimed_task.priority,
        tags: state.tags(claimed_task.tags),
        content,
        private,
        subject: subject.filter(|_| claimed_task.is_callback),
    })
}

/// Reports that a task's record is lost, which every attempt will find.
fn report_damaged(reason: std::fmt::Arguments<'_>) {
    let message = "cannot read the content of a task";
    condition::occur("queue_contents_damaged", "tasks", reason, message);
}
