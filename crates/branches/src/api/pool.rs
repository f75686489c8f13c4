//! The pool: leasing a branch that was made beforehand, and making new ones behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egret_base::Limit;
use egret_base::sync::lock;
use serde::Serialize;

use crate::core::pool::{Stage, target_size};
use crate::engine::{Branches, Inner};
use crate::error::BranchesError;
use crate::model::{
    Branch, BranchId, BranchSource, BranchState, NewBranch, Preset, Receipt, Template,
};
use crate::stopwatch::Stopwatch;
use crate::store::volume::Driver;

/// How often a caller that waits for a pool checks the free room of the volume.
const FREE_ROOM_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A pool as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct PoolStatus {
    /// The preset of its branches.
    pub preset: Preset,
    /// How many branches it should have.
    pub target: u32,
    /// Whether a user chose that number; else recent demand does, within the configured bounds.
    pub chosen: bool,
    /// Branches that can be leased now.
    pub hot: usize,
    /// Branches that are being made ready.
    pub filling: usize,
    /// The template that they are clones of.
    pub template: Option<String>,
}

impl Branches {
    /// The pools, by preset: those that have branches or should have.
    pub fn pools(&self) -> Result<Vec<PoolStatus>, BranchesError> {
        let inner = &self.inner;
        let template = inner.newest_template()?.map(|template| template.id);
        let (targets, entries) = (inner.pool_targets(), inner.pool.snapshot());
        let chosen = lock(&inner.pool.chosen_sizes).clone();
        let status = |preset: &Preset| {
            let entries_of_preset = entries
                .iter()
                .filter(|entry| entry.preset == *preset && Some(entry.template) == template);
            let hot = entries_of_preset.clone().filter(|entry| entry.stage == Stage::Hot);
            let (all, hot) = (entries_of_preset.count(), hot.count());
            PoolStatus {
                preset: *preset,
                target: targets.get(preset).copied().unwrap_or(0),
                chosen: chosen.contains_key(preset),
                hot,
                filling: all - hot,
                template: template.map(|id| id.to_string()),
            }
        };
        let presets = Preset::ALL.iter().filter(|preset| is_poolable(**preset));
        Ok(presets.map(status).collect())
    }

    /// Sets the number of branches that the pool of a preset should have; `None` leaves it to
    /// recent demand again. A template is built if there is none. Stays over a restart.
    ///
    /// # Errors
    /// [`BranchesError::Invalid`] for a preset that is not pooled, a limit by name.
    pub async fn resize_pool(
        &self,
        preset: Preset,
        size: Option<u32>,
    ) -> Result<Vec<PoolStatus>, BranchesError> {
        let inner = &self.inner;
        if !is_poolable(preset) {
            return Err(BranchesError::Invalid {
                what: "preset",
                reason: format!("branches of preset {preset} are not pooled"),
            });
        }
        // Refused before a template is built, and once more when it is there.
        inner.with_pool_size(&lock(&inner.pool.chosen_sizes), preset, size)?;
        if size.is_some_and(|size| size > 0) && inner.newest_template()?.is_none() {
            self.refresh_template().await?;
        }
        inner.store_pool_size(preset, size)?;
        inner.pool.request_refill();
        self.pools()
    }

    /// Waits until every pool has what it should have. Without a template none can have anything,
    /// and nothing is waited for.
    ///
    /// # Errors
    /// [`BranchesError::VolumeFull`] when nothing can be added to a pool that is not full.
    pub async fn await_pools_filled(&self) -> Result<Vec<PoolStatus>, BranchesError> {
        let mut changed = self.inner.pool.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let pools = self.pools()?;
            let is_full = |pool: &PoolStatus| {
                let is_at_target = pool.hot == pool.target as usize && pool.filling == 0;
                is_at_target || pool.template.is_none()
            };
            if pools.iter().all(is_full) {
                return Ok(pools);
            }
            self.inner.check_room()?;
            // The sender lives as long as the engine; free room changes without it.
            let _ = tokio::time::timeout(FREE_ROOM_CHECK_INTERVAL, changed.changed()).await;
        }
    }
}

/// Whether all branches of a preset are alike, so that a pool can hold them.
fn is_poolable(preset: Preset) -> bool {
    preset != Preset::Twin
}

impl Inner {
    /// Takes over the sizes that a user chose earlier.
    pub(crate) fn load_pool_sizes(&self) -> Result<(), BranchesError> {
        let sizes = self.state()?.registry.pool_sizes()?;
        let valid_sizes =
            sizes.into_iter().filter_map(|(preset, size)| Some((preset.parse().ok()?, size)));
        *lock(&self.pool.chosen_sizes) = valid_sizes.collect();
        Ok(())
    }

    /// The sizes that users chose with one more, where all pools together stay within their limit.
    fn with_pool_size(
        &self,
        sizes: &BTreeMap<Preset, u32>,
        preset: Preset,
        size: Option<u32>,
    ) -> Result<BTreeMap<Preset, u32>, BranchesError> {
        let mut chosen = sizes.clone();
        match size {
            Some(size) => chosen.insert(preset, size),
            None => chosen.remove(&preset),
        };
        let sum: u64 = chosen.values().map(|size| u64::from(*size)).sum();
        let limit = Limit::new("branches.pool_max", u64::from(self.config.pool_max));
        limit.check(sum).map_err(BranchesError::PoolSize)?;
        Ok(chosen)
    }

    /// Stores a size that a user chose.
    fn store_pool_size(&self, preset: Preset, size: Option<u32>) -> Result<(), BranchesError> {
        let registry = &self.state()?.registry;
        let mut sizes = lock(&self.pool.chosen_sizes);
        let chosen = self.with_pool_size(&sizes, preset, size)?;
        registry.set_pool_size(preset.as_str(), size)?;
        *sizes = chosen;
        drop(sizes);
        self.pool.changed.send_replace(());
        Ok(())
    }

