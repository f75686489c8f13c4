//! Bytes of what records hold: a task's payload and what goes with it, its result, and the words of its past
//! attempts; and what schedules make tasks of.
//!
//! They are counted where a record comes to be referred to, and until it no longer is, so that a replay counts
//! the same. A task that a schedule makes, or that tells of another one's end, has no bytes of its own: it
//! shares a record. A snapshot of a version that did not count has no bytes either, and what it holds stays
//! uncounted until it goes.

use super::*;

impl State {
    /// Records hold so much more of a task.
    pub(super) fn add_bytes(&mut self, place: Place, bytes: u32) {
        let entry = self.entries.get_mut(place);
        entry.bytes = entry.bytes.saturating_add(bytes);
        let queue = self.queues.get_mut(entry.queue);
        queue.expect("a task's queue stays").bytes += u64::from(bytes);
        self.bytes += u64::from(bytes);
    }

    /// Records hold so much less of a task.
    pub(super) fn take_bytes(&mut self, place: Place, bytes: u32) {
        let entry = self.entries.get_mut(place);
        entry.bytes -= bytes;
        let queue = self.queues.get_mut(entry.queue);
        queue.expect("a task's queue stays").bytes -= u64::from(bytes);
        self.bytes -= u64::from(bytes);
    }

    /// A schedule comes in place of another one, or goes.
    pub(super) fn replace_schedule_bytes(&mut self, former: u32, new: u32) {
        self.bytes = self.bytes - u64::from(former) + u64::from(new);
    }

    /// Adds up what an image says of its rows.
    pub(super) fn count_bytes(&mut self) {
        let mut by_queue: BTreeMap<u32, u64> = BTreeMap::new();
        for entry in self.entries.places().flatten() {
            *by_queue.entry(entry.queue).or_default() += u64::from(entry.bytes);
        }
        self.bytes = by_queue.values().sum();
        for (id, bytes) in by_queue {
            let queue = self.queues.get_mut(id);
            queue.expect("a task's queue stays").bytes = bytes;
        }
        let schedules = self.schedules.values();
        self.bytes += schedules
            .map(|schedule| u64::from(schedule.bytes))
            .sum::<u64>();
    }

    /// Whose a task is.
    pub fn tenant_of(&self, id: TaskId) -> Option<&str> {
        let place = self.find(id)?;
        let queue = self.queues.get(self.entries.get(place).queue)?;
        Some(&queue.tenant)
    }

    /// Bytes of what records hold of all tasks and schedules.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same of the tenant that has a queue.
    pub fn bytes_of_tenant(&self, queue: u32) -> u64 {
        let Some(queue) = self.queues.get(queue) else {
            return 0;
        };
        let queues = self.queues.iter();
        let own = queues.filter(|(_, other)| other.tenant == queue.tenant);
        let tasks: u64 = own.map(|(_, queue)| queue.bytes).sum();
        let schedules = self.schedules.iter();
        let own = schedules.filter(|((tenant, _), _)| *tenant == queue.tenant);
        let schedules: u64 = own.map(|(_, schedule)| u64::from(schedule.bytes)).sum();
        tasks + schedules
    }
}
