//! Fields of the two fast streams' answers, written as they go over the wire: no message is made in
//! memory for a task, and what the task carries is copied as the engine keeps it.

use egret_base::CodedError;
use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{EnqueueReceipt, QueueError, TaskAssignment};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::problem::error_detail;

fn put_key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    encode_varint(field << 3 | wire_type, out);
}

fn put_varint(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        put_key(out, field, 0);
        encode_varint(value, out);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    if !value.is_empty() {
        put_key(out, field, 2);
        encode_varint(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

/// Writes a nested message whose length is not known before.
fn put_message(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    put_key(out, field, 2);
    // Nearly all are shorter than 128 bytes: one byte of length. Others are moved.
    let length_start = out.len();
    out.push(0);
    write(out);
    let length = out.len() - length_start - 1;
    let needed = encoded_len_varint(length as u64);
    if needed > 1 {
        out.resize(out.len() + needed - 1, 0);
        out.copy_within(length_start + 1..length_start + 1 + length, length_start + needed);
    }
    let mut length_bytes = &mut out[length_start..length_start + needed];
    encode_varint(length as u64, &mut length_bytes);
}

fn put_error(out: &mut Vec<u8>, field: u64, error: &QueueError) {
    put_message(out, field, |out| {
        put_bytes(out, 1, error.code().as_bytes());
        put_bytes(out, 2, error_detail(error).as_bytes());
        put_varint(out, 3, u64::from(error.retryable()));
    });
}

/// Writes an item of `ProduceResponse.outcomes`.
pub(super) fn put_outcome(
    out: &mut Vec<u8>,
    index: u64,
    outcome: &Result<EnqueueReceipt, QueueError>,
) {
    put_message(out, 1, |out| {
        put_varint(out, 1, index);
        match outcome {
            Ok(enqueued) => {
                put_bytes(out, 2, &enqueued.id.text());
                put_varint(out, 3, u64::from(enqueued.replayed));
            }
            Err(refused) => put_error(out, 4, refused),
        }
    });
}

/// Writes the field `WorkResponse.welcome`.
pub(super) fn put_welcome(out: &mut Vec<u8>, lease_ms: u64) {
    put_message(out, 1, |out| put_varint(out, 1, lease_ms));
}

/// Writes the field `WorkResponse.drained`.
pub(super) fn put_drained(out: &mut Vec<u8>) {
    put_varint(out, 6, 1);
}

/// Writes an item of `WorkResponse.tasks`.
pub(super) fn put_assignment(out: &mut Vec<u8>, task: &TaskAssignment<'_>) {
    put_assignment_field(out, 2, task);
}

/// Writes an item of `ClaimResponse.tasks`.
pub(super) fn put_claimed_task(out: &mut Vec<u8>, task: &TaskAssignment<'_>) {
    put_assignment_field(out, 1, task);
}

fn put_assignment_field(out: &mut Vec<u8>, field: u64, task: &TaskAssignment<'_>) {
    put_message(out, field, |out| {
        put_bytes(out, 1, &task.id.text());
        put_bytes(out, 2, task.queue.as_bytes());
        out.extend_from_slice(task.content);
        put_bytes(out, 5, &task.lease.to_bytes());
        put_varint(out, 6, task.lease_until_ms);
        put_varint(out, 7, u64::from(task.attempt));
        put_varint(out, 8, u64::from(task.max_attempts));
        put_varint(out, 9, u64::from(task.priority));
        put_varint(out, 11, task.id.created_ms());
        put_varint(out, 16, task.lease_ms);
        put_varint(out, 17, task.timeout_ms);
        out.extend_from_slice(task.tags);
    });
}

/// Writes the field `WorkResponse.accepted`.
pub(super) fn put_accepted(out: &mut Vec<u8>, numbers: &[u64]) {
    let length: usize = numbers.iter().copied().map(encoded_len_varint).sum();
    put_key(out, 3, 2);
    encode_varint(length as u64, out);
    for number in numbers {
        encode_varint(*number, out);
    }
}

/// Writes an item of `WorkResponse.refused`.
pub(super) fn put_refused(out: &mut Vec<u8>, index: u64, refused: &QueueError) {
    put_message(out, 4, |out| {
        put_varint(out, 1, index);
        put_error(out, 2, refused);
    });
}

/// Writes an item of `WorkResponse.lost`.
pub(super) fn put_lost_lease(out: &mut Vec<u8>, id: TaskId, lease: Lease, end: AttemptEnd) {
    put_message(out, 5, |out| {
        put_bytes(out, 1, &lease.to_bytes());
        put_bytes(out, 2, &id.text());
        put_bytes(out, 3, end.as_str().as_bytes());
    });
}
