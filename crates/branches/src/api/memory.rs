//! Showing that the kernel killed processes of a branch because memory was at its limit.
//!
//! PostgreSQL ends all sessions and recovers when it loses a process, and its log says no more than
//! that a process was killed. The control groups count such kills.

use std::sync::atomic::Ordering;

use egret_base::condition;
use egret_postgres::postmaster::Postmaster;

use crate::engine::{BranchSlot, Inner};
use crate::error::BranchesError;
use crate::model::{BranchId, BranchState};

impl Inner {
    /// Notes kills since the last look. While there are none, one file of the kernel's is read.
    pub(crate) fn note_memory_kills(&self) -> Result<(), BranchesError> {
        let started = self.state()?;
        let total = started.isolation.groups().memory_kills();
        if self.memory_kills.swap(total, Ordering::AcqRel) == total {
            return Ok(());
        }
        let is_running =
            |state: BranchState| matches!(state, BranchState::Running | BranchState::Pooled);
        for branch in started.registry.branches_where(|branch| is_running(branch.state)) {
            if let Some(slot) = self.existing_slot(branch.id)
                && let Some(postmaster) = slot.postmaster()
            {
                note_kills_of(branch.id, &slot, &postmaster);
            }
        }
        Ok(())
    }
}

/// Notes kills of one branch since the last look.
pub(super) fn note_kills_of(id: BranchId, slot: &BranchSlot, postmaster: &Postmaster) {
    let kills = postmaster.memory_kills();
    let before = slot.memory_kills.swap(kills, Ordering::AcqRel);
    if kills <= before {
        return;
    }
    let reason = format!(
        "out of memory: the kernel killed {} of its processes (branches.memory_max, branches.total_memory_max, or the machine's memory)",
        kills - before
    );
    let message = "the kernel killed processes of a branch: out of memory";
    condition::occur("branches_out_of_memory", &format!("branch {id}"), &reason, message);
    slot.set_notice(reason);
}
