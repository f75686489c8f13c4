//! Operations on queues, and on tasks one by one or by the thousand.

use super::machine::State;
use super::ready_position::ReadyPosition;
use super::rows::Queue;
use crate::core::command::Refusal;
use crate::core::entry::{TaskState, flag};
use crate::core::slab::{NOWHERE, SlotIndex};
use crate::core::wheel::Links;
use crate::model::{AttemptEnd, QueueSettings};

/// What a purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeResult {
    /// Tasks that were deleted.
    pub tasks: u32,
    /// Whether more tasks match.
    pub more: bool,
}

impl State {
    /// Creates a queue, or changes its settings.
    pub fn put_queue(&mut self, id: u32, tenant: &str, name: &str, settings: &QueueSettings) {
        let Some(queue) = self.queues.get_mut(id) else {
            let mut queue = Queue::new(tenant, name, settings.clone(), self.now_ms);
            queue.tenant_place = self.tenants.acquire(tenant);
            self.next_queue = self.next_queue.max(id.saturating_add(1));
            return self.queues.insert(id, queue);
        };
        let before = std::mem::replace(&mut queue.settings, settings.clone());
        self.watch_ages(id);
        self.note_crowded(id);
        if before.key_concurrency != settings.key_concurrency {
            self.reconsider_keys(id);
        }
    }

    /// After a change of `key_concurrency`: moves lanes into and out of their rings. Lanes enter in
    /// the order of their first tasks.
    fn reconsider_keys(&mut self, queue: u32) {
        let most = self.queues[queue].settings.key_concurrency;
        let mut offered = Vec::new();
        for flow in self.flows.places().flatten() {
            if flow.queue != queue || flow.key == 0 {
                continue;
            }
            let may_begin = most == 0 || flow.under_way < most;
            let mut place = flow.lanes;
            while place != NOWHERE {
                let lane = self.lanes.get(place);
                let rings = &mut self.queues.get_mut(queue).expect("found above").rings;
                let sibling = lane.sibling;
                if !may_begin {
                    rings.leave(&mut self.lanes, place);
                } else if !lane.in_ring && lane.head != NOWHERE {
                    offered.push((self.entries.get(lane.head).number, place));
                }
                place = sibling;
            }
        }
        offered.sort_unstable();
        for (_, lane) in offered {
            self.offer(lane);
        }
    }

    /// Pauses or resumes a queue, and starts or ends its draining.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn set_flow(&mut self, id: u32, paused: bool, draining: bool) -> Result<(), Refusal> {
        self.queue(id)?;
        let queue = self.queues.get_mut(id).expect("found above");
        (queue.paused, queue.draining) = (paused, draining);
        if queue.has_turn() {
            self.news.turned.push(id);
        }
        Ok(())
    }

    /// Marks a queue as deleted; [`State::advance`] deletes its tasks.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn delete_queue(&mut self, id: u32) -> Result<(), Refusal> {
        self.queue(id)?;
        self.queues.get_mut(id).expect("found above").deleted = true;
        self.leaving.insert(id);
        self.news.turned.push(id);
        Ok(())
    }

    pub(super) fn forget_queue(&mut self, id: u32) {
        // Keyed flows were removed with their tasks.
        if let Some(flow) = self.flow_of(id, 0) {
            self.forget_flow(flow);
        }
        self.release_tenant(self.queues[id].tenant_place);
        self.queues.remove(id);
        self.leaving.remove(&id);
        self.retentions.retain(|(_, queue, _)| *queue != id);
        self.crowded.retain(|(queue, _)| *queue != id);
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such task or it has ended.
    pub fn cancel(&mut self, number: u64) -> Result<(), Refusal> {
        let place = self.place_of(number).ok_or(Refusal::TaskUnknown)?;
        let state = self.entries.get(place).state;
        if state.has_ended() {
            return Err(Refusal::WrongState(state));
        }
        self.cancel_at(place, 0);
        Ok(())
    }

    /// Cancels a task; `reason` is the record that caused it, zero when a caller cancelled it.
    pub(super) fn cancel_at(&mut self, place: SlotIndex, reason: u64) {
        self.detach(place);
        match self.entries.get(place).state {
            TaskState::Leased => self.lose_lease(place, AttemptEnd::Cancelled),
            TaskState::Waiting => self.stop_waiting(place),
            _ => {}
        }
        self.exit(place);
        self.end(place, TaskState::Cancelled, reason);
    }

    /// Requeues a dead or cancelled task, with its ordering key's hash.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such task or it is in another state.
    pub fn requeue(&mut self, number: u64, key: u128) -> Result<(), Refusal> {
        let place = self.place_of(number).ok_or(Refusal::TaskUnknown)?;
        let entry = self.entries.get(place);
        if !matches!(entry.state, TaskState::Dead | TaskState::Cancelled) {
            return Err(Refusal::WrongState(entry.state));
        }
        let (queue, priority) = (entry.queue, entry.priority);
        self.queue(queue)?;
        self.exit(place);
        let lane = self.lane_for(queue, key, priority);
        let entry = self.entries.get_mut(place);
        entry.links = Links::default();
        entry.lane = lane;
        entry.attempts = 0;
        entry.token = 0;
        if entry.has(flag::CALLBACK) {
            self.promise_callback(place);
        }
        self.make_ready(place, ReadyPosition::Last);
        Ok(())
    }

    /// Deletes a task in any state except one that a worker holds.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such task or a worker holds it.
    pub fn delete(&mut self, number: u64) -> Result<(), Refusal> {
        let place = self.place_of(number).ok_or(Refusal::TaskUnknown)?;
        if self.entries.get(place).state == TaskState::Leased {
            return Err(Refusal::WrongState(TaskState::Leased));
        }
        self.remove_task(place);
        Ok(())
    }

    /// Deletes the oldest tasks of a queue in the states whose bits are set, except leased ones.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn purge(&mut self, id: u32, states: u8, count: u32) -> Result<PurgeResult, Refusal> {
        self.queue(id)?;
        let wanted = TaskState::ALL
            .into_iter()
            .filter(|state| *state != TaskState::Leased && states >> *state as u8 & 1 == 1);
        let mut tasks = 0;
        for state in wanted {
            loop {
                let place = self.queues[id].lists[state as usize].head;
                if place == NOWHERE {
                    break;
                }
                if tasks == count {
                    return Ok(PurgeResult { tasks, more: true });
                }
                self.remove_task(place);
                tasks += 1;
            }
        }
        Ok(PurgeResult { tasks, more: false })
    }

    /// Deletes a task with everything that refers to it. Tasks that wait for it are cancelled.
    pub(super) fn remove_task(&mut self, place: SlotIndex) {
        let entry = self.entries.get(place);
        let (state, lane) = (entry.state, entry.lane);
        if !state.has_ended() {
            self.detach(place);
            match state {
                TaskState::Leased => self.lose_lease(place, AttemptEnd::Cancelled),
                TaskState::Waiting => self.stop_waiting(place),
                _ => {}
            }
            self.let_key_go(place);
            self.leave_flow(lane);
            let entry = self.entries.get(place);
            let (awaited, callback) = (entry.has(flag::AWAITED), entry.has(flag::CALLBACK));
            if awaited {
                self.tell_waiting(place, false);
            }
            if callback {
                self.withdraw_promise(place);
            }
        }
        self.erase(place);
    }
}
