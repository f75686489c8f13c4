//! Commands as records of the log. A record begins with its kind. What the state machine does not
//! interpret comes last, so that it is read without being decoded.
//!
//! The layout is frozen by golden files in `tests/it`; a new kind gets a new number.

mod encode;

use super::settings;
use crate::core::command::{Command, Defer, Enqueue, PutSchedule, TaskReport};
use crate::model::{RetryPolicy, TaskId, TaskOptions};
use egret_base::codec::{DecodeError, Reader};

pub use encode::{encode, encode_enqueue, put_options};

const WHAT: &str = "a record of the queue's log";

mod kind {
    pub(crate) const CLOCK: u8 = 1;
    pub(crate) const EPOCH: u8 = 2;
    pub(crate) const PUT_QUEUE: u8 = 3;
    pub(crate) const SET_FLOW: u8 = 4;
    pub(crate) const DELETE_QUEUE: u8 = 5;
    pub const ENQUEUE: u8 = 6;
    pub(crate) const CLAIM: u8 = 7;
    pub const COMPLETE: u8 = 8;
    pub(crate) const FAIL: u8 = 9;
    pub(crate) const DEFER: u8 = 10;
    pub(crate) const HEARTBEAT: u8 = 11;
    pub(crate) const CANCEL: u8 = 12;
    pub(crate) const REQUEUE: u8 = 13;
    pub const DELETE: u8 = 14;
    pub(crate) const PURGE: u8 = 15;
    pub(crate) const ADVANCE: u8 = 16;
    pub const AWAIT: u8 = 17;
    pub(crate) const RESOLVE: u8 = 18;
    pub(crate) const DELIVERED: u8 = 19;
    pub(crate) const PUT_SCHEDULE: u8 = 20;
    pub(crate) const DELETE_SCHEDULE: u8 = 21;
    pub(crate) const PAUSE_SCHEDULE: u8 = 22;
    pub(crate) const TICK: u8 = 23;
    pub(crate) const COMPLETE_ATTACHED: u8 = 24;
    pub(crate) const CHAIN: u8 = 25;
    pub const STEP: u8 = 26;
}

/// Bits for the optional parts of a task, as a number of any length. An unknown part cannot be
/// skipped: the bytes after it would be misread.
mod part {
    pub(crate) const RUN_AT: u64 = 1;
    pub(crate) const KEY: u64 = 2;
    pub(crate) const UNIQUE: u64 = 4;
    pub(crate) const OPTIONS: u64 = 8;
    pub(crate) const TAGS: u64 = 16;
    pub(crate) const CALLBACK: u64 = 32;
    pub const AFTER: u64 = 64;
    pub(crate) const ORIGIN: u64 = 128;
    pub const DELAY: u64 = 256;
    pub const ALL: u64 = 511;
}

/// Decodes a record.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub fn decode(record: &[u8]) -> Result<Command<'_>, DecodeError> {
    let mut from = Reader::new(record, WHAT);
    let kind = from.u8()?;
    let command = match kind {
        kind::CLOCK => Command::Clock { now_ms: from.u64()?, seed: from.u64()? },
        kind::STEP => Command::Step { by_ms: from.u64()?.cast_signed() },
        kind::EPOCH => {
            Command::Epoch { epoch: from.u32()?, instance: from.u16()?, grace_ms: from.varint()? }
        }
        kind::ENQUEUE => return take_task(from).map(Command::Enqueue),
        kind::CHAIN => Command::Chain { tasks: from.varint_as()? },
        kind::CLAIM => Command::Claim {
            queue: from.varint_as()?,
            worker: from.text()?,
            count: from.varint_as()?,
            lease_ms: from.varint()?,
        },
        kind::COMPLETE => return take_report(from).map(Command::Complete),
        kind::COMPLETE_ATTACHED => return take_report(from).map(Command::CompleteAttached),
        kind::FAIL => {
            let permanent = from.bool()?;
            let report = take_report(from)?;
            return Ok(Command::Fail { report, permanent });
        }
        kind::DEFER => {
            let mode = match from.u8()? {
                0 => Defer::Nack,
                1 => Defer::Snooze,
                2 => Defer::Release,
                _ => return Err(from.malformed()),
            };
            let delay_ms = from.varint()?;
            let held = take_report(from)?;
            return Ok(Command::Defer { report: held, delay_ms, mode });
        }
        kind::HEARTBEAT => {
            let lease_ms = from.varint()?;
            let held = take_report(from)?;
            return Ok(Command::Heartbeat { report: held, lease_ms });
        }
        kind::ADVANCE => Command::Advance { budget: from.varint_as()? },
        kind::AWAIT | kind::RESOLVE | kind::DELIVERED => decode_chain(kind, &mut from)?,
        kind::PUT_SCHEDULE => return take_schedule(from).map(Command::PutSchedule),
        others => decode_admin(others, &mut from)?,
    };
    match from.rest() {
        [] => Ok(command),
        _ => Err(from.malformed()),
    }
}

