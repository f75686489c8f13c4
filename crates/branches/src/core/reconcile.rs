//! What to do about the difference between the registry and the disk when Egret starts.
//!
//! Every action writes its intent to the registry before it touches the disk, and removes the row
//! after the files are gone. So whatever a crash leaves behind belongs to a row that says how far
//! things were, unless the registry itself was lost; then the manifests beside the files tell.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use egret_base::Timestamp;

use crate::model::{Branch, BranchId, BranchState, Template, TemplateId, TemplateState};

/// Survey of the volume and of running postmasters.
#[derive(Clone, Debug, Default)]
pub struct DiskSurvey {
    /// Branches with a data directory.
    pub branches: BTreeSet<BranchId>,
    /// Branches of which a reset has left files that it staged or replaced.
    pub leftovers: BTreeSet<BranchId>,
    /// Branches of `leftovers` whose files from before the reset are kept.
    pub former_files: BTreeSet<BranchId>,
    /// Branches whose manifest can be read, and when it says that they were created.
    pub branch_manifests: BTreeMap<BranchId, Timestamp>,
    /// Branches on whose data directory a postmaster runs.
    pub postmasters: BTreeSet<BranchId>,
    /// Branches with a socket directory.
    pub sockets: BTreeSet<BranchId>,
    /// Templates with a directory.
    pub templates: BTreeSet<TemplateId>,
    /// Templates whose manifest can be read.
    pub template_manifests: BTreeSet<TemplateId>,
    /// Names on the volume that belong to no branch or template.
    pub foreign: BTreeSet<String>,
    /// The machine's boot id.
    pub boot_id: String,
}

impl DiskSurvey {
    /// Whether a branch has files, if only those that a reset has put aside.
    fn has_files_of(&self, id: BranchId) -> bool {
        self.branches.contains(&id) || self.former_files.contains(&id)
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Take over the postmaster that runs.
    Adopt(BranchId),
    /// Start the postmaster that should run.
    Start(BranchId),
    /// Stop a postmaster that should not run, keeping the branch suspended. What it has written is
    /// put on the disk.
    StopStray(BranchId),
    /// Do an interrupted reset again.
    FinishReset(BranchId),
    /// Remove what is left of a reset that is done; what it put aside is put back where there are
    /// no other files.
    RemoveLeftovers(BranchId),
    /// An interrupted creation was never acknowledged: a tombstone, purged by the plan.
    Discard(BranchId),
    /// The branch cannot be trusted or is gone: say so.
    Fail(BranchId, &'static str),
    /// The registry was lost: make the row again from the manifest, unless the name is another
    /// branch's. Files that a reset has put aside are put back.
    RestoreBranch(BranchId),
    /// The registry was lost: make the row again from the manifest.
    RestoreTemplate(TemplateId),
    /// An interrupted build: remove files and row.
    DiscardTemplate(TemplateId),
    /// Remove a socket directory that belongs to no row.
    RemoveSocket(BranchId),
    /// Leave a foreign file alone and report it.
    ReportForeign(String),
}

/// Why a branch that was not created `durable` is not started after a crash of the machine.
pub(crate) const MACHINE_CRASHED: &str =
    "the machine restarted while this branch ran without durability; reset it or destroy it";
/// Why a branch without files cannot run.
pub(crate) const FILES_MISSING: &str = "its files are missing from the volume; destroy it";

/// Every repair, templates first, since branches refer to them.
pub fn reconcile(branches: &[Branch], templates: &[Template], disk: &DiskSurvey) -> Vec<Repair> {
    let mut repairs = Vec::new();
    for template in templates {
        let is_lost =
            template.state == TemplateState::Ready && !disk.templates.contains(&template.id);
        if template.state == TemplateState::Building || is_lost {
            repairs.push(Repair::DiscardTemplate(template.id));
        }
    }
    for id in &disk.templates {
        if templates.iter().all(|template| template.id != *id) {
            repairs.push(if disk.template_manifests.contains(id) {
                Repair::RestoreTemplate(*id)
            } else {
                Repair::ReportForeign(format!("templates/{}", id.hex()))
            });
        }
    }
    repairs.extend(branches.iter().filter_map(|branch| repair_for_branch(branch, disk)));
    let is_restorable =
        |id: &BranchId| disk.branch_manifests.contains_key(id) && disk.has_files_of(*id);
    let mut with_files: Vec<&BranchId> = disk.branches.union(&disk.former_files).collect();
    // The newest first: its name may have been that of a destroyed one whose files are not deleted
    // yet.
    with_files.sort_by_key(|id| Reverse((disk.branch_manifests.get(*id), **id)));
    for id in with_files {
        if branches.iter().any(|branch| branch.id == *id) {
            continue;
        }
        if is_restorable(id) {
            repairs.push(Repair::RestoreBranch(*id));
        } else if disk.branches.contains(id) {
            repairs.push(Repair::ReportForeign(format!("branches/{}", id.hex())));
        }
    }
    for id in &disk.leftovers {
        match branches.iter().find(|branch| branch.id == *id) {
            // What ends the reset, or deletes the branch, looks after them.
            Some(branch)
                if matches!(branch.state, BranchState::Resetting | BranchState::Destroying) => {}
            Some(_) => repairs.push(Repair::RemoveLeftovers(*id)),
            // What restores the branch puts them in their place.
            None if is_restorable(id) => {}
            // They may be all that is left of the branch.
            None => repairs
                .push(Repair::ReportForeign(format!("branches/{}, files of a reset", id.hex()))),
        }
    }
    for id in &disk.sockets {
        let is_known = branches.iter().any(|branch| branch.id == *id) || disk.has_files_of(*id);
        if !is_known {
            repairs.push(Repair::RemoveSocket(*id));
        }
    }
    repairs.extend(disk.foreign.iter().cloned().map(Repair::ReportForeign));
    repairs
}

/// Whether the machine crashed while a branch ran without durability: its files may be torn.
pub(crate) fn ran_during_crash(branch: &Branch, boot_id: &str) -> bool {
    let last_boot_id = branch.boot_id.as_deref();
    !branch.durable && last_boot_id.is_some_and(|ran_in| ran_in != boot_id)
}

/// What to do about one branch; also for a row that was just made again from its manifest.
pub(crate) fn repair_for_branch(branch: &Branch, disk: &DiskSurvey) -> Option<Repair> {
    let id = branch.id;
    let is_running = disk.postmasters.contains(&id);
    let has_files = disk.has_files_of(id);
    match branch.state {
        // A pool of an earlier Egret: its sessions are gone and its settings may be others.
        BranchState::Creating | BranchState::Pooled => Some(Repair::Discard(id)),
        BranchState::Resetting => Some(Repair::FinishReset(id)),
        // The plan purges it.
        BranchState::Destroying => None,
        _ if !has_files && branch.state != BranchState::Failed => {
            Some(Repair::Fail(id, FILES_MISSING))
        }
        BranchState::Running if is_running => Some(Repair::Adopt(id)),
        BranchState::Running => {
            if ran_during_crash(branch, &disk.boot_id) {
                Some(Repair::Fail(id, MACHINE_CRASHED))
            } else {
                Some(Repair::Start(id))
            }
        }
        BranchState::Suspended | BranchState::Failed if is_running => Some(Repair::StopStray(id)),
        // Its server was being started.
        BranchState::Suspended if ran_during_crash(branch, &disk.boot_id) => {
            Some(Repair::Fail(id, MACHINE_CRASHED))
        }
        BranchState::Suspended | BranchState::Failed => None,
    }
}

#[cfg(test)]
mod tests;
