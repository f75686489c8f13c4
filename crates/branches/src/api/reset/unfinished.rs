//! Resets that have not come to their end: one that failed is undone, one that a crash interrupted
//! is done again.
//!
//! Either is tried again until it is done, and the row says `resetting` until then. What is to be
//! undone is kept in the branch's slot, so that whatever is done with the branch next finds it: its
//! row names the template of the reset that failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egret_base::Condition;
use egret_base::sync::lock;
use egret_postgres::postmaster::StopMode;

use crate::core::reconcile::ran_during_crash;
use crate::engine::{BranchSlot, HeldTemplate, Inner, PendingUndo};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchState, TemplateState};
use crate::store::files::read_former_manifest;

/// How long a reset that could not be undone, or not be done again, waits before that is tried
/// again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Inner {
    /// Does a reset again that a crash interrupted; when that fails, it is tried again later. The
    /// caller holds the slot.
    pub(crate) async fn finish_reset(
        self: &Arc<Self>,
        id: BranchId,
        slot: &BranchSlot,
    ) -> Result<(), BranchesError> {
        let result = self.try_finish_reset(id, slot).await;
        if result.is_err() && self.resetting_branch(id).is_some() {
            self.schedule_reset_retry(id);
        }
        result
    }

    /// Undoes a reset that failed; when that fails too, it is tried again later. The caller holds
    /// the slot.
    pub(super) async fn undo_or_retry(self: &Arc<Self>, undo: PendingUndo, slot: &BranchSlot) {
        let (id, name) = (undo.branch_before.id, undo.branch_before.name.clone());
        *lock(&slot.pending_undo) = Some(undo);
        if let Err(error) = self.undo_pending(id, slot).await {
            tracing::warn!(branch = %name, %error, "cannot undo a failed reset of a branch; retrying");
            self.schedule_reset_retry(id);
        }
    }

    /// Undoes the reset of a branch that failed, where that is still to be done. The caller holds
    /// the slot.
    pub(super) async fn undo_pending(
        self: &Arc<Self>,
        id: BranchId,
        slot: &BranchSlot,
    ) -> Result<(), BranchesError> {
        let pending = lock(&slot.pending_undo)
            .as_ref()
            .map(|undo| (undo.branch_before.clone(), undo.had_files));
        if let Some((branch_before, had_files)) = pending {
            // It may have been destroyed.
            if self.resetting_branch(id).is_some() {
                self.undo_reset(&branch_before, had_files).await?;
            }
            *lock(&slot.pending_undo) = None;
        }
        Ok(())
    }

    /// Brings a reset to its end, where it has not come there. The caller holds the slot.
    async fn try_finish_reset(
        self: &Arc<Self>,
        id: BranchId,
        slot: &BranchSlot,
    ) -> Result<(), BranchesError> {
        self.undo_pending(id, slot).await?;
        match self.resetting_branch(id) {
            Some(mut branch) => self.redo_reset(&mut branch, slot).await,
            None => Ok(()),
        }
    }

    /// Brings a reset to its end as soon as that can be done. An Egret that ends before does the
    /// reset at its next start.
    fn schedule_reset_retry(self: &Arc<Self>, id: BranchId) {
        let (inner, slot) = (self.clone(), self.slot(id));
        tokio::spawn(async move {
            let retry_condition = Condition::new("branches_not_starting", format!("branch {id}"));
            while inner.wait_for_retry().await {
                let _slot_guard = slot.lock.lock().await;
                match inner.try_finish_reset(id, &slot).await {
                    Ok(()) => return retry_condition.recover("the reset of a branch has finished"),
                    Err(_) if inner.stopping.load(Ordering::Acquire) => return,
                    Err(error) if inner.resetting_branch(id).is_some() => {
                        retry_condition
                            .fail(&error, "cannot finish the reset of a branch yet; retrying");
                    }
                    Err(error) => {
                        tracing::warn!(branch = %id, %error, "cannot finish the reset of a branch");
                        return;
                    }
                }
            }
        });
    }

    /// Waits for the retry interval; `false` when Egret stops meanwhile.
    async fn wait_for_retry(&self) -> bool {
        tokio::select! {
            () = self.await_stop() => false,
            () = tokio::time::sleep(RETRY_INTERVAL) => true,
        }
    }

    async fn redo_reset(
        self: &Arc<Self>,
        branch: &mut Branch,
        slot: &BranchSlot,
    ) -> Result<(), BranchesError> {
        let id = branch.id;
        // Its boot id is that of the former files: a server that starts on the new ones changes it.
        let recorded = branch.clone();
        self.restore_former_files(id).await?;
        // Nothing is copied while the end of the reset could not be recorded.
        self.state()?.registry.update_branch(&recorded)?;
        let checked = self.check_room_for_reset(&recorded.tenant, recorded.template).await;
        let replaced = match checked {
            Ok(()) => self.replace_and_record(branch).await,
            Err(error) => Err(error),
        };
        let Err(error) = replaced else {
            return Ok(());
        };
        let has_files = self.restore_former_files(id).await?;
        if error.is_external() || self.stopping.load(Ordering::Acquire) {
            return Err(error);
        }
        self.abandon_reset(recorded, has_files, error, slot).await
    }

    /// Ends a reset that a crash interrupted and that could not be done again, after its former
    /// files were put back.
    ///
    /// # Errors
    /// Why it could not be done, or why it could not be ended; then the row says `resetting` still.
    async fn abandon_reset(
        self: &Arc<Self>,
        recorded: Branch,
        has_files: bool,
        error: BranchesError,
        slot: &BranchSlot,
    ) -> Result<(), BranchesError> {
        let id = recorded.id;
        let manifest = read_former_manifest(&self.paths.branch(id)).filter(|_| has_files);
        match manifest {
            Some(before) if before.template == recorded.template => {
                self.stop_postmaster(id, StopMode::Fast).await?;
            }
            // The row names another template than the one that the former files are of.
            Some(branch_before) if self.is_startable(&branch_before, &recorded)? => {
                let former_template =
                    HeldTemplate::new(&self.held_templates, branch_before.template);
                self.stop_postmaster(id, StopMode::Fast).await?;
                let before = Branch { boot_id: recorded.boot_id, ..branch_before };
                let undo = PendingUndo::new(before, true, former_template);
                *lock(&slot.pending_undo) = Some(undo);
                self.undo_pending(id, slot).await?;
                return Err(error);
            }
            _ => {
                self.stop_postmaster(id, StopMode::Immediate).await?;
                self.remove_files(id).await?;
            }
        }
        self.flush_volume().await?;
        self.record_failure(recorded, &error);
        Err(error)
    }

    /// Whether the files that a branch had before a reset may run under the row that their manifest
    /// holds.
    fn is_startable(
        &self,
        branch_before: &Branch,
        recorded: &Branch,
    ) -> Result<bool, BranchesError> {
        use BranchState::{Failed, Running, Suspended};
        let state = self.state()?;
        let template = state.registry.template(branch_before.template);
        let is_ready = template.is_some_and(|template| template.state == TemplateState::Ready);
        Ok(is_ready
            && matches!(branch_before.state, Failed | Running | Suspended)
            && !ran_during_crash(recorded, &state.boot_id))
    }

    /// Gives a branch the files and the row that it had before a reset that failed.
    async fn undo_reset(
        self: &Arc<Self>,
        branch_before: &Branch,
        had_files: bool,
    ) -> Result<(), BranchesError> {
        let id = branch_before.id;
        if had_files {
            self.restore_former_files(id).await?;
            // Where the server runs on, nothing was replaced. Else the row, which is on the disk at
            // once, may not say that the reset is over while files on the disk are still those of
            // the copy.
            if self.slot(id).postmaster().is_none() {
                self.flush_volume().await?;
            }
        } else {
            self.stop_postmaster(id, StopMode::Immediate).await?;
            self.remove_files(id).await?;
            self.flush_volume().await?;
        }
        // Also while Egret stops: a reset that was refused is not done at the next start.
        let state = self.state.get().ok_or(BranchesError::Stopping)?;
        state.registry.update_branch(branch_before)?;
        self.refresh_manifest(branch_before);
        let is_down =
            branch_before.state == BranchState::Running && self.slot(id).postmaster().is_none();
        if is_down
            && !self.stopping.load(Ordering::Acquire)
            && let Err(error) = self.start_branch(&mut branch_before.clone()).await
        {
            tracing::warn!(branch = %branch_before.name, %error, "a branch does not start after its reset was undone");
            self.schedule_start_retry(id, &error);
        }
        Ok(())
    }
}
