//! Bringing registry and disk together when Egret starts.

use std::sync::Arc;

use egret_postgres::postmaster::StopMode;

use crate::core::reconcile::{DiskSurvey, Repair, reconcile, repair_for_branch};
use crate::engine::Inner;
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchState, Template, TemplateId};
use crate::store::files::SOCKET_PORT;
use crate::store::files::{self, read_former_manifest, read_manifest, remove_directory};
use crate::store::source::run_blocking;

impl Inner {
    /// Carries out every repair; returns the branches that are still to be started, which may take
    /// a while and is done while Egret serves.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<Vec<BranchId>, BranchesError> {
        let state = self.state()?;
        let paths = self.paths.clone();
        let disk = run_blocking(move || files::survey(&paths)).await?;
        let repairs = reconcile(&state.registry.branches(), &state.registry.templates(), &disk);
        let mut to_start = Vec::new();
        for repair in repairs {
            tracing::debug!(?repair, "a repair");
            self.crash_points.before("recover.repair");
            match self.repair(repair.clone(), &disk).await {
                Ok(branch_to_start) => to_start.extend(branch_to_start),
                // One branch that cannot be helped is no reason to keep the others and the source
                // down.
                Err(error) => tracing::error!(?repair, %error, "a repair failed"),
            }
        }
        Ok(to_start)
    }

    async fn repair(
        self: &Arc<Self>,
        repair: Repair,
        disk: &DiskSurvey,
    ) -> Result<Option<BranchId>, BranchesError> {
        match repair {
            Repair::Adopt(id) => {
                if !self.adopt(id).await? {
                    return Ok(Some(id));
                }
            }
            Repair::Start(id) | Repair::FinishReset(id) => return Ok(Some(id)),
            Repair::StopStray(id) => self.stop_stray(id).await?,
            Repair::Discard(id) => {
                if let Some(branch) = self.state()?.registry.branch(id) {
                    self.mark_deleted(branch)?;
                }
            }
            Repair::Fail(id, reason) => self.mark_failed(id, reason)?,
            Repair::RestoreTemplate(id) => self.restore_template(id)?,
            Repair::RestoreBranch(id) => {
                let next = match self.restore_branch(id, disk).await? {
                    Some(branch) => repair_for_branch(&branch, disk),
                    None => Some(Repair::ReportForeign(format!("branches/{}", id.hex()))),
                };
                if let Some(next) = next {
                    return Box::pin(self.repair(next, disk)).await;
                }
            }
            Repair::DiscardTemplate(id) => self.remove_template(id).await?,
            Repair::RemoveLeftovers(id) => self.remove_leftovers(id).await?,
            Repair::RemoveSocket(id) => remove_directory(&self.paths.socket_dir(id))?,
            Repair::ReportForeign(name) => {
                tracing::warn!(name, "ignoring an unexpected file on the volume");
            }
        }
        Ok(None)
    }

    /// Takes over the postmaster that an earlier Egret left running.
    async fn adopt(self: &Arc<Self>, id: BranchId) -> Result<bool, BranchesError> {
        let state = self.state()?;
        let Some(mut branch) = state.registry.branch(id) else {
            return Ok(false);
        };
        let Some(postmaster) = self.adopt_postmaster(&self.paths.branch(id))? else {
            return Ok(false);
        };
        let socket_dir = self.paths.socket_dir(id);
        let log_file = socket_dir.join("server.log");
        let taken_over = async {
            postmaster.link_socket(&socket_dir, SOCKET_PORT, &log_file)?;
            let timeout = self.config.start_timeout.duration();
            postmaster.await_ready(timeout, &log_file).await
        };
        if let Err(error) = taken_over.await {
            tracing::warn!(branch = %branch.name, %error, "cannot take over the running server of a branch");
            return Ok(false);
        }
        branch.state = BranchState::Running;
        branch.boot_id = Some(state.boot_id.clone());
        branch.postmaster = Some((postmaster.pid(), postmaster.start_ticks()));
        state.registry.update_branch(&branch)?;
        self.refresh_manifest(&branch);
        self.attach_postmaster(id, Arc::new(postmaster));
        Ok(true)
    }

    fn mark_failed(&self, id: BranchId, reason: &str) -> Result<(), BranchesError> {
        let registry = &self.state()?.registry;
        if let Some(mut branch) = registry.branch(id) {
            tracing::warn!(branch = %branch.name, reason, "a branch cannot run");
            branch.state = BranchState::Failed;
            branch.failure = Some(reason.to_owned());
            branch.postmaster = None;
            registry.update_branch(&branch)?;
        }
        Ok(())
    }

    fn restore_template(&self, id: TemplateId) -> Result<(), BranchesError> {
        if let Some(template) = read_manifest::<Template>(&self.paths.template(id)) {
            tracing::warn!(template = %id, "a template was missing from the registry; restored it from its manifest");
            self.state()?.registry.put_template(&template)?;
        }
        Ok(())
    }

    /// Makes the row of a branch again; `None` where its name is that of a newer one, so that it
    /// had been destroyed.
    async fn restore_branch(
        &self,
        id: BranchId,
        disk: &DiskSurvey,
    ) -> Result<Option<Branch>, BranchesError> {
        let registry = &self.state()?.registry;
        let Some(branch) = read_former_manifest(&self.paths.branch(id)) else {
            return Ok(None);
        };
        if registry.branch_named(&branch.tenant, &branch.name).is_some() {
            self.stop_postmaster(id, StopMode::Fast).await?;
            return Ok(None);
        }
        // Of a reset that was under way: the manifest then says what the former files are.
        self.restore_former_files(id).await?;
        if disk.former_files.contains(&id) {
            self.flush_volume().await?;
        }
        let Some(branch) = read_manifest::<Branch>(&self.paths.branch(id)) else {
            return Ok(None);
        };
        tracing::warn!(branch = %branch.name, "a branch was missing from the registry; restored it from its manifest");
        registry.insert_branch(&branch)?;
        Ok(Some(branch))
    }

    /// Stops the server of a branch that is not to run. What it has written is on the disk then, so
    /// that the branch can be trusted after a crash of the machine.
    async fn stop_stray(&self, id: BranchId) -> Result<(), BranchesError> {
        self.stop_postmaster(id, StopMode::Fast).await?;
        self.flush_volume().await?;
        let state = self.state()?;
        let found = state.registry.branch(id);
        let ran_in_this_boot = |branch: &Branch| branch.boot_id.as_ref() == Some(&state.boot_id);
        if let Some(mut branch) = found.filter(ran_in_this_boot) {
            branch.boot_id = None;
            branch.postmaster = None;
            state.registry.update_branch(&branch)?;
            self.refresh_manifest(&branch);
        }
        Ok(())
    }

    /// Starts a branch that was running before Egret stopped, or finishes its reset.
    pub(crate) async fn resume_after_restart(
        self: &Arc<Self>,
        id: BranchId,
    ) -> Result<(), BranchesError> {
        let slot = self.slot(id);
        let _slot_guard = slot.lock.lock().await;
        let Some(mut branch) = self.state()?.registry.branch(id) else {
            return Ok(());
        };
        if slot.postmaster().is_some() {
            return Ok(());
        }
        match branch.state {
            BranchState::Resetting => self.finish_reset(id, &slot).await,
            BranchState::Running => {
                let result = self.start_branch(&mut branch).await;
                match &result {
                    Err(error) if error.is_external() => self.schedule_start_retry(id, error),
                    Err(error) => self.record_failure(branch, error),
                    Ok(()) => {}
                }
                result
            }
            _ => Ok(()),
        }
    }
}
