//! The state machine itself: its fields, and the commands that change them.

use std::collections::{BTreeMap, BTreeSet};

use super::message::Message;
use super::ready_position::ReadyPosition;
use super::rows::{
    EndedTask, EnqueueOutcome, PastAttempt, QueueTable, StateEvents, TaskRef, Unique,
};
use super::schedule::{Schedule, ScheduleKey, TickQueue, WaitingTicks};
use super::shared_record::SharedRecord;
use super::tenants::Tenants;
use crate::core::command::{Command, Enqueue, Refusal};
use crate::core::cow_page_map::CowPageMap;
use crate::core::entry::{Entry, TaskState, flag};
use crate::core::hash_index::ShardedHashIndex;
use crate::core::intern::Interner;
use crate::core::lanes::{Flow, Lane};
use crate::core::slab::Slab;
use crate::core::task_index::TaskIndex;
use crate::core::wheel::Wheel;
use crate::model::{TaskId, TaskOptions};

/// Past attempts kept of a task.
pub(crate) const PAST_ATTEMPTS_MAX: usize = 10;

/// The state of a partition.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) now_ms: u64,
    pub(super) seed: u64,
    pub(super) epoch: u32,
    pub(super) instance: u16,
    pub(super) grace_until_ms: u64,
    pub(super) next_number: u64,
    /// Leases given in this epoch.
    pub(super) leases_given: u64,
    /// Bytes of the records of tasks and schedules.
    pub(super) bytes: u64,
    /// Callbacks that tasks which have not ended will cause.
    pub(super) reserved_callbacks: u64,
    pub(super) next_message: u64,
    pub(super) entries: Slab<Entry>,
    pub(super) task_index: TaskIndex,
    pub(super) timers: Wheel,
    pub(super) queues: QueueTable,
    pub(super) flows: Slab<Flow>,
    pub(super) flow_index: ShardedHashIndex,
    pub(super) lanes: Slab<Lane>,
    pub(super) uniques: Slab<Unique>,
    pub(super) unique_index: ShardedHashIndex,
    pub(super) unique_timers: Wheel,
    pub(super) past_attempts: Slab<PastAttempt>,
    pub(super) options: Interner<TaskOptions>,
    pub(super) tags: Interner<Box<[u8]>>,
    pub(super) workers: Interner<Box<str>>,
    /// One more than the highest id of any queue so far: ids are not reused.
    pub(super) next_queue: u32,
    /// Queues that are deleted and still have tasks, or are about to be removed.
    pub(super) deleted_queues: BTreeSet<u32>,
    /// Time of the next age check of a list of ended tasks: queue and state.
    pub(super) retention_checks: BTreeSet<(u64, u32, TaskState)>,
    /// Lists of ended tasks that exceed the retention of their queue, after that was lowered.
    pub(super) oversized_lists: BTreeSet<(u32, TaskState)>,
    /// Tasks that wait for a task here, by its number.
    pub(super) dependents: CowPageMap<BTreeSet<TaskId>>,
    /// Tasks that a task here waits for, by its number.
    pub(super) dependencies: CowPageMap<Vec<TaskId>>,
    pub(super) messages: CowPageMap<Message>,
    pub(super) schedules: BTreeMap<ScheduleKey, Schedule>,
    pub(super) upcoming_ticks: TickQueue,
    pub(super) waiting_ticks: WaitingTicks,
    /// Ended tasks that the callbacks here report, by the callback's number.
    pub(super) callback_subjects: CowPageMap<EndedTask>,
    /// Records that several tasks refer to, by sequence number.
    pub(super) shared_records: CowPageMap<SharedRecord>,
    pub(super) tenants: Tenants,
    /// Events that the partition's driver has not taken yet.
    pub events: StateEvents,
}

