//! Fields of the two fast streams' answers, written as they go over the wire: no message is made in
//! memory for a task, and what the task carries is copied as the engine keeps it.

use egret_base::CodedError;
use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{EnqueueReceipt, QueueError, TaskAssignment};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::problem::detail_of;

fn key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    encode_varint(field << 3 | wire_type, out);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        key(out, field, 0);
        encode_varint(value, out);
    }
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    if !value.is_empty() {
        key(out, field, 2);
        encode_varint(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

/// Writes a nested message whose length is not known before.
fn message(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, 2);
    // Nearly all are shorter than 128 bytes: one byte of length. Others are moved.
    let at = out.len();
    out.push(0);
    write(out);
    let length = out.len() - at - 1;
    let needed = encoded_len_varint(length as u64);
    if needed > 1 {
        out.resize(out.len() + needed - 1, 0);
        out.copy_within(at + 1..at + 1 + length, at + needed);
    }
    let mut place = &mut out[at..at + needed];
    encode_varint(length as u64, &mut place);
}

fn error(out: &mut Vec<u8>, field: u64, error: &QueueError) {
    message(out, field, |out| {
        bytes(out, 1, error.code().as_bytes());
        bytes(out, 2, detail_of(error).as_bytes());
        number(out, 3, u64::from(error.retryable()));
    });
}

/// Writes an item of `ProduceResponse.outcomes`.
pub(super) fn outcome(out: &mut Vec<u8>, at: u64, outcome: &Result<EnqueueReceipt, QueueError>) {
    message(out, 1, |out| {
        number(out, 1, at);
        match outcome {
            Ok(enqueued) => {
                bytes(out, 2, &enqueued.id.text());
                number(out, 3, u64::from(enqueued.replayed));
            }
            Err(refused) => error(out, 4, refused),
        }
    });
}

/// Writes the field `WorkResponse.welcome`.
pub(super) fn welcome(out: &mut Vec<u8>, lease_ms: u64) {
    message(out, 1, |out| number(out, 1, lease_ms));
}

/// Writes the field `WorkResponse.drained`.
pub(super) fn drained(out: &mut Vec<u8>) {
    number(out, 6, 1);
}

/// Writes an item of `WorkResponse.tasks`.
pub(super) fn assignment(out: &mut Vec<u8>, task: &TaskAssignment<'_>) {
    assignment_as(out, 2, task);
}

/// Writes an item of `ClaimResponse.tasks`.
pub(super) fn claimed(out: &mut Vec<u8>, task: &TaskAssignment<'_>) {
    assignment_as(out, 1, task);
}

fn assignment_as(out: &mut Vec<u8>, field: u64, task: &TaskAssignment<'_>) {
    message(out, field, |out| {
        bytes(out, 1, &task.id.text());
        bytes(out, 2, task.queue.as_bytes());
        out.extend_from_slice(task.content);
        bytes(out, 5, &task.lease.to_bytes());
        number(out, 6, task.lease_until_ms);
        number(out, 7, u64::from(task.attempt));
        number(out, 8, u64::from(task.max_attempts));
        number(out, 9, u64::from(task.priority));
        number(out, 11, task.id.created_ms());
        number(out, 16, task.lease_ms);
        number(out, 17, task.timeout_ms);
        out.extend_from_slice(task.tags);
    });
}

/// Writes the field `WorkResponse.accepted`.
pub(super) fn accepted(out: &mut Vec<u8>, numbers: &[u64]) {
    let length: usize = numbers.iter().copied().map(encoded_len_varint).sum();
    key(out, 3, 2);
    encode_varint(length as u64, out);
    for number in numbers {
        encode_varint(*number, out);
    }
}

/// Writes an item of `WorkResponse.refused`.
pub(super) fn refused(out: &mut Vec<u8>, at: u64, refused: &QueueError) {
    message(out, 4, |out| {
        number(out, 1, at);
        error(out, 2, refused);
    });
}

/// Writes an item of `WorkResponse.lost`.
pub(super) fn lost(out: &mut Vec<u8>, id: TaskId, lease: Lease, end: AttemptEnd) {
    message(out, 5, |out| {
        bytes(out, 1, &lease.to_bytes());
        bytes(out, 2, &id.text());
        bytes(out, 3, end.as_str().as_bytes());
    });
}
