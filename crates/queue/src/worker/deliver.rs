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
const READ_MAX: usize = 64;

/// …and bytes of their records, except for the last one.
const READ_BYTES_MAX: usize = 1 << 20;

/// Bytes fetched from disk in one turn for workers that get tasks now, and again for those that
/// wait for theirs, but for the last read of each: meanwhile no worker of the partition gets
/// anything.
const FETCHED_BYTES_MAX: u64 = 1 << 20;

/// Part of that for one worker, except for the last read, so that one whose tasks are in memory
/// need not wait for one whose tasks are on disk.
const FETCHED_BYTES_EACH: u64 = 128 << 10;

/// Position up to which records may be fetched, in fetched bytes of the log, including those of
/// other threads.
pub(super) struct Budget(u64);

impl Budget {
    pub(crate) fn new(reader: &impl LogReader) -> Self {
        Self(reader.fetched_bytes().saturating_add(FETCHED_BYTES_MAX))
    }

    /// The part that one worker may use.
    fn share(&self, reader: &impl LogReader) -> Self {
        Self(self.0.min(reader.fetched_bytes() + FETCHED_BYTES_EACH))
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
    pub stuck: Option<LogError>,
}

pub(super) fn lease(claimed: &ClaimedTask) -> Lease {
    Lease {
        shard: claimed.task.shard,
        number: claimed.task.number,
        token: claimed.token,
    }
}

/// Pushes tasks until the worker can take no more, or its share of the budget is spent; at least
/// one, if the worker can take it.
pub(super) fn push(
    state: &State,
    reader: &impl LogReader,
    session: &WorkSession,
    claimed: &[ClaimedTask],
    budget: &Budget,
) -> PushResult {
    let share = budget.share(reader);
    let mut pushed = PushResult::default();
    while pushed.count < claimed.len()
        && pushed.stuck.is_none()
        && !session.sink.is_full()
        && (pushed.count == 0 || !share.is_spent(reader))
    {
        let some = push_some(state, reader, session, &claimed[pushed.count..], &share);
        pushed.count += some.count;
        pushed.stuck = some.stuck;
    }
    pushed
}

fn push_some(
    state: &State,
    reader: &impl LogReader,
    session: &WorkSession,
    claimed: &[ClaimedTask],
    budget: &Budget,
) -> PushResult {
    let mut contents = Vec::with_capacity(claimed.len().min(READ_MAX));
    let (mut pushed, mut bytes) = (PushResult::default(), 0);
    for one in claimed.iter().take(READ_MAX) {
        if bytes >= READ_BYTES_MAX || (pushed.count > 0 && budget.is_spent(reader)) {
            break;
        }
        match reader.read(Seq(one.record)) {
            Ok(record) => {
                pushed.count += 1;
                bytes += record.len();
                contents.push((one, record));
            }
            // For example for want of open files: nothing is wrong with the task.
            Err(error) if error.retryable() => {
                pushed.stuck = Some(error);
                break;
            }
            Err(error) => {
                pushed.count += 1;
                // The lease will expire; another attempt may find the record.
                damaged(format_args!("task {}: {error}", state.id(one.task)));
            }
        }
    }
    let mut tasks = contents.iter().filter_map(|(one, record)| {
        let assigned = assigned(state, one, record);
        if assigned.is_none() {
            damaged(format_args!("task {}: malformed", state.id(one.task)));
        }
        assigned
    });
    session.sink.assigned(&mut tasks);
    pushed
}

fn assigned<'a>(
    state: &'a State,
    one: &ClaimedTask,
    record: &'a [u8],
) -> Option<TaskAssignment<'a>> {
    let content = match record::decode(record).ok()? {
        Command::Enqueue(task) => task.content,
        Command::PutSchedule(schedule) => schedule.task.content,
        _ => return None,
    };
    let (private, content) = content::parts(content).ok()?;
    let about = state.callback_about(one.task.number).map(|about| {
        let queue = state.queue_with(about.queue);
        CallbackSubject {
            task: state.id(about.task),
            state: about.state,
            queue: queue.map_or("", |queue| &*queue.name),
            // The queue may have been deleted before.
            tenant: match state.tenant_of_shared(one.record) {
                Some(tenant) => tenant,
                None => queue.map_or("", |queue| &*queue.tenant),
            },
        }
    });
    Some(TaskAssignment {
        id: state.id(one.task),
        queue: &state.queue_with(one.queue)?.name,
        lease: lease(one),
        lease_until_ms: one.until_ms,
        lease_ms: one.lease_ms,
        timeout_ms: one.timeout_ms,
        attempt: one.attempt,
        max_attempts: one.max_attempts,
        priority: one.priority,
        tags: state.tags(one.tags),
        content,
        private,
        about: about.filter(|_| one.is_callback),
    })
}

/// Reports that a task's record is lost, which every attempt will find.
fn damaged(reason: std::fmt::Arguments<'_>) {
    let message = "cannot read the content of a task";
    condition::occur("queue_contents_damaged", "tasks", reason, message);
}
