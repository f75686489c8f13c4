//! Timers: delays, leases, windows of unique keys, retention, deleted queues.

use super::machine::State;
use super::ready_position::ReadyPosition;
use crate::core::entry::TaskState;
use crate::core::slab::NO_SLOT;
use crate::core::wheel::WheelStep;

impl State {
    /// Processes what is due in at most `budget` steps; `true` when some is left.
    pub fn advance(&mut self, budget: u32) -> bool {
        let mut remaining = budget;
        while remaining > 0 {
            match self.timers.step(&mut self.entries, self.now_ms) {
                WheelStep::Due(slot) if self.entries.get(slot).state == TaskState::Leased => {
                    self.expire_lease(slot);
                }
                WheelStep::Due(place) => {
                    self.exit_state(place);
                    self.make_ready(place, ReadyPosition::Last);
                }
                WheelStep::Moved => {}
                WheelStep::Idle => break,
            }
            remaining -= 1;
        }
        while remaining > 0 {
            match self.unique_timers.step(&mut self.uniques, self.now_ms) {
                WheelStep::Due(place) => self.remove_unique(place),
                WheelStep::Moved => {}
                WheelStep::Idle => break,
            }
            remaining -= 1;
        }
        self.erase_expired_tasks(&mut remaining);
        self.erase_excess_tasks(&mut remaining);
        self.erase_deleted_queues(&mut remaining);
        remaining == 0 && self.next_due_ms().is_some_and(|due| due <= self.now_ms)
    }

    /// When [`State::advance`] has something to do, in Unix milliseconds, or earlier.
    pub fn next_due_ms(&self) -> Option<u64> {
        [
            self.timers.next_ms(),
            self.unique_timers.next_ms(),
            self.retention_checks.first().map(|(due, ..)| *due),
            self.deleted_queues.first().map(|_| self.now_ms),
            self.oversized_lists.first().map(|_| self.now_ms),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Enforces the count of a list of ended tasks, and schedules a check of their age.
    pub(super) fn enforce_retention(&mut self, queue: u32, state: TaskState) {
        let row = &self.queues[queue];
        let Some(retention) = row.settings.retention(state) else {
            return;
        };
        let (len, head) = (row.lists[state as usize].len, row.lists[state as usize].head);
        if retention.age_ms > 0 && !row.has_retention_check(state) {
            let ended_ms = self.entries.get(head).at_ms;
            self.add_retention_check(ended_ms.saturating_add(retention.age_ms), queue, state);
        }
        if retention.count > 0 && len > retention.count {
            // One for the one that was added: any further excess is removed step by step.
            let oldest = self.queues[queue].lists[state as usize].head;
            self.erase_task(oldest);
        }
    }

    /// Number of ended tasks of a queue beyond its retention.
    fn excess_tasks(&self, queue: u32, state: TaskState) -> u64 {
        let row = &self.queues[queue];
        match row.settings.retention(state).map_or(0, |retention| retention.count) {
            0 => 0,
            count => row.lists[state as usize].len.saturating_sub(count),
        }
    }

    /// Determines which lists of a queue exceed its present retention.
    pub(super) fn refresh_oversized_lists(&mut self, queue: u32) {
        for state in TaskState::ALL {
            match self.excess_tasks(queue, state) {
                0 => self.oversized_lists.remove(&(queue, state)),
                _ => self.oversized_lists.insert((queue, state)),
            };
        }
    }

    fn erase_excess_tasks(&mut self, budget: &mut u32) {
        while *budget > 0 {
            let Some((queue, state)) = self.oversized_lists.first().copied() else {
                return;
            };
            if self.excess_tasks(queue, state) == 0 {
                self.oversized_lists.remove(&(queue, state));
                continue;
            }
            *budget -= 1;
            let oldest = self.queues[queue].lists[state as usize].head;
            self.erase_task(oldest);
        }
    }

    /// Schedules an age check of a list. There is at most one for each list: one for every task
    /// that is first would fill the memory.
    fn add_retention_check(&mut self, due_ms: u64, queue: u32, state: TaskState) {
        self.retention_checks.insert((due_ms, queue, state));
        self.set_retention_bit(queue, state, true);
    }

    fn remove_retention_check(&mut self, due_ms: u64, queue: u32, state: TaskState) {
        self.retention_checks.remove(&(due_ms, queue, state));
        self.set_retention_bit(queue, state, false);
    }

    pub(super) fn set_retention_bit(&mut self, queue: u32, state: TaskState, is_watched: bool) {
        if let Some(row) = self.queues.get_mut(queue) {
            row.retention_bits =
                row.retention_bits & !(1 << state as u8) | u8::from(is_watched) << state as u8;
        }
    }

    /// Schedules the age checks of a queue's lists by its present settings.
    pub(super) fn rebuild_retention_checks(&mut self, queue: u32) {
        self.retention_checks.retain(|(_, other, _)| *other != queue);
        for state in TaskState::ALL {
            self.set_retention_bit(queue, state, false);
        }
        for state in TaskState::ALL {
            let row = &self.queues[queue];
            let (retention, head) = (row.settings.retention(state), row.lists[state as usize].head);
            if let Some(retention) = retention.filter(|one| one.age_ms > 0 && head != NO_SLOT) {
                let ended_ms = self.entries.get(head).at_ms;
                self.add_retention_check(ended_ms.saturating_add(retention.age_ms), queue, state);
            }
        }
    }

    fn erase_expired_tasks(&mut self, budget: &mut u32) {
        while *budget > 0 {
            let Some((due_ms, queue, state)) = self.retention_checks.first().copied() else {
                return;
            };
            if due_ms > self.now_ms {
                return;
            }
            *budget -= 1;
            let row = &self.queues[queue];
            let age_ms = row.settings.retention(state).map_or(0, |retention| retention.age_ms);
            let head = row.lists[state as usize].head;
            if head == NO_SLOT || age_ms == 0 {
                self.remove_retention_check(due_ms, queue, state);
                continue;
            }
            let head_due = self.entries.get(head).at_ms.saturating_add(age_ms);
            if head_due <= self.now_ms {
                self.erase_task(head);
            } else {
                // The oldest task was deleted otherwise meanwhile.
                self.remove_retention_check(due_ms, queue, state);
                self.add_retention_check(head_due, queue, state);
            }
        }
    }

    fn erase_deleted_queues(&mut self, budget: &mut u32) {
        while *budget > 0 {
            let Some(id) = self.deleted_queues.first().copied() else {
                return;
            };
            let row = &self.queues[id];
            let mut heads = row.lists.iter().map(|list| list.head);
            match heads.find(|head| *head != NO_SLOT) {
                Some(slot) => {
                    *budget -= 1;
                    self.remove_task(slot);
                }
                None => self.remove_queue(id),
            }
        }
    }
}
