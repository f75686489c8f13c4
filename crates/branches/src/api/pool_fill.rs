//! Making the branches of the pools, phase by phase, in quiet moments.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use egret_postgres::PostgresError;
use futures_util::{StreamExt, stream};

use crate::core::pool::{PoolCommand, PoolEntry, PoolView, Stage, plan};
use crate::engine::{BranchSlot, Inner};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchState, NewBranch, Preset, Template, TemplateId};
use crate::store::files::read_manifest;
use crate::store::source::run_blocking;

/// Tenant of rows in the pool; no token has this tenant.
const POOL_TENANT: &str = "";

/// The pause after a failure to fill the pool; it doubles with each further failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(300);

/// The pause before a session of the pool tries again to connect to a server that refused it.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Interval between two checks of the pool without a request.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// One step of making a pool entry ready.
#[derive(Clone, Copy)]
enum Step {
    Clone,
    Start,
    Connect,
    /// All three, one after the other, for comparison: see `branches.pool_refill`.
    All,
}

impl Step {
    /// Name of the phase that the step is measured as.
    fn name(self) -> &'static str {
        match self {
            Step::Clone => "clone",
            Step::Start => "start",
            Step::Connect => "connect",
            Step::All => "make",
        }
    }
}

/// Number of processors, which is how many snapshots are made at a time.
fn core_count() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

impl Inner {
    /// Fills the pools and deletes what is behind tombstones, in quiet moments, until Egret stops.
    pub(crate) async fn maintain_pools(self: &Arc<Self>) {
        let (mut pause, mut resume_at) = (FAILURE_PAUSE, Instant::now());
        let unfilled = Condition::new("branches_pool_not_filled", "pool");
        while !self.stopping.load(Ordering::Acquire) {
            let round_start = Instant::now();
            self.await_quiet(round_start).await;
            self.run_housekeeping().await;
            self.replace_lost_sessions();
            let skips_pause = self.pool.skips_pause.swap(false, Ordering::AcqRel);
            if skips_pause || Instant::now() >= resume_at {
                match self.fill_pools(round_start).await {
                    Ok(()) => {
                        pause = FAILURE_PAUSE;
                        unfilled.recover("the pool is filled again");
                    }
                    Err(_) if self.stopping.load(Ordering::Acquire) => return,
                    Err(error) => {
                        unfilled.fail(&error, "cannot fill the pool; retrying");
                        resume_at = Instant::now() + pause;
                        pause = (pause * 2).min(FAILURE_PAUSE_MAX);
                    }
                }
            }
            self.checkpoint_registry().await;
            tokio::select! {
                () = self.pool.wakeup.notified() => {}
                () = tokio::time::sleep(IDLE_INTERVAL) => {}
            }
        }
    }

    /// Work that must not wait until the pools are full, which under steady demand they never are:
    /// manifests, branches to be discarded, tombstones.
    async fn run_housekeeping(self: &Arc<Self>) {
        self.write_manifests().await;
        for id in std::mem::take(&mut *lock(&self.pool.pending_discards)) {
            self.discard(id);
        }
        self.purge_tombstones(|_| true).await;
    }

    /// Has warm sessions connected again that have ended, or that have received a message: a lease
    /// does not use them.
    fn replace_lost_sessions(&self) {
        for entry in self.pool.snapshot() {
            let are_quiet = |slot: Arc<BranchSlot>| slot.are_warm_sessions_quiet();
            if entry.stage == Stage::Hot && !self.existing_slot(entry.id).is_none_or(are_quiet) {
                self.schedule_reconnect(entry.id);
            }
        }
    }

    /// Drops the sessions of a hot entry, which the next refill connects again.
    fn schedule_reconnect(&self, id: BranchId) {
        let mut entries = lock(&self.pool.entries);
        let found = entries.get_mut(&id).filter(|entry| entry.stage == Stage::Hot);
        if let Some(entry) = found {
            entry.stage = Stage::Started;
            drop(entries);
            self.slot(id).drop_warm_sessions();
            self.pool.wakeup.notify_one();
        }
    }

