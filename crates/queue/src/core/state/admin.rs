//! Operations on queues, and on tasks one by one or by the thousand.

use super::machine::State;
use super::ready_position::ReadyPosition;
use super::rows::Queue;
use crate::core::command::Refusal;
use crate::core::entry::{TaskState, flag};
use crate::core::slab::{NO_SLOT, SlotIndex};
use crate::core::wheel::Links;
use crate::model::{AttemptEnd, QueueSettings};

/// What a purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeResult {
    /// Tasks that were deleted.
    pub tasks: u32,
    /// Whether more tasks match.
    pub has_more: bool,
}

impl State {
    /// Creates a queue, or changes its settings.
    pub fn put_queue(&mut self, id: u32, tenant: &str, name: &str, settings: &QueueSettings) {
        let Some(queue) = self.queues.get_mut(id) else {
            let mut queue = Queue::new(tenant, name, settings.clone(), self.now_ms);
            queue.tenant_slot = self.tenants.acquire(tenant);
            self.next_queue = self.next_queue.max(id.saturating_add(1));
            return self.queues.insert(id, queue);
        };
        let previous = std::mem::replace(&mut queue.settings, settings.clone());
        self.rebuild_retention_checks(id);
        self.refresh_oversized_lists(id);
        if previous.key_concurrency != settings.key_concurrency {
            self.refresh_key_concurrency(id);
        }
    }

    /// After a change of `key_concurrency`: moves lanes into and out of their rings. Lanes enter in
    /// the order of their first tasks.
    fn refresh_key_concurrency(&mut self, queue: u32) {
        let key_concurrency = self.queues[queue].settings.key_concurrency;
        let mut lanes_to_offer = Vec::new();
        for flow in self.flows.slots().flatten() {
            if flow.queue != queue || flow.key == 0 {
                continue;
            }
            let has_capacity = key_concurrency == 0 || flow.in_flight < key_concurrency;
            let mut slot = flow.first_lane;
            while slot != NO_SLOT {
                let lane = self.lanes.get(slot);
                let rings = &mut self.queues.get_mut(queue).expect("found above").rings;
                let sibling = lane.sibling;
                if !has_capacity {
                    rings.remove_lane(&mut self.lanes, slot);
                } else if !lane.in_ring && lane.head != NO_SLOT {
                    lanes_to_offer.push((self.entries.get(lane.head).number, slot));
                }
                slot = sibling;
            }
        }
        lanes_to_offer.sort_unstable();
        for (_, lane) in lanes_to_offer {
            self.try_enter_ring(lane);
        }
    }

