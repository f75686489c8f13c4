//! A state snapshot as a sequence of items.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::io::{Read, Write};

use egret_log::Seq;

use super::rows::{
    SnapshotRow, put_slot, put_task, take_byte_count, take_slot, take_state, take_task,
};
use super::{BlockReader, BlockWriter};
use crate::core::cow_page_map::CowPageMap;
use crate::core::entry::TaskState;
use crate::core::intern::Values;
use crate::core::lanes::PRIORITY_COUNT;
use crate::core::slab::{NO_SLOT, Row, Slab, SlotIndex};
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
pub(super) fn write_state<W: Write>(
    to: &mut BlockWriter<W>,
    snapshot: &StateSnapshot,
    on_record: &mut dyn FnMut(Seq),
) -> Io {
    to.write_sized_item(|out| put_scalars(out, snapshot))?;
    write_slab(to, &snapshot.entries, |entry| {
        on_record(Seq(entry.record));
        if entry.state.has_ended() && entry.token != 0 {
            on_record(Seq(entry.token));
        }
    })?;
    write_slab(to, &snapshot.flows, |_| {})?;
    write_slab(to, &snapshot.lanes, |_| {})?;
    write_slab(to, &snapshot.uniques, |_| {})?;
    write_slab(to, &snapshot.past_attempts, |attempt| {
        if attempt.record != 0 {
            on_record(Seq(attempt.record));
        }
    })?;
    to.write_sized_item(|out| put_wheel(out, &snapshot.timers))?;
    to.write_sized_item(|out| put_wheel(out, &snapshot.unique_timers))?;
    let queues: Vec<(u32, &Queue)> = snapshot.queues.iter().collect();
    write_items(to, queues.into_iter(), |out, (id, queue)| put_queue(out, id, queue))?;
    write_interned(to, &snapshot.options, record::put_options)?;
    write_interned(to, &snapshot.tags, |out, tags| put_bytes(out, tags))?;
    write_interned(to, &snapshot.workers, |out, name| put_bytes(out, name.as_bytes()))?;
    write_items(to, snapshot.retention_checks.iter(), |out, (due, queue, state)| {
        put_varint(out, *due);
        put_varint(out, u64::from(*queue));
        out.push(*state as u8);
    })?;
    write_numbered(to, &snapshot.dependents, |out, number, tasks| {
        put_task_ids(out, number, tasks.iter());
    })?;
    write_numbered(to, &snapshot.dependencies, |out, number, tasks| {
        put_task_ids(out, number, tasks.iter());
    })?;
    write_numbered(to, &snapshot.messages, |out, number, message| {
        put_varint(out, number);
        put_message(out, message);
    })?;
    for schedule in snapshot.schedules.values() {
        on_record(Seq(schedule.record));
    }
    write_items(to, snapshot.schedules.iter(), |out, (ScheduleKey { tenant, name }, schedule)| {
        put_bytes(out, tenant.as_bytes());
        put_bytes(out, name.as_bytes());
        put_schedule(out, schedule);
    })?;
    write_numbered(to, &snapshot.callback_subjects, |out, number, ended_task| {
        put_varint(out, number);
        put_task(out, &ended_task.task);
        put_varint(out, u64::from(ended_task.queue));
        out.push(ended_task.state as u8);
    })?;
    write_numbered(to, &snapshot.shared_records, |out, record, shared| {
        put_varint(out, record);
        put_bytes(out, snapshot.tenants.name(shared.tenant).as_bytes());
        put_shared_record(out, shared);
    })
}

