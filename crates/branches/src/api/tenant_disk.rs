//! Keeping the branches of each tenant within its share of the volume, by stopping the one that
//! grows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use egret_base::{Limit, Timestamp, zero_on_underflow};
use futures_util::{StreamExt, stream};
use tokio::task::JoinHandle;

use crate::core::plan::SuspendReason;
use crate::core::tenant_disk::{STEP_BYTES, TenantDisk};
use crate::engine::Inner;
use crate::engine::{TenantDiskUsage, TenantTurns, Turn, Work};
use crate::error::{BranchesError, io_error};
use crate::model::{Branch, BranchId, BranchState, Template, TemplateId, TemplateState};
use crate::store::source::run_blocking;
use crate::store::volume::find_uncounted;
use crate::store::volume::tenant::{TenantCopy, measure};

/// Name of the setting that limits a tenant's bytes.
const LIMIT_NAME: &str = "branches.tenant_disk_max";

/// Subject of messages about a tenant's bytes without those of its destroyed branches.
const LIVING_BYTES_NAME: &str = "bytes of a tenant's branches";

/// How the files of destroyed branches count when a tenant is over its limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tombstones {
    /// Not at all: they are about to be deleted, and no living branch is stopped for them.
    Excluded,
    /// Like any other file of the tenant, as they could not be deleted. `grown` is the branch that
    /// had grown when they were passed over before.
    Counted { grown: Option<BranchId> },
}

/// One measurement of a tenant's branches.
struct DiskReading {
    /// Bytes that had been written to the volume before the measurement.
    written_before: u64,
    disk: TenantDisk,
}

impl Inner {
    /// The most bytes that the branches of one tenant may take.
    fn tenant_disk_max(&self) -> Result<u64, BranchesError> {
        match self.config.tenant_disk_max {
            Some(size) => Ok(size.bytes()),
            None => Ok(self.mounted().space()?.size / 5 * 4),
        }
    }

    /// Notes the free room, and has tenants measured whose branches may have grown too large:
    /// behind, and some at a time.
    pub(super) fn schedule_tenant_measurements(
        self: &Arc<Self>,
        free: u64,
    ) -> Result<(), BranchesError> {
        let written = {
            let mut disks = lock(&self.tenant_disks);
            disks.note_free(free);
            disks.written()
        };
        let last_checked = self.tenants_checked_at.load(Ordering::Acquire);
        let is_first = last_checked == u64::MAX;
        if !is_first && written - last_checked < STEP_BYTES / 4 {
            return Ok(());
        }
        let Ok(watch_guard) = self.tenant_watch_lock.clone().try_lock_owned() else {
            return Ok(());
        };
        self.tenants_checked_at.store(written, Ordering::Release);
        let limit = self.tenant_disk_max()?;
        let tenants = self.tenants()?;
        let due: Vec<String> = {
            let mut disks = lock(&self.tenant_disks);
            disks.note_tenants(written, tenants.clone());
            let due = tenants.iter().filter(|tenant| disks.is_due(tenant, limit));
            due.cloned().collect()
        };
        lock(&self.tenant_turns).retain(|tenant, turns| {
            let is_held = Arc::strong_count(turns) > 1
                || turns.measuring.is_under_way()
                || turns.purging.is_under_way();
            tenants.contains(tenant) || is_held
        });
        self.faults
            .tenants
            .retain(|subject| tenants.iter().any(|tenant| subject == subject_of(tenant)));
        if due.is_empty() {
            return Ok(());
        }
        let inner = self.clone();
        tokio::spawn(async move {
            let _turn = watch_guard;
            inner.measure_tenants(due).await;
        });
        Ok(())
    }

    async fn measure_tenants(self: &Arc<Self>, tenants: Vec<String>) {
        stream::iter(tenants)
            .for_each_concurrent(self.start_concurrency(), async |tenant| {
                if let Err(error) = self.measure_and_purge(&tenant).await
                    && !self.stopping.load(Ordering::Acquire)
                {
                    tracing::debug!(tenant, %error, "cannot measure the disk space of a tenant's branches");
                }
            })
            .await;
    }

