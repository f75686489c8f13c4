//! From a claim to what its worker gets: contents are read from the log and handed to the worker's sink.

use egret_log::{LogReader, Seq};

use crate::api::session::WorkSession;
use crate::api::sink::{About, Assigned};
use crate::core::command::Command;
use crate::core::state::{Claimed, State};
use crate::model::Lease;
use crate::store::{content, record};

/// Tasks of which the contents are read together, at most…
const READ_MAX: usize = 64;

/// …and bytes of their records, but for the last one.
const READ_BYTES_MAX: usize = 1 << 20;

/// Bytes fetched from disk for one worker in one turn, but for the last read: nobody else of the partition
/// gets anything meanwhile.
const FETCHED_BYTES_MAX: u64 = 1 << 20;

pub(super) fn lease(claimed: &Claimed) -> Lease {
    Lease {
        shard: claimed.task.shard,
        number: claimed.task.number,
        token: claimed.token,
    }
}

/// Pushes tasks until the worker can take no more, or has cost enough for this turn; how many.
pub(super) fn push(
    state: &State,
    reader: &impl LogReader,
    session: &WorkSession,
    claimed: &[Claimed],
) -> usize {
    // What one that takes part in a single turn does not get now it never will.
    let fetched_max = match session.alone {
        true => u64::MAX,
        false => reader.fetched_bytes().saturating_add(FETCHED_BYTES_MAX),
    };
    let mut pushed = 0;
    while pushed < claimed.len()
        && !session.sink.is_full()
        && (pushed == 0 || reader.fetched_bytes() < fetched_max)
    {
        pushed += push_some(state, reader, session, &claimed[pushed..], fetched_max);
    }
    pushed
}

fn push_some(
    state: &State,
    reader: &impl LogReader,
    session: &WorkSession,
    claimed: &[Claimed],
    fetched_max: u64,
) -> usize {
    let mut contents = Vec::with_capacity(claimed.len().min(READ_MAX));
    let (mut read, mut bytes) = (0, 0);
    for one in claimed.iter().take(READ_MAX) {
        if bytes >= READ_BYTES_MAX || (read > 0 && reader.fetched_bytes() >= fetched_max) {
            break;
        }
        read += 1;
        match reader.read(Seq(one.record)) {
            Ok(record) => {
                bytes += record.len();
                contents.push((one, record));
            }
            Err(error) => {
                // The lease will expire; another attempt may find the record.
                tracing::error!(task = %state.id(one.task), %error, "a task's content was not read");
            }
        }
    }
    let mut tasks = contents.iter().filter_map(|(one, record)| {
        let assigned = assigned(state, one, record);
        if assigned.is_none() {
            tracing::error!(task = %state.id(one.task), "a task's content is malformed");
        }
        assigned
    });
    session.sink.assigned(&mut tasks);
    read
}

fn assigned<'a>(state: &'a State, one: &Claimed, record: &'a [u8]) -> Option<Assigned<'a>> {
    let content = match record::decode(record).ok()? {
        Command::Enqueue(task) => task.content,
        Command::PutSchedule(schedule) => schedule.task.content,
        _ => return None,
    };
    let (private, content) = content::parts(content).ok()?;
    let about = state.callback_about(one.task.number).map(|about| {
        let queue = state.queue_with(about.queue);
        About {
            task: state.id(about.task),
            state: about.state,
            queue: queue.map_or("", |queue| &*queue.name),
            tenant: queue.map_or("", |queue| &*queue.tenant),
        }
    });
    Some(Assigned {
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
