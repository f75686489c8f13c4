//! Queries of tasks.

use std::collections::BTreeSet;

use super::machine::State;
use super::rows::{PastAttempt, Queue};
use crate::core::entry::{Entry, TaskState};
use crate::core::lanes::PRIORITY_DEFAULT;
use crate::core::slab::{NO_SLOT, SlotIndex};

/// Tasks of a queue by state, in the order of [`TaskState::ALL`].
pub type StateCounts = [u64; 7];

/// Entries that one page of a list scans, at most: with a filter it may hold fewer than requested.
const SCANNED_MAX: usize = 20_000;

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub struct SlotPage {
    /// Slots of the tasks.
    pub slots: Vec<SlotIndex>,
    /// The ordinal to go on from; `None` at the end.
    pub next: Option<u64>,
}

impl State {
    /// Every queue that is not deleted, by id.
    pub fn queues(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.queues.iter().filter(|(_, queue)| !queue.deleted)
    }

    /// Queues with a task of another than the default priority, including ended ones that may be
    /// requeued, or with a schedule of such tasks. Scans all tasks.
    pub fn queues_with_priorities(&self) -> BTreeSet<u32> {
        let tasks = self.entries.slots().flatten().map(|entry| (entry.queue, entry.priority));
        let schedules = self.schedules.values().map(|schedule| (schedule.queue, schedule.priority));
        let unusual = |(queue, priority)| (priority != PRIORITY_DEFAULT).then_some(queue);
        tasks.chain(schedules).filter_map(unusual).collect()
    }

    /// The rank of the next task of a queue, comparable between partitions: its priority, plus one
    /// for each `aging_ms` that it has waited, relative to a fixed time. `None` when nothing may be
    /// handed out.
    pub(crate) fn next_rank(&self, queue: u32) -> Option<i64> {
        let row = self.queues.get(queue)?;
        if row.paused || row.deleted {
            return None;
        }
        let aging_ms = row.settings.aging_ms;
        let lane = row.rings.front(&self.lanes, &self.entries, aging_ms, self.now_ms)?;
        let first = self.entries.get(self.lanes.get(lane).head);
        let priority = i64::from(first.priority);
        Some(match aging_ms {
            0 => priority,
            _ => priority.saturating_sub_unsigned(first.at_ms.div_ceil(aging_ms)),
        })
    }

    /// An id that is higher than that of any queue so far.
    pub(crate) fn next_queue_id(&self) -> u32 {
        self.next_queue
    }

    /// The queue with this id.
    pub fn queue_by_id(&self, id: u32) -> Option<&Queue> {
        self.queue(id).ok()
    }

    /// The entry in a slot.
    pub fn entry(&self, slot: SlotIndex) -> &Entry {
        self.entries.get(slot)
    }

    /// Number of all tasks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A task's past attempts that did not complete it, the latest first.
    pub fn past_attempts(&self, slot: SlotIndex) -> impl Iterator<Item = &PastAttempt> {
        let mut next = self.entries.get(slot).past_attempts;
        std::iter::from_fn(move || {
            let past = (next != NO_SLOT).then(|| self.past_attempts.get(next))?;
            next = past.earlier;
            Some(past)
        })
    }

    /// The name of a worker by number.
    pub fn worker_name(&self, number: u32) -> &str {
        self.workers.get(number)
    }

    /// A set of tags by number, as it is sent to workers.
    pub fn tags(&self, number: u32) -> &[u8] {
        self.tags.get(number)
    }

    /// Tasks of a queue in a state from the ordinal `from` on, in the order in which they entered
    /// it, if they pass the filter.
    pub fn list_page(
        &self,
        queue: u32,
        state: TaskState,
        from: u64,
        limit: usize,
        filter: impl Fn(&Entry) -> bool,
    ) -> SlotPage {
        let mut page = SlotPage::default();
        let Some(row) = self.queue_by_id(queue) else {
            return page;
        };
        let list = &row.lists[state as usize];
        let mut slot = list.seek(&self.entries, from);
        let mut scanned = 0;
        while slot != NO_SLOT {
            let entry = self.entries.get(slot);
            if page.slots.len() == limit || scanned == SCANNED_MAX {
                page.next = Some(entry.ordinal);
                break;
            }
            if filter(entry) {
                page.slots.push(slot);
            }
            scanned += 1;
            slot = entry.list_links.next;
        }
        page
    }
}

impl Queue {
    /// Number of tasks in each state.
    pub fn counts(&self) -> StateCounts {
        std::array::from_fn(|state| self.lists[state].len)
    }

    /// Whether a task may be handed out.
    pub fn can_dispatch(&self) -> bool {
        !self.paused && !self.deleted && self.rings.occupied != 0
    }

    /// Since when the first ready task has been ready, in Unix milliseconds.
    pub fn oldest_ready_ms(&self, state: &State) -> Option<u64> {
        let head = self.lists[TaskState::Ready as usize].head;
        (head != NO_SLOT).then(|| state.entries.get(head).at_ms)
    }
}
