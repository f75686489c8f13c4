//! The few messages of `egret.queue.v1` that a cycle consists of, read and written by hand: the
//! generator shares the processors with the server, and a message in memory for every task would be
//! most of what it does.
//!
//! The format: <https://protobuf.dev/programming-guides/encoding/>.

use anyhow::{Result, bail};
use bytes::{BufMut, BytesMut};

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// A text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message, one by one.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field with its number; `None` at the end.
    ///
    /// # Errors
    /// When the message is cut off, or has a field of a kind that the contract does not use.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            2 => {
                let length = varint(&mut self.0)? as usize;
                if length > self.0.len() {
                    bail!("a message of the server is truncated");
                }
                let (value, rest) = self.0.split_at(length);
                self.0 = rest;
                Value::Bytes(value)
            }
            kind => bail!("a message of the server has a field of kind {kind}"),
        };
        Ok(Some((key >> 3, value)))
    }
}

/// Takes a number off the front.
///
/// # Errors
/// When it is cut off.
#[inline]
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    bail!("a number in a message of the server is truncated")
}

#[inline]
fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

const fn varint_len(value: u64) -> usize {
    match value {
        0 => 1,
        _ => (70 - value.leading_zeros() as usize) / 7,
    }
}

/// `ProduceRequest.queue`, or a text field 1 of another message.
pub(super) fn put_bytes_field(out: &mut BytesMut, field: u64, value: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, value.len() as u64);
    out.put_slice(value);
}

/// `ProduceRequest.tasks` with a payload and nothing else.
#[inline]
pub(super) fn put_new_task(out: &mut BytesMut, payload: &[u8]) {
    let inner = 1 + varint_len(payload.len() as u64) + payload.len();
    out.put_u8(2 << 3 | 2);
    put_varint(out, inner as u64);
    put_bytes_field(out, 1, payload);
}

/// Appends a `WorkRequest` with the field `hello`.
pub(super) fn put_hello(out: &mut BytesMut, queue: &str, worker: &str, lease_ms: u64) {
    let mut inner = BytesMut::new();
    put_bytes_field(&mut inner, 1, queue.as_bytes());
    put_bytes_field(&mut inner, 2, worker.as_bytes());
    put_varint_field(&mut inner, 3, lease_ms);
    put_bytes_field(out, 1, &inner);
}

/// A field that is a number.
pub(super) fn put_varint_field(out: &mut BytesMut, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Appends a `WorkRequest` with the field `credits`.
pub(super) fn put_credits(out: &mut BytesMut, count: u32) {
    put_varint_field(out, 2, u64::from(count));
}

/// `WorkRequest.reports`: the task is completed with this result.
#[inline]
pub(super) fn put_completed(out: &mut BytesMut, lease: &[u8], result: &[u8]) {
    let nested = |length: usize| 1 + varint_len(length as u64) + length;
    let result_length = nested(result.len());
    out.put_u8(3 << 3 | 2);
    put_varint(out, (nested(lease.len()) + nested(result_length)) as u64);
    put_bytes_field(out, 1, lease);
    out.put_u8(2 << 3 | 2);
    put_varint(out, result_length as u64);
    put_bytes_field(out, 1, result);
}

#[cfg(test)]
mod tests;