/// Reads a snapshot.
///
/// # Errors
/// [`QueueError::DecodeError`] and [`QueueError::Io`].
pub(super) fn read_state<R: Read>(from: &mut BlockReader<R>) -> Result<StateSnapshot, QueueError> {
    let scalars = from.read_sized_item(take_scalars)?;
    let mut snapshot = StateSnapshot {
        now_ms: scalars[0],
        epoch: scalars[1] as u32,
        instance: scalars[2] as u16,
        grace_until_ms: scalars[3],
        next_number: scalars[4],
        leases_given: scalars[5],
        next_message: scalars[6],
        next_queue: scalars[7] as u32,
        entries: read_slab(from)?,
        flows: read_slab(from)?,
        lanes: read_slab(from)?,
        uniques: read_slab(from)?,
        past_attempts: read_slab(from)?,
        timers: from.read_sized_item(take_wheel)?,
        unique_timers: from.read_sized_item(take_wheel)?,
        queues: read_queues(from)?,
        options: read_interned(from, record::take_options)?,
        tags: read_interned(from, |reader| Ok(reader.bytes()?.into()))?,
        workers: read_interned(from, |reader| Ok(reader.text()?.into()))?,
        retention_checks: read_retention_checks(from)?,
        dependents: read_task_ids(from)?,
        dependencies: read_task_ids(from)?,
        messages: read_items(from, |reader| Ok((reader.varint()?, take_message(reader)?)))?
            .into_iter()
            .collect(),
        schedules: read_items(from, |reader| {
            let key = ScheduleKey::new(reader.text()?, reader.text()?);
            Ok((key, take_schedule(reader)?))
        })?
        .into_iter()
        .collect(),
        callback_subjects: read_items(from, |reader| {
            Ok((reader.varint()?, take_ended_task(reader)?))
        })?
        .into_iter()
        .collect(),
        shared_records: CowPageMap::default(),
        tenants: Tenants::default(),
    };
    // The first snapshots end here.
    if !from.is_at_end()? {
        let shared = read_items(from, |reader| {
            let (record, tenant) = (reader.varint()?, reader.text()?.to_owned());
            Ok((record, tenant, take_shared_record(reader)?))
        })?;
        for (record, tenant, shared) in shared {
            let tenant = snapshot.tenants.acquire(&tenant);
            let shared = SharedRecord { tenant, ..shared };
            snapshot.shared_records.insert(record, shared);
        }
    }
    Ok(snapshot)
}

