//! Indexes: tasks by number, unique keys by hash, flows by ordering key.

use super::machine::State;
use super::rows::{Queue, TaskRef, Unique};
use crate::core::command::Refusal;
use crate::core::entry::Entry;
use crate::core::lanes::{Flow, Lane};
use crate::core::retry::mix;
use crate::core::slab::{NO_SLOT, SlotIndex};
use crate::core::wheel::Links;
use crate::model::TaskId;

impl State {
    pub(super) fn queue(&self, queue: u32) -> Result<&Queue, Refusal> {
        let found = self.queues.get(queue).filter(|queue| !queue.deleted);
        found.ok_or(Refusal::QueueUnknown)
    }

    /// The slot of the task with this number.
    pub fn slot_of(&self, number: u64) -> Option<SlotIndex> {
        self.task_index.get(number)
    }

    /// The slot of the task with this id.
    pub fn find_task(&self, id: TaskId) -> Option<SlotIndex> {
        let slot = self.slot_of(id.number())?;
        (self.id_at(slot) == id).then_some(slot)
    }

    /// The id of the task in a slot.
    pub fn id_at(&self, slot: SlotIndex) -> TaskId {
        self.task_id(Self::task_ref(self.entries.get(slot)))
    }

    /// The id of a task of this partition.
    pub fn task_id(&self, task: TaskRef) -> TaskId {
        TaskId::new(task.created_ms, task.shard, self.instance, task.number)
    }

    pub(super) fn task_ref(entry: &Entry) -> TaskRef {
        TaskRef { number: entry.number, created_ms: entry.created_ms.get(), shard: entry.shard }
    }

    // ---- Unique keys. ----

    pub(super) fn find_unique(&self, hash: u128) -> Option<TaskRef> {
        let is_match = |slot| self.uniques.get(slot).hash == hash;
        let found = self.unique_index.find(hash as u64, is_match)?;
        let unique = self.uniques.get(found);
        (unique.until_ms > self.now_ms).then_some(unique.task)
    }

    pub(super) fn insert_unique(&mut self, hash: u128, task: TaskRef, window_ms: u64) {
        // An expired one may still wait for its timer.
        let is_match = |slot| self.uniques.get(slot).hash == hash;
        if let Some(place) = self.unique_index.find(hash as u64, is_match) {
            self.unique_timers.remove(&mut self.uniques, place);
            self.remove_unique(place);
        }
        let place = self.uniques.insert(Unique {
            hash,
            task,
            until_ms: self.now_ms.saturating_add(window_ms),
            links: Links::default(),
            used: true,
        });
        self.unique_timers.insert(&mut self.uniques, place);
        self.index_unique(place);
    }

    pub(super) fn index_unique(&mut self, slot: SlotIndex) {
        let uniques = &self.uniques;
        self.unique_index.insert(slot, |place| uniques.get(place).hash as u64);
    }

    pub(super) fn remove_unique(&mut self, slot: SlotIndex) {
        let hash = self.uniques.remove(slot).hash as u64;
        self.unique_index.remove(hash, slot);
    }

    // ---- Flows and lanes. ----

    /// The lane for a new task, which is counted in its flow.
    pub(super) fn acquire_lane(&mut self, queue: u32, key: u128, priority: u8) -> SlotIndex {
        let flow = self.find_flow(queue, key).unwrap_or_else(|| {
            let slot = self.flows.insert(Flow::new(queue, key));
            self.index_flow(slot);
            slot
        });
        self.flows.get_mut(flow).tasks += 1;
        let mut lane = self.flows.get(flow).first_lane;
        while lane != NO_SLOT && self.lanes.get(lane).priority != priority {
            lane = self.lanes.get(lane).sibling;
        }
        if lane == NO_SLOT {
            let sibling = self.flows.get(flow).first_lane;
            lane = self.lanes.insert(Lane { flow, priority, sibling, ..Lane::default() });
            self.flows.get_mut(flow).first_lane = lane;
        }
        lane
    }

    pub(super) fn find_flow(&self, queue: u32, key: u128) -> Option<SlotIndex> {
        let is_match = |slot| {
            let flow = self.flows.get(slot);
            flow.key == key && flow.queue == queue
        };
        self.flow_index.find(Self::flow_hash(queue, key), is_match)
    }

    pub(super) fn flow_hash(queue: u32, key: u128) -> u64 {
        mix(key as u64, u64::from(queue))
    }

    pub(super) fn index_flow(&mut self, slot: SlotIndex) {
        let flows = &self.flows;
        self.flow_index.insert(slot, |place| {
            let flow = flows.get(place);
            Self::flow_hash(flow.queue, flow.key)
        });
    }

    /// Counts a task of the flow as ended; a flow without tasks is removed.
    pub(super) fn leave_flow(&mut self, lane: SlotIndex) {
        let flow = self.lanes.get(lane).flow;
        let row = self.flows.get_mut(flow);
        row.tasks -= 1;
        // The flow of tasks without a key is kept as long as the queue, since such tasks come and
        // go all the time.
        if row.tasks > 0 || row.key == 0 {
            return;
        }
        self.remove_flow(flow);
    }

    pub(super) fn remove_flow(&mut self, flow: SlotIndex) {
        let row = self.flows.remove(flow);
        self.flow_index.remove(Self::flow_hash(row.queue, row.key), flow);
        let mut lane = row.first_lane;
        while lane != NO_SLOT {
            if let Some(queue) = self.queues.get_mut(row.queue) {
                queue.rings.remove_lane(&mut self.lanes, lane);
            }
            lane = self.lanes.remove(lane).sibling;
        }
    }
}
