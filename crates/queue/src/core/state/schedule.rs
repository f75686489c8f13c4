//! Schedules: a task per tick, and callbacks: a task that tells of another one's end.

use super::*;
use crate::core::command::PutSchedule;

/// The ordering key of a tenant's callbacks: any number of them may be under way, but tenants take turns.
pub fn callback_key(tenant: &str) -> u128 {
    1 << 64 | u128::from(crc32c::crc32c(tenant.as_bytes()))
}

/// The queue of callbacks: the same in every partition, and nobody's.
pub const CALLBACKS: u32 = 0;

/// A schedule as the partition knows it. What its ticks are is known to whoever drives the partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The record with its description and the content of its tasks.
    pub record: u64,
    /// The queue of its tasks.
    pub queue: u32,
    /// Their shard.
    pub shard: u16,
    /// Their priority.
    pub priority: u8,
    /// Hash of their ordering key.
    pub key: u128,
    /// What they ask for otherwise than their queue.
    pub options: TaskOptions,
    /// Their tags.
    pub tags: Box<[u8]>,
    /// Whether somebody is to be told of their end.
    pub callback: bool,
    /// Whether it rests.
    pub paused: bool,
    /// The tick to come, in Unix milliseconds.
    pub next_ms: u64,
    /// The tick before; zero: none.
    pub last_ms: u64,
    /// The task of the tick before.
    pub last: TaskRef,
}

impl State {
    /// A schedule is there; its description is in record `seq`.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn put_schedule(&mut self, seq: u64, put: &PutSchedule<'_>) -> Result<(), Refusal> {
        self.queue(put.task.queue)?;
        let key = (put.tenant.into(), put.name.into());
        let known = self.schedules.get(&key);
        let (last_ms, last) = known.map_or_else(Default::default, |it| (it.last_ms, it.last));
        let schedule = Schedule {
            record: seq,
            queue: put.task.queue,
            shard: put.task.shard,
            priority: put.task.priority,
            key: put.task.key,
            options: put.task.options,
            tags: put.task.tags.into(),
            callback: put.task.callback,
            paused: put.paused,
            next_ms: put.next_ms,
            last_ms,
            last,
        };
        self.schedules.insert(key, schedule);
        Ok(())
    }

    /// A schedule goes; the tasks it has made stay.
    ///
    /// # Errors
    /// [`Refusal::ScheduleUnknown`].
    pub fn delete_schedule(&mut self, tenant: &str, name: &str) -> Result<(), Refusal> {
        let removed = self.schedules.remove(&(tenant.into(), name.into()));
        removed.map(drop).ok_or(Refusal::ScheduleUnknown)
    }

    /// Whether a schedule makes tasks, and when the next.
    ///
    /// # Errors
    /// [`Refusal::ScheduleUnknown`].
    pub fn pause_schedule(
        &mut self,
        tenant: &str,
        name: &str,
        paused: bool,
        next_ms: u64,
    ) -> Result<(), Refusal> {
        let schedule = self.schedule_mut(tenant, name)?;
        (schedule.paused, schedule.next_ms) = (paused, next_ms);
        Ok(())
    }

    /// A tick has come; returns the tasks made. One that is not the next has been dealt with before,
    /// and a queue that is gone or takes nothing in gets no task.
    ///
    /// # Errors
    /// [`Refusal::ScheduleUnknown`].
    pub fn tick(
        &mut self,
        tenant: &str,
        name: &str,
        tick_ms: u64,
        next_ms: u64,
        tasks: u32,
    ) -> Result<u32, Refusal> {
        let schedule = self.schedule_mut(tenant, name)?;
        if schedule.paused || schedule.next_ms != tick_ms {
            return Ok(0);
        }
        schedule.next_ms = next_ms;
        schedule.last_ms = tick_ms;
        let schedule = schedule.clone();
        if self
            .queue(schedule.queue)
            .map_or(true, |queue| queue.draining)
        {
            return Ok(0);
        }
        let task = Enqueue {
            queue: schedule.queue,
            shard: schedule.shard,
            priority: schedule.priority,
            key: schedule.key,
            options: schedule.options,
            tags: &schedule.tags,
            callback: schedule.callback,
            ..Enqueue::default()
        };
        for _ in 0..tasks {
            let made = self.make(schedule.record, &task);
            self.schedule_mut(tenant, name)?.last = made;
        }
        Ok(tasks)
    }

    fn schedule_mut(&mut self, tenant: &str, name: &str) -> Result<&mut Schedule, Refusal> {
        let found = self.schedules.get_mut(&(tenant.into(), name.into()));
        found.ok_or(Refusal::ScheduleUnknown)
    }

    /// When the next tick comes of those that do not rest, in Unix milliseconds.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let awake = self.schedules.values().filter(|schedule| !schedule.paused);
        awake.map(|schedule| schedule.next_ms).min()
    }

    /// The schedule of this name.
    pub fn schedule(&self, tenant: &str, name: &str) -> Option<&Schedule> {
        self.schedules.get(&(tenant.into(), name.into()))
    }

    /// Every schedule with its tenant and name.
    pub fn schedules(&self) -> impl Iterator<Item = (&str, &str, &Schedule)> {
        let all = self.schedules.iter();
        all.map(|((tenant, name), schedule)| (&**tenant, &**name, schedule))
    }

    /// A task has ended and somebody is to be told: that is a task too.
    pub(super) fn make_callback(&mut self, place: Place) {
        if self.queue(CALLBACKS).is_err() {
            return;
        }
        let entry = self.entries.get(place);
        let (record, shard) = (entry.record, entry.shard);
        let about = About {
            task: Self::reference(entry),
            queue: entry.queue,
            state: entry.state,
        };
        let tenant = self.queues.get(about.queue).map(|queue| &*queue.tenant);
        let task = Enqueue {
            queue: CALLBACKS,
            shard,
            priority: 5,
            key: tenant.map_or(0, callback_key),
            ..Enqueue::default()
        };
        let made = self.make(record, &task);
        let place = self.place_of(made.number).expect("it was just made");
        self.entries.get_mut(place).set(flag::IS_CALLBACK);
        self.callbacks.insert(made.number, about);
    }

    /// The task that a callback tells of.
    pub fn callback_about(&self, number: u64) -> Option<About> {
        self.callbacks.get(&number).copied()
    }
}
