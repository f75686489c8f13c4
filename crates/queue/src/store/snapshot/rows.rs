//! Rows in a snapshot. Slots and record numbers are mostly small, so they are written as LEB128, a
//! slot as one more, so that no slot is zero.

use crate::core::entry::{Entry, TaskState};
use crate::core::lanes::{Flow, Lane};
use crate::core::slab::SlotIndex;
use crate::core::state::{PastAttempt, TaskRef, Unique};
use crate::core::wheel::Links;
use crate::model::AttemptEnd;
use egret_base::codec::{DecodeError, Reader, put_varint};

/// A row that a snapshot keeps.
pub(super) trait SnapshotRow: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

pub(super) fn put_slot(out: &mut Vec<u8>, slot: SlotIndex) {
    put_varint(out, u64::from(slot.wrapping_add(1)));
}

pub(super) fn take_slot(from: &mut Reader<'_>) -> Result<SlotIndex, DecodeError> {
    Ok(from.varint_as::<u32>()?.wrapping_sub(1))
}

fn put_links(out: &mut Vec<u8>, links: Links) {
    put_slot(out, links.next);
    put_slot(out, links.prev);
}

fn take_links(from: &mut Reader<'_>) -> Result<Links, DecodeError> {
    Ok(Links { next: take_slot(from)?, prev: take_slot(from)? })
}

/// The first snapshots did not store it.
pub(super) fn take_byte_count(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match from.rest() {
        [] => Ok(0),
        _ => from.varint_as(),
    }
}

pub(super) fn take_state(from: &mut Reader<'_>) -> Result<TaskState, DecodeError> {
    let number = from.u8()?;
    TaskState::from_number(number).ok_or_else(|| from.malformed())
}

impl SnapshotRow for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        let [flags, more_flags] = self.flags.to_le_bytes();
        out.extend_from_slice(&[self.state as u8, flags, self.priority]);
        out.extend_from_slice(&self.shard.to_le_bytes());
        for number in [
            self.number,
            self.record,
            self.token,
            self.at_ms,
            self.started_ms.get(),
            self.created_ms.get(),
            self.ordinal,
            u64::from(self.queue),
            u64::from(self.options),
            u64::from(self.tags),
            u64::from(self.worker),
            u64::from(self.attempts),
        ] {
            put_varint(out, number);
        }
        put_links(out, self.list_links);
        put_links(out, self.links);
        put_slot(out, self.lane);
        put_slot(out, self.past_attempts);
        put_varint(out, u64::from(self.bytes));
        out.push(more_flags);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut entry = Entry {
            state: take_state(from)?,
            flags: from.u8()?.into(),
            priority: from.u8()?,
            shard: from.u16()?,
            number: from.varint()?,
            record: from.varint()?,
            token: from.varint()?,
            at_ms: from.varint()?,
            started_ms: from.varint()?.into(),
            created_ms: from.varint()?.into(),
            ordinal: from.varint()?,
            queue: from.varint_as()?,
            options: from.varint_as()?,
            tags: from.varint_as()?,
            worker: from.varint_as()?,
            attempts: from.varint_as()?,
            list_links: take_links(from)?,
            links: take_links(from)?,
            lane: take_slot(from)?,
            past_attempts: take_slot(from)?,
            bytes: take_byte_count(from)?,
        };
        // The first snapshots had no more than eight.
        if !from.rest().is_empty() {
            entry.flags |= u16::from(from.u8()?) << 8;
        }
        Ok(entry)
    }
}

impl SnapshotRow for Flow {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_le_bytes());
        put_varint(out, u64::from(self.queue));
        put_varint(out, u64::from(self.in_flight));
        put_varint(out, u64::from(self.tasks));
        put_slot(out, self.first_lane);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let key = from.u128()?;
        let mut flow = Flow::new(from.varint_as()?, key);
        flow.in_flight = from.varint_as()?;
        flow.tasks = from.varint_as()?;
        flow.first_lane = take_slot(from)?;
        Ok(flow)
    }
}

impl SnapshotRow for Lane {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.priority, u8::from(self.in_ring)]);
        for slot in [self.flow, self.head, self.tail, self.sibling] {
            put_slot(out, slot);
        }
        put_links(out, self.ring);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Lane {
            priority: from.u8()?,
            in_ring: from.bool()?,
            flow: take_slot(from)?,
            head: take_slot(from)?,
            tail: take_slot(from)?,
            sibling: take_slot(from)?,
            ring: take_links(from)?,
        })
    }
}

pub(super) fn put_task(out: &mut Vec<u8>, task: &TaskRef) {
    put_varint(out, task.number);
    put_varint(out, task.created_ms);
    put_varint(out, u64::from(task.shard));
}

pub(super) fn take_task(from: &mut Reader<'_>) -> Result<TaskRef, DecodeError> {
    Ok(TaskRef { number: from.varint()?, created_ms: from.varint()?, shard: from.varint_as()? })
}

impl SnapshotRow for Unique {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash.to_le_bytes());
        put_task(out, &self.task);
        put_varint(out, self.until_ms);
        put_links(out, self.links);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Unique {
            hash: from.u128()?,
            task: take_task(from)?,
            until_ms: from.varint()?,
            links: take_links(from)?,
            used: true,
        })
    }
}

impl SnapshotRow for PastAttempt {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.end as u8);
        for number in [
            self.started_ms,
            self.ended_ms,
            self.record,
            u64::from(self.worker),
            u64::from(self.attempt),
        ] {
            put_varint(out, number);
        }
        put_slot(out, self.earlier);
        put_varint(out, u64::from(self.bytes));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let end = AttemptEnd::from_number(from.u8()?);
        Ok(PastAttempt {
            end: end.ok_or_else(|| from.malformed())?,
            started_ms: from.varint()?,
            ended_ms: from.varint()?,
            record: from.varint()?,
            worker: from.varint_as()?,
            attempt: from.varint_as()?,
            earlier: take_slot(from)?,
            bytes: take_byte_count(from)?,
            used: true,
        })
    }
}
