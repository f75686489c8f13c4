//! Starting, watching and stopping the postmasters of branches.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::sync::lock;
use egret_base::{CodedError, Condition};
use egret_postgres::cluster::create_private_directory;
use egret_postgres::postmaster::{Launch, Postmaster, StopMode, kill_orphans};
use egret_postgres::supervise::Decision;

use super::memory::note_kills_of;
use crate::core::preset;
use crate::engine::{BranchSlot, Inner};
use crate::error::{BranchesError, io_error};
use crate::model::{Branch, BranchId, BranchState, Preset, Template};
use crate::store::files::SOCKET_PORT;
use crate::store::files::{
    manifest_path, remove_file, restore_former_manifest, write_branch_manifest,
    write_double_manifest,
};

impl Inner {
    /// Starts a branch's postmaster, waits until it accepts connections and notes it in the row,
    /// which the caller stores.
    pub(super) async fn start_postmaster(
        self: &Arc<Self>,
        branch: &mut Branch,
        template: &Template,
    ) -> Result<(), BranchesError> {
        let state = self.state()?;
        let socket_dir = self.paths.socket_dir(branch.id);
        create_private_directory(&socket_dir, &state.owner)?;
        let log_file = socket_dir.join("server.log");
        remove_file(&log_file)?;
        self.crash_points.before("start.launch");
        let launch = Launch {
            binaries: state.binaries.clone(),
            data: self.paths.branch(branch.id),
            socket_dir,
            port: SOCKET_PORT,
            settings: preset::settings(
                branch.preset,
                branch.durable,
                &branch.settings,
                state.binaries.major,
                &template.preload_libraries,
                &branch.name,
            ),
            owner: state.owner.clone(),
            isolation: Some(state.isolation.clone()),
            log_file: log_file.clone(),
            nice: match branch.preset {
                Preset::Twin => 0,
                _ => self.config.nice.min(19),
            },
            oom_score_adj: i16::try_from(self.config.oom_score_adj).unwrap_or(1_000).min(1_000),
        };
        let postmaster = Arc::new(Postmaster::launch(&launch).await?);
        self.crash_points.before("start.ready");
        let timeout = self.config.start_timeout.duration();
        if let Err(error) = postmaster.await_ready(timeout, &log_file).await {
            postmaster.stop(StopMode::Immediate, self.config.stop_timeout.duration()).await;
            return Err(error.into());
        }
        branch.boot_id = Some(state.boot_id.clone());
        branch.postmaster = Some((postmaster.pid(), postmaster.start_ticks()));
        self.attach_postmaster(branch.id, postmaster);
        Ok(())
    }

    /// Makes a running postmaster the branch's own and watches for its end.
    pub(super) fn attach_postmaster(self: &Arc<Self>, id: BranchId, postmaster: Arc<Postmaster>) {
        let slot = self.slot(id);
        slot.memory_kills.store(postmaster.memory_kills(), Ordering::Release);
        slot.set_postmaster(postmaster.clone());
        let inner = self.clone();
        tokio::spawn(async move {
            postmaster.await_exit().await;
            note_kills_of(id, &slot, &postmaster);
            if inner.discard_if_pooled(id) {
                inner.metrics.count_postmaster_exit();
                return;
            }
            let is_unexpected =
                slot.postmaster().is_some_and(|live| Arc::ptr_eq(&live, &postmaster));
            if is_unexpected {
                slot.take_postmaster();
                slot.drop_warm_sessions();
                inner.restart_after_exit(id, &slot).await;
            }
        });
    }

    /// Starts a branch whose postmaster ended although nothing had stopped it.
    async fn restart_after_exit(self: &Arc<Self>, id: BranchId, slot: &BranchSlot) {
        tracing::warn!(branch = %id, "the postmaster of a branch exited unexpectedly");
        self.metrics.count_postmaster_exit();
        let decision = lock(&slot.restarts).record_exit(self.now());
        self.retry_start(id, slot, decision).await;
    }

    /// Starts a branch that is to run and does not, less and less eagerly.
    async fn retry_start(
        self: &Arc<Self>,
        id: BranchId,
        slot: &BranchSlot,
        mut decision: Decision,
    ) {
        let start_condition = Condition::new("branches_not_starting", format!("branch {id}"));
        loop {
            tokio::time::sleep(decision.wait).await;
            let _slot_guard = slot.lock.lock().await;
            let Ok(state) = self.state() else {
                return;
            };
            let found = state.registry.branch(id);
            let Some(mut branch) = found.filter(|branch| branch.state == BranchState::Running)
            else {
                return;
            };
            if slot.postmaster().is_some() {
                return;
            }
            let Err(error) = self.start_branch(&mut branch).await else {
                return start_condition.recover("a branch has restarted");
            };
            if error.is_external() {
                // It has not failed: that is no step towards a crash loop.
                decision = decision.with_longer_wait();
            } else if decision.is_crash_loop {
                tracing::error!(branch = %branch.name, %error, "giving up on a branch: its server keeps failing to start");
                self.record_failure(branch, &error);
                return;
            } else {
                decision = lock(&slot.restarts).record_exit(self.now());
            }
            start_condition.fail(&error, "cannot restart a branch; retrying");
        }
    }

