//! What all tenants share of a partition, and how much of it one of them may take.

use egret_base::{LimitExceeded, TenantShare};

use crate::core::state::State;

/// Tasks, and bytes of what records hold of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaskLoad {
    pub tasks: u64,
    pub bytes: u64,
}

/// What a partition takes in of tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskShares {
    pub tasks: TenantShare,
    pub bytes: TenantShare,
}

impl TaskShares {
    /// What the tenant of a queue has, where that may matter for `more`: to find it out takes a look at every
    /// queue.
    pub fn count_own(&self, state: &State, queue: u32, more: TaskLoad) -> TaskLoad {
        let mut own = TaskLoad::default();
        if self.tasks.may_refuse(state.len() as u64, more.tasks) {
            own.tasks = state.tasks_of_tenant(queue);
        }
        if self.bytes.may_refuse(state.bytes(), more.bytes) {
            own.bytes = state.bytes_of_tenant(queue);
        }
        own
    }

    /// Lets a tenant that has `own` have `more`.
    ///
    /// # Errors
    /// The limit in its way.
    pub fn check(&self, state: &State, own: TaskLoad, more: TaskLoad) -> Result<(), LimitExceeded> {
        self.tasks
            .check(state.len() as u64, own.tasks, more.tasks)?;
        self.bytes.check(state.bytes(), own.bytes, more.bytes)
    }
}