    /// Tenants with branches, also destroyed ones that are not deleted yet, or templates.
    fn tenants(&self) -> Result<BTreeSet<String>, BranchesError> {
        let registry = &self.state()?.registry;
        let mut tenants = registry.tenants();
        let tombstones = registry.branches_where(|branch| branch.state == BranchState::Destroying);
        tenants.extend(tombstones.into_iter().map(|branch| branch.tenant));
        let templates = registry.templates().into_iter();
        tenants.extend(templates.filter_map(|template| template.tenant));
        Ok(tenants)
    }

    fn turns_of(&self, tenant: &str) -> Arc<TenantTurns> {
        lock(&self.tenant_turns).entry(tenant.to_owned()).or_default().clone()
    }

    /// Measures a tenant, unless that is being done: other tenants do not wait for it. Where there
    /// is no room otherwise, what it has destroyed is deleted behind.
    async fn measure_and_purge(self: &Arc<Self>, tenant: &str) -> Result<(), BranchesError> {
        let turns = self.turns_of(tenant);
        let Some(turn) = turns.measuring.try_take_turn() else {
            return Ok(());
        };
        let usage = self.measure_tenant(tenant, Tombstones::Excluded).await?;
        turn.finish(usage.clone());
        if usage.tombstone_bytes > 0
            && usage.bytes > self.tenant_disk_max()?
            && let Some(turn) = turns.purging.try_take_turn()
        {
            self.purge_tenant(tenant, turn, usage.growing);
        }
        Ok(())
    }

    /// Deletes a tenant's destroyed branches at once, not when there is time, and measures the
    /// tenant again. As that may take long, neither other tenants nor measurements of this one
    /// wait for it.
    fn purge_tenant(
        self: &Arc<Self>,
        tenant: &str,
        turn: Turn<u64>,
        grown: Option<BranchId>,
    ) -> JoinHandle<Result<u64, BranchesError>> {
        let (inner, tenant) = (self.clone(), tenant.to_owned());
        tokio::spawn(async move {
            inner.purge_tombstones(|branch| branch.tenant == tenant).await;
            let turns = inner.turns_of(&tenant);
            let measuring_turn = turns.measuring.take_turn().await;
            let tombstones = Tombstones::Counted { grown };
            let usage = inner.measure_tenant(&tenant, tombstones).await?;
            measuring_turn.finish(usage.clone());
            turn.finish(usage.bytes);
            Ok(usage.bytes)
        })
    }

    /// Waits until what a tenant has destroyed is deleted. Returns the bytes that it takes then;
    /// `None` when that takes too long.
    async fn await_purge(
        self: &Arc<Self>,
        tenant: &str,
        grown: Option<BranchId>,
    ) -> Result<Option<u64>, BranchesError> {
        let turns = self.turns_of(tenant);
        let purged = async {
            match turns.purging.join().await {
                Work::Shared(bytes) => Ok(Ok(bytes)),
                Work::Turn(turn) => self.purge_tenant(tenant, turn, grown).await,
            }
        };
        let timeout = self.config.tenant_purge_timeout.duration();
        match tokio::time::timeout(timeout, purged).await {
            Ok(Ok(measured)) => measured.map(Some),
            Ok(Err(_)) => Err(BranchesError::Stopping),
            Err(_) => Ok(None),
        }
    }

    /// Disk usage of a tenant, by a measurement that began after this call.
    async fn measure_now(self: &Arc<Self>, tenant: &str) -> Result<TenantDiskUsage, BranchesError> {
        match self.turns_of(tenant).measuring.join().await {
            Work::Shared(usage) => Ok(usage),
            Work::Turn(turn) => {
                let taken = self.measure_tenant(tenant, Tombstones::Excluded).await?;
                turn.finish(taken.clone());
                Ok(taken)
            }
        }
    }