    /// Starts a branch whose postmaster ended while no Egret watched it.
    pub(super) fn spawn_restart_after_exit(self: &Arc<Self>, id: BranchId) {
        let (inner, slot) = (self.clone(), self.slot(id));
        slot.drop_warm_sessions();
        tokio::spawn(async move { inner.restart_after_exit(id, &slot).await });
    }

    /// Starts a branch later that is to run and whose start has failed. Its postmaster has not
    /// ended by itself: only a start that fails by the branch's own fault is a step towards a crash
    /// loop.
    pub(super) fn schedule_start_retry(self: &Arc<Self>, id: BranchId, error: &BranchesError) {
        let (inner, slot) = (self.clone(), self.slot(id));
        let decision = {
            let mut restarts = lock(&slot.restarts);
            if error.is_external() {
                restarts.decide(self.now())
            } else {
                restarts.record_exit(self.now())
            }
        };
        tokio::spawn(async move { inner.retry_start(id, &slot, decision).await });
    }

    /// Starts the postmaster of a branch whose files are there, and stores the row as running. The
    /// caller holds the slot.
    pub(super) async fn start_branch(
        self: &Arc<Self>,
        branch: &mut Branch,
    ) -> Result<(), BranchesError> {
        let boot_id = &self.state()?.boot_id;
        kill_orphans(&self.paths.branch(branch.id)).await;
        let template = self.template_of(branch)?;
        let previous_boot_id = branch.boot_id.clone();
        let is_first_start = !branch.durable && previous_boot_id.as_ref() != Some(boot_id);
        if is_first_start {
            // Before the server writes: a crash of the machine may tear what it has written, also
            // where it never gets ready.
            self.crash_points.before("start.intent");
            self.record_boot_id(branch.id, Some(boot_id.clone()))?;
            branch.boot_id = Some(boot_id.clone());
        }
        let result = self.start_and_record(branch, &template).await;
        if is_first_start && result.is_err() && self.slot(branch.id).postmaster().is_none() {
            // For want of room no process was started.
            let has_run = !result.as_ref().is_err_and(BranchesError::is_without_room);
            self.restore_boot_id(branch, previous_boot_id, has_run).await;
        }
        result
    }

    async fn start_and_record(
        self: &Arc<Self>,
        branch: &mut Branch,
        template: &Template,
    ) -> Result<(), BranchesError> {
        let state = self.state()?;
        self.start_postmaster(branch, template).await?;
        let running = Branch { state: BranchState::Running, failure: None, ..branch.clone() };
        self.crash_points.before("start.record");
        if let Err(error) = state.registry.update_branch(&running) {
            // A server whose row says that it does not run would never be suspended.
            if branch.state != BranchState::Running {
                self.stop_postmaster(branch.id, StopMode::Fast).await?;
            }
            return Err(error.into());
        }
        *branch = running;
        self.refresh_manifest(branch);
        Ok(())
    }

    /// Records in which boot of the machine the files of a branch may hold writes that are not on
    /// the disk.
    fn record_boot_id(&self, id: BranchId, boot_id: Option<String>) -> Result<(), BranchesError> {
        // Also while Egret stops: what a start has done is undone.
        let state = self.state.get().ok_or(BranchesError::Stopping)?;
        if let Some(row) = state.registry.branch(id) {
            let row = Branch { boot_id, ..row };
            state.registry.update_branch(&row)?;
            self.refresh_manifest(&row);
        }
        Ok(())
    }

    /// Gives a branch whose start has failed the boot that it had before, once what its server may
    /// have written is on the disk. Where that fails it is not trusted after a crash of the
    /// machine.
    async fn restore_boot_id(
        &self,
        branch: &mut Branch,
        previous_boot_id: Option<String>,
        has_run: bool,
    ) {
        let flushed = if has_run { self.flush_volume().await } else { Ok(()) };
        match flushed.and_then(|()| self.record_boot_id(branch.id, previous_boot_id.clone())) {
            Ok(()) => branch.boot_id = previous_boot_id,
            Err(error) => {
                tracing::debug!(branch = %branch.name, %error, "cannot flush the files of a branch after a failed start");
            }
        }
    }