impl Default for State {
    fn default() -> Self {
        Self {
            now_ms: 0,
            seed: 0,
            epoch: 0,
            instance: 0,
            grace_until_ms: 0,
            next_number: 1,
            leases_given: 0,
            bytes: 0,
            reserved_callbacks: 0,
            next_message: 1,
            entries: Slab::default(),
            task_index: TaskIndex::default(),
            timers: Wheel::new(0),
            queues: QueueTable::default(),
            flows: Slab::default(),
            flow_index: ShardedHashIndex::default(),
            lanes: Slab::default(),
            uniques: Slab::default(),
            unique_index: ShardedHashIndex::default(),
            unique_timers: Wheel::new(0),
            past_attempts: Slab::default(),
            options: Interner::default(),
            tags: Interner::default(),
            workers: Interner::default(),
            next_queue: 0,
            deleted_queues: BTreeSet::new(),
            retention_checks: BTreeSet::new(),
            oversized_lists: BTreeSet::new(),
            dependents: CowPageMap::default(),
            dependencies: CowPageMap::default(),
            messages: CowPageMap::default(),
            schedules: BTreeMap::new(),
            upcoming_ticks: BTreeSet::new(),
            waiting_ticks: BTreeMap::new(),
            callback_subjects: CowPageMap::default(),
            shared_records: CowPageMap::default(),
            tenants: Tenants::default(),
            events: StateEvents::default(),
        }
    }
}

