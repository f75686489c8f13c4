//! Reset: the files of a branch are replaced by those of a template.
//!
//! The copy is *staged* beside the branch's files while its server still runs; the *former* files
//! are kept there until a server runs on the copy. So a reset that fails, for want of room on the
//! volume or for a server, leaves the branch as it was. After a crash the row says `resetting`: the
//! former files are put back, and the reset is done again. As long as there are former files the
//! manifest describes these: they are put back where the registry is lost.

use std::fs;
use std::sync::Arc;

use egret_base::sync::lock;
use egret_postgres::postmaster::StopMode;

use crate::engine::Inner;
use crate::engine::{HeldTemplate, PendingUndo};
use crate::error::{BranchesError, io_error};
use crate::model::{Branch, BranchId, BranchState, TemplateId};
use crate::store::files::read_former_manifest;
use crate::store::source::run_blocking;

mod unfinished;

impl Inner {
    pub(super) async fn reset(
        self: &Arc<Self>,
        branch: Branch,
        target_template: Option<TemplateId>,
    ) -> Result<Branch, BranchesError> {
        let state = self.state()?;
        let slot = self.slot(branch.id);
        let _slot_guard = slot.lock.lock().await;
        // Before the row is read: it names the template of a reset that failed until that is
        // undone.
        self.undo_pending(branch.id, &slot).await?;
        let branch_before = self.find_branch(&branch.tenant, &branch.name)?;
        if branch_before.protected {
            return Err(BranchesError::Protected { name: branch_before.name.to_string() });
        }
        if let Some(id) = target_template {
            // Before its files are looked at: one that is unknown has none.
            self.find_ready_template(id, &branch_before.tenant)?;
        }
        // First, as what an earlier reset has left takes room.
        let had_files = self.clean_up_earlier_reset(&branch_before).await?;
        self.check_room_for_reset(
            &branch_before.tenant,
            target_template.unwrap_or(branch_before.template),
        )
        .await?;
        // What is put back is what the manifest describes.
        self.write_branch_manifest(branch_before.id)?;
        let mut branch = branch_before.clone();
        // From here until the row is there the template may not be removed.
        let removal_guard = self.template_removal_lock.read().await;
        let former_template = HeldTemplate::new(&self.held_templates, branch_before.template);
        // Two resets at a time could each see no cycle and make one together.
        let lineage_guard = lock(&self.lineage_lock);
        if let Some(id) = target_template {
            let template = self.find_ready_template(id, &branch.tenant)?;
            self.check_lineage(&branch, &template)?;
            self.check_superuser(template.superuser)?;
            branch.superuser |= template.superuser;
            branch.template = template.id;
            if let Some(receipt) = &mut branch.receipt {
                receipt.template = template.id;
                receipt.template_lsn = template.lsn;
                receipt.template_taken_at = template.taken_at;
            }
            branch.parent_branch = template.origin_branch_name;
        }
        branch.state = BranchState::Resetting;
        self.crash_points.before("reset.intent");
        state.registry.update_branch(&branch)?;
        drop(lineage_guard);
        drop(removal_guard);
        if let Err(error) = self.replace_and_record(&mut branch).await {
            let undo = PendingUndo::new(branch_before, had_files, former_template);
            self.undo_or_retry(undo, &slot).await;
            return Err(error);
        }
        Ok(branch)
    }

    /// Refuses a reset whose copy has no room on the volume or within the share of the branch's
    /// tenant. A copy that shares its blocks with the template takes nothing of that share, and the
    /// reset gives back what the branch has: that is not refused to a tenant without room.
    async fn check_room_for_reset(
        self: &Arc<Self>,
        tenant: &str,
        template: TemplateId,
    ) -> Result<(), BranchesError> {
        match self.check_room_for_template(template).await? {
            0 => Ok(()),
            copy_bytes => self.check_tenant_room(tenant, copy_bytes).await,
        }
    }

    /// The row of a branch whose reset has not come to its end.
    pub(super) fn resetting_branch(&self, id: BranchId) -> Option<Branch> {
        let found = self.state.get()?.registry.branch(id);
        found.filter(|branch| branch.state == BranchState::Resetting)
    }

    /// Whether a template that no row names is needed still: by a reset that may be undone.
    pub(super) fn is_template_held(&self, id: TemplateId) -> Result<bool, BranchesError> {
        if lock(&self.held_templates).contains(&id) {
            return Ok(true);
        }
        let is_resetting = |branch: &Branch| branch.state == BranchState::Resetting;
        let resetting = self.state()?.registry.branches_where(is_resetting);
        Ok(resetting.iter().any(|branch| {
            let former = read_former_manifest(&self.paths.branch(branch.id));
            former.is_some_and(|before| before.template == id)
        }))
    }

    /// Does a reset whose intent is recorded. Where that fails, the row says `resetting` still, and
    /// [`Inner::put_back`] brings the former files back. The caller holds the slot.
    async fn replace_and_record(
        self: &Arc<Self>,
        branch: &mut Branch,
    ) -> Result<(), BranchesError> {
        self.replace_files(branch).await?;
        self.record_reset(branch).await
    }