    /// Writes the manifest of a branch whose row has changed. It is read only where the registry is
    /// lost: a failure is logged and stops nothing, and the manifest is written later.
    pub(crate) fn refresh_manifest(&self, branch: &Branch) {
        if let Err(error) = self.write_branch_manifest(branch.id) {
            tracing::warn!(branch = %branch.name, %error, "cannot write the manifest of a branch");
            let mut unwritten = lock(&self.pool.unwritten_manifests);
            if !unwritten.contains(&branch.id) {
                unwritten.push(branch.id);
            }
        }
    }

    /// Writes the manifest of a branch as its row is now. One is written at a time, so that the
    /// last one says what the row said last.
    pub(super) fn write_branch_manifest(&self, id: BranchId) -> Result<(), BranchesError> {
        let _manifest_guard = lock(&self.manifest_lock);
        let registry = self.state.get().map(|started| &started.registry);
        let found = registry.and_then(|registry| registry.branch(id));
        // During a reset the manifest describes the former files, and that of a destroyed branch is
        // deleted.
        let is_written =
            |state: BranchState| !matches!(state, BranchState::Resetting | BranchState::Destroying);
        let data = self.paths.branch(id);
        match found.filter(|branch| is_written(branch.state)) {
            // They would be put back, were the registry lost.
            Some(branch) if self.paths.former_files(id).exists() => {
                write_double_manifest(&data, &branch)
            }
            Some(branch) => write_branch_manifest(&data, &branch, &branch),
            None => Ok(()),
        }
    }

    /// Has the manifest of a branch describe its former files, which are about to be put back.
    pub(super) fn describe_former_files(&self, id: BranchId) -> Result<(), BranchesError> {
        let _manifest_guard = lock(&self.manifest_lock);
        restore_former_manifest(&self.paths.branch(id))
    }

    /// Deletes the manifest of a destroyed branch, after one that is being written.
    pub(super) fn remove_branch_manifest(&self, id: BranchId) -> Result<(), BranchesError> {
        let _manifest_guard = lock(&self.manifest_lock);
        remove_file(&manifest_path(&self.paths.branch(id)))
    }

    /// Records that a branch cannot run.
    pub(super) fn record_failure(&self, mut branch: Branch, error: &BranchesError) {
        branch.state = BranchState::Failed;
        let slot_notice = self.existing_slot(branch.id).and_then(|slot| slot.notice());
        let notice = branch.notice.clone().or(slot_notice);
        let notice = notice.map_or_else(String::new, |notice| format!("; {notice}"));
        branch.failure = Some(format!("{}: {error}{notice}", error.code()));
        branch.postmaster = None;
        let stored =
            self.state().and_then(|started| Ok(started.registry.update_branch(&branch)?));
        if let Err(error) = stored {
            tracing::error!(branch = %branch.name, %error, "cannot record the failure of a branch");
        }
    }

    /// The postmaster that runs on a branch's or template's files, if one does.
    pub(crate) fn adopt_postmaster(
        &self,
        data: &Path,
    ) -> Result<Option<Postmaster>, BranchesError> {
        let started = self.state.get();
        let adopted = Postmaster::adopt(data)?;
        Ok(match (adopted, started) {
            (Some(postmaster), Some(started)) => {
                Some(postmaster.with_isolation(&started.isolation))
            }
            (adopted, _) => adopted,
        })
    }

    /// Stops a branch's postmaster if it runs, adopted or orphaned ones included.
    pub(crate) async fn stop_postmaster(
        &self,
        id: BranchId,
        mode: StopMode,
    ) -> Result<(), BranchesError> {
        let data = self.paths.branch(id);
        let slot = self.slot(id);
        let postmaster_to_stop = lock(&slot.postmaster_to_stop).take();
        // Only now, and not when a branch is destroyed: each ends a process, which takes its time.
        slot.drop_warm_sessions();
        let running = match slot.take_postmaster().or(postmaster_to_stop) {
            Some(postmaster) => Some(postmaster),
            None => self.adopt_postmaster(&data)?.map(Arc::new),
        };
        if let Some(postmaster) = running {
            postmaster.stop(mode, self.config.stop_timeout.duration()).await;
            if postmaster.all_processes_exited() {
                return Ok(());
            }
        }
        kill_orphans(&data).await;
        Ok(())
    }

    /// Flushes the volume, so that what was stopped cleanly survives a crash of the machine.
    pub(crate) async fn flush_volume(&self) -> Result<(), BranchesError> {
        let root = self.paths.volume.clone();
        crate::store::source::run_blocking(move || {
            let directory = std::fs::File::open(&root).map_err(io_error("open", &root))?;
            rustix::fs::syncfs(directory).map_err(|error| io_error("flush", &root)(error.into()))
        })
        .await
    }

    /// The template that a branch was made from.
    pub(super) fn template_of(&self, branch: &Branch) -> Result<Template, BranchesError> {
        let found = self.state()?.registry.template(branch.template);
        found.ok_or_else(|| BranchesError::TemplateNotFound { id: branch.template.to_string() })
    }
}
