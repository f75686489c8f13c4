//! A state snapshot as a sequence of items.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::io::{Read, Write};

use egret_log::Seq;

use super::rows::{
    SnapshotRow, put_place, put_task, take_bytes, take_place, take_state, take_task,
};
use super::{BlockReader, BlockWriter};
use crate::core::cow_page_map::CowPageMap;
use crate::core::entry::TaskState;
use crate::core::intern::Values;
use crate::core::lanes::PRIORITIES;
use crate::core::slab::{NOWHERE, Row, Slab, SlotIndex};
use crate::core::state::{
    EndedTask, Message, MessageKind, Queue, QueueTable, RecordOwner, Schedule, ScheduleKey,
    SharedRecord, StateSnapshot, Tenants,
};
use crate::core::wheel::{Links, Wheel};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::store::{record, settings};
use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};

type Io = std::io::Result<()>;

/// Writes a snapshot; `on_record` is called with every record that it refers to.
pub(super) fn put<W: Write>(
    to: &mut BlockWriter<W>,
    image: &StateSnapshot,
    holds: &mut dyn FnMut(Seq),
) -> Io {
    to.sized(|out| put_scalars(out, image))?;
    put_slab(to, &image.entries, |entry| {
        holds(Seq(entry.record));
        if entry.state.has_ended() && entry.token != 0 {
            holds(Seq(entry.token));
        }
    })?;
    put_slab(to, &image.flows, |_| {})?;
    put_slab(to, &image.lanes, |_| {})?;
    put_slab(to, &image.uniques, |_| {})?;
    put_slab(to, &image.pasts, |past| {
        if past.record != 0 {
            holds(Seq(past.record));
        }
    })?;
    to.sized(|out| put_wheel(out, &image.timers))?;
    to.sized(|out| put_wheel(out, &image.unique_timers))?;
    let queues: Vec<(u32, &Queue)> = image.queues.iter().collect();
    put_all(to, queues.into_iter(), |out, (id, queue)| {
        put_queue(out, id, queue)
    })?;
    put_interner(to, &image.options, record::put_options)?;
    put_interner(to, &image.tags, |out, tags| put_bytes(out, tags))?;
    put_interner(to, &image.workers, |out, name| {
        put_bytes(out, name.as_bytes())
    })?;
    put_all(to, image.retentions.iter(), |out, (due, queue, state)| {
        put_varint(out, *due);
        put_varint(out, u64::from(*queue));
        out.push(*state as u8);
    })?;
    put_numbered(to, &image.awaited, |out, number, tasks| {
        put_chain(out, number, tasks.iter());
    })?;
    put_numbered(to, &image.waits, |out, number, tasks| {
        put_chain(out, number, tasks.iter());
    })?;
    put_numbered(to, &image.messages, |out, number, message| {
        put_varint(out, number);
        put_message(out, message);
    })?;
    for schedule in image.schedules.values() {
        holds(Seq(schedule.record));
    }
    put_all(
        to,
        image.schedules.iter(),
        |out, (ScheduleKey { tenant, name }, schedule)| {
            put_bytes(out, tenant.as_bytes());
            put_bytes(out, name.as_bytes());
            put_schedule(out, schedule);
        },
    )?;
    put_numbered(to, &image.callbacks, |out, number, about| {
        put_varint(out, number);
        put_task(out, &about.task);
        put_varint(out, u64::from(about.queue));
        out.push(about.state as u8);
    })?;
    put_numbered(to, &image.shared, |out, record, shared| {
        put_varint(out, record);
        put_bytes(out, image.tenants.name(shared.tenant).as_bytes());
        put_shared(out, shared);
    })
}

