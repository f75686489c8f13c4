//! The loops that drive the core with the store: start, ready, stop, and what is due.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use egret_postgres::control_groups::{ControlGroups, GroupLimits, GroupPolicy};
use egret_postgres::isolation::{Isolation, IsolationLimits};
use egret_postgres::owner::RunAsUser;
use egret_postgres::postmaster::StopMode;
use futures_util::{StreamExt, stream};
use tokio::task::JoinHandle;

use crate::core::plan::{BranchFacts, Command, SuspendReason, View, plan};
use crate::engine::{Branches, EngineState, Inner};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchState};
use crate::store::egret_schema::DocumentRetention;
use crate::store::files::boot_id;
use crate::store::registry::Registry;
use crate::store::secret::Secret;
use crate::store::source::run_blocking;
use crate::store::volume::image;

/// Interval between two plans without a request.
const PLAN_INTERVAL: Duration = Duration::from_secs(1);

/// A command of the plan that is being carried out.
struct CommandTask {
    subject: String,
    task: JoinHandle<()>,
}

impl Service for Branches {
    fn name(&self) -> &'static str {
        "branches"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            self.inner.start().await.map_err(|error| StartError {
                service: "branches",
                is_fatal: false,
                message: egret_base::error::chain(&error),
            })
        })
    }

    fn ready(&self) -> Readiness {
        if self.inner.stopping.load(Ordering::Acquire) {
            return Readiness::NotReady("stopping".to_owned());
        }
        match self.inner.state.get() {
            Some(_) => Readiness::Ready,
            None => Readiness::NotReady("starting".to_owned()),
        }
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.stop())
    }
}

impl Inner {
    async fn start(self: &Arc<Self>) -> Result<(), BranchesError> {
        let not_running =
            || BranchesError::Source { reason: "the embedded server is not running".to_owned() };
        self.document_retention()?;
        self.paths.create_directories()?;
        let owner = self.source.owner().ok_or_else(not_running)?;
        let (inner, user) = (self.clone(), owner.clone());
        let key = self.data_dir.join("branch.key");
        let is_key_new = !key.exists();
        let started = EngineState {
            isolation: run_blocking(move || inner.isolation(&user)).await?,
            registry: Registry::open(&self.data_dir.join("state.db"))?,
            binaries: self.source.binaries().ok_or_else(not_running)?,
            owner,
            secret: Secret::open(&key, &*self.entropy)?,
            boot_id: boot_id(),
        };
        if self.state.set(started).is_err() {
            return Err(BranchesError::Stopping);
        }
        self.load_pool_sizes()?;
        let to_start = self.recover().await?;
        let started = self.state()?;
        if is_key_new && started.registry.count_where(|_| true) > 0 {
            self.key_lost.fail(
                "the key was missing, and a new one was made: the passwords of all branches have \
                 changed",
                "restore the file, or let clients fetch their connection strings again",
            );
        }
        let isolation = started.isolation.clone();
        let left = run_blocking(move || Ok(isolation.groups().remove_leftovers())).await?;
        if left > 0 {
            tracing::info!(left, "control groups of an earlier Egret are removed");
        }
        self.find_unwritten_manifests()?;
        let (starter, planner, filler) = (self.clone(), self.clone(), self.clone());
        let room_watcher = self.clone();
        let mut tasks = lock(&self.tasks);
        tasks.push(tokio::spawn(async move { starter.resume_all_after_restart(to_start).await }));
        tasks.push(tokio::spawn(async move { planner.run_planner().await }));
        tasks.push(tokio::spawn(async move { filler.maintain_pools().await }));
        tasks.push(tokio::spawn(async move { room_watcher.watch_volume_room().await }));
        Ok(())
    }

    /// Which documents templates of the source keep.
    pub(crate) fn document_retention(&self) -> Result<DocumentRetention, BranchesError> {
        let configured = self.config.documents.as_str();
        configured.parse().map_err(|()| BranchesError::Invalid {
            what: "branches.documents",
            reason: format!("it is `{configured}`: use default, all or none"),
        })
    }

