//! Reset: the files of a branch are replaced by those of a template.
//!
//! The copy is *staged* beside the branch's files while its server still runs; the *former* files are kept there until a
//! server runs on the copy. So a reset that fails, for want of room on the volume or for a server, leaves the branch as
//! it was. After a crash the row says `resetting`: the former files are put back, and the reset is done again. The
//! manifest describes the former files until then.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egret_base::Condition;
use egret_postgres::postmaster::StopMode;

use super::{Inner, lock};
use crate::core::reconcile::ran_in_a_crash;
use crate::error::{BranchesError, io};
use crate::model::{Branch, BranchId, BranchState, TemplateId, TemplateState};
use crate::store::files::read_manifest;
use crate::store::source::blocking;

/// How long an interrupted reset that found no room waits before it is tried again, and how long the undoing of one that
/// failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps a template that no row names: a reset that fails gives it back to its branch.
struct HeldTemplate {
    inner: Arc<Inner>,
    id: TemplateId,
}

impl HeldTemplate {
    fn new(inner: &Arc<Inner>, id: TemplateId) -> Self {
        lock(&inner.held_templates).push(id);
        Self {
            inner: inner.clone(),
            id,
        }
    }
}

impl Drop for HeldTemplate {
    fn drop(&mut self) {
        let mut held = lock(&self.inner.held_templates);
        if let Some(at) = held.iter().position(|id| *id == self.id) {
            held.swap_remove(at);
        }
    }
}