    /// Measures what the branches of a tenant take, and suspends the branch that grows where that
    /// is too much. The caller holds the tenant's turn.
    async fn measure_tenant(
        self: &Arc<Self>,
        tenant: &str,
        tombstones: Tombstones,
    ) -> Result<TenantDiskUsage, BranchesError> {
        let limit = self.tenant_disk_max()?;
        let DiskReading { written_before: at, mut disk } = self.measure_copies(tenant).await?;
        let registry = &self.state()?.registry;
        let is_living = |id: &BranchId| {
            let branch = registry.branch(*id);
            branch.is_some_and(|branch| branch.state != BranchState::Destroying)
        };
        // A tombstone cannot be suspended; it takes its bytes until it is deleted.
        let (living, destroyed): (HashMap<BranchId, u64>, HashMap<BranchId, u64>) =
            disk.branches.drain().partition(|(id, _)| is_living(id));
        disk.branches = living;
        disk.uncounted.retain(|id, _| is_living(id));
        for (id, reason) in &disk.uncounted {
            self.spawn_tenant_suspension(
                *id,
                format!("its disk space cannot be measured completely: {reason}"),
            );
        }
        let (growing, bytes) = {
            // One guard: in between, a tenant whose last branch goes would be forgotten.
            let mut disks = lock(&self.tenant_disks);
            let growing = disks.record(tenant, at, disk, limit);
            (growing, disks.bytes_of(tenant))
        };
        let tombstone_bytes = destroyed.into_values().sum();
        let (counted, growing) = match tombstones {
            Tombstones::Excluded => {
                let living = bytes.checked_sub(tombstone_bytes);
                (zero_on_underflow(living, LIVING_BYTES_NAME), growing)
            }
            Tombstones::Counted { grown } => (bytes, growing.or(grown)),
        };
        let measured = TenantDiskUsage { bytes, tombstone_bytes, growing };
        let (faults, subject) = (&self.faults.tenants, subject_of(tenant));
        let usage_text = describe_usage(measured.bytes, limit);
        if measured.bytes < limit {
            faults.recover(&subject, "the branches of a tenant are below their disk limit again");
        } else if counted >= limit {
            let message = "the branches of a tenant have reached their disk limit: growing branches are \
                 suspended";
            faults.fail(&subject, &usage_text, message);
        }
        if let Some(id) = growing.filter(|_| counted > limit) {
            self.spawn_tenant_suspension(id, format!("suspended while it grew: {usage_text}"));
        }
        Ok(measured)
    }

    fn is_running(&self, id: BranchId) -> bool {
        let found = self.state().ok().and_then(|started| started.registry.branch(id));
        found.is_some_and(|branch| branch.state == BranchState::Running)
    }

    async fn measure_copies(&self, tenant: &str) -> Result<DiskReading, BranchesError> {
        let (copies, originals) = self.copies_of(tenant)?;
        let mounted = self.mounted();
        let at = lock(&self.tenant_disks).written();
        let disk = run_blocking(move || {
            measure(&mounted, &copies, &originals).map_err(io_error("measure", &mounted.root))
        })
        .await?;
        Ok(DiskReading { written_before: at, disk })
    }

    /// Suspends a branch that runs, while tenants are measured further. The notice says why.
    fn spawn_tenant_suspension(self: &Arc<Self>, id: BranchId, notice: String) {
        let (subject, inner) = (id.to_string(), self.clone());
        if !self.is_running(id) {
            // It would be suspended after what is being done with it, as when a reset makes it
            // anew.
            let message = "a branch over its tenant's disk limit is not running";
            return self.faults.suspensions.recover(&subject, message);
        }
        tokio::spawn(async move {
            let faults = &inner.faults.suspensions;
            match inner.suspend_if_due(id, SuspendReason::TenantDisk, notice).await {
                Ok(true) => {
                    faults.recover(&subject, "suspended a branch over its tenant's disk limit")
                }
                Ok(false) => {
                    faults.recover(&subject, "a branch over its tenant's disk limit is gone")
                }
                Err(error) => {
                    let message = "cannot suspend a branch over its tenant's disk limit; retrying";
                    faults.fail(&subject, &error, message);
                }
            }
        });
    }

    /// Whether a tenant took less than it may when it was measured last.
    pub(super) fn has_tenant_room(&self, tenant: &str) -> bool {
        !lock(&self.tenant_disks).is_full(tenant)
    }

    /// Refuses when the branches of a tenant take all that they may, or would with `more` bytes. It
    /// is measured again before it is refused: the tenant may have destroyed some.
    pub(super) async fn check_tenant_room(
        self: &Arc<Self>,
        tenant: &str,
        extra_bytes: u64,
    ) -> Result<(), BranchesError> {
        let more = extra_bytes.max(1);
        let max = self.tenant_disk_max()?;
        let current_bytes = lock(&self.tenant_disks).bytes_of(tenant);
        let limit = Limit::new(LIMIT_NAME, max);
        if limit.check(current_bytes.saturating_add(more)).is_ok() && more == 1 {
            return Ok(());
        }
        self.measure_tenant_room(tenant, more).await
    }

