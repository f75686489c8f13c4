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

use crate::core::reconcile::ran_in_a_crash;
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
        let result = self.settle_reset(id, slot).await;
        if result.is_err() && self.resetting(id).is_some() {
            self.settle_reset_later(id);
        }
        result
    }

    /// Undoes a reset that failed; when that fails too, it is tried again later. The caller holds
    /// the slot.
    pub(super) async fn undo_or_retry(self: &Arc<Self>, undo: PendingUndo, slot: &BranchSlot) {
        let (id, name) = (undo.before.id, undo.before.name.clone());
        *lock(&slot.pending_undo) = Some(undo);
        if let Err(error) = self.undo_pending(id, slot).await {
            tracing::warn!(branch = %name, %error, "cannot undo a failed reset of a branch; retrying");
            self.settle_reset_later(id);
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
            .map(|undo| (undo.before.clone(), undo.had_files));
        if let Some((before, had_files)) = pending {
            // It may have been destroyed.
            if self.resetting(id).is_some() {
                self.undo_reset(&before, had_files).await?;
            }
            *lock(&slot.pending_undo) = None;
        }
        Ok(())
    }

    /// Brings a reset to its end, where it has not come there. The caller holds the slot.
    async fn settle_reset(
        self: &Arc<Self>,
        id: BranchId,
        slot: &BranchSlot,
    ) -> Result<(), BranchesError> {
        self.undo_pending(id, slot).await?;
        match self.resetting(id) {
            Some(mut branch) => self.redo_reset(&mut branch, slot).await,
            None => Ok(()),
        }
    }

    /// Brings a reset to its end as soon as that can be done. An Egret that ends before does the
    /// reset at its next start.
    fn settle_reset_later(self: &Arc<Self>, id: BranchId) {
        let (inner, slot) = (self.clone(), self.slot(id));
        tokio::spawn(async move {
            let waiting = Condition::new("branches_not_starting", format!("branch {id}"));
            while inner.waits_to_retry().await {
                let _held = slot.lock.lock().await;
                match inner.settle_reset(id, &slot).await {
                    Ok(()) => return waiting.recover("the reset of a branch has finished"),
                    Err(_) if inner.stopping.load(Ordering::Acquire) => return,
                    Err(error) if inner.resetting(id).is_some() => {
                        waiting.fail(&error, "cannot finish the reset of a branch yet; retrying");
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
    async fn waits_to_retry(&self) -> bool {
        tokio::select! {
            () = self.ending() => false,
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
        self.put_back(id).await?;
        // Nothing is copied while the end of the reset could not be recorded.
        self.started()?.registry.update_branch(&recorded)?;
        let checked = self
            .check_room_for_reset(&recorded.tenant, recorded.template)
            .await;
        let replaced = match checked {
            Ok(()) => self.replace_and_record(branch).await,
            Err(error) => Err(error),
        };
        let Err(error) = replaced else {
            return Ok(());
        };
        let has_files = self.put_back(id).await?;
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
            Some(before) if self.is_startable(&before, &recorded)? => {
                let former_template = HeldTemplate::new(&self.held_templates, before.template);
                self.stop_postmaster(id, StopMode::Fast).await?;
                let before = Branch {
                    boot_id: recorded.boot_id,
                    ..before
                };
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
        self.give_up(recorded, &error);
        Err(error)
    }

    /// Whether the files that a branch had before a reset may run under the row that their manifest
    /// holds.
    fn is_startable(&self, before: &Branch, recorded: &Branch) -> Result<bool, BranchesError> {
        use BranchState::{Failed, Running, Suspended};
        let started = self.started()?;
        let template = started.registry.template(before.template);
        let is_ready = template.is_some_and(|template| template.state == TemplateState::Ready);
        Ok(is_ready
            && matches!(before.state, Failed | Running | Suspended)
            && !ran_in_a_crash(recorded, &started.boot_id))
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
            // Where the server runs on, nothing was replaced. Else the row, which is on the disk at
            // once, may not say that the reset is over while files on the disk are still those of
            // the copy.
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
            tracing::warn!(branch = %before.name, %error, "a branch does not start after its reset was undone");
            self.start_later(id, &error);
        }
        Ok(())
    }
}
