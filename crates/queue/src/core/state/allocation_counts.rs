//! Counts of what a partition keeps: for tests that look for leaks.

use super::machine::State;

/// Rows and values in use.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationCounts {
    pub queues: usize,
    pub keyed_flows: usize,
    pub lanes: usize,
    pub uniques: usize,
    pub past_attempts: usize,
    pub options: usize,
    pub tags: usize,
    pub workers: usize,
    pub retentions: usize,
    pub dependents: usize,
    pub dependencies: usize,
    pub callbacks: usize,
    pub shared_records: usize,
    pub tenants: usize,
    pub timers: u64,
}

impl State {
    /// Counts everything, one by one.
    #[doc(hidden)]
    pub fn allocation_counts(&self) -> AllocationCounts {
        let flows = self.flows.slots().flatten();
        AllocationCounts {
            queues: self.queues.iter().count(),
            keyed_flows: flows.filter(|flow| flow.key != 0).count(),
            lanes: self.lanes.len(),
            uniques: self.uniques.len(),
            past_attempts: self.past_attempts.len(),
            options: self.options.values().iter().count(),
            tags: self.tags.values().iter().count(),
            workers: self.workers.values().iter().count(),
            retentions: self.retention_checks.len(),
            dependents: self.dependents.iter().map(|(_, waiters)| waiters.len()).sum(),
            dependencies: self.dependencies.len(),
            callbacks: self.callback_subjects.len(),
            shared_records: self.shared_records.len(),
            tenants: self.tenants.len(),
            timers: self.timers.len(),
        }
    }
}
