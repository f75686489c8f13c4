//! Encodes commands as records.

use super::{kind, part};
use crate::core::command::{Command, Enqueue, TaskReport};
use crate::model::TaskOptions;
use crate::store::settings;
use egret_base::codec::{put_bytes, put_varint};

/// Appends a command as a record.
pub fn encode(command: &Command<'_>, out: &mut Vec<u8>) {
    match command {
        Command::Epoch { epoch, instance, grace_ms } => {
            out.push(kind::EPOCH);
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&instance.to_le_bytes());
            put_varint(out, *grace_ms);
        }
        Command::Enqueue(task) => encode_enqueue(task, out),
        Command::Chain { tasks } => {
            out.push(kind::CHAIN);
            put_varint(out, u64::from(*tasks));
        }
        Command::Claim { queue, worker, count, lease_ms } => {
            out.push(kind::CLAIM);
            put_varint(out, u64::from(*queue));
            put_bytes(out, worker.as_bytes());
            put_varint(out, u64::from(*count));
            put_varint(out, *lease_ms);
        }
        Command::Complete(report) => {
            out.push(kind::COMPLETE);
            put_report(out, report);
        }
        Command::CompleteAttached(held) => {
            out.push(kind::COMPLETE_ATTACHED);
            put_report(out, held);
        }
        Command::Fail { report: held, permanent } => {
            out.extend_from_slice(&[kind::FAIL, u8::from(*permanent)]);
            put_report(out, held);
        }
        Command::Defer { report: held, delay_ms, mode } => {
            out.extend_from_slice(&[kind::DEFER, *mode as u8]);
            put_varint(out, *delay_ms);
            put_report(out, held);
        }
        Command::Heartbeat { report: held, lease_ms } => {
            out.push(kind::HEARTBEAT);
            put_varint(out, *lease_ms);
            put_report(out, held);
        }
        Command::Advance { budget } => {
            out.push(kind::ADVANCE);
            put_varint(out, u64::from(*budget));
        }
        Command::Clock { .. } | Command::Step { .. } => encode_time(command, out),
        others => encode_chain(others, out),
    }
}

/// Encodes the commands that change a partition's time.
fn encode_time(command: &Command<'_>, out: &mut Vec<u8>) {
    match command {
        Command::Clock { now_ms, seed } => {
            out.push(kind::CLOCK);
            out.extend_from_slice(&now_ms.to_le_bytes());
            out.extend_from_slice(&seed.to_le_bytes());
        }
        Command::Step { by_ms } => {
            out.push(kind::STEP);
            out.extend_from_slice(&by_ms.to_le_bytes());
        }
        _ => unreachable!("`encode` passes no other command here"),
    }
}

/// Encodes the commands that partitions send each other.
fn encode_chain(command: &Command<'_>, out: &mut Vec<u8>) {
    match command {
        Command::Await { task, waiting, tenant } => {
            out.push(kind::AWAIT);
            out.extend_from_slice(&task.to_bytes());
            out.extend_from_slice(&waiting.to_bytes());
            out.extend_from_slice(&tenant.to_le_bytes());
        }
        Command::Resolve { waiting, task, completed } => {
            out.extend_from_slice(&[kind::RESOLVE, u8::from(*completed)]);
            out.extend_from_slice(&waiting.to_bytes());
            out.extend_from_slice(&task.to_bytes());
        }
        Command::Delivered { message } => {
            out.push(kind::DELIVERED);
            put_varint(out, *message);
        }
        others => encode_admin(others, out),
    }
}

/// Appends a new task as a record.
pub fn encode_enqueue(task: &Enqueue<'_>, out: &mut Vec<u8>) {
    out.push(kind::ENQUEUE);
    put_task(out, task);
}

/// Encodes the commands that operators cause, which are rare.
fn encode_admin(command: &Command<'_>, out: &mut Vec<u8>) {
    match command {
        Command::PutQueue { queue, tenant, name, settings } => {
            out.push(kind::PUT_QUEUE);
            put_varint(out, u64::from(*queue));
            put_bytes(out, tenant.as_bytes());
            put_bytes(out, name.as_bytes());
            settings::encode(out, settings);
        }
        Command::SetFlow { queue, paused, draining } => {
            out.extend_from_slice(&[kind::SET_FLOW, u8::from(*paused), u8::from(*draining)]);
            put_varint(out, u64::from(*queue));
        }
        Command::DeleteQueue { queue } => {
            out.push(kind::DELETE_QUEUE);
            put_varint(out, u64::from(*queue));
        }
        Command::Cancel { number } => {
            out.push(kind::CANCEL);
            put_varint(out, *number);
        }
        Command::Requeue { number, key } => {
            out.push(kind::REQUEUE);
            put_varint(out, *number);
            out.extend_from_slice(&key.to_le_bytes());
        }
        Command::Delete { number } => {
            out.push(kind::DELETE);
            put_varint(out, *number);
        }
        Command::Purge { queue, states, count } => {
            out.extend_from_slice(&[kind::PURGE, *states]);
            put_varint(out, u64::from(*queue));
            put_varint(out, u64::from(*count));
        }
        others => encode_schedule(others, out),
    }
}