/// Reads a snapshot.
///
/// # Errors
/// [`QueueError::DecodeError`] and [`QueueError::Io`].
pub(super) fn take<R: Read>(from: &mut BlockReader<R>) -> Result<StateSnapshot, QueueError> {
    let scalars = from.sized(take_scalars)?;
    let mut image = StateSnapshot {
        now_ms: scalars[0],
        epoch: scalars[1] as u32,
        instance: scalars[2] as u16,
        grace_until_ms: scalars[3],
        next_number: scalars[4],
        leases: scalars[5],
        next_message: scalars[6],
        next_queue: scalars[7] as u32,
        entries: take_slab(from)?,
        flows: take_slab(from)?,
        lanes: take_slab(from)?,
        uniques: take_slab(from)?,
        pasts: take_slab(from)?,
        timers: from.sized(take_wheel)?,
        unique_timers: from.sized(take_wheel)?,
        queues: take_queues(from)?,
        options: take_interner(from, record::take_options)?,
        tags: take_interner(from, |reader| Ok(reader.bytes()?.into()))?,
        workers: take_interner(from, |reader| Ok(reader.text()?.into()))?,
        retentions: take_retentions(from)?,
        awaited: take_chains(from)?,
        waits: take_chains(from)?,
        messages: take_all(from, |reader| Ok((reader.varint()?, take_message(reader)?)))?
            .into_iter()
            .collect(),
        schedules: take_all(from, |reader| {
            let key = ScheduleKey::new(reader.text()?, reader.text()?);
            Ok((key, take_schedule(reader)?))
        })?
        .into_iter()
        .collect(),
        callbacks: take_all(from, |reader| Ok((reader.varint()?, take_about(reader)?)))?
            .into_iter()
            .collect(),
        shared: CowPageMap::default(),
        tenants: Tenants::default(),
    };
    // The first snapshots end here.
    if !from.is_at_end()? {
        let shared = take_all(from, |reader| {
            let (record, tenant) = (reader.varint()?, reader.text()?.to_owned());
            Ok((record, tenant, take_shared(reader)?))
        })?;
        for (record, tenant, shared) in shared {
            let tenant = image.tenants.acquire(&tenant);
            let shared = SharedRecord { tenant, ..shared };
            image.shared.insert(record, shared);
        }
    }
    Ok(image)
}

fn put_shared(out: &mut Vec<u8>, shared: &SharedRecord) {
    let (owner, number) = match shared.owner {
        RecordOwner::None => (0, 0),
        RecordOwner::Schedule => (1, 0),
        RecordOwner::Task(number) => (2, number),
    };
    out.push(owner);
    put_varint(out, number);
    put_varint(out, u64::from(shared.bytes));
    put_varint(out, shared.holders);
}

/// A shared record whose tenant is not resolved yet.
fn take_shared(from: &mut Reader<'_>) -> Result<SharedRecord, DecodeError> {
    let owner = match (from.u8()?, from.varint()?) {
        (0, _) => RecordOwner::None,
        (1, _) => RecordOwner::Schedule,
        (2, number) => RecordOwner::Task(number),
        _ => return Err(from.malformed()),
    };
    Ok(SharedRecord {
        tenant: NOWHERE,
        owner,
        bytes: from.small()?,
        holders: from.varint()?,
    })
}

fn take_about(from: &mut Reader<'_>) -> Result<EndedTask, DecodeError> {
    Ok(EndedTask {
        task: take_task(from)?,
        queue: from.small()?,
        state: take_state(from)?,
    })
}

