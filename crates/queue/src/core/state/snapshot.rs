//! Snapshots of a partition's state, which are written while it goes on.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::State;
use super::message::Message;
use super::rows::{EndedTask, PastAttempt, QueueTable, Unique};
use super::schedule::{Schedule, ScheduleKey};
use super::shared_record::SharedRecord;
use super::tenants::Tenants;
use crate::core::cow_page_map::CowPageMap;
use crate::core::entry::{Entry, TaskState};
use crate::core::intern::{Interner, Values};
use crate::core::lanes::{Flow, Lane};
use crate::core::slab::{Row, Slab};
use crate::core::task_index::TaskIndex;
use crate::core::wheel::Wheel;
use crate::model::{TaskId, TaskOptions};

/// The whole state of a partition, without its indexes. Taking one costs a small allocation or a
/// reference count per page, and copies of small collections.
#[derive(Clone, Debug)]
pub struct StateSnapshot {
    /// Time of the partition, in Unix milliseconds.
    pub now_ms: u64,
    /// The epoch that began last.
    pub epoch: u32,
    /// Number that tells this log from others.
    pub instance: u16,
    /// Time before which no lease expires, in Unix milliseconds.
    pub grace_until_ms: u64,
    /// Number of the next task.
    pub next_number: u64,
    /// Leases given in this epoch.
    pub leases_given: u64,
    /// Number of the next message.
    pub next_message: u64,
    /// Entries of all tasks.
    pub entries: Slab<Entry>,
    /// Timers of the tasks' entries.
    pub timers: Wheel,
    /// Queues by their ids.
    pub queues: QueueTable,
    /// Flows of all queues.
    pub flows: Slab<Flow>,
    /// Lanes of all flows.
    pub lanes: Slab<Lane>,
    /// Unique keys that are remembered.
    pub uniques: Slab<Unique>,
    /// Timers of the unique keys.
    pub unique_timers: Wheel,
    /// Past attempts of all tasks.
    pub past_attempts: Slab<PastAttempt>,
    /// Options of tasks, by number.
    pub options: Values<TaskOptions>,
    /// Sets of tags, by number.
    pub tags: Values<Box<[u8]>>,
    /// Names of workers, by number.
    pub workers: Values<Box<str>>,
    /// Id of the next queue.
    pub next_queue: u32,
    /// Time of the next age check of a list of ended tasks: queue and state.
    pub retention_checks: BTreeSet<(u64, u32, TaskState)>,
    /// Tasks that wait for a task of this partition, by its number.
    pub dependents: CowPageMap<BTreeSet<TaskId>>,
    /// Tasks that a task of this partition waits for, by its number.
    pub dependencies: CowPageMap<Vec<TaskId>>,
    /// Messages that are not delivered yet.
    pub messages: CowPageMap<Message>,
    /// Schedules by tenant and name.
    pub schedules: BTreeMap<ScheduleKey, Schedule>,
    /// Tasks whose end the callbacks here report.
    pub callback_subjects: CowPageMap<EndedTask>,
    /// Records that several tasks refer to, by sequence number.
    pub shared_records: CowPageMap<SharedRecord>,
    /// Load of each tenant.
    pub tenants: Tenants,
}

impl State {
    /// Takes a snapshot of the present state.
    pub fn take_snapshot(&mut self) -> StateSnapshot {
        StateSnapshot {
            now_ms: self.now_ms,
            epoch: self.epoch,
            instance: self.instance,
            grace_until_ms: self.grace_until_ms,
            next_number: self.next_number,
            leases_given: self.leases_given,
            next_message: self.next_message,
            entries: self.entries.share(),
            timers: self.timers.clone(),
            queues: self.queues.clone(),
            flows: self.flows.share(),
            lanes: self.lanes.share(),
            uniques: self.uniques.share(),
            unique_timers: self.unique_timers.clone(),
            past_attempts: self.past_attempts.share(),
            options: self.options.values().clone(),
            tags: self.tags.values().clone(),
            workers: self.workers.values().clone(),
            next_queue: self.next_queue,
            retention_checks: self.retention_checks.clone(),
            dependents: self.dependents.clone(),
            dependencies: self.dependencies.clone(),
            messages: self.messages.clone(),
            schedules: self.schedules.clone(),
            callback_subjects: self.callback_subjects.clone(),
            shared_records: self.shared_records.clone(),
            tenants: self.tenants.share(),
        }
    }

    /// The state of a snapshot, which behaves exactly as the one that it was taken from.
    pub fn restore(snapshot: StateSnapshot) -> Self {
        let mut state = Self {
            now_ms: snapshot.now_ms,
            epoch: snapshot.epoch,
            instance: snapshot.instance,
            grace_until_ms: snapshot.grace_until_ms,
            next_number: snapshot.next_number,
            leases_given: snapshot.leases_given,
            next_message: snapshot.next_message,
            entries: snapshot.entries,
            timers: snapshot.timers,
            queues: snapshot.queues,
            flows: snapshot.flows,
            lanes: snapshot.lanes,
            uniques: snapshot.uniques,
            unique_timers: snapshot.unique_timers,
            past_attempts: snapshot.past_attempts,
            options: Interner::new(snapshot.options),
            tags: Interner::new(snapshot.tags),
            workers: Interner::new(snapshot.workers),
            next_queue: snapshot.next_queue,
            retention_checks: snapshot.retention_checks,
            dependents: snapshot.dependents,
            dependencies: snapshot.dependencies,
            messages: snapshot.messages,
            schedules: snapshot.schedules,
            callback_subjects: snapshot.callback_subjects,
            shared_records: snapshot.shared_records,
            tenants: snapshot.tenants,
            ..Self::default()
        };
        state.rebuild_indexes();
        state.rebuild_ticks();
        state.rebuild_loads();
        state
    }

    /// Rebuilds all indexes from the tasks.
    fn rebuild_indexes(&mut self) {
        for (_, queue, state) in self.retention_checks.clone() {
            self.set_retention_bit(queue, state, true);
        }
        let ids: Vec<u32> = self.queues.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.refresh_oversized_lists(id));
        let deleted = self.queues.iter().filter(|(_, queue)| queue.deleted);
        self.deleted_queues = deleted.map(|(id, _)| id).collect();
        let entries = (0..self.entries.extent()).zip(self.entries.slots());
        self.task_index = TaskIndex::from_numbers(
            entries.filter_map(|(slot, entry)| Some((entry?.number, slot))),
        );
        for place in 0..self.flows.extent() {
            if !self.flows.get(place).is_free() {
                self.index_flow(place);
            }
        }
        for place in 0..self.uniques.extent() {
            if !self.uniques.get(place).is_free() {
                self.index_unique(place);
            }
        }
    }
}
