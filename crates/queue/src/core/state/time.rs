//! Timers: delays, leases, windows of unique keys, retention, deleted queues.

use super::machine::State;
use super::ready_position::ReadyPosition;
use crate::core::entry::TaskState;
use crate::core::slab::NOWHERE;
use crate::core::wheel::WheelStep;

impl State {
    /// Processes what is due in at most `budget` steps; `true` when some is left.
    pub fn advance(&mut self, budget: u32) -> bool {
        let mut left = budget;
        while left > 0 {
            match self.timers.step(&mut self.entries, self.now_ms) {
                WheelStep::Due(place) if self.entries.get(place).state == TaskState::Leased => {
                    self.expire(place);
                }
                WheelStep::Due(place) => {
                    self.exit(place);
                    self.make_ready(place, ReadyPosition::Last);
                }
                WheelStep::Moved => {}
                WheelStep::Idle => break,
            }
            left -= 1;
        }
        while left > 0 {
            match self.unique_timers.step(&mut self.uniques, self.now_ms) {
                WheelStep::Due(place) => self.forget_unique(place),
                WheelStep::Moved => {}
                WheelStep::Idle => break,
            }
            left -= 1;
        }
        self.drop_old(&mut left);
        self.drop_excess(&mut left);
        self.drop_deleted(&mut left);
        left == 0 && self.next_due_ms().is_some_and(|due| due <= self.now_ms)
    }

    /// When [`State::advance`] has something to do, in Unix milliseconds, or earlier.
    pub fn next_due_ms(&self) -> Option<u64> {
        [
            self.timers.next_ms(),
            self.unique_timers.next_ms(),
            self.retentions.first().map(|(due, ..)| *due),
            self.leaving.first().map(|_| self.now_ms),
            self.crowded.first().map(|_| self.now_ms),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Enforces the count of a list of ended tasks, and schedules a check of their age.
    pub(super) fn keep_within(&mut self, queue: u32, state: TaskState) {
        let row = &self.queues[queue];
        let Some(retention) = row.settings.retention(state) else {
            return;
        };
        let (len, head) = (
            row.lists[state as usize].len,
            row.lists[state as usize].head,
        );
        if retention.age_ms > 0 && !row.is_watched(state) {
            let ended_ms = self.entries.get(head).at_ms;
            self.watch_age(ended_ms.saturating_add(retention.age_ms), queue, state);
        }
        if retention.count > 0 && len > retention.count {
            // One for the one that was added: any further excess is removed step by step.
            let oldest = self.queues[queue].lists[state as usize].head;
            self.erase(oldest);
        }
    }

    /// Number of ended tasks of a queue beyond its retention.
    fn excess(&self, queue: u32, state: TaskState) -> u64 {
        let row = &self.queues[queue];
        match row.settings.retention(state).map_or(0, |one| one.count) {
            0 => 0,
            count => row.lists[state as usize].len.saturating_sub(count),
        }
    }

    /// Determines which lists of a queue exceed its present retention.
    pub(super) fn note_crowded(&mut self, queue: u32) {
        for state in TaskState::ALL {
            match self.excess(queue, state) {
                0 => self.crowded.remove(&(queue, state)),
                _ => self.crowded.insert((queue, state)),
            };
        }
    }

    fn drop_excess(&mut self, left: &mut u32) {
        while *left > 0 {
            let Some((queue, state)) = self.crowded.first().copied() else {
                return;
            };
            if self.excess(queue, state) == 0 {
                self.crowded.remove(&(queue, state));
                continue;
            }
            *left -= 1;
            let oldest = self.queues[queue].lists[state as usize].head;
            self.erase(oldest);
        }
    }

    /// Schedules an age check of a list. There is at most one for each list: one for every task
    /// that is first would fill the memory.
    fn watch_age(&mut self, due_ms: u64, queue: u32, state: TaskState) {
        self.retentions.insert((due_ms, queue, state));
        self.note_watched(queue, state, true);
    }

    fn unwatch_age(&mut self, due_ms: u64, queue: u32, state: TaskState) {
        self.retentions.remove(&(due_ms, queue, state));
        self.note_watched(queue, state, false);
    }

    pub(super) fn note_watched(&mut self, queue: u32, state: TaskState, is_watched: bool) {
        if let Some(row) = self.queues.get_mut(queue) {
            row.watched = row.watched & !(1 << state as u8) | u8::from(is_watched) << state as u8;
        }
    }

    /// Schedules the age checks of a queue's lists by its present settings.
    pub(super) fn watch_ages(&mut self, queue: u32) {
        self.retentions.retain(|(_, other, _)| *other != queue);
        for state in TaskState::ALL {
            self.note_watched(queue, state, false);
        }
        for state in TaskState::ALL {
            let row = &self.queues[queue];
            let (retention, head) = (
                row.settings.retention(state),
                row.lists[state as usize].head,
            );
            if let Some(retention) = retention.filter(|one| one.age_ms > 0 && head != NOWHERE) {
                let ended_ms = self.entries.get(head).at_ms;
                self.watch_age(ended_ms.saturating_add(retention.age_ms), queue, state);
            }
        }
    }

    fn drop_old(&mut self, left: &mut u32) {
        while *left > 0 {
            let Some((due_ms, queue, state)) = self.retentions.first().copied() else {
                return;
            };
            if due_ms > self.now_ms {
                return;
            }
            *left -= 1;
            let row = &self.queues[queue];
            let age_ms = row.settings.retention(state).map_or(0, |one| one.age_ms);
            let head = row.lists[state as usize].head;
            if head == NOWHERE || age_ms == 0 {
                self.unwatch_age(due_ms, queue, state);
                continue;
            }
            let head_due = self.entries.get(head).at_ms.saturating_add(age_ms);
            if head_due <= self.now_ms {
                self.erase(head);
            } else {
                // The oldest task was deleted otherwise meanwhile.
                self.unwatch_age(due_ms, queue, state);
                self.watch_age(head_due, queue, state);
            }
        }
    }

    fn drop_deleted(&mut self, left: &mut u32) {
        while *left > 0 {
            let Some(id) = self.leaving.first().copied() else {
                return;
            };
            let row = &self.queues[id];
            let mut heads = row.lists.iter().map(|list| list.head);
            match heads.find(|head| *head != NOWHERE) {
                Some(place) => {
                    *left -= 1;
                    self.remove_task(place);
                }
                None => self.forget_queue(id),
            }
        }
    }
}
