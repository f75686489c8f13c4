//! Schedules in the state machine: put, paused and deleted, and the tasks of their ticks.

use super::machine::State;
use super::rows::EndedTask;
use super::schedule::{CALLBACK_QUEUE, Schedule, ScheduleKey, callback_key};
use crate::core::command::{Enqueue, PutSchedule, Refusal};
use crate::core::entry::flag;
use crate::core::slab::SlotIndex;

impl State {
    /// Creates or replaces a schedule; its description is in record `seq`.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn put_schedule(&mut self, seq: u64, put: &PutSchedule<'_>) -> Result<(), Refusal> {
        self.queue(put.task.queue)?;
        let key = ScheduleKey::new(put.tenant, put.name);
        let known = self.schedules.get(&key);
        let (last_ms, last) = known.map_or_else(Default::default, |it| (it.last_ms, it.last_task));
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
            last_task: last,
            bytes: put.task.bytes(),
        };
        self.remove_tick(&key);
        self.add_schedule_bytes(put.tenant, schedule.bytes);
        if let Some(previous) = self.schedules.insert(key.clone(), schedule) {
            self.release_schedule(put.tenant, &previous);
        }
        self.insert_tick(&key);
        Ok(())
    }

    /// Deletes a schedule; the tasks it has made stay.
    ///
    /// # Errors
    /// [`Refusal::ScheduleUnknown`].
    pub fn delete_schedule(&mut self, tenant: &str, name: &str) -> Result<(), Refusal> {
        let key = ScheduleKey::new(tenant, name);
        self.remove_tick(&key);
        let removed = self.schedules.remove(&key).ok_or(Refusal::ScheduleUnknown)?;
        self.release_schedule(tenant, &removed);
        Ok(())
    }

    /// Pauses or resumes a schedule, and sets its next tick.
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
        let key = ScheduleKey::new(tenant, name);
        self.remove_tick(&key);
        let schedule = self.schedules.get_mut(&key).ok_or(Refusal::ScheduleUnknown)?;
        (schedule.paused, schedule.next_ms) = (paused, next_ms);
        self.insert_tick(&key);
        Ok(())
    }

    /// Processes a tick; returns the number of tasks made. A tick that is not the next one was
    /// processed before; a queue that is deleted or draining gets no task. Where `next_ms` equals
    /// the tick, it waits for room.
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
        let key = ScheduleKey::new(tenant, name);
        let schedule = self.schedules.get(&key).ok_or(Refusal::ScheduleUnknown)?;
        if schedule.paused || schedule.next_ms != tick_ms {
            return Ok(0);
        }
        self.remove_tick(&key);
        let schedule = self.schedules.get_mut(&key).expect("just found");
        schedule.next_ms = next_ms;
        schedule.last_ms = tick_ms;
        let schedule = schedule.clone();
        self.insert_tick(&key);
        if self.queue(schedule.queue).map_or(true, |queue| queue.draining) {
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
        if tasks > 0 {
            self.hold_schedule_record(tenant, &schedule, tasks);
        }
        let mut last = schedule.last_task;
        for _ in 0..tasks {
            last = self.create_task(schedule.record, &task, flag::SHARES_RECORD, 0);
        }
        if let Some(schedule) = self.schedules.get_mut(&key) {
            schedule.last_task = last;
        }
        Ok(tasks)
    }

    /// Adds the tick of an active schedule to the upcoming ones, or to those that wait for room.
    fn insert_tick(&mut self, key: &ScheduleKey) {
        let schedule = self.schedules.get(key);
        let Some(schedule) = schedule.filter(|it| it.is_active()) else {
            return;
        };
        let tick = (schedule.next_ms, key.clone());
        if schedule.waits_for_room() {
            let waiting = self.waiting_ticks.entry(key.tenant.clone());
            waiting.or_default().insert(tick);
        } else {
            self.upcoming_ticks.insert(tick);
        }
    }

    fn remove_tick(&mut self, key: &ScheduleKey) {
        let Some(schedule) = self.schedules.get(key) else {
            return;
        };
        let tick = (schedule.next_ms, key.clone());
        self.upcoming_ticks.remove(&tick);
        if let Some(waiting) = self.waiting_ticks.get_mut(&key.tenant) {
            waiting.remove(&tick);
            if waiting.is_empty() {
                self.waiting_ticks.remove(&key.tenant);
            }
        }
    }

    pub(super) fn rebuild_ticks(&mut self) {
        let keys: Vec<_> = self.schedules.keys().cloned().collect();
        keys.iter().for_each(|key| self.insert_tick(key));
    }

    /// Every active schedule with an upcoming tick, with its tenant and name, in the order of these
    /// ticks.
    pub fn schedules_by_tick(&self) -> impl Iterator<Item = (&str, &str, &Schedule)> {
        let to_come = self.upcoming_ticks.iter();
        to_come.map(|(_, key)| (&*key.tenant, &*key.name, &self.schedules[key]))
    }

    /// Tenants with schedules whose due tick waits for room.
    pub fn tenants_with_waiting_ticks(&self) -> impl Iterator<Item = &str> {
        self.waiting_ticks.keys().map(|tenant| &**tenant)
    }

    /// A tenant's schedules whose due tick waits for room, with their names, in the order of these
    /// ticks.
    pub fn waiting_schedules(&self, tenant: &str) -> impl Iterator<Item = (&str, &Schedule)> {
        let waiting = self.waiting_ticks.get(tenant).into_iter().flatten();
        waiting.map(|(_, key)| (&*key.name, &self.schedules[key]))
    }

    /// The schedule of this name.
    pub fn schedule(&self, tenant: &str, name: &str) -> Option<&Schedule> {
        self.schedules.get(&ScheduleKey::new(tenant, name))
    }

    /// Every schedule with its tenant and name.
    pub fn schedules(&self) -> impl Iterator<Item = (&str, &str, &Schedule)> {
        let all = self.schedules.iter();
        all.map(|(key, schedule)| (&*key.tenant, &*key.name, schedule))
    }

    /// Creates the callback of an ended task, which is a task itself.
    pub(super) fn make_callback(&mut self, slot: SlotIndex) {
        if self.queue(CALLBACK_QUEUE).is_err() {
            return;
        }
        self.hold_record(slot);
        let entry = self.entries.get(slot);
        let (record, shard) = (entry.record, entry.shard);
        let ended_task =
            EndedTask { task: Self::task_ref(entry), queue: entry.queue, state: entry.state };
        let tenant = self.queues.get(ended_task.queue).map(|queue| &*queue.tenant);
        let task = Enqueue {
            queue: CALLBACK_QUEUE,
            shard,
            priority: 5,
            key: tenant.map_or(0, callback_key),
            ..Enqueue::default()
        };
        let flags = flag::IS_CALLBACK | flag::SHARES_RECORD;
        let callback = self.create_task(record, &task, flags, 0);
        self.callback_subjects.insert(callback.number, ended_task);
    }

    /// The ended task that a callback reports.
    pub fn callback_subject(&self, number: u64) -> Option<EndedTask> {
        self.callback_subjects.get(number).copied()
    }
}