fn encode_schedule(command: &Command<'_>, out: &mut Vec<u8>) {
    match command {
        Command::PutSchedule(schedule) => {
            out.push(kind::PUT_SCHEDULE);
            put_bytes(out, schedule.tenant.as_bytes());
            put_bytes(out, schedule.name.as_bytes());
            put_varint(out, schedule.next_ms);
            out.push(u8::from(schedule.paused));
            put_task(out, &schedule.task);
        }
        Command::DeleteSchedule { tenant, name } => {
            out.push(kind::DELETE_SCHEDULE);
            put_bytes(out, tenant.as_bytes());
            put_bytes(out, name.as_bytes());
        }
        Command::PauseSchedule { tenant, name, paused, next_ms } => {
            out.extend_from_slice(&[kind::PAUSE_SCHEDULE, u8::from(*paused)]);
            put_bytes(out, tenant.as_bytes());
            put_bytes(out, name.as_bytes());
            put_varint(out, *next_ms);
        }
        Command::Tick { tenant, name, tick_ms, next_ms, tasks } => {
            out.push(kind::TICK);
            put_bytes(out, tenant.as_bytes());
            put_bytes(out, name.as_bytes());
            put_varint(out, *tick_ms);
            put_varint(out, *next_ms);
            put_varint(out, u64::from(*tasks));
        }
        _ => unreachable!("encoded by a caller"),
    }
}

fn put_task(out: &mut Vec<u8>, task: &Enqueue<'_>) {
    let mut parts = 0;
    let mut set_part = |bit: u64, is_present: bool| parts |= if is_present { bit } else { 0 };
    let has_options = task.options != TaskOptions::default();
    set_part(part::RUN_AT, task.run_at_ms > 0);
    set_part(part::DELAY, task.delay_ms > 0);
    set_part(part::KEY, task.key != 0);
    set_part(part::UNIQUE, task.unique.is_some());
    set_part(part::ORIGIN, task.origin.is_some());
    set_part(part::OPTIONS, has_options);
    set_part(part::TAGS, !task.tags.is_empty());
    set_part(part::CALLBACK, task.callback);
    set_part(part::AFTER, !task.after.is_empty());
    put_varint(out, parts);
    out.push(task.priority);
    out.extend_from_slice(&task.shard.to_le_bytes());
    put_varint(out, u64::from(task.queue));
    if task.run_at_ms > 0 {
        put_varint(out, task.run_at_ms);
    }
    if task.delay_ms > 0 {
        put_varint(out, task.delay_ms);
    }
    if task.key != 0 {
        out.extend_from_slice(&task.key.to_le_bytes());
    }
    for (hash, window_ms) in [task.unique, task.origin].into_iter().flatten() {
        out.extend_from_slice(&hash.to_le_bytes());
        put_varint(out, window_ms);
    }
    if has_options {
        put_options(out, &task.options);
    }
    if !task.tags.is_empty() {
        put_bytes(out, task.tags);
    }
    if !task.after.is_empty() {
        put_bytes(out, task.after);
    }
    out.extend_from_slice(task.content);
}

/// Encodes the options in which a task differs from its queue.
pub fn put_options(out: &mut Vec<u8>, options: &TaskOptions) {
    let present = u8::from(options.max_attempts.is_some())
        | u8::from(options.retry.is_some()) << 1
        | u8::from(options.timeout_ms.is_some()) << 2;
    out.push(present);
    if let Some(max_attempts) = options.max_attempts {
        put_varint(out, u64::from(max_attempts));
    }
    if let Some(retry) = &options.retry {
        settings::put_retry(out, retry);
    }
    if let Some(timeout_ms) = options.timeout_ms {
        put_varint(out, timeout_ms);
    }
}

fn put_report(out: &mut Vec<u8>, report: &TaskReport<'_>) {
    put_varint(out, report.number);
    out.extend_from_slice(&report.token.to_le_bytes());
    out.extend_from_slice(report.content);
}
