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
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

pub(super) fn put_place(out: &mut Vec<u8>, place: SlotIndex) {
    put_varint(out, u64::from(place.wrapping_add(1)));
}

pub(super) fn take_place(from: &mut Reader<'_>) -> Result<SlotIndex, DecodeError> {
    Ok(from.small::<u32>()?.wrapping_sub(1))
}

fn put_links(out: &mut Vec<u8>, links: Links) {
    put_place(out, links.next);
    put_place(out, links.prev);
}

fn take_links(from: &mut Reader<'_>) -> Result<Links, DecodeError> {
    Ok(Links {
        next: take_place(from)?,
        prev: take_place(from)?,
    })
}

/// The first snapshots did not store it.
pub(super) fn take_bytes(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match from.rest() {
        [] => Ok(0),
        _ => from.small(),
    }
}

pub(super) fn take_state(from: &mut Reader<'_>) -> Result<TaskState, DecodeError> {
    let number = from.u8()?;
    TaskState::from_number(number).ok_or_else(|| from.malformed())
}

impl SnapshotRow for Entry {
    fn put(&self, out: &mut Vec<u8>) {
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
        put_links(out, self.list);
        put_links(out, self.links);
        put_place(out, self.lane);
        put_place(out, self.past);
        put_varint(out, u64::from(self.bytes));
        out.push(more_flags);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
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
            queue: from.small()?,
            options: from.small()?,
            tags: from.small()?,
            worker: from.small()?,
            attempts: from.small()?,
            list: take_links(from)?,
            links: take_links(from)?,
            lane: take_place(from)?,
            past: take_place(from)?,
            bytes: take_bytes(from)?,
        };
        // The first snapshots had no more than eight.
        if !from.rest().is_empty() {
            entry.flags |= u16::from(from.u8()?) << 8;
        }
        Ok(entry)
    }
}

impl SnapshotRow for Flow {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_le_bytes());
        put_varint(out, u64::from(self.queue));
        put_varint(out, u64::from(self.under_way));
        put_varint(out, u64::from(self.tasks));
        put_place(out, self.lanes);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let key = from.u128()?;
        let mut flow = Flow::new(from.small()?, key);
        flow.under_way = from.small()?;
        flow.tasks = from.small()?;
        flow.lanes = take_place(from)?;
        Ok(flow)
    }
}

impl SnapshotRow for Lane {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.priority, u8::from(self.in_ring)]);
        for place in [self.flow, self.head, self.tail, self.sibling] {
            put_place(out, place);
        }
        put_links(out, self.ring);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Lane {
            priority: from.u8()?,
            in_ring: from.bool()?,
            flow: take_place(from)?,
            head: take_place(from)?,
            tail: take_place(from)?,
            sibling: take_place(from)?,
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
    Ok(TaskRef {
        number: from.varint()?,
        created_ms: from.varint()?,
        shard: from.small()?,
    })
}

impl SnapshotRow for Unique {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash.to_le_bytes());
        put_task(out, &self.task);
        put_varint(out, self.until_ms);
        put_links(out, self.links);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
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
    fn put(&self, out: &mut Vec<u8>) {
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
        put_place(out, self.earlier);
        put_varint(out, u64::from(self.bytes));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let end = AttemptEnd::from_number(from.u8()?);
        Ok(PastAttempt {
            end: end.ok_or_else(|| from.malformed())?,
            started_ms: from.varint()?,
            ended_ms: from.varint()?,
            record: from.varint()?,
            worker: from.small()?,
            attempt: from.small()?,
            earlier: take_place(from)?,
            bytes: take_bytes(from)?,
            used: true,
        })
    }
}