    /// The newest template of the source that branches can be made from.
    pub(crate) fn newest_template(&self) -> Result<Option<Arc<Template>>, BranchesError> {
        Ok(self.state()?.registry.newest_template())
    }

    pub(super) fn pool_targets(&self) -> BTreeMap<Preset, u32> {
        let shares_blocks = self.mounted().volume.driver() != Driver::Copy;
        let chosen = lock(&self.pool.chosen_sizes).clone();
        let demand = lock(&self.pool.demand);
        let (now, config) = (self.now(), &self.config);
        let target_of = |preset: &Preset| {
            let floor = if *preset == Preset::Small { config.pool_min } else { 0 };
            let (floor, ceiling) = if shares_blocks && config.pool_min > 0 {
                (floor, config.pool_demand_max)
            } else {
                (0, 0)
            };
            let peak = demand.peak(*preset, now);
            target_size(chosen.get(preset).copied(), peak, floor, ceiling)
        };
        let mut presets: Vec<Preset> = Preset::ALL.to_vec();
        presets.retain(|preset| is_poolable(*preset));
        // Together no more than their limit: what a user chose comes before what demand asks for.
        presets.sort_by_key(|preset| !chosen.contains_key(preset));
        let mut remaining = config.pool_max;
        let limit_target = |preset: Preset| {
            let size = target_of(&preset).min(remaining);
            remaining -= size;
            (preset, size)
        };
        presets.into_iter().map(limit_target).collect()
    }

    /// Leases a hot branch to the caller if the pool has one that fits the request; `None`
    /// otherwise.
    pub(super) fn lease(
        self: &Arc<Self>,
        request: &NewBranch,
        stopwatch: &mut Stopwatch,
    ) -> Result<Option<Branch>, BranchesError> {
        let fits_pool = request.from == BranchSource::NewestTemplate
            && request.settings.is_empty()
            && !request.durable
            && !request.superuser
            && !request.role_passwords
            && is_poolable(request.preset);
        if !fits_pool {
            return Ok(None);
        }
        self.pool.note_activity();
        lock(&self.pool.demand).record_request(request.preset, self.now());
        self.pool.wakeup.notify_one();
        let Some(template) = self.newest_template()? else {
            return Ok(None);
        };
        while let Some(entry) = self.pool.take_hot(request.preset, template.id) {
            let slot = self.slot(entry.id);
            let Some(postmaster) = slot.running_postmaster() else {
                // It has just ended; the task that watches it finds the entry gone.
                self.discard(entry.id);
                continue;
            };
            if !slot.are_warm_sessions_quiet() {
                // Before a refill may connect others.
                slot.drop_warm_sessions();
                self.pool.put_back(entry, Stage::Started);
                continue;
            }
            slot.close_sessions_of_other_tenants(&request.tenant);
            let mut branch = self.new_branch_row(entry.id, request, &template);
            branch.state = BranchState::Running;
            branch.boot_id = Some(self.state()?.boot_id.clone());
            branch.postmaster = Some((postmaster.pid(), postmaster.start_ticks()));
            stopwatch.end_phase("lease");
            branch.receipt = Some(Receipt::new("pooled", &template, stopwatch));
            *lock(&slot.idle_since) = Some(self.now());
            slot.restart_idle_time();
            self.crash_points.before("lease.record");
            let leased = self.lease_within_limits(&branch);
            if !matches!(leased, Ok(true)) {
                // Another request for the name was faster; the caller looks again.
                self.pool.put_back(entry, Stage::Hot);
                if slot.running_postmaster().is_none() {
                    self.discard_if_pooled(entry.id);
                }
                leased?;
                return Ok(None);
            }
            if slot.postmaster().is_none() {
                // It ended after it was looked at, when the row did not say yet that this matters.
                self.spawn_restart_after_exit(branch.id);
            }
            self.crash_points.before("lease.done");
            stopwatch.end_phase("record");
            lock(&self.pool.unwritten_manifests).push(branch.id);
            self.pool.changed.send_replace(());
            return Ok(Some(branch));
        }
        self.metrics.count_miss();
        Ok(None)
    }

    /// Turns a branch that was never handed out into a tombstone, later if not now: an entry taken
    /// out of the pool, or one whose creation failed.
    pub(crate) fn discard(&self, id: BranchId) {
        let (subject, faults) = (id.to_string(), &self.faults.discards);
        match self.try_discard(id) {
            Ok(()) => faults.recover(&subject, "an unused branch of the pool is discarded"),
            Err(_) if self.stopping.load(Ordering::Acquire) => {}
            Err(error) => {
                let message = "cannot discard an unused branch of the pool yet; retrying";
                faults.fail(&subject, &error, message);
                lock(&self.pool.pending_discards).push(id);
            }
        }
    }

    fn try_discard(&self, id: BranchId) -> Result<(), BranchesError> {
        let registry = &self.state()?.registry;
        if let Some(branch) = registry.branch(id)
            && matches!(branch.state, BranchState::Creating | BranchState::Pooled)
        {
            let slot = self.slot(id);
            if let Some(postmaster) = slot.take_postmaster() {
                *lock(&slot.postmaster_to_stop) = Some(postmaster);
            }
            self.mark_deleted(branch)?;
        }
        Ok(())
    }

    /// The postmaster of an entry ended by itself; `false` when the branch is not in the pool.
    pub(crate) fn discard_if_pooled(&self, id: BranchId) -> bool {
        if self.pool.remove(id).is_none() {
            return false;
        }
        self.discard(id);
        self.pool.wakeup.notify_one();
        true
    }
}