    /// Pauses or resumes a queue, and starts or ends its draining.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn set_queue_flags(
        &mut self,
        id: u32,
        paused: bool,
        draining: bool,
    ) -> Result<(), Refusal> {
        self.queue(id)?;
        let queue = self.queues.get_mut(id).expect("found above");
        (queue.paused, queue.draining) = (paused, draining);
        if queue.can_dispatch() {
            self.events.readiness_changes.push(id);
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
        self.deleted_queues.insert(id);
        self.events.readiness_changes.push(id);
        Ok(())
    }

    pub(super) fn remove_queue(&mut self, id: u32) {
        // Keyed flows were removed with their tasks.
        if let Some(flow) = self.find_flow(id, 0) {
            self.remove_flow(flow);
        }
        self.release_tenant(self.queues[id].tenant_slot);
        self.queues.remove(id);
        self.deleted_queues.remove(&id);
        self.retention_checks.retain(|(_, queue, _)| *queue != id);
        self.oversized_lists.retain(|(queue, _)| *queue != id);
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such task or it has ended.
    pub fn cancel(&mut self, number: u64) -> Result<(), Refusal> {
        let slot = self.slot_of(number).ok_or(Refusal::TaskUnknown)?;
        let state = self.entries.get(slot).state;
        if state.has_ended() {
            return Err(Refusal::WrongState(state));
        }
        self.cancel_task(slot, 0);
        Ok(())
    }

    /// Cancels a task; `reason` is the record that caused it, zero when a caller cancelled it.
    pub(super) fn cancel_task(&mut self, slot: SlotIndex, reason: u64) {
        self.leave_timer_or_lane(slot);
        match self.entries.get(slot).state {
            TaskState::Leased => self.lose_lease(slot, AttemptEnd::Cancelled),
            TaskState::Waiting => self.remove_dependencies(slot),
            _ => {}
        }
        self.exit_state(slot);
        self.end_task(slot, TaskState::Cancelled, reason);
    }

    /// Requeues a dead or cancelled task, with its ordering key's hash.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such task or it is in another state.
    pub fn requeue(&mut self, number: u64, key: u128) -> Result<(), Refusal> {
        let slot = self.slot_of(number).ok_or(Refusal::TaskUnknown)?;
        let entry = self.entries.get(slot);
        if !matches!(entry.state, TaskState::Dead | TaskState::Cancelled) {
            return Err(Refusal::WrongState(entry.state));
        }
        let (queue, priority) = (entry.queue, entry.priority);
        self.queue(queue)?;
        self.exit_state(slot);
        let lane = self.acquire_lane(queue, key, priority);
        let entry = self.entries.get_mut(slot);
        entry.links = Links::default();
        entry.lane = lane;
        entry.attempts = 0;
        entry.token = 0;
        if entry.has_flag(flag::CALLBACK) {
            self.reserve_callback(slot);
        }
        self.make_ready(slot, ReadyPosition::Last);
        Ok(())
    }

    /// Deletes a task in any state except one that a worker holds.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such task or a worker holds it.
    pub fn delete(&mut self, number: u64) -> Result<(), Refusal> {
        let slot = self.slot_of(number).ok_or(Refusal::TaskUnknown)?;
        if self.entries.get(slot).state == TaskState::Leased {
            return Err(Refusal::WrongState(TaskState::Leased));
        }
        self.remove_task(slot);
        Ok(())
    }

    /// Deletes the oldest tasks of a queue in the states whose bits are set, except leased ones.
    ///
    /// # Errors
    /// [`Refusal::QueueUnknown`].
    pub fn purge(&mut self, id: u32, states: u8, count: u32) -> Result<PurgeResult, Refusal> {
        self.queue(id)?;
        let selected_states = TaskState::ALL
            .into_iter()
            .filter(|state| *state != TaskState::Leased && states >> *state as u8 & 1 == 1);
        let mut tasks = 0;
        for state in selected_states {
            loop {
                let slot = self.queues[id].lists[state as usize].head;
                if slot == NO_SLOT {
                    break;
                }
                if tasks == count {
                    return Ok(PurgeResult { tasks, has_more: true });
                }
                self.remove_task(slot);
                tasks += 1;
            }
        }
        Ok(PurgeResult { tasks, has_more: false })
    }

    /// Deletes a task with everything that refers to it. Tasks that wait for it are cancelled.
    pub(super) fn remove_task(&mut self, slot: SlotIndex) {
        let entry = self.entries.get(slot);
        let (state, lane) = (entry.state, entry.lane);
        if !state.has_ended() {
            self.leave_timer_or_lane(slot);
            match state {
                TaskState::Leased => self.lose_lease(slot, AttemptEnd::Cancelled),
                TaskState::Waiting => self.remove_dependencies(slot),
                _ => {}
            }
            self.release_key(slot);
            self.leave_flow(lane);
            let entry = self.entries.get(slot);
            let (has_dependents, has_callback) =
                (entry.has_flag(flag::AWAITED), entry.has_flag(flag::CALLBACK));
            if has_dependents {
                self.notify_dependents(slot, false);
            }
            if has_callback {
                self.release_reserved_callback(slot);
            }
        }
        self.erase_task(slot);
    }
}