    /// Flushes what leases and destructions have only written, when there were any.
    async fn checkpoint_registry(self: &Arc<Self>) {
        if !self.pool.has_unflushed_commits.swap(false, Ordering::AcqRel) {
            return;
        }
        let inner = self.clone();
        let flushed = run_blocking(move || Ok(inner.state()?.registry.checkpoint()?)).await;
        match flushed {
            Ok(()) => self.faults.registry.recover("the registry is flushed again"),
            Err(_) if self.stopping.load(Ordering::Acquire) => {}
            Err(error) => {
                // It is flushed again with what comes next, or at the next look.
                self.pool.has_unflushed_commits.store(true, Ordering::Release);
                self.faults.registry.fail(&error, "cannot flush the registry; retrying");
            }
        }
    }

    /// Waits until no request has come for `pool_quiet`, at most for `pool_patience`.
    async fn await_quiet(&self, since: Instant) {
        let (quiet, patience) =
            (self.config.pool_quiet.duration(), self.config.pool_patience.duration());
        loop {
            let quiet_left = quiet.saturating_sub(self.pool.time_since_activity());
            let patience_left = patience.saturating_sub(since.elapsed());
            if quiet_left.is_zero()
                || patience_left.is_zero()
                || self.stopping.load(Ordering::Acquire)
            {
                return;
            }
            tokio::select! {
                () = self.pool.wakeup.notified() => {}
                () = tokio::time::sleep(quiet_left.min(patience_left)) => {}
            }
        }
    }

    /// Finds leased branches whose manifests an earlier Egret did not write: if the registry were
    /// lost, they would be discarded as branches of the pool.
    pub(crate) fn find_unwritten_manifests(&self) -> Result<(), BranchesError> {
        let is_leased = |branch: &Branch| {
            !matches!(branch.state, BranchState::Pooled | BranchState::Destroying)
        };
        let has_stale_manifest = |branch: &Branch| {
            read_manifest::<Branch>(&self.paths.branch(branch.id))
                .is_some_and(|written| written.state == BranchState::Pooled)
        };
        let branches = self.state()?.registry.branches_where(is_leased);
        let found = branches.iter().filter(|branch| has_stale_manifest(branch));
        lock(&self.pool.unwritten_manifests).extend(found.map(|branch| branch.id));
        Ok(())
    }

    /// Writes the manifests of branches that were leased meanwhile, and those whose earlier write
    /// failed.
    pub(crate) async fn write_manifests(self: &Arc<Self>) {
        // Not in the head of the loop: a lease waits for this lock.
        let ids = std::mem::take(&mut *lock(&self.pool.unwritten_manifests));
        if ids.is_empty() {
            return;
        }
        let inner = self.clone();
        let writing = run_blocking(move || {
            let mut failed = Vec::new();
            let mut result = Ok(());
            for id in ids {
                match inner.write_branch_manifest(id) {
                    // It is not written during a reset.
                    Ok(()) if inner.resetting_branch(id).is_some() => failed.push(id),
                    Ok(()) => {}
                    Err(error) => {
                        result = Err(error);
                        failed.push(id);
                    }
                }
            }
            // They are tried again with the next ones.
            lock(&inner.pool.unwritten_manifests).extend(failed);
            result
        });
        let fault = &self.faults.manifests;
        match writing.await {
            Ok(()) => fault.recover("manifests of branches are written again"),
            Err(error) => fault.fail(&error, "cannot write manifests of branches; retrying"),
        }
    }

    /// Carries out phase after phase until the pools are as they should be.
    async fn fill_pools(self: &Arc<Self>, round_start: Instant) -> Result<(), BranchesError> {
        let _fill_guard = self.fill_lock.lock().await;
        let mut last_housekeeping = Instant::now();
        while !self.stopping.load(Ordering::Acquire) {
            if last_housekeeping.elapsed() >= self.config.pool_patience.duration() {
                self.run_housekeeping().await;
                self.checkpoint_registry().await;
                last_housekeeping = Instant::now();
            }
            let template = self.newest_template()?;
            let entries = self.pool.snapshot();
            let free = ByteSize(self.mounted().space()?.free);
            let view = PoolView {
                entries: &entries,
                template: template.as_ref().map(|template| template.id),
                targets: &if free < self.config.free_critical {
                    BTreeMap::new()
                } else {
                    self.pool_targets()
                },
                room: if free < self.config.free_min {
                    0
                } else {
                    self.config.pool_max.saturating_sub(entries.len() as u32)
                },
            };
            self.metrics.observe_pools(&entries, view.targets);
            let Some(command) = plan(&view) else {
                return Ok(());
            };
            self.await_quiet(round_start).await;
            let phase_start = Instant::now();
            let phase = self.execute_pool_command(command, template).await?;
            self.metrics.observe_pool_phase(phase, phase_start.elapsed());
        }
        Ok(())
    }