impl Inner {
    pub(super) async fn reset(
        self: &Arc<Self>,
        branch: Branch,
        to: Option<TemplateId>,
    ) -> Result<Branch, BranchesError> {
        let started = self.started()?;
        let slot = self.slot(branch.id);
        let _held = slot.lock.lock().await;
        let before = self.find(&branch.tenant, &branch.name)?;
        if before.protected {
            return Err(BranchesError::Protected {
                name: before.name.to_string(),
            });
        }
        if let Some(id) = to {
            // Before its files are looked at: one that is unknown has none.
            self.template(id, &before.tenant)?;
        }
        self.check_room_for_template(to.unwrap_or(before.template))
            .await?;
        let had_files = self.tidy_up(&before).await?;
        let mut branch = before.clone();
        // From here until the row is there the template may not be removed.
        let gate = self.templates_gate.read().await;
        let former_template = HeldTemplate::new(self, before.template);
        // Two resets at a time could each see no cycle and make one together.
        let lineage = lock(&self.lineage);
        if let Some(id) = to {
            let template = self.template(id, &branch.tenant)?;
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
        self.steps.before("reset.intent");
        started.registry.update_branch(&branch)?;
        drop(lineage);
        drop(gate);
        if let Err(error) = self.replace_and_record(&mut branch).await {
            self.undo_or_retry(before, had_files, former_template).await;
            return Err(error);
        }
        Ok(branch)
    }

    /// Does a reset again that a crash interrupted. One that finds no room is tried again until there is some. The
    /// caller holds the slot.
    pub(super) async fn finish_reset(
        self: &Arc<Self>,
        branch: &mut Branch,
    ) -> Result<(), BranchesError> {
        let result = self.redo_reset(branch).await;
        if result.as_ref().is_err_and(BranchesError::is_without_room) {
            self.finish_reset_later(branch.id);
        }
        result
    }

    fn finish_reset_later(self: &Arc<Self>, id: BranchId) {
        let (inner, slot) = (self.clone(), self.slot(id));
        tokio::spawn(async move {
            let waiting = Condition::new("branches_not_starting", format!("branch {id}"));
            while inner.waits_to_retry().await {
                let _held = slot.lock.lock().await;
                let Some(mut branch) = inner.resetting(id) else {
                    return;
                };
                match inner.redo_reset(&mut branch).await {
                    Ok(()) => return waiting.recover("the reset of a branch is finished"),
                    Err(error) if error.is_without_room() => {
                        waiting.fail(&error, "the reset of a branch waits for room");
                    }
                    Err(_) if inner.stopping.load(Ordering::Acquire) => return,
                    Err(error) => {
                        tracing::warn!(branch = %branch.name, %error, "the reset of a branch was not finished");
                        return;
                    }
                }
            }
        });
    }

    /// Undoes a reset that failed, now or later. The caller holds the slot.
    async fn undo_or_retry(
        self: &Arc<Self>,
        before: Branch,
        had_files: bool,
        former_template: HeldTemplate,
    ) {
        if let Err(error) = self.undo_reset(&before, had_files).await {
            tracing::warn!(branch = %before.name, %error, "a reset that failed was not undone: that is tried again");
            self.undo_reset_later(before, had_files, former_template);
        }
    }

    /// Undoes a reset that failed as soon as that can be done. Until then the row says `resetting`, so that an Egret that
    /// ends before does the reset at its next start.
    fn undo_reset_later(
        self: &Arc<Self>,
        before: Branch,
        had_files: bool,
        former_template: HeldTemplate,
    ) {
        let (inner, slot) = (self.clone(), self.slot(before.id));
        tokio::spawn(async move {
            let _former_template = former_template;
            let subject = format!("branch {}", before.id);
            let waiting = Condition::new("branches_not_starting", subject);
            while inner.waits_to_retry().await {
                let _held = slot.lock.lock().await;
                if inner.resetting(before.id).is_none() {
                    return;
                }
                match inner.undo_reset(&before, had_files).await {
                    Ok(()) => return waiting.recover("a reset that failed is undone"),
                    Err(error) => waiting.fail(&error, "a reset that failed is not undone yet"),
                }
            }
        });
    }

    /// Waits until something is to be tried again; `false` when Egret stops.
    async fn waits_to_retry(&self) -> bool {
        tokio::select! {
            () = self.ending() => false,
            () = tokio::time::sleep(RETRY_INTERVAL) => true,
        }
    }

    /// The row of a branch whose reset has not come to its end.
    pub(super) fn resetting(&self, id: BranchId) -> Option<Branch> {
        let found = self.started().ok()?.registry.branch(id);
        found.filter(|branch| branch.state == BranchState::Resetting)
    }

    async fn redo_reset(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        let id = branch.id;
        // Its boot id is that of the former files: a server that starts on the new ones changes it.
        let recorded = branch.clone();
        self.put_back(id).await?;
        let replaced = match self.check_room_for_template(branch.template).await {
            Ok(_) => self.replace_and_record(branch).await,
            Err(error) => Err(error),
        };
        let Err(error) = replaced else {
            return Ok(());
        };
        let has_files = self.put_back(id).await?;
        if error.is_without_room() || self.stopping.load(Ordering::Acquire) {
            return Err(error);
        }
        self.abandon_reset(recorded, has_files, error).await
    }

    /// Ends a reset that a crash interrupted and that could not be done again, after its former files were put back.
    ///
    /// # Errors
    /// Why it could not be done.
    async fn abandon_reset(
        self: &Arc<Self>,
        recorded: Branch,
        has_files: bool,
        error: BranchesError,
    ) -> Result<(), BranchesError> {
        let id = recorded.id;
        let manifest = read_manifest::<Branch>(&self.paths.branch(id)).filter(|_| has_files);
        match manifest {
            Some(before) if before.template == recorded.template => {
                self.stop_postmaster(id, StopMode::Fast).await?;
            }
            // The row names another template than the one that the former files are of.
            Some(before) if self.is_startable(&before, &recorded)? => {
                let former_template = HeldTemplate::new(self, before.template);
                self.stop_postmaster(id, StopMode::Fast).await?;
                let before = Branch {
                    boot_id: recorded.boot_id,
                    ..before
                };
                self.undo_or_retry(before, true, former_template).await;
                return Err(error);
            }
            _ => {
                self.stop_postmaster(id, StopMode::Immediate).await?;
                self.remove_files(id).await?;
            }
        }
        self.flush_volume().await?;
        self.give_up(recorded, &error);
        Err(error)
    }

    /// Whether the files that a branch had before a reset may run under the row that their manifest holds.
    fn is_startable(&self, before: &Branch, recorded: &Branch) -> Result<bool, BranchesError> {
        use BranchState::{Failed, Running, Suspended};
        let started = self.started()?;
        let template = started.registry.template(before.template);
        let is_ready = template.is_some_and(|template| template.state == TemplateState::Ready);
        Ok(is_ready
            && matches!(before.state, Failed | Running | Suspended)
            && !ran_in_a_crash(recorded, &started.boot_id))
    }

    /// Whether a template that no row names is needed still: by a reset that may be undone.
    pub(super) fn holds_template(&self, id: TemplateId) -> Result<bool, BranchesError> {
        if lock(&self.held_templates).contains(&id) {
            return Ok(true);
        }
        let is_resetting = |branch: &Branch| branch.state == BranchState::Resetting;
        let resetting = self.started()?.registry.branches_where(is_resetting);
        Ok(resetting.iter().any(|branch| {
            let before = read_manifest::<Branch>(&self.paths.branch(branch.id));
            before.is_some_and(|before| before.template == id)
        }))
    }

    /// Does a reset whose intent is recorded. Where that fails, the row says `resetting` still, and [`Inner::put_back`]
    /// brings the former files back. The caller holds the slot.
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
        self.clone_template(branch.template, staged).await?;
        // With all that was committed: the files may be put back, and commits do not wait for the disk in most presets.
        self.stop_postmaster(id, StopMode::Fast).await?;
        self.steps.before("reset.swap");
        let staged = self.paths.staged(id);
        blocking(move || {
            if data.exists() {
                fs::rename(&data, &former).map_err(io("rename", &data))?;
            }
            fs::rename(&staged, &data).map_err(io("rename", &staged))
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

    /// Records a reset whose server runs on the new files, and removes the former ones. The manifest describes these until
    /// they have a name under which they are not put back.
    async fn record_reset(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        branch.waits_for_room = false;
        branch.notice = None;
        branch.state = BranchState::Running;
        branch.failure = None;
        self.steps.before("reset.record");
        // Also while Egret stops: it is done.
        let started = self.started.get().ok_or(BranchesError::Stopping)?;
        started.registry.update_branch(branch)?;
        self.steps.before("reset.commit");
        let [_, staged, former] = self.paths.files_of(branch.id);
        let put_aside = blocking(move || {
            if former.exists() {
                fs::rename(&former, &staged).map_err(io("rename", &former))?;
            }
            Ok(())
        });
        if let Err(error) = put_aside.await {
            // They would be put back under this row, were the registry lost: the reset is not done.
            branch.state = BranchState::Resetting;
            started.registry.update_branch(branch)?;
            return Err(error);
        }
        self.slot(branch.id).forget_notice();
        self.refresh_manifest(branch);
        let (volume, staged) = (self.mounted().volume, self.paths.staged(branch.id));
        self.steps.before("reset.remove");
        let removed = blocking(move || volume.remove(&staged).map_err(io("remove", &staged))).await;
        if let Err(error) = removed {
            tracing::warn!(branch = %branch.name, %error, "the files of a branch before its reset stay until the next start");
        }
        Ok(())
    }

    /// Gives a branch the files and the row that it had before a reset that failed.
    async fn undo_reset(
        self: &Arc<Self>,
        before: &Branch,
        had_files: bool,
    ) -> Result<(), BranchesError> {
        let id = before.id;
        if had_files {
            self.put_back(id).await?;
            // Where the server runs on, nothing was replaced. Else the row, which is on the disk at once, may not say that
            // the reset is over while files on the disk are still those of the copy.
            if self.slot(id).live().is_none() {
                self.flush_volume().await?;
            }
        } else {
            self.stop_postmaster(id, StopMode::Immediate).await?;
            self.remove_files(id).await?;
            self.flush_volume().await?;
        }
        // Also while Egret stops: a reset that was refused is not done at the next start.
        let started = self.started.get().ok_or(BranchesError::Stopping)?;
        started.registry.update_branch(before)?;
        self.refresh_manifest(before);
        let is_down = before.state == BranchState::Running && self.slot(id).live().is_none();
        if is_down
            && !self.stopping.load(Ordering::Acquire)
            && let Err(error) = self.start_again(&mut before.clone()).await
        {
            tracing::warn!(branch = %before.name, %error, "a branch did not start after its reset was undone");
            self.revive_later(id);
        }
        Ok(())
    }

    /// Removes what an earlier reset of a branch has left: former files are put back only while that reset is not
    /// recorded. Returns whether the branch has files then. The caller holds the slot.
    async fn tidy_up(&self, branch: &Branch) -> Result<bool, BranchesError> {
        if branch.state == BranchState::Resetting {
            return self.put_back(branch.id).await;
        }
        self.remove_leftovers(branch.id).await?;
        Ok(self.paths.branch(branch.id).exists())
    }

    /// Puts the former files of a branch back, where they are kept, and removes a staged copy. Returns whether the branch
    /// has files then.
    pub(super) async fn put_back(&self, id: BranchId) -> Result<bool, BranchesError> {
        let [data, staged, former] = self.paths.files_of(id);
        let is_replaced = former.exists();
        if is_replaced {
            self.stop_postmaster(id, StopMode::Immediate).await?;
        }
        let volume = self.mounted().volume;
        blocking(move || {
            volume.remove(&staged).map_err(io("remove", &staged))?;
            if is_replaced {
                volume.remove(&data).map_err(io("remove", &data))?;
                fs::rename(&former, &data).map_err(io("rename", &former))?;
            }
            Ok(data.exists())
        })
        .await
    }

    /// Removes the files of a branch, those that a reset has left among them.
    pub(super) async fn remove_files(&self, id: BranchId) -> Result<(), BranchesError> {
        let (volume, files) = (self.mounted().volume, self.paths.files_of(id));
        blocking(move || {
            for path in files {
                volume.remove(&path).map_err(io("remove", &path))?;
            }
            Ok(())
        })
        .await
    }

    /// Removes what a crash has left of a reset that is recorded; former files are put back where there are no others.
    pub(super) async fn remove_leftovers(&self, id: BranchId) -> Result<(), BranchesError> {
        let (volume, kept) = (self.mounted().volume, self.mounted().volume);
        let [data, staged, former] = self.paths.files_of(id);
        let are_removed = blocking(move || {
            volume.remove(&staged).map_err(io("remove", &staged))?;
            if !former.exists() {
                return Ok(false);
            }
            let is_there = data.exists();
            let to = if is_there { &staged } else { &data };
            fs::rename(&former, to).map_err(io("rename", &former))?;
            Ok(is_there)
        });
        if !are_removed.await? {
            return Ok(());
        }
        // Under this name they are not put back, also when they are removed in part only.
        if let Some(branch) = self.started()?.registry.branch(id) {
            self.refresh_manifest(&branch);
        }
        let staged = self.paths.staged(id);
        blocking(move || kept.remove(&staged).map_err(io("remove", &staged))).await
    }
}