    /// Puts a copy of the template in the place of a branch's files and starts its server on it.
    async fn replace_files(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        let id = branch.id;
        let [data, staged, former] = self.paths.files_of(id);
        self.clone_template_for(&branch.tenant, branch.template, staged).await?;
        // With all that was committed: the files may be put back, and commits do not wait for the
        // disk in most presets.
        self.stop_postmaster(id, StopMode::Fast).await?;
        self.crash_points.before("reset.swap");
        let staged = self.paths.staged_files(id);
        run_blocking(move || {
            if data.exists() {
                fs::rename(&data, &former).map_err(io_error("rename", &data))?;
            }
            fs::rename(&staged, &data).map_err(io_error("rename", &staged))
        })
        .await?;
        if branch.durable {
            self.flush_volume().await?;
        }
        let template = self.template_of(branch)?;
        self.start_postmaster(branch, &template).await?;
        if branch.superuser {
            self.grant_superuser(branch).await?;
        }
        Ok(())
    }

    /// Records a reset whose server runs on the new files, and removes the former ones.
    async fn record_reset(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        branch.waits_for_room = false;
        branch.notice = None;
        branch.state = BranchState::Running;
        branch.failure = None;
        self.crash_points.before("reset.record");
        // Also while Egret stops: it is done.
        let state = self.state.get().ok_or(BranchesError::Stopping)?;
        state.registry.update_branch(branch)?;
        self.crash_points.before("reset.commit");
        if let Err(error) = self.retire_former_files(branch.id).await {
            // They would be put back, were the registry lost: the reset is not done.
            branch.state = BranchState::Resetting;
            state.registry.update_branch(branch)?;
            return Err(error);
        }
        self.slot(branch.id).clear_notice();
        self.refresh_manifest(branch);
        let (volume, staged) = (self.mounted().volume, self.paths.staged_files(branch.id));
        self.crash_points.before("reset.remove");
        let removed =
            run_blocking(move || volume.remove(&staged).map_err(io_error("remove", &staged))).await;
        if let Err(error) = removed {
            tracing::warn!(branch = %branch.name, %error, "cannot delete the old files of a reset branch; they stay until the next start");
        }
        Ok(())
    }

    /// Removes what an earlier reset of a branch has left: former files are put back only while
    /// that reset is not recorded. Returns whether the branch has files then. The caller holds the
    /// slot.
    async fn clean_up_earlier_reset(&self, branch: &Branch) -> Result<bool, BranchesError> {
        if branch.state == BranchState::Resetting {
            return self.restore_former_files(branch.id).await;
        }
        self.remove_leftovers(branch.id).await?;
        Ok(self.paths.branch(branch.id).exists())
    }

    /// Puts the former files of a branch back, where they are kept, and removes a staged copy.
    /// Returns whether the branch has files then.
    pub(super) async fn restore_former_files(&self, id: BranchId) -> Result<bool, BranchesError> {
        let [data, staged, former] = self.paths.files_of(id);
        let is_replaced = former.exists();
        if is_replaced {
            self.stop_postmaster(id, StopMode::Immediate).await?;
            self.describe_former_files(id)?;
        }
        let volume = self.mounted().volume;
        run_blocking(move || {
            volume.remove(&staged).map_err(io_error("remove", &staged))?;
            if is_replaced {
                volume.remove(&data).map_err(io_error("remove", &data))?;
                fs::rename(&former, &data).map_err(io_error("rename", &former))?;
            }
            Ok(data.exists())
        })
        .await
    }

    /// Removes the files of a branch, those that a reset has left among them.
    pub(super) async fn remove_files(&self, id: BranchId) -> Result<(), BranchesError> {
        let (volume, files) = (self.mounted().volume, self.paths.files_of(id));
        run_blocking(move || {
            for path in files {
                volume.remove(&path).map_err(io_error("remove", &path))?;
            }
            Ok(())
        })
        .await
    }

    /// Gives the former files of a branch a name under which they are not put back. Until then, and
    /// from then on, the manifest says what belongs to the branch.
    async fn retire_former_files(&self, id: BranchId) -> Result<(), BranchesError> {
        self.write_branch_manifest(id)?;
        let (staged, former) = (self.paths.staged_files(id), self.paths.former_files(id));
        run_blocking(move || {
            if former.exists() {
                fs::rename(&former, &staged).map_err(io_error("rename", &former))?;
            }
            Ok(())
        })
        .await?;
        self.crash_points.before("reset.manifest");
        Ok(())
    }

    /// Removes what a crash has left of a reset that is recorded; former files are put back where
    /// there are no others.
    pub(super) async fn remove_leftovers(&self, id: BranchId) -> Result<(), BranchesError> {
        let volume = self.mounted().volume;
        let [data, staged, former] = self.paths.files_of(id);
        let are_replaced = run_blocking(move || {
            volume.remove(&staged).map_err(io_error("remove", &staged))?;
            if former.exists() && !data.exists() {
                fs::rename(&former, &data).map_err(io_error("rename", &former))?;
            }
            Ok(former.exists())
        });
        if !are_replaced.await? {
            return Ok(());
        }
        // They are not put back then, also when they are removed in part only.
        self.retire_former_files(id).await?;
        if let Some(branch) = self.state()?.registry.branch(id) {
            self.refresh_manifest(&branch);
        }
        let (volume, staged) = (self.mounted().volume, self.paths.staged_files(id));
        run_blocking(move || volume.remove(&staged).map_err(io_error("remove", &staged))).await
    }
}