fn put_shared_record(out: &mut Vec<u8>, shared: &SharedRecord) {
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
fn take_shared_record(from: &mut Reader<'_>) -> Result<SharedRecord, DecodeError> {
    let owner = match (from.u8()?, from.varint()?) {
        (0, _) => RecordOwner::None,
        (1, _) => RecordOwner::Schedule,
        (2, number) => RecordOwner::Task(number),
        _ => return Err(from.malformed()),
    };
    Ok(SharedRecord { tenant: NO_SLOT, owner, bytes: from.varint_as()?, holders: from.varint()? })
}

fn take_ended_task(from: &mut Reader<'_>) -> Result<EndedTask, DecodeError> {
    Ok(EndedTask { task: take_task(from)?, queue: from.varint_as()?, state: take_state(from)? })
}

fn put_scalars(out: &mut Vec<u8>, snapshot: &StateSnapshot) {
    for number in [
        snapshot.now_ms,
        u64::from(snapshot.epoch),
        u64::from(snapshot.instance),
        snapshot.grace_until_ms,
        snapshot.next_number,
        snapshot.leases_given,
        snapshot.next_message,
        u64::from(snapshot.next_queue),
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

fn write_items<W: Write, T>(
    to: &mut BlockWriter<W>,
    items: impl ExactSizeIterator<Item = T>,
    put: impl Fn(&mut Vec<u8>, T),
) -> Io {
    to.write_item(|out| put_varint(out, items.len() as u64))?;
    for item in items {
        to.write_sized_item(|out| put(out, item))?;
    }
    Ok(())
}

fn write_numbered<W: Write, V: Clone>(
    to: &mut BlockWriter<W>,
    values: &CowPageMap<V>,
    put: impl Fn(&mut Vec<u8>, u64, &V),
) -> Io {
    to.write_item(|out| put_varint(out, values.len() as u64))?;
    for (number, value) in values.iter() {
        to.write_sized_item(|out| put(out, number, value))?;
    }
    Ok(())
}

fn read_items<R: Read, T>(
    from: &mut BlockReader<R>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, QueueError> {
    let count = from.read_item(|reader| reader.varint())?;
    (0..count).map(|_| from.read_sized_item(&take)).collect()
}

fn write_slab<W: Write, R: Row + SnapshotRow>(
    to: &mut BlockWriter<W>,
    slab: &Slab<R>,
    mut on_row: impl FnMut(&R),
) -> Io {
    to.write_item(|out| put_varint(out, u64::from(slab.extent()) - slab.len() as u64))?;
    for slot in slab.free_slots() {
        to.write_item(|out| put_slot(out, slot))?;
    }
    to.write_item(|out| put_varint(out, u64::from(slab.extent())))?;
    for row in slab.slots() {
        if let Some(row) = row {
            on_row(row);
        }
        // A free slot has no bytes.
        to.write_sized_item(|out| {
            if let Some(row) = row {
                row.encode(out);
            }
        })?;
    }
    Ok(())
}

fn read_slab<R: Read, T: Row + SnapshotRow>(
    from: &mut BlockReader<R>,
) -> Result<Slab<T>, QueueError> {
    let count = from.read_item(|reader| reader.varint())?;
    let free: Result<Vec<SlotIndex>, QueueError> =
        (0..count).map(|_| from.read_item(take_slot)).collect();
    let free = free?;
    let extent: u32 = from.read_item(|reader| reader.varint_as())?;
    let mut failure = None;
    let slots = (0..extent).map_while(|_| {
        let row = from.read_sized_item(|reader| match reader.rest() {
            [] => Ok(None),
            _ => T::decode(reader).map(Some),
        });
        row.map_err(|error| failure = Some(error)).ok()
    });
    let slab = Slab::restore(slots, free);
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
        put_slot(out, *head);
    }
}

fn take_wheel(from: &mut Reader<'_>) -> Result<Wheel, DecodeError> {
    let (now_ms, len, count) = (from.varint()?, from.varint()?, from.varint_as::<u16>()?);
    let heads: Vec<SlotIndex> = (0..count).map(|_| take_slot(from)).collect::<Result<_, _>>()?;
    Wheel::restore(now_ms, &heads, len).ok_or_else(|| from.malformed())
}

fn put_queue(out: &mut Vec<u8>, id: u32, queue: &Queue) {
    put_varint(out, u64::from(id));
    put_bytes(out, queue.tenant.as_bytes());
    put_bytes(out, queue.name.as_bytes());
    let mut settings = Vec::new();
    settings::encode(&mut settings, &queue.settings);
    put_bytes(out, &settings);
    out.extend_from_slice(&[queue.paused, queue.draining, queue.deleted].map(u8::from));
    put_varint(out, queue.created_ms);
    for list in &queue.lists {
        put_slot(out, list.head);
        put_slot(out, list.tail);
        put_varint(out, list.len);
        put_varint(out, list.next_ordinal);
        put_varint(out, list.landmarks().count() as u64);
        for (ordinal, slot) in list.landmarks() {
            put_varint(out, ordinal);
            put_slot(out, slot);
        }
    }
    put_varint(out, u64::from(queue.rings.occupied));
    for ends in queue.rings.ends {
        put_slot(out, ends.next);
        put_slot(out, ends.prev);
    }
}

fn take_queue(from: &mut Reader<'_>) -> Result<(u32, Queue), DecodeError> {
    let id = from.varint_as()?;
    let (tenant, name) = (from.text()?, from.text()?);
    let settings = settings::decode(&mut from.part()?)?;
    let flags = (from.bool()?, from.bool()?, from.bool()?);
    let mut queue = Queue::new(tenant, name, settings, from.varint()?);
    (queue.paused, queue.draining, queue.deleted) = flags;
    for list in &mut queue.lists {
        list.head = take_slot(from)?;
        list.tail = take_slot(from)?;
        list.len = from.varint()?;
        list.next_ordinal = from.varint()?;
        for _ in 0..from.varint()? {
            list.restore_landmark(from.varint()?, take_slot(from)?);
        }
    }
    queue.rings.occupied = from.varint_as()?;
    for priority in 0..PRIORITY_COUNT {
        queue.rings.ends[priority] = Links { next: take_slot(from)?, prev: take_slot(from)? };
    }
    Ok((id, queue))
}

fn read_queues<R: Read>(from: &mut BlockReader<R>) -> Result<QueueTable, QueueError> {
    let mut queues = QueueTable::default();
    for (id, queue) in read_items(from, take_queue)? {
        queues.insert(id, queue);
    }
    Ok(queues)
}

fn write_interned<W: Write, T: Clone + Default + Eq + Hash>(
    to: &mut BlockWriter<W>,
    interned: &Values<T>,
    put: impl Fn(&mut Vec<u8>, &T),
) -> Io {
    let values: Vec<(u32, &T, u64)> = interned.iter().collect();
    write_items(to, values.into_iter(), |out, (number, value, uses)| {
        put_varint(out, u64::from(number));
        put_varint(out, uses);
        put(out, value);
    })
}

fn read_interned<R: Read, T: Clone + Default + Eq + Hash>(
    from: &mut BlockReader<R>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Values<T>, QueueError> {
    let values = read_items(from, |reader| {
        let (number, uses) = (reader.varint_as()?, reader.varint()?);
        Ok((number, take(reader)?, uses))
    })?;
    Ok(Values::restore(values.into_iter()))
}

fn read_retention_checks<R: Read>(
    from: &mut BlockReader<R>,
) -> Result<BTreeSet<(u64, u32, TaskState)>, QueueError> {
    let checks = read_items(from, |reader| {
        Ok((reader.varint()?, reader.varint_as()?, take_state(reader)?))
    })?;
    Ok(checks.into_iter().collect())
}

fn take_id(from: &mut Reader<'_>) -> Result<TaskId, DecodeError> {
    let bytes = from.take(16)?;
    Ok(TaskId::from_bytes(bytes.try_into().expect("as many were taken")))
}

fn put_task_ids<'a>(
    out: &mut Vec<u8>,
    number: u64,
    tasks: impl ExactSizeIterator<Item = &'a TaskId>,
) {
    put_varint(out, number);
    put_varint(out, tasks.len() as u64);
    for task in tasks {
        out.extend_from_slice(&task.to_bytes());
    }
}

fn read_task_ids<R: Read, C: FromIterator<TaskId> + Clone>(
    from: &mut BlockReader<R>,
) -> Result<CowPageMap<C>, QueueError> {
    let entries = read_items(from, |reader| {
        let number = reader.varint()?;
        let count = reader.varint()?;
        let tasks: Result<C, DecodeError> = (0..count).map(|_| take_id(reader)).collect();
        Ok((number, tasks?))
    })?;
    Ok(entries.into_iter().collect())
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
        0 => MessageKind::Await { tenant: from.u64()? },
        1 => MessageKind::Ended { completed: false },
        2 => MessageKind::Ended { completed: true },
        _ => return Err(from.malformed()),
    };
    Ok(Message { kind, to, from: sender })
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
    put_task(out, &schedule.last_task);
    put_varint(out, u64::from(schedule.bytes));
}

fn take_schedule(from: &mut Reader<'_>) -> Result<Schedule, DecodeError> {
    Ok(Schedule {
        record: from.varint()?,
        queue: from.varint_as()?,
        shard: from.varint_as()?,
        priority: from.u8()?,
        key: from.u128()?,
        options: record::take_options(from)?,
        tags: from.bytes()?.into(),
        callback: from.bool()?,
        paused: from.bool()?,
        next_ms: from.varint()?,
        last_ms: from.varint()?,
        last_task: take_task(from)?,
        bytes: take_byte_count(from)?,
    })
}