    /// What keeps branches apart here; said at every start.
    fn isolation(&self, owner: &RunAsUser) -> Result<Arc<Isolation>, BranchesError> {
        let configured = self.config.isolation.as_str();
        if !["auto", "full"].contains(&configured) {
            return Err(BranchesError::Isolation {
                reason: format!("branches.isolation is `{configured}`: use auto or full"),
            });
        }
        let limits = IsolationLimits {
            uid_base: self.config.uid_base,
            uid_count: self.config.uid_count,
            process_memory_max: self.config.process_memory_max,
            processes_max: self.config.processes_max,
        };
        let groups = self.control_groups()?;
        let isolation =
            Isolation::probe(limits, groups, &self.paths.volume, &self.paths.run, owner)?;
        let description = isolation.describe();
        if configured == "full" && !isolation.is_complete() {
            return Err(BranchesError::Isolation {
                reason: format!(
                    "branches.isolation is full, but this machine offers: {description}"
                ),
            });
        }
        if isolation.bounds_files_and_signals() {
            tracing::info!(isolation = description, "branches are isolated");
        } else {
            tracing::warn!(isolation = description, "branches are not fully isolated");
        }
        Ok(Arc::new(isolation))
    }

    /// What bounds memory, processor time and processes of branches here; said at every start.
    fn control_groups(&self) -> Result<ControlGroups, BranchesError> {
        let policy = match self.config.cgroup.as_str() {
            "off" => GroupPolicy::Off,
            "auto" => GroupPolicy::Auto,
            "full" => GroupPolicy::Full,
            other => {
                return Err(BranchesError::Isolation {
                    reason: format!("branches.cgroup is `{other}`: use auto, full or off"),
                });
            }
        };
        let weight = self.config.total_cpu_weight;
        if !(1..=10_000).contains(&weight) {
            return Err(BranchesError::Isolation {
                reason: format!("branches.total_cpu_weight is {weight}: use 1 to 10000"),
            });
        }
        let groups = ControlGroups::open(policy, self.group_limits(), &self.data_dir);
        let description = groups.describe();
        if policy == GroupPolicy::Full && !groups.is_complete() {
            return Err(BranchesError::Isolation {
                reason: format!("branches.cgroup is full, but this machine offers: {description}"),
            });
        }
        if groups.is_complete() {
            tracing::info!(limits = description, "branches have resource limits");
        } else {
            // Common, as in containers, and so no warning at every start.
            tracing::info!(
                limits = description,
                "not all resource limits of branches are in force"
            );
        }
        Ok(groups)
    }

    fn group_limits(&self) -> GroupLimits {
        let config = &self.config;
        let machine = self.machine_memory.bytes();
        GroupLimits {
            memory_max: config.memory_max.unwrap_or(ByteSize(machine / 2)),
            total_memory_max: config.total_memory_max.unwrap_or(ByteSize(machine / 4 * 3)),
            cpu_percent_max: config.cpu_percent_max,
            total_cpu_weight: config.total_cpu_weight,
            processes_max: config.processes_max,
            total_processes_max: config.total_processes_max,
        }
    }

    pub(crate) fn start_concurrency(&self) -> usize {
        self.config.start_concurrency()
    }

    async fn resume_all_after_restart(self: &Arc<Self>, branches: Vec<BranchId>) {
        stream::iter(branches)
            .for_each_concurrent(self.start_concurrency(), async |id| {
                if let Err(error) = self.resume_after_restart(id).await {
                    tracing::warn!(branch = %id, %error, "cannot start a branch again");
                }
            })
            .await;
    }

    async fn run_planner(self: &Arc<Self>) {
        let mut running_commands = Vec::new();
        while !self.stopping.load(Ordering::Acquire) {
            let planning = &self.faults.planning;
            match self.plan_once(&mut running_commands) {
                Ok(()) => planning.recover("planning maintenance of branches works again"),
                Err(error) => {
                    planning.fail(&error, "cannot plan maintenance of branches; retrying")
                }
            }
            tokio::select! {
                () = self.wakeup.notified() => {}
                () = tokio::time::sleep(PLAN_INTERVAL) => {}
            }
        }
        let finishing = async {
            for CommandTask { task, .. } in running_commands {
                // A panic has been logged.
                let _ = task.await;
            }
        };
        if tokio::time::timeout(self.shutdown_timeout(), finishing).await.is_err() {
            tracing::warn!("maintenance of branches did not finish in time");
        }
    }