fn decode_chain<'a>(kind: u8, from: &mut Reader<'a>) -> Result<Command<'a>, DecodeError> {
    Ok(match kind {
        kind::AWAIT => {
            Command::Await { task: take_id(from)?, waiting: take_id(from)?, tenant: from.u64()? }
        }
        kind::RESOLVE => Command::Resolve {
            completed: from.bool()?,
            waiting: take_id(from)?,
            task: take_id(from)?,
        },
        _ => Command::Delivered { message: from.varint()? },
    })
}

fn decode_admin<'a>(kind: u8, from: &mut Reader<'a>) -> Result<Command<'a>, DecodeError> {
    Ok(match kind {
        kind::PUT_QUEUE => Command::PutQueue {
            queue: from.varint_as()?,
            tenant: from.text()?,
            name: from.text()?,
            settings: Box::new(settings::decode(from)?),
        },
        kind::SET_FLOW => Command::SetFlow {
            paused: from.bool()?,
            draining: from.bool()?,
            queue: from.varint_as()?,
        },
        kind::DELETE_QUEUE => Command::DeleteQueue { queue: from.varint_as()? },
        kind::CANCEL => Command::Cancel { number: from.varint()? },
        kind::REQUEUE => Command::Requeue { number: from.varint()?, key: from.u128()? },
        kind::DELETE => Command::Delete { number: from.varint()? },
        kind::PURGE => Command::Purge {
            states: from.u8()?,
            queue: from.varint_as()?,
            count: from.varint_as()?,
        },
        kind::DELETE_SCHEDULE => {
            Command::DeleteSchedule { tenant: from.text()?, name: from.text()? }
        }
        kind::PAUSE_SCHEDULE => Command::PauseSchedule {
            paused: from.bool()?,
            tenant: from.text()?,
            name: from.text()?,
            next_ms: from.varint()?,
        },
        kind::TICK => Command::Tick {
            tenant: from.text()?,
            name: from.text()?,
            tick_ms: from.varint()?,
            next_ms: from.varint()?,
            tasks: from.varint_as()?,
        },
        _ => return Err(from.malformed()),
    })
}

fn take_id(from: &mut Reader<'_>) -> Result<TaskId, DecodeError> {
    let bytes = from.take(16)?;
    Ok(TaskId::from_bytes(bytes.try_into().expect("as many were taken")))
}

fn take_task(mut from: Reader<'_>) -> Result<Enqueue<'_>, DecodeError> {
    let parts = from.varint()?;
    if parts > part::ALL {
        return Err(from.malformed());
    }
    let has = |bit: u64| parts & bit != 0;
    let mut task = Enqueue {
        priority: from.u8()?,
        shard: from.u16()?,
        queue: from.varint_as()?,
        callback: has(part::CALLBACK),
        ..Enqueue::default()
    };
    if usize::from(task.priority) >= crate::core::lanes::PRIORITY_COUNT {
        return Err(from.malformed());
    }
    if has(part::RUN_AT) {
        task.run_at_ms = from.varint()?;
    }
    if has(part::DELAY) {
        task.delay_ms = from.varint()?;
    }
    if has(part::KEY) {
        task.key = from.u128()?;
    }
    if has(part::UNIQUE) {
        task.unique = Some((from.u128()?, from.varint()?));
    }
    if has(part::ORIGIN) {
        task.origin = Some((from.u128()?, from.varint()?));
    }
    if has(part::OPTIONS) {
        task.options = take_options(&mut from)?;
    }
    if has(part::TAGS) {
        task.tags = from.bytes()?;
    }
    if has(part::AFTER) {
        task.after = from.bytes()?;
        if !task.after.len().is_multiple_of(16) {
            return Err(from.malformed());
        }
    }
    task.content = from.rest();
    Ok(task)
}

/// Reads what `put_options` wrote.
///
/// # Errors
/// [`DecodeError`] for malformed bytes.
pub(crate) fn take_options(from: &mut Reader<'_>) -> Result<TaskOptions, DecodeError> {
    let present = from.u8()?;
    if present > 7 {
        return Err(from.malformed());
    }
    let mut options = TaskOptions::default();
    if present & 1 != 0 {
        options.max_attempts = Some(from.varint_as()?);
    }
    if present & 2 != 0 {
        let retry: RetryPolicy = settings::take_retry(from)?;
        options.retry = Some(retry);
    }
    if present & 4 != 0 {
        options.timeout_ms = Some(from.varint()?);
    }
    Ok(options)
}

fn take_report(mut from: Reader<'_>) -> Result<TaskReport<'_>, DecodeError> {
    Ok(TaskReport { number: from.varint()?, token: from.u64()?, content: from.rest() })
}

fn take_schedule(mut from: Reader<'_>) -> Result<PutSchedule<'_>, DecodeError> {
    Ok(PutSchedule {
        tenant: from.text()?,
        name: from.text()?,
        next_ms: from.varint()?,
        paused: from.bool()?,
        task: take_task(from)?,
    })
}