fn put_scalars(out: &mut Vec<u8>, image: &StateSnapshot) {
    for number in [
        image.now_ms,
        u64::from(image.epoch),
        u64::from(image.instance),
        image.grace_until_ms,
        image.next_number,
        image.leases,
        image.next_message,
        u64::from(image.next_queue),
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn take_scalars(from: &mut Reader<'_>) -> Result<[u64; 8], DecodeError> {
    let mut scalars = [0; 8];
    for scalar in &mut scalars {
        *scalar = from.u64()?;
    }
    Ok(scalars)
}

fn put_all<W: Write, T>(
    to: &mut BlockWriter<W>,
    all: impl ExactSizeIterator<Item = T>,
    put: impl Fn(&mut Vec<u8>, T),
) -> Io {
    to.item(|out| put_varint(out, all.len() as u64))?;
    for one in all {
        to.sized(|out| put(out, one))?;
    }
    Ok(())
}

fn put_numbered<W: Write, V: Clone>(
    to: &mut BlockWriter<W>,
    values: &CowPageMap<V>,
    put: impl Fn(&mut Vec<u8>, u64, &V),
) -> Io {
    to.item(|out| put_varint(out, values.len() as u64))?;
    for (number, value) in values.iter() {
        to.sized(|out| put(out, number, value))?;
    }
    Ok(())
}

fn take_all<R: Read, T>(
    from: &mut BlockReader<R>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, QueueError> {
    let count = from.item(|reader| reader.varint())?;
    (0..count).map(|_| from.sized(&take)).collect()
}

fn put_slab<W: Write, R: Row + SnapshotRow>(
    to: &mut BlockWriter<W>,
    slab: &Slab<R>,
    mut seen: impl FnMut(&R),
) -> Io {
    to.item(|out| put_varint(out, u64::from(slab.extent()) - slab.len() as u64))?;
    for place in slab.free() {
        to.item(|out| put_place(out, place))?;
    }
    to.item(|out| put_varint(out, u64::from(slab.extent())))?;
    for row in slab.places() {
        if let Some(row) = row {
            seen(row);
        }
        // A free slot has no bytes.
        to.sized(|out| {
            if let Some(row) = row {
                row.put(out);
            }
        })?;
    }
    Ok(())
}

fn take_slab<R: Read, T: Row + SnapshotRow>(
    from: &mut BlockReader<R>,
) -> Result<Slab<T>, QueueError> {
    let count = from.item(|reader| reader.varint())?;
    let free: Result<Vec<SlotIndex>, QueueError> =
        (0..count).map(|_| from.item(take_place)).collect();
    let free = free?;
    let extent: u32 = from.item(|reader| reader.small())?;
    let mut failure = None;
    let places = (0..extent).map_while(|_| {
        let row = from.sized(|reader| match reader.rest() {
            [] => Ok(None),
            _ => T::take(reader).map(Some),
        });
        row.map_err(|error| failure = Some(error)).ok()
    });
    let slab = Slab::restore(places, free);
    match failure {
        Some(error) => Err(error),
        None => Ok(slab),
    }
}

fn put_wheel(out: &mut Vec<u8>, wheel: &Wheel) {
    let (now_ms, heads) = wheel.parts();
    put_varint(out, now_ms);
    put_varint(out, wheel.len());
    put_varint(out, heads.len() as u64);
    for head in heads {
        put_place(out, *head);
    }
}

fn take_wheel(from: &mut Reader<'_>) -> Result<Wheel, DecodeError> {
    let (now_ms, len, count) = (from.varint()?, from.varint()?, from.small::<u16>()?);
    let heads: Vec<SlotIndex> = (0..count)
        .map(|_| take_place(from))
        .collect::<Result<_, _>>()?;
    Wheel::restore(now_ms, &heads, len).ok_or_else(|| from.malformed())
}

fn put_queue(out: &mut Vec<u8>, id: u32, queue: &Queue) {
    put_varint(out, u64::from(id));
    put_bytes(out, queue.tenant.as_bytes());
    put_bytes(out, queue.name.as_bytes());
    let mut settings = Vec::new();
    settings::put(&mut settings, &queue.settings);
    put_bytes(out, &settings);
    out.extend_from_slice(&[queue.paused, queue.draining, queue.deleted].map(u8::from));
    put_varint(out, queue.created_ms);
    for list in &queue.lists {
        put_place(out, list.head);
        put_place(out, list.tail);
        put_varint(out, list.len);
        put_varint(out, list.next_ordinal);
        put_varint(out, list.landmarks().count() as u64);
        for (ordinal, place) in list.landmarks() {
            put_varint(out, ordinal);
            put_place(out, place);
        }
    }
    put_varint(out, u64::from(queue.rings.occupied));
    for ends in queue.rings.ends {
        put_place(out, ends.next);
        put_place(out, ends.prev);
    }
}

fn take_queue(from: &mut Reader<'_>) -> Result<(u32, Queue), DecodeError> {
    let id = from.small()?;
    let (tenant, name) = (from.text()?, from.text()?);
    let settings = settings::take(&mut from.part()?)?;
    let flags = (from.bool()?, from.bool()?, from.bool()?);
    let mut queue = Queue::new(tenant, name, settings, from.varint()?);
    (queue.paused, queue.draining, queue.deleted) = flags;
    for list in &mut queue.lists {
        list.head = take_place(from)?;
        list.tail = take_place(from)?;
        list.len = from.varint()?;
        list.next_ordinal = from.varint()?;
        for _ in 0..from.varint()? {
            list.restore_landmark(from.varint()?, take_place(from)?);
        }
    }
    queue.rings.occupied = from.small()?;
    for priority in 0..PRIORITIES {
        queue.rings.ends[priority] = Links {
            next: take_place(from)?,
            prev: take_place(from)?,
        };
    }
    Ok((id, queue))
}

fn take_queues<R: Read>(from: &mut BlockReader<R>) -> Result<QueueTable, QueueError> {
    let mut queues = QueueTable::default();
    for (id, queue) in take_all(from, take_queue)? {
        queues.insert(id, queue);
    }
    Ok(queues)
}

fn put_interner<W: Write, T: Clone + Default + Eq + Hash>(
    to: &mut BlockWriter<W>,
    known: &Values<T>,
    put: impl Fn(&mut Vec<u8>, &T),
) -> Io {
    let values: Vec<(u32, &T, u64)> = known.iter().collect();
    put_all(to, values.into_iter(), |out, (number, value, uses)| {
        put_varint(out, u64::from(number));
        put_varint(out, uses);
        put(out, value);
    })
}

fn take_interner<R: Read, T: Clone + Default + Eq + Hash>(
    from: &mut BlockReader<R>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Values<T>, QueueError> {
    let values = take_all(from, |reader| {
        let (number, uses) = (reader.small()?, reader.varint()?);
        Ok((number, take(reader)?, uses))
    })?;
    Ok(Values::restore(values.into_iter()))
}

fn take_retentions<R: Read>(
    from: &mut BlockReader<R>,
) -> Result<BTreeSet<(u64, u32, TaskState)>, QueueError> {
    let all = take_all(from, |reader| {
        Ok((reader.varint()?, reader.small()?, take_state(reader)?))
    })?;
    Ok(all.into_iter().collect())
}

fn take_id(from: &mut Reader<'_>) -> Result<TaskId, DecodeError> {
    let bytes = from.take(16)?;
    Ok(TaskId::from_bytes(
        bytes.try_into().expect("as many were taken"),
    ))
}

fn put_chain<'a>(out: &mut Vec<u8>, number: u64, tasks: impl ExactSizeIterator<Item = &'a TaskId>) {
    put_varint(out, number);
    put_varint(out, tasks.len() as u64);
    for task in tasks {
        out.extend_from_slice(&task.to_bytes());
    }
}

fn take_chains<R: Read, C: FromIterator<TaskId> + Clone>(
    from: &mut BlockReader<R>,
) -> Result<CowPageMap<C>, QueueError> {
    let all = take_all(from, |reader| {
        let number = reader.varint()?;
        let count = reader.varint()?;
        let tasks: Result<C, DecodeError> = (0..count).map(|_| take_id(reader)).collect();
        Ok((number, tasks?))
    })?;
    Ok(all.into_iter().collect())
}

fn put_message(out: &mut Vec<u8>, message: &Message) {
    out.push(match message.kind {
        MessageKind::Await { .. } => 0,
        MessageKind::Ended { completed: false } => 1,
        MessageKind::Ended { completed: true } => 2,
    });
    out.extend_from_slice(&message.to.to_bytes());
    out.extend_from_slice(&message.from.to_bytes());
    if let MessageKind::Await { tenant } = message.kind {
        out.extend_from_slice(&tenant.to_le_bytes());
    }
}

fn take_message(from: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let kind = from.u8()?;
    let (to, sender) = (take_id(from)?, take_id(from)?);
    let kind = match kind {
        0 => MessageKind::Await {
            tenant: from.u64()?,
        },
        1 => MessageKind::Ended { completed: false },
        2 => MessageKind::Ended { completed: true },
        _ => return Err(from.malformed()),
    };
    Ok(Message {
        kind,
        to,
        from: sender,
    })
}

fn put_schedule(out: &mut Vec<u8>, schedule: &Schedule) {
    put_varint(out, schedule.record);
    put_varint(out, u64::from(schedule.queue));
    put_varint(out, u64::from(schedule.shard));
    out.push(schedule.priority);
    out.extend_from_slice(&schedule.key.to_le_bytes());
    record::put_options(out, &schedule.options);
    put_bytes(out, &schedule.tags);
    out.extend_from_slice(&[schedule.callback, schedule.paused].map(u8::from));
    put_varint(out, schedule.next_ms);
    put_varint(out, schedule.last_ms);
    put_task(out, &schedule.last);
    put_varint(out, u64::from(schedule.bytes));
}

fn take_schedule(from: &mut Reader<'_>) -> Result<Schedule, DecodeError> {
    Ok(Schedule {
        record: from.varint()?,
        queue: from.small()?,
        shard: from.small()?,
        priority: from.u8()?,
        key: from.u128()?,
        options: record::take_options(from)?,
        tags: from.bytes()?.into(),
        callback: from.bool()?,
        paused: from.bool()?,
        next_ms: from.varint()?,
        last_ms: from.varint()?,
        last: take_task(from)?,
        bytes: take_bytes(from)?,
    })
}
