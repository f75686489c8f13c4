//! Indexes: tasks by number, unique keys by hash, flows by ordering key.

use super::machine::State;
use super::rows::{Queue, TaskRef, Unique};
use crate::core::command::Refusal;
use crate::core::entry::Entry;
use crate::core::lanes::{Flow, Lane};
use crate::core::retry::mix;
use crate::core::slab::{NOWHERE, SlotIndex};
use crate::core::wheel::Links;
use crate::model::TaskId;

impl State {
    pub(super) fn queue(&self, queue: u32) -> Result<&Queue, Refusal> {
        let found = self.queues.get(queue).filter(|queue| !queue.deleted);
        found.ok_or(Refusal::QueueUnknown)
    }

    /// The slot of the task with this number.
    pub fn place_of(&self, number: u64) -> Option<SlotIndex> {
        self.numbers.get(number)
    }

    /// The slot of the task with this id.
    pub fn find(&self, id: TaskId) -> Option<SlotIndex> {
        let place = self.place_of(id.number())?;
        (self.id_of(place) == id).then_some(place)
    }

    /// The id of the task in a slot.
    pub fn id_of(&self, place: SlotIndex) -> TaskId {
        self.id(Self::reference(self.entries.get(place)))
    }

    /// The id of a task of this partition.
    pub fn id(&self, task: TaskRef) -> TaskId {
        TaskId::new(task.created_ms, task.shard, self.instance, task.number)
    }

    pub(super) fn reference(entry: &Entry) -> TaskRef {
        TaskRef {
            number: entry.number,
            created_ms: entry.created_ms.get(),
            shard: entry.shard,
        }
    }

    // ---- Unique keys. ----

    pub(super) fn remembered(&self, hash: u128) -> Option<TaskRef> {
        let same = |place| self.uniques.get(place).hash == hash;
        let found = self.unique_places.find(hash as u64, same)?;
        let unique = self.uniques.get(found);
        (unique.until_ms > self.now_ms).then_some(unique.task)
    }

    pub(super) fn remember(&mut self, hash: u128, task: TaskRef, window_ms: u64) {
        // An expired one may still wait for its timer.
        let same = |place| self.uniques.get(place).hash == hash;
        if let Some(place) = self.unique_places.find(hash as u64, same) {
            self.unique_timers.remove(&mut self.uniques, place);
            self.forget_unique(place);
        }
        let place = self.uniques.insert(Unique {
            hash,
            task,
            until_ms: self.now_ms.saturating_add(window_ms),
            links: Links::default(),
            used: true,
        });
        self.unique_timers.insert(&mut self.uniques, place);
        self.note_unique(place);
    }

    pub(super) fn note_unique(&mut self, place: SlotIndex) {
        let uniques = &self.uniques;
        self.unique_places
            .insert(place, |place| uniques.get(place).hash as u64);
    }

    pub(super) fn forget_unique(&mut self, place: SlotIndex) {
        let hash = self.uniques.remove(place).hash as u64;
        self.unique_places.remove(hash, place);
    }

    // ---- Flows and lanes. ----

    /// The lane for a new task, which is counted in its flow.
    pub(super) fn lane_for(&mut self, queue: u32, key: u128, priority: u8) -> SlotIndex {
        let flow = self.flow_of(queue, key).unwrap_or_else(|| {
            let place = self.flows.insert(Flow::new(queue, key));
            self.note_flow(place);
            place
        });
        self.flows.get_mut(flow).tasks += 1;
        let mut lane = self.flows.get(flow).lanes;
        while lane != NOWHERE && self.lanes.get(lane).priority != priority {
            lane = self.lanes.get(lane).sibling;
        }
        if lane == NOWHERE {
            let sibling = self.flows.get(flow).lanes;
            lane = self.lanes.insert(Lane {
                flow,
                priority,
                sibling,
                ..Lane::default()
            });
            self.flows.get_mut(flow).lanes = lane;
        }
        lane
    }

    pub(super) fn flow_of(&self, queue: u32, key: u128) -> Option<SlotIndex> {
        let same = |place| {
            let flow = self.flows.get(place);
            flow.key == key && flow.queue == queue
        };
        self.flow_places.find(Self::flow_hash(queue, key), same)
    }

    pub(super) fn flow_hash(queue: u32, key: u128) -> u64 {
        mix(key as u64, u64::from(queue))
    }

    pub(super) fn note_flow(&mut self, place: SlotIndex) {
        let flows = &self.flows;
        self.flow_places.insert(place, |place| {
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
        self.forget_flow(flow);
    }

    pub(super) fn forget_flow(&mut self, flow: SlotIndex) {
        let row = self.flows.remove(flow);
        self.flow_places
            .remove(Self::flow_hash(row.queue, row.key), flow);
        let mut lane = row.lanes;
        while lane != NOWHERE {
            if let Some(queue) = self.queues.get_mut(row.queue) {
                queue.rings.leave(&mut self.lanes, lane);
            }
            lane = self.lanes.remove(lane).sibling;
        }
    }
}
