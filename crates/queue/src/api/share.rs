//! What all tenants share, and how much of it one of them may take.

use egret_base::{Limit, LimitExceeded};

use crate::core::state::State;

/// A limit on all tenants together and one on each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantShare {
    /// On all of them.
    pub all: Limit,
    /// On one; zero: as much as is still free (the dynamic threshold of Choudhury and Hahne, 1998, with
    /// factor 1), so that there is room for one more tenant whatever the others take.
    pub one: Limit,
}

impl TenantShare {
    pub fn new(all: (&'static str, u64), one: (&'static str, u64)) -> Self {
        Self {
            all: Limit::new(all.0, all.1),
            one: Limit::new(one.0, one.1),
        }
    }

    /// Whether a tenant that has nothing but a part of `taken` could be refused `more`: else there is no
    /// need to count what it has.
    pub fn may_refuse(&self, taken: u64, more: u64) -> bool {
        match self.one.max {
            0 => taken.saturating_mul(2) + more > self.all.max,
            max => taken + more > max.min(self.all.max),
        }
    }

    /// Lets a tenant that has `own` of what is `taken` have `more`.
    ///
    /// # Errors
    /// The limit in its way.
    pub fn check(&self, taken: u64, own: u64, more: u64) -> Result<(), LimitExceeded> {
        self.all.check(taken + more)?;
        let free = self.all.max.saturating_sub(taken);
        match self.one.max {
            0 if own > 0 && own + more > free => Err(LimitExceeded {
                name: self.one.name,
                max: own.max(free),
                asked: own + more,
            }),
            0 => Ok(()),
            _ => self.one.check(own + more),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn share(one: u64) -> TenantShare {
        TenantShare::new(("all", 100), ("one", one))
    }

    #[test]
    fn a_tenant_takes_what_is_free_and_leaves_as_much() {
        let share = share(0);
        let refused = |taken, own| share.check(taken, own, 1).err().map(|error| error.name);
        assert_eq!(refused(49, 49), None);
        assert_eq!(refused(50, 50), Some("one"));
        assert_eq!(refused(50, 0), None);
        assert_eq!(refused(99, 0), None);
        assert_eq!(refused(100, 0), Some("all"));
        assert!(!share.may_refuse(49, 1) && share.may_refuse(50, 1));
    }

    #[test]
    fn a_fixed_share_is_what_it_says() {
        let share = share(90);
        let refused = |taken, own| share.check(taken, own, 1).err().map(|error| error.name);
        assert_eq!(refused(89, 89), None);
        assert_eq!(refused(90, 90), Some("one"));
        assert_eq!(refused(99, 9), None);
    }
}