    /// Refuses as [`Inner::check_tenant_room`], by a measurement of this moment.
    pub(super) async fn measure_tenant_room(
        self: &Arc<Self>,
        tenant: &str,
        extra_bytes: u64,
    ) -> Result<(), BranchesError> {
        let (more, limit) = (extra_bytes.max(1), Limit::new(LIMIT_NAME, self.tenant_disk_max()?));
        let usage = self.measure_now(tenant).await?;
        let check = |taken: u64| {
            let checked = limit.check(taken.saturating_add(more));
            checked.map_err(BranchesError::from_size_limit)
        };
        let checked = check(usage.bytes);
        if checked.is_ok() || usage.tombstone_bytes == 0 {
            return checked;
        }
        if let Some(bytes) = self.await_purge(tenant, usage.growing).await? {
            return check(bytes);
        }
        // What the living branches take alone is known to be too much, or nothing is known of the
        // limit.
        let living = usage.bytes.checked_sub(usage.tombstone_bytes);
        check(zero_on_underflow(living, LIVING_BYTES_NAME))?;
        Err(BranchesError::DeletionLasts { timeout: self.config.tenant_purge_timeout })
    }

    /// Refuses a branch of which not all is counted: its bytes would escape the limit.
    pub(super) async fn check_fully_counted(&self, branch: &Branch) -> Result<(), BranchesError> {
        let data = self.paths.branch(branch.id);
        let found =
            run_blocking(move || find_uncounted(&data).map_err(io_error("measure", &data))).await?;
        match found {
            None => Ok(()),
            Some(uncounted) => Err(BranchesError::WrongState {
                name: branch.name.to_string(),
                state: branch.state.as_str(),
                hint: format!("{uncounted}: reset or destroy it"),
            }),
        }
    }

    /// The data directories that belong to a tenant, those of destroyed branches and of resets
    /// included until they are deleted, and those that belong to none.
    fn copies_of(
        &self,
        tenant: &str,
    ) -> Result<(Vec<TenantCopy>, Vec<std::path::PathBuf>), BranchesError> {
        let registry = &self.state()?.registry;
        let is_own =
            |branch: &Branch| branch.tenant == tenant && branch.state != BranchState::Pooled;
        let branches = registry.branches_where(is_own);
        let templates: HashMap<TemplateId, Template> = registry
            .templates()
            .into_iter()
            .filter(|template| template.state != TemplateState::Removing)
            .map(|template| (template.id, template))
            .collect();
        let mut copies = Vec::new();
        let mut originals = vec![self.source.layout().data];
        for template in templates.values() {
            match template.tenant.as_deref() {
                None => originals.push(self.paths.template(template.id)),
                Some(owner) if owner == tenant => copies.push(TenantCopy {
                    path: self.paths.template(template.id),
                    leftovers: Vec::new(),
                    branch: None,
                    since: unmodified_since(template, &templates, &branches),
                }),
                Some(_) => {}
            }
        }
        copies.extend(branches.iter().map(|branch| {
            let [path, staged, former] = self.paths.files_of(branch.id);
            TenantCopy {
                path,
                leftovers: vec![staged, former],
                branch: Some(branch.id),
                since: branch.created_at,
            }
        }));
        Ok((copies, originals))
    }
}

/// Since when files of a template of a branch may differ from the source's: when the first of the
/// branches it descends from was made. All may where that is not known any more.
fn unmodified_since(
    template: &Template,
    templates: &HashMap<TemplateId, Template>,
    branches: &[Branch],
) -> Timestamp {
    let mut template = template;
    // As many steps as there are templates: a registry of an earlier version may hold a cycle.
    for _ in 0..=templates.len() {
        let origin = branches.iter().find(|branch| Some(branch.id) == template.origin_branch);
        let Some(origin) = origin else {
            break;
        };
        match templates.get(&origin.template) {
            Some(parent) if parent.origin_branch.is_some() => template = parent,
            _ => return origin.created_at,
        }
    }
    Timestamp::from_micros(0)
}

fn subject_of(tenant: &str) -> String {
    format!("tenant {tenant}")
}

fn describe_usage(bytes: u64, limit: u64) -> String {
    let (bytes, limit) = (ByteSize(bytes).rounded_down(), ByteSize(limit).rounded_down());
    format!("the tenant's branches take {bytes}, {LIMIT_NAME} is {limit}")
}
