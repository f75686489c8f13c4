//! Faults of branches that last, and of the work that is done for them.

use egret_base::Condition;
use egret_base::condition::ConditionSet;

/// The faults of one engine. Those of single branches are by the branch's id.
pub(crate) struct Faults {
    /// The commands that are due could not be planned.
    pub planning: Condition,
    /// A command that was due failed; one condition for each command.
    pub commands: ConditionSet,
    /// The template could not be refreshed.
    pub template: Condition,
    /// The registry could not be flushed.
    pub registry: Condition,
    /// Manifests of leased branches could not be written.
    pub manifests: Condition,
    /// Former entries of the pool, and branches whose creation failed, could not be thrown away.
    pub discards: ConditionSet,
    /// Files of destroyed branches could not be deleted.
    pub deletions: ConditionSet,
    /// Branches that fill the volume could not be suspended.
    pub suspensions: ConditionSet,
    /// Tenants whose branches take all that they may, by `tenant NAME`.
    pub tenants: ConditionSet,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self {
            planning: Condition::new("branches_planning_failing", "branches"),
            commands: ConditionSet::new("branches_work_failing"),
            template: Condition::new("branches_template_not_refreshed", "template"),
            registry: Condition::new("state_unwritable", "branches"),
            manifests: Condition::new("branches_manifests_unwritable", "branches"),
            discards: ConditionSet::new("branches_pool_not_emptied"),
            deletions: ConditionSet::new("branches_files_not_deleted"),
            suspensions: ConditionSet::new("branches_not_suspended"),
            tenants: ConditionSet::new("branches_tenant_disk_full"),
        }
    }
}
