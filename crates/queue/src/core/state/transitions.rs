//! Transitions: the steps that every change of a task consists of.

use super::machine::State;
use super::ready_position::ReadyPosition;
use super::rows::StateChange;
use super::shared_record::RecordOwner;
use crate::core::entry::{TaskState, flag};
use crate::core::lanes;
use crate::core::slab::{NOWHERE, SlotIndex};

impl State {
    /// Adds a new task, or one that has left its former list, to the list of a state.
    pub(super) fn enter(&mut self, place: SlotIndex, state: TaskState) {
        let entry = self.entries.get_mut(place);
        entry.state = state;
        if self.news.wanted {
            let (task, queue, attempts) = (Self::reference(entry), entry.queue, entry.attempts);
            self.news.changes.push(StateChange {
                task,
                queue,
                state: Some(state),
                attempts,
            });
        }
        let queue = self.entries.get(place).queue;
        let queue = self.queues.get_mut(queue).expect("a task's queue stays");
        queue.lists[state as usize].push(&mut self.entries, place);
    }

    /// Removes a task from the list of its state.
    pub(super) fn exit(&mut self, place: SlotIndex) {
        let (queue, state) = {
            let entry = self.entries.get(place);
            (entry.queue, entry.state)
        };
        let queue = self.queues.get_mut(queue).expect("a task's queue stays");
        queue.lists[state as usize].remove(&mut self.entries, place);
    }

    /// Delays a task that has no timer and is in no lane until `at_ms`.
    pub(super) fn delay(&mut self, place: SlotIndex, at_ms: u64) {
        self.entries.get_mut(place).at_ms = at_ms;
        self.timers.insert(&mut self.entries, place);
        self.enter(place, TaskState::Delayed);
    }

    /// Makes a task ready that has no timer and is in no lane: at the end of its lane, or at its
    /// front if it was returned or held its key, so that the order is kept.
    pub(super) fn make_ready(&mut self, place: SlotIndex, turn: ReadyPosition) {
        let entry = self.entries.get_mut(place);
        entry.at_ms = self.now_ms;
        entry.clear(flag::RUN_AT);
        let (lane, held) = (entry.lane, entry.has(flag::HOLDS_KEY));
        if held || turn == ReadyPosition::First {
            lanes::push_front(&mut self.lanes, &mut self.entries, lane, place);
        } else {
            lanes::push_back(&mut self.lanes, &mut self.entries, lane, place);
        }
        self.enter(place, TaskState::Ready);
        self.let_key_go(place);
        self.offer(lane);
    }

    /// Puts a lane with tasks into its ring, unless its key has enough tasks in flight.
    pub(super) fn offer(&mut self, lane: SlotIndex) {
        let row = self.lanes.get(lane);
        if row.in_ring || row.head == NOWHERE {
            return;
        }
        let flow = self.flows.get(row.flow);
        let queue = self.queues.get_mut(flow.queue);
        let queue = queue.expect("a flow's queue stays");
        let most = queue.settings.key_concurrency;
        if flow.key == 0 || most == 0 || flow.under_way < most {
            if queue.rings.occupied == 0 {
                self.news.turned.push(flow.queue);
            }
            queue.rings.enter(&mut self.lanes, lane);
        }
    }

    /// Puts every lane of a flow into its ring, where it is allowed.
    pub(super) fn offer_all(&mut self, flow: SlotIndex) {
        let mut lane = self.flows.get(flow).lanes;
        while lane != NOWHERE {
            self.offer(lane);
            lane = self.lanes.get(lane).sibling;
        }
    }

    /// Releases a task's hold on its key; other lanes of the key may enter their rings.
    pub(super) fn let_key_go(&mut self, place: SlotIndex) {
        let entry = self.entries.get_mut(place);
        if !entry.has(flag::HOLDS_KEY) {
            return;
        }
        entry.clear(flag::HOLDS_KEY);
        let flow = self.lanes.get(entry.lane).flow;
        self.flows.get_mut(flow).under_way -= 1;
        self.offer_all(flow);
    }

    /// Removes a task's timer, or takes it out of its lane.
    pub(super) fn detach(&mut self, place: SlotIndex) {
        let entry = self.entries.get(place);
        let lane = entry.lane;
        match entry.state {
            TaskState::Delayed | TaskState::Leased => {
                self.timers.remove(&mut self.entries, place);
            }
            TaskState::Ready => {
                lanes::take_out(&mut self.lanes, &mut self.entries, lane, place);
                self.leave_empty_ring(lane);
            }
            _ => {}
        }
    }

    pub(super) fn leave_empty_ring(&mut self, lane: SlotIndex) {
        let row = self.lanes.get(lane);
        if row.head != NOWHERE {
            return;
        }
        let queue = self.flows.get(row.flow).queue;
        let queue = self.queues.get_mut(queue).expect("a flow's queue stays");
        queue.rings.leave(&mut self.lanes, lane);
    }

    /// Ends a task that has left its list and has no timer.
    pub(super) fn end(&mut self, place: SlotIndex, state: TaskState, record: u64) {
        self.let_key_go(place);
        let entry = self.entries.get_mut(place);
        entry.at_ms = self.now_ms;
        entry.note_end(record);
        let lane = std::mem::replace(&mut entry.lane, NOWHERE);
        let queue = entry.queue;
        let (awaited, callback) = (entry.has(flag::AWAITED), entry.has(flag::CALLBACK));
        self.leave_flow(lane);
        self.enter(place, state);
        if awaited {
            self.tell_waiting(place, state == TaskState::Completed);
        }
        if callback {
            self.withdraw_promise(place);
            self.make_callback(place);
        }
        self.keep_within(queue, state);
    }

    /// Deletes an ended task.
    pub(super) fn erase(&mut self, place: SlotIndex) {
        self.exit(place);
        self.discount_task(place);
        let entry = self.entries.remove(place);
        if entry.has(flag::SHARES_RECORD) {
            self.release_record(entry.record);
        } else if entry.has(flag::CALLBACK) {
            self.orphan_record(entry.record, RecordOwner::Task(entry.number));
        }
        self.numbers.remove(entry.number);
        self.options.release(entry.options, 1);
        self.tags.release(entry.tags, 1);
        self.workers.release(entry.worker, 1);
        // Their bytes were subtracted with those of the task.
        self.erase_pasts(entry.past);
        if entry.has(flag::IS_CALLBACK) {
            self.callbacks.remove(entry.number);
        }
        if entry.has(flag::ATTACHED) {
            self.news.detached.push(Self::reference(&entry));
        }
        if self.news.wanted {
            self.news.changes.push(StateChange {
                task: Self::reference(&entry),
                queue: entry.queue,
                state: None,
                attempts: entry.attempts,
            });
        }
    }
}
