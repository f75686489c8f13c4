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
    pub leases: u64,
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
    pub pasts: Slab<PastAttempt>,
    /// Options of tasks, by number.
    pub options: Values<TaskOptions>,
    /// Sets of tags, by number.
    pub tags: Values<Box<[u8]>>,
    /// Names of workers, by number.
    pub workers: Values<Box<str>>,
    /// Id of the next queue.
    pub next_queue: u32,
    /// Time of the next age check of a list of ended tasks: queue and state.
    pub retentions: BTreeSet<(u64, u32, TaskState)>,
    /// Tasks that wait for a task of this partition, by its number.
    pub awaited: CowPageMap<BTreeSet<TaskId>>,
    /// Tasks that a task of this partition waits for, by its number.
    pub waits: CowPageMap<Vec<TaskId>>,
    /// Messages that are not delivered yet.
    pub messages: CowPageMap<Message>,
    /// Schedules by tenant and name.
    pub schedules: BTreeMap<ScheduleKey, Schedule>,
    /// Tasks whose end the callbacks here report.
    pub callbacks: CowPageMap<EndedTask>,
    /// Records that several tasks refer to, by sequence number.
    pub shared: CowPageMap<SharedRecord>,
    /// Load of each tenant.
    pub tenants: Tenants,
}

impl State {
    /// Takes a snapshot of the present state.
    pub fn image(&mut self) -> StateSnapshot {
        StateSnapshot {
            now_ms: self.now_ms,
            epoch: self.epoch,
            instance: self.instance,
            grace_until_ms: self.grace_until_ms,
            next_number: self.next_number,
            leases: self.leases,
            next_message: self.next_message,
            entries: self.entries.share(),
            timers: self.timers.clone(),
            queues: self.queues.clone(),
            flows: self.flows.share(),
            lanes: self.lanes.share(),
            uniques: self.uniques.share(),
            unique_timers: self.unique_timers.clone(),
            pasts: self.pasts.share(),
            options: self.options.values().clone(),
            tags: self.tags.values().clone(),
            workers: self.workers.values().clone(),
            next_queue: self.next_queue,
            retentions: self.retentions.clone(),
            awaited: self.awaited.clone(),
            waits: self.waits.clone(),
            messages: self.messages.clone(),
            schedules: self.schedules.clone(),
            callbacks: self.callbacks.clone(),
            shared: self.shared.clone(),
            tenants: self.tenants.share(),
        }
    }

    /// The state of a snapshot, which behaves exactly as the one that it was taken from.
    pub fn restore(image: StateSnapshot) -> Self {
        let mut state = Self {
            now_ms: image.now_ms,
            epoch: image.epoch,
            instance: image.instance,
            grace_until_ms: image.grace_until_ms,
            next_number: image.next_number,
            leases: image.leases,
            next_message: image.next_message,
            entries: image.entries,
            timers: image.timers,
            queues: image.queues,
            flows: image.flows,
            lanes: image.lanes,
            uniques: image.uniques,
            unique_timers: image.unique_timers,
            pasts: image.pasts,
            options: Interner::new(image.options),
            tags: Interner::new(image.tags),
            workers: Interner::new(image.workers),
            next_queue: image.next_queue,
            retentions: image.retentions,
            awaited: image.awaited,
            waits: image.waits,
            messages: image.messages,
            schedules: image.schedules,
            callbacks: image.callbacks,
            shared: image.shared,
            tenants: image.tenants,
            ..Self::default()
        };
        state.index_all();
        state.index_ticks();
        state.count_load();
        state
    }

    /// Rebuilds all indexes from the tasks.
    fn index_all(&mut self) {
        for (_, queue, state) in self.retentions.clone() {
            self.note_watched(queue, state, true);
        }
        let ids: Vec<u32> = self.queues.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.note_crowded(id));
        let leaving = self.queues.iter().filter(|(_, queue)| queue.deleted);
        self.leaving = leaving.map(|(id, _)| id).collect();
        let entries = (0..self.entries.extent()).zip(self.entries.places());
        self.numbers =
            TaskIndex::of(entries.filter_map(|(place, entry)| Some((entry?.number, place))));
        for place in 0..self.flows.extent() {
            if !self.flows.get(place).is_free() {
                self.note_flow(place);
            }
        }
        for place in 0..self.uniques.extent() {
            if !self.uniques.get(place).is_free() {
                self.note_unique(place);
            }
        }
    }
}
