//! What all tenants share of a partition, and how much of it one of them may take.

use egret_base::{LimitExceeded, TenantShare};

use crate::core::state::{State, TaskLoad};

/// What a partition takes in of tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskShares {
    pub tasks: TenantShare,
    pub bytes: TenantShare,
}

impl TaskShares {
    /// Lets the tenant of a queue have `more`.
    ///
    /// # Errors
    /// The limit in its way.
    pub fn check(&self, state: &State, queue: u32, more: TaskLoad) -> Result<(), LimitExceeded> {
        let (all, own) = (state.load(), state.load_of_queue(queue));
        self.tasks.check(all.tasks, own.tasks, more.tasks)?;
        self.bytes.check(all.bytes, own.bytes, more.bytes)
    }
}
