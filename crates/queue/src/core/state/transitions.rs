//! Transitions: the steps that every change of a task consists of.

use super::machine::State;
use super::ready_position::ReadyPosition;
use super::rows::StateChange;
use super::shared_record::RecordOwner;
use crate::core::entry::{TaskState, flag};
use crate::core::lanes;
use crate::core::slab::{NO_SLOT, SlotIndex};

impl State {
    /// Adds a new task, or one that has left its former list, to the list of a state.
    pub(super) fn enter_state(&mut self, slot: SlotIndex, state: TaskState) {
        let entry = self.entries.get_mut(slot);
        entry.state = state;
        if self.events.wants_changes {
            let (task, queue, attempts) = (Self::task_ref(entry), entry.queue, entry.attempts);
            self.events.changes.push(StateChange { task, queue, state: Some(state), attempts });
        }
        let queue = self.entries.get(slot).queue;
        let queue = self.queues.get_mut(queue).expect("a task's queue stays");
        queue.lists[state as usize].push(&mut self.entries, slot);
    }

    /// Removes a task from the list of its state.
    pub(super) fn exit_state(&mut self, slot: SlotIndex) {
        let (queue, state) = {
            let entry = self.entries.get(slot);
            (entry.queue, entry.state)
        };
        let queue = self.queues.get_mut(queue).expect("a task's queue stays");
        queue.lists[state as usize].remove(&mut self.entries, slot);
    }

    /// Delays a task that has no timer and is in no lane until `at_ms`.
    pub(super) fn delay_task(&mut self, slot: SlotIndex, at_ms: u64) {
        self.entries.get_mut(slot).at_ms = at_ms;
        self.timers.insert(&mut self.entries, slot);
        self.enter_state(slot, TaskState::Delayed);
    }

    /// Makes a task ready that has no timer and is in no lane: at the end of its lane, or at its
    /// front if it was returned or held its key, so that the order is kept.
    pub(super) fn make_ready(&mut self, slot: SlotIndex, position: ReadyPosition) {
        let entry = self.entries.get_mut(slot);
        entry.at_ms = self.now_ms;
        entry.clear_flag(flag::RUN_AT);
        let (lane, holds_key) = (entry.lane, entry.has_flag(flag::HOLDS_KEY));
        if holds_key || position == ReadyPosition::First {
            lanes::push_front(&mut self.lanes, &mut self.entries, lane, slot);
        } else {
            lanes::push_back(&mut self.lanes, &mut self.entries, lane, slot);
        }
        self.enter_state(slot, TaskState::Ready);
        self.release_key(slot);
        self.try_enter_ring(lane);
    }

    /// Puts a lane with tasks into its ring, unless its key has enough tasks in flight.
    pub(super) fn try_enter_ring(&mut self, lane: SlotIndex) {
        let row = self.lanes.get(lane);
        if row.in_ring || row.head == NO_SLOT {
            return;
        }
        let flow = self.flows.get(row.flow);
        let queue = self.queues.get_mut(flow.queue);
        let queue = queue.expect("a flow's queue stays");
        let key_concurrency = queue.settings.key_concurrency;
        if flow.key == 0 || key_concurrency == 0 || flow.in_flight < key_concurrency {
            if queue.rings.occupied == 0 {
                self.events.readiness_changes.push(flow.queue);
            }
            queue.rings.push_lane(&mut self.lanes, lane);
        }
    }

    /// Puts every lane of a flow into its ring, where it is allowed.
    pub(super) fn try_enter_rings(&mut self, flow: SlotIndex) {
        let mut lane = self.flows.get(flow).first_lane;
        while lane != NO_SLOT {
            self.try_enter_ring(lane);
            lane = self.lanes.get(lane).sibling;
        }
    }

    /// Releases a task's hold on its key; other lanes of the key may enter their rings.
    pub(super) fn release_key(&mut self, slot: SlotIndex) {
        let entry = self.entries.get_mut(slot);
        if !entry.has_flag(flag::HOLDS_KEY) {
            return;
        }
        entry.clear_flag(flag::HOLDS_KEY);
        let flow = self.lanes.get(entry.lane).flow;
        self.flows.get_mut(flow).in_flight -= 1;
        self.try_enter_rings(flow);
    }

    /// Removes a task's timer, or takes it out of its lane.
    pub(super) fn leave_timer_or_lane(&mut self, slot: SlotIndex) {
        let entry = self.entries.get(slot);
        let lane = entry.lane;
        match entry.state {
            TaskState::Delayed | TaskState::Leased => {
                self.timers.remove(&mut self.entries, slot);
            }
            TaskState::Ready => {
                lanes::remove_task(&mut self.lanes, &mut self.entries, lane, slot);
                self.leave_ring_if_empty(lane);
            }
            _ => {}
        }
    }

    pub(super) fn leave_ring_if_empty(&mut self, lane: SlotIndex) {
        let row = self.lanes.get(lane);
        if row.head != NO_SLOT {
            return;
        }
        let queue = self.flows.get(row.flow).queue;
        let queue = self.queues.get_mut(queue).expect("a flow's queue stays");
        queue.rings.remove_lane(&mut self.lanes, lane);
    }

    /// Ends a task that has left its list and has no timer.
    pub(super) fn end_task(&mut self, slot: SlotIndex, state: TaskState, record: u64) {
        self.release_key(slot);
        let entry = self.entries.get_mut(slot);
        entry.at_ms = self.now_ms;
        entry.set_outcome_record(record);
        let lane = std::mem::replace(&mut entry.lane, NO_SLOT);
        let queue = entry.queue;
        let (has_dependents, has_callback) =
            (entry.has_flag(flag::AWAITED), entry.has_flag(flag::CALLBACK));
        self.leave_flow(lane);
        self.enter_state(slot, state);
        if has_dependents {
            self.notify_dependents(slot, state == TaskState::Completed);
        }
        if has_callback {
            self.release_reserved_callback(slot);
            self.make_callback(slot);
        }
        self.enforce_retention(queue, state);
    }

    /// Deletes an ended task.
    pub(super) fn erase_task(&mut self, slot: SlotIndex) {
        self.exit_state(slot);
        self.subtract_task_load(slot);
        let entry = self.entries.remove(slot);
        if entry.has_flag(flag::SHARES_RECORD) {
            self.release_record(entry.record);
        } else if entry.has_flag(flag::CALLBACK) {
            self.orphan_record(entry.record, RecordOwner::Task(entry.number));
        }
        self.task_index.remove(entry.number);
        self.options.release(entry.options, 1);
        self.tags.release(entry.tags, 1);
        self.workers.release(entry.worker, 1);
        // Their bytes were subtracted with those of the task.
        self.erase_past_attempts(entry.past_attempts);
        if entry.has_flag(flag::IS_CALLBACK) {
            self.callback_subjects.remove(entry.number);
        }
        if entry.has_flag(flag::ATTACHED) {
            self.events.orphaned_attachments.push(Self::task_ref(&entry));
        }
        if self.events.wants_changes {
            self.events.changes.push(StateChange {
                task: Self::task_ref(&entry),
                queue: entry.queue,
                state: None,
                attempts: entry.attempts,
            });
        }
    }
}
