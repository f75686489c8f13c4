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
    pub pasts: usize,
    pub options: usize,
    pub tags: usize,
    pub workers: usize,
    pub retentions: usize,
    pub waiters: usize,
    pub waits: usize,
    pub callbacks: usize,
    pub shared_records: usize,
    pub tenants: usize,
    pub timers: u64,
}

impl State {
    /// Counts everything, one by one.
    #[doc(hidden)]
    pub fn census(&self) -> AllocationCounts {
        let flows = self.flows.places().flatten();
        AllocationCounts {
            queues: self.queues.iter().count(),
            keyed_flows: flows.filter(|flow| flow.key != 0).count(),
            lanes: self.lanes.len(),
            uniques: self.uniques.len(),
            pasts: self.pasts.len(),
            options: self.options.values().iter().count(),
            tags: self.tags.values().iter().count(),
            workers: self.workers.values().iter().count(),
            retentions: self.retentions.len(),
            waiters: self.awaited.iter().map(|(_, waiters)| waiters.len()).sum(),
            waits: self.waits.len(),
            callbacks: self.callbacks.len(),
            shared_records: self.shared.len(),
            tenants: self.tenants.len(),
            timers: self.timers.len(),
        }
    }
}
