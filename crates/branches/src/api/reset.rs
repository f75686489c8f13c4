//! Reset: the files of a branch are replaced by those of a template.
//!
//! The copy is *staged* beside the branch's files while its server still runs; the *former* files are kept there until a
//! server runs on the copy. So a reset that fails, for want of room on the volume or for a server, leaves the branch as
//! it was. After a crash the row says `resetting`: the former files are put back, and the reset is done again.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use egret_base::Condition;
use egret_postgres::postmaster::StopMode;

use super::{Inner, lock};
use crate::error::{BranchesError, io};
use crate::model::{Branch, BranchId, BranchState, TemplateId};
use crate::store::files::write_manifest;
use crate::store::source::blocking;

/// How long an interrupted reset that found no room waits before it is tried again.
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
        let had_files = self.put_back(before.id).await?;
        let mut branch = before.clone();
        // From here until the row is there the template may not be removed.
        let gate = self.templates_gate.read().await;
        let _former_template = HeldTemplate::new(self, before.template);
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
        if let Err(error) = self.replace_files(&mut branch).await {
            if let Err(undoing) = self.undo_reset(before, had_files).await {
                tracing::warn!(branch = %branch.name, error = %undoing, "a reset that failed was not undone: it is done again at the next start");
            }
            return Err(error);
        }
        self.record_reset(&mut branch).await?;
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
            loop {
                tokio::select! {
                    () = inner.ending() => return,
                    () = tokio::time::sleep(RETRY_INTERVAL) => {}
                }
                let _held = slot.lock.lock().await;
                let Ok(started) = inner.started() else {
                    return;
                };
                let found = started.registry.branch(id);
                let Some(mut branch) =
                    found.filter(|branch| branch.state == BranchState::Resetting)
                else {
                    return;
                };
                match inner.redo_reset(&mut branch).await {
                    Ok(()) => return waiting.recover("the reset of a branch is finished"),
                    Err(error) if error.is_without_room() => {
                        waiting.fail(&error, "the reset of a branch waits for room");
                    }
                    Err(error) => {
                        tracing::warn!(branch = %branch.name, %error, "the reset of a branch was not finished");
                        return;
                    }
                }
            }
        });
    }

    async fn redo_reset(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        self.put_back(branch.id).await?;
        let Err(error) = self.replace_files(branch).await else {
            return self.record_reset(branch).await;
        };
        self.put_back(branch.id).await?;
        if !error.is_without_room() {
            // The row may name another template than the one that the former files are of.
            self.stop_postmaster(branch.id, StopMode::Immediate).await?;
            self.remove_files(branch.id).await?;
            self.give_up(branch.clone(), &error);
        }
        Err(error)
    }

    /// Puts a copy of the template in the place of a branch's files and starts its server on it. Where that fails,
    /// [`Inner::put_back`] brings the former files back. The caller holds the slot.
    async fn replace_files(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        let id = branch.id;
        let [data, staged, former] = self.paths.files_of(id);
        self.clone_template(branch.template, staged).await?;
        self.stop_postmaster(id, StopMode::Immediate).await?;
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
        self.steps.before("reset.commit");
        let [_, staged, former] = self.paths.files_of(id);
        // Under the name of the copy they are not put back, also when they are removed in part only.
        blocking(move || {
            if former.exists() {
                fs::rename(&former, &staged).map_err(io("rename", &former))?;
            }
            Ok(())
        })
        .await
    }

    /// Records a reset whose server runs on the new files, which is not undone any more.
    async fn record_reset(self: &Arc<Self>, branch: &mut Branch) -> Result<(), BranchesError> {
        let (volume, staged) = (self.mounted().volume, self.paths.staged(branch.id));
        self.steps.before("reset.remove");
        let removed = blocking(move || volume.remove(&staged).map_err(io("remove", &staged))).await;
        if let Err(error) = removed {
            tracing::warn!(branch = %branch.name, %error, "the files of a branch before its reset stay until the next start");
        }
        self.slot(branch.id).forget_notice();
        branch.waits_for_room = false;
        branch.state = BranchState::Running;
        branch.failure = None;
        let recorded = write_manifest(&self.paths.branch(branch.id), branch).and_then(|()| {
            self.steps.before("reset.record");
            Ok(self.started()?.registry.update_branch(branch)?)
        });
        if let Err(error) = &recorded {
            self.stop_postmaster(branch.id, StopMode::Immediate).await?;
            self.give_up(branch.clone(), error);
        }
        recorded
    }

    /// Gives a branch the files and the row that it had before a reset that failed.
    async fn undo_reset(
        self: &Arc<Self>,
        before: Branch,
        had_files: bool,
    ) -> Result<(), BranchesError> {
        let id = before.id;
        if had_files {
            self.put_back(id).await?;
        } else {
            self.stop_postmaster(id, StopMode::Immediate).await?;
            self.remove_files(id).await?;
        }
        self.started()?.registry.update_branch(&before)?;
        if before.state == BranchState::Running && self.slot(id).live().is_none() {
            self.revive_later(id);
        }
        Ok(())
    }

    /// Puts the former files of a branch back, where they are kept, and removes a staged copy. Returns whether the branch
    /// has files then.
    async fn put_back(&self, id: BranchId) -> Result<bool, BranchesError> {
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

    /// Removes what a crash has left of a reset that is recorded.
    pub(super) async fn remove_leftovers(&self, id: BranchId) -> Result<(), BranchesError> {
        let volume = self.mounted().volume;
        let [_, staged, former] = self.paths.files_of(id);
        blocking(move || {
            for path in [staged, former] {
                volume.remove(&path).map_err(io("remove", &path))?;
            }
            Ok(())
        })
        .await
    }
}