impl State {
    /// Applies the record `seq` of the log. A replay calls this; the partition's driver calls the
    /// typed methods, and logs the changes.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub fn apply(&mut self, seq: u64, command: &Command<'_>) -> Result<(), Refusal> {
        match command {
            Command::Clock { now_ms, seed } => self.set_clock(*now_ms, *seed),
            Command::Step { by_ms } => self.step_clock(*by_ms),
            Command::Epoch { epoch, instance, grace_ms } => {
                self.begin_epoch(*epoch, *instance, *grace_ms)
            }
            Command::PutQueue { queue, tenant, name, settings } => {
                self.put_queue(*queue, tenant, name, settings)
            }
            Command::SetFlow { queue, paused, draining } => {
                self.set_queue_flags(*queue, *paused, *draining)?
            }
            Command::DeleteQueue { queue } => self.delete_queue(*queue)?,
            Command::Enqueue(task) => drop(self.enqueue(seq, task)?),
            // It frames records of the log and changes nothing by itself.
            Command::Chain { .. } => {}
            Command::Claim { queue, worker, count, lease_ms } => {
                self.claim(*queue, worker, *count, *lease_ms, &mut Vec::new())
            }
            Command::Complete(report) => drop(self.complete(seq, report)?),
            Command::CompleteAttached(held) => drop(self.complete_attached(seq, held)?),
            Command::Fail { report: held, permanent } => drop(self.fail(seq, held, *permanent)?),
            Command::Defer { report: held, delay_ms, mode } => {
                self.defer(seq, held, *delay_ms, *mode)?;
            }
            Command::Heartbeat { report: held, lease_ms } => drop(self.heartbeat(held, *lease_ms)?),
            Command::Cancel { number } => self.cancel(*number)?,
            Command::Requeue { number, key } => self.requeue(*number, *key)?,
            Command::Delete { number } => self.delete(*number)?,
            Command::Purge { queue, states, count } => drop(self.purge(*queue, *states, *count)?),
            Command::Advance { budget } => drop(self.advance(*budget)),
            Command::Await { .. } | Command::Resolve { .. } | Command::Delivered { .. } => {
                self.apply_chain(seq, command);
            }
            Command::PutSchedule(schedule) => self.put_schedule(seq, schedule)?,
            Command::DeleteSchedule { tenant, name } => self.delete_schedule(tenant, name)?,
            Command::PauseSchedule { tenant, name, paused, next_ms } => {
                self.pause_schedule(tenant, name, *paused, *next_ms)?
            }
            Command::Tick { tenant, name, tick_ms, next_ms, tasks } => {
                self.tick(tenant, name, *tick_ms, *next_ms, *tasks)?;
            }
        }
        Ok(())
    }

    /// Sets time and chance for what follows. Time goes back by [`State::step_clock`] alone.
    pub fn set_clock(&mut self, now_ms: u64, seed: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.seed = seed;
    }

    /// The time of the latest clock, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The epoch that began last.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// See [`Command::Epoch`]. One that is not higher than any before has no effect: leases would
    /// be given twice.
    pub fn begin_epoch(&mut self, epoch: u32, instance: u16, grace_ms: u64) {
        if epoch <= self.epoch {
            return;
        }
        if self.epoch == 0 {
            self.instance = instance;
        }
        (self.epoch, self.leases_given) = (epoch, 0);
        self.grace_until_ms = self.now_ms.saturating_add(grace_ms);
        self.resend_awaits();
    }

    /// Checks that a queue accepts new tasks.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`] and [`Refusal::Draining`].
    pub(crate) fn check_intake(&self, queue: u32) -> Result<(), Refusal> {
        if self.queue(queue)?.draining {
            return Err(Refusal::Draining);
        }
        Ok(())
    }

    /// Creates a task whose content is in record `seq`.
    ///
    /// # Errors
    /// [`Refusal`] when the queue accepts no tasks.
    pub fn enqueue(&mut self, seq: u64, task: &Enqueue<'_>) -> Result<EnqueueOutcome, Refusal> {
        self.check_intake(task.queue)?;
        let keys = [task.origin, task.unique];
        if let Some(first) = self.find_made_before(keys) {
            return Ok(EnqueueOutcome::Duplicate(first));
        }
        for (hash, window_ms) in keys.into_iter().flatten() {
            let task = self.next_task_ref(task.shard);
            self.insert_unique(hash, task, window_ms);
        }
        Ok(EnqueueOutcome::Created(self.create_task(seq, task, 0, task.bytes())))
    }

    /// The task that was created under the first of these keys that is remembered.
    pub(crate) fn find_made_before(&self, keys: [Option<(u128, u64)>; 2]) -> Option<TaskRef> {
        let mut keys = keys.into_iter().flatten();
        keys.find_map(|(hash, _)| self.find_unique(hash))
    }

    /// Identity of the next task.
    pub(super) fn next_task_ref(&self, shard: u16) -> TaskRef {
        TaskRef { number: self.next_number, created_ms: self.now_ms, shard }
    }

    /// Creates a task with these flags and those that follow from it. `bytes` is its size in record
    /// `seq`: zero if it shares that record.
    pub(super) fn create_task(
        &mut self,
        seq: u64,
        task: &Enqueue<'_>,
        flags: u16,
        bytes: u32,
    ) -> TaskRef {
        let task_ref = self.next_task_ref(task.shard);
        self.next_number += 1;
        let options = if task.options == TaskOptions::default() {
            0
        } else {
            self.options.acquire(&task.options)
        };
        let tags = match task.tags {
            [] => 0,
            tags => self.tags.acquire(tags),
        };
        let lane = self.acquire_lane(task.queue, task.key, task.priority);
        let mut flags = flags | flag::USED;
        if task.callback {
            flags |= flag::CALLBACK;
        }
        if task.run_at_ms > 0 {
            flags |= flag::RUN_AT;
        }
        let begin_ms = if task.delay_ms > 0 {
            self.now_ms.saturating_add(task.delay_ms)
        } else {
            task.run_at_ms
        };
        let state = match (task.after.is_empty(), begin_ms > self.now_ms) {
            (false, _) => TaskState::Waiting,
            (true, true) => TaskState::Delayed,
            (true, false) => TaskState::Ready,
        };
        let slot = self.entries.insert(Entry {
            number: task_ref.number,
            record: seq,
            created_ms: task_ref.created_ms.into(),
            // Earliest start of a task that waits for others.
            at_ms: begin_ms,
            queue: task.queue,
            lane,
            options,
            tags,
            shard: task.shard,
            bytes,
            priority: task.priority,
            flags,
            state,
            ..Entry::default()
        });
        self.task_index.insert(task_ref.number, slot);
        self.add_task_load(slot);
        match state {
            TaskState::Waiting => {
                self.enter_state(slot, state);
                self.add_dependencies(slot, task.after);
            }
            TaskState::Delayed => self.delay_task(slot, begin_ms),
            _ => self.make_ready(slot, ReadyPosition::Last),
        }
        task_ref
    }
}