    /// Starts what is due, each command as a task: one that waits for a branch keeps no other.
    fn plan_once(
        self: &Arc<Self>,
        running_commands: &mut Vec<CommandTask>,
    ) -> Result<(), BranchesError> {
        let registry = &self.state()?.registry;
        let (branches, templates) = (registry.branches(), registry.templates());
        let space = self.mounted().space()?;
        self.pool.cache_free_room(space.free);
        self.metrics.observe(&branches, templates.len(), space);
        let facts = branches.iter().map(|branch| self.branch_facts(branch)).collect();
        let view = View { branches: facts, templates: &templates, has_source: true };
        let commands = plan(&view, &self.config, self.now());
        self.close_idle_sessions(&branches);
        self.note_memory_kills()?;
        let faults = &self.faults.commands;
        faults.retain(|subject| commands.iter().any(|it| format!("{it:?}") == subject));
        running_commands.retain(|command| !command.task.is_finished());
        for command in commands {
            let subject = format!("{command:?}");
            if running_commands.iter().any(|other| other.subject == subject) {
                continue;
            }
            let (inner, task_subject) = (self.clone(), subject.clone());
            let task = tokio::spawn(async move {
                let faults = &inner.faults.commands;
                match inner.execute_command(&command).await {
                    Ok(()) => faults.recover(
                        &task_subject,
                        "maintenance of a branch or template has succeeded after failures",
                    ),
                    Err(_) if inner.stopping.load(Ordering::Acquire) => {}
                    Err(error) => {
                        let message = "maintenance of a branch or template failed; retrying";
                        faults.fail(&task_subject, &error, message);
                    }
                }
            });
            running_commands.push(CommandTask { subject, task });
        }
        Ok(())
    }

    /// Closes warm sessions of leased branches that no client or query has used for `session_idle`.
    fn close_idle_sessions(&self, branches: &[Branch]) {
        let idle_max = self.config.session_idle.duration();
        for branch in branches {
            if branch.state == BranchState::Running
                && let Some(slot) = self.existing_slot(branch.id)
            {
                slot.close_warm_sessions(|warm_session| warm_session.idle_for() >= idle_max);
            }
        }
    }