    /// Throws away every entry, files included. The caller keeps others from filling.
    pub(crate) async fn empty_pools(&self) {
        for entry in self.pool.snapshot() {
            if self.pool.remove(entry.id).is_some() {
                self.discard(entry.id);
            }
        }
        self.purge_tombstones(|_| true).await;
    }

    async fn execute_pool_command(
        self: &Arc<Self>,
        command: PoolCommand,
        template: Option<Arc<Template>>,
    ) -> Result<&'static str, BranchesError> {
        let interleaved = self.config.pool_refill == "interleaved";
        let (ids, step, concurrency) = match command {
            PoolCommand::Retire(ids) => {
                for id in ids {
                    if self.pool.remove(id).is_some() {
                        self.discard(id);
                    }
                }
                self.purge_tombstones(|_| true).await;
                return Ok("retire");
            }
            PoolCommand::Plan(preset, id, count) => {
                self.plan_entries(preset, id, count).await?;
                return Ok("plan");
            }
            PoolCommand::Clone(ids) if interleaved => (ids, Step::All, self.start_concurrency()),
            PoolCommand::Clone(ids) => (ids, Step::Clone, core_count()),
            PoolCommand::Start(ids) => (ids, Step::Start, self.start_concurrency()),
            PoolCommand::Connect(ids) => (ids, Step::Connect, self.start_concurrency()),
        };
        self.run_step_for_entries(ids, step, concurrency, template).await?;
        Ok(step.name())
    }

    /// Takes one step with each entry; one that fails is thrown away, and the first error returned.
    async fn run_step_for_entries(
        self: &Arc<Self>,
        ids: Vec<BranchId>,
        step: Step,
        concurrency: usize,
        template: Option<Arc<Template>>,
    ) -> Result<(), BranchesError> {
        let template = template.ok_or(BranchesError::Stopping)?;
        let template = &template;
        let first_error = Mutex::new(None);
        stream::iter(ids)
            .for_each_concurrent(concurrency, async |id| {
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                let Err(error) = self.run_step(step, id, template).await else {
                    return;
                };
                // Stopping takes care of whatever is in the pool.
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                if self.pool.remove(id).is_some() {
                    self.discard(id);
                }
                lock(&first_error).get_or_insert(error);
            })
            .await;
        let first = lock(&first_error).take();
        first.map_or(Ok(()), Err)
    }

    async fn run_step(
        self: &Arc<Self>,
        step: Step,
        id: BranchId,
        template: &Template,
    ) -> Result<(), BranchesError> {
        match step {
            Step::Clone => self.clone_entry(id).await,
            Step::Start => self.start_entry(id, template).await,
            Step::Connect => self.connect_entry(id, template).await,
            Step::All => {
                self.clone_entry(id).await?;
                self.start_entry(id, template).await?;
                self.connect_entry(id, template).await
            }
        }
    }

    /// Intent: rows for new entries, flushed once.
    async fn plan_entries(
        self: &Arc<Self>,
        preset: Preset,
        template: TemplateId,
        count: u32,
    ) -> Result<(), BranchesError> {
        let _removal_guard = self.template_removal_lock.read().await;
        let template = self.find_ready_template(template, POOL_TENANT)?;
        let rows: Vec<Branch> = (0..count)
            .map(|_| {
                let id = BranchId::new(self.now(), self.entropy.ten_bytes());
                let name = format!("pool-{}", id.hex());
                let mut request = NewBranch::named(name.parse().expect("hexadecimal is a name"));
                request.tenant = POOL_TENANT.to_owned();
                request.preset = preset;
                let mut row = self.new_branch_row(id, &request, &template);
                row.state = BranchState::Pooled;
                // It has no lifetime before it is leased.
                (row.ttl_ms, row.expires_at) = (None, None);
                row
            })
            .collect();
        self.crash_points.before("pool.intent");
        let (inner, inserted) = (self.clone(), rows.clone());
        run_blocking(move || Ok(inner.state()?.registry.insert_branches(&inserted)?)).await?;
        let mut entries = lock(&self.pool.entries);
        for row in rows {
            let entry =
                PoolEntry { id: row.id, preset, template: template.id, stage: Stage::Planned };
            entries.insert(row.id, entry);
        }
        Ok(())
    }

    async fn clone_entry(&self, id: BranchId) -> Result<(), BranchesError> {
        let row = self.pooled_branch(id)?;
        // First, so that files whose row is lost are still recognized as a branch's.
        self.write_branch_manifest(id)?;
        self.clone_template(row.template, self.paths.branch(id)).await?;
        self.pool.set_stage(id, Stage::Cold);
        Ok(())
    }

    async fn start_entry(
        self: &Arc<Self>,
        id: BranchId,
        template: &Template,
    ) -> Result<(), BranchesError> {
        let mut row = self.pooled_branch(id)?;
        let slot = self.slot(id);
        let _slot_guard = slot.lock.lock().await;
        self.start_postmaster(&mut row, template).await?;
        self.pool.set_stage(id, Stage::Started);
        Ok(())
    }

    async fn connect_entry(
        self: &Arc<Self>,
        id: BranchId,
        template: &Template,
    ) -> Result<(), BranchesError> {
        self.crash_points.before("pool.connect");
        let timeout = self.config.start_timeout;
        if self.config.pool_sessions > 0 {
            // A login trigger of the user's may wait for anything.
            let connecting = self.connect_sessions(id, template.id);
            let connected = tokio::select! {
                connected = tokio::time::timeout(timeout.duration(), connecting) => connected,
                () = self.await_stop() => return Err(BranchesError::Stopping),
            };
            connected.map_err(|_| PostgresError::StartTimeout {
                data: self.paths.branch(id),
                waited_ms: timeout.0,
                log_file: self.paths.socket_dir(id).join("server.log"),
            })??;
        }
        self.verifier_of(id).await?;
        self.pool.set_stage(id, Stage::Hot);
        Ok(())
    }

    async fn connect_sessions(
        self: &Arc<Self>,
        id: BranchId,
        template: TemplateId,
    ) -> Result<(), BranchesError> {
        let Some(database) = self.pool_database(id, template).await? else {
            return Ok(());
        };
        if self.config.pool_rehearsal {
            self.read_ahead(id, template).await;
        }
        let slot = self.slot(id);
        loop {
            match self.connect_warm_sessions(id, template, &slot, &database).await {
                // One of its processes was killed: the server is there again in a moment.
                Err(_) if slot.running_postmaster().is_some() => {
                    tokio::time::sleep(RECONNECT_PAUSE).await
                }
                connected => return Ok(connected?),
            }
        }
    }

    /// The database that users of a template's branches work in: the only one beside the
    /// maintenance database, if there is one.
    async fn pool_database(
        &self,
        id: BranchId,
        template: TemplateId,
    ) -> Result<Option<String>, BranchesError> {
        if let Some(cached) = lock(&self.pool.databases).get(&template) {
            return Ok(cached.clone());
        }
        let mut user_databases = match self.databases_of(id).await {
            Ok(users) => users,
            // A login trigger refuses sessions, for example: then no session is connected
            // beforehand.
            Err(error) if self.slot(id).running_postmaster().is_some() => {
                tracing::debug!(branch = %id, %error, "cannot list the databases of a branch");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        user_databases.retain(|name| name != "postgres");
        let only_database = (user_databases.len() == 1).then(|| user_databases.remove(0));
        let mut databases = lock(&self.pool.databases);
        databases.clear();
        databases.insert(template, only_database.clone());
        Ok(only_database)
    }

    /// The row of an entry that is still in the pool.
    fn pooled_branch(&self, id: BranchId) -> Result<Branch, BranchesError> {
        let found = self.state()?.registry.branch(id);
        found.filter(|branch| branch.state == BranchState::Pooled).ok_or(BranchesError::Stopping)
    }
}