    fn branch_facts<'a>(&self, branch: &'a Branch) -> BranchFacts<'a> {
        // Looked up and not made: the branch may be gone by now, and its place with it.
        let slot = self.existing_slot(branch.id);
        BranchFacts {
            branch,
            sessions: slot.as_ref().map_or(0, |slot| slot.sessions.load(Ordering::Acquire)),
            idle_since: slot.and_then(|slot| *lock(&slot.idle_since)),
        }
    }

    async fn execute_command(self: &Arc<Self>, command: &Command) -> Result<(), BranchesError> {
        match command {
            Command::Expire(id) => self.expire(*id).await?,
            Command::Suspend(id) => {
                let idle = self.config.idle_suspend.unwrap_or_default();
                let notice = format!("suspended: no session for {idle}");
                self.suspend_if_due(*id, SuspendReason::Idle, notice).await?;
            }
            Command::PurgeTemplate(id) => self.purge_template(*id).await?,
            Command::RefreshTemplate => {
                let Some(build) = self.try_begin_head_build() else {
                    return Ok(());
                };
                let fault = &self.faults.template;
                match self.build_from_head(&build, None).await {
                    Ok(_) => fault.recover("the template is refreshed again"),
                    Err(error) => {
                        fault.fail(&error, "cannot refresh the template; retrying");
                    }
                }
            }
        }
        Ok(())
    }

    /// Stops every branch cleanly and remembers those that ran, so that they run again.
    async fn stop(self: &Arc<Self>) {
        let Some(state) = self.state.get() else {
            return;
        };
        self.stopping.store(true, Ordering::Release);
        self.stop_signal.send_replace(true);
        self.wakeup.notify_one();
        self.pool.wakeup.notify_one();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the branches engine panicked");
            }
        }
        self.write_manifests().await;
        // From here on a postmaster that ends is no loss to the pool.
        self.pool.clear();
        // A build at work comes to its end, or notices that Egret is stopping.
        let timeout = self.shutdown_timeout();
        let builds = tokio::time::timeout(timeout, self.build_lock.write()).await;
        if builds.is_err() {
            tracing::warn!("a template is still being built; it is removed at the next start");
        }
        let list_branches = || state.registry.branches();
        let unstopped = Mutex::new(HashSet::new());
        stream::iter(&list_branches())
            .for_each_concurrent(self.start_concurrency(), async |branch| {
                match tokio::time::timeout(timeout, self.stop_for_shutdown(branch)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(branch = %branch.name, %error, "cannot stop a branch cleanly");
                    }
                    Err(_) => {
                        tracing::warn!(branch = %branch.name, "a branch was not stopped in time");
                        lock(&unstopped).insert(branch.id);
                    }
                }
            })
            .await;
        let isolation = state.isolation.clone();
        let removed = tokio::task::spawn_blocking(move || isolation.groups().remove());
        removed.await.expect("removing groups does not panic");
        let left = std::mem::take(&mut *lock(&unstopped));
        if let Err(error) = self.flush_volume().await {
            tracing::warn!(%error, "cannot flush the volume");
            return;
        }
        let ran_in_this_boot = |branch: &Branch| branch.boot_id.as_ref() == Some(&state.boot_id);
        for mut branch in list_branches() {
            if left.contains(&branch.id) {
                continue;
            }
            match branch.state {
                BranchState::Running => branch.boot_id = None,
                // Its files are on the disk, unless they are of before a crash of the machine.
                BranchState::Failed | BranchState::Suspended if ran_in_this_boot(&branch) => {
                    branch.boot_id = None;
                }
                // What its sessions made it worth is gone with them.
                BranchState::Pooled => branch.state = BranchState::Destroying,
                _ => continue,
            }
            branch.postmaster = None;
            if let Err(error) = state.registry.update_branch(&branch) {
                tracing::warn!(branch = %branch.name, %error, "cannot record the clean stop of a branch");
            } else {
                self.refresh_manifest(&branch);
            }
        }
    }

    /// How long each part of a stop waits for work under way: a server's start, and its end by each
    /// of three signals and of what it leaves behind.
    fn shutdown_timeout(&self) -> Duration {
        let (start, stop) = (self.config.start_timeout, self.config.stop_timeout);
        start.duration() + stop.duration() * 4
    }

    async fn stop_for_shutdown(&self, branch: &Branch) -> Result<(), BranchesError> {
        let slot = self.slot(branch.id);
        let _slot_guard = slot.lock.lock().await;
        // The holder of the slot before may have changed the row.
        let state = self.state.get();
        let found = state.and_then(|started| started.registry.branch(branch.id));
        let mode = match found.map_or(branch.state, |found| found.state) {
            BranchState::Running | BranchState::Suspended => StopMode::Fast,
            _ => StopMode::Immediate,
        };
        self.stop_postmaster(branch.id, mode).await
    }
}

/// The volume as a service: stopped last, its image is unmounted.
pub struct VolumeService {
    root: std::path::PathBuf,
    image: std::path::PathBuf,
}

impl VolumeService {
    /// For the volume of a data directory.
    pub fn new(data_dir: &std::path::Path) -> Self {
        Self { root: data_dir.join("volume"), image: data_dir.join("volume.img") }
    }
}

impl Service for VolumeService {
    fn name(&self) -> &'static str {
        "volume"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            if !self.image.exists() {
                return Ok(());
            }
            image::mount(&self.image, &self.root).map_err(|error| StartError {
                service: "volume",
                is_fatal: false,
                message: error.to_string(),
            })
        })
    }

    fn ready(&self) -> Readiness {
        if self.image.exists() && !image::is_mounted(&self.root) {
            return Readiness::NotReady("the image is not mounted".to_owned());
        }
        Readiness::Ready
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.image.exists() {
                return;
            }
            let (image, root) = (self.image.clone(), self.root.clone());
            let unmounted = run_blocking(move || image::unmount(&image, &root)).await;
            if let Err(error) = unmounted {
                tracing::warn!(%error, "cannot unmount the volume");
            }
        })
    }
}
