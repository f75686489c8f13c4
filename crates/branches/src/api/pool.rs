//! The pool: leasing a branch that was made beforehand, and making new ones behind.
//!
//! Entries live in memory; the registry only knows that a row is `pooled`, which is enough to clean
//! up after a crash. Whoever takes an entry out of the map owns its branch from then on.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::Limit;
use egret_base::settings::Size;
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::rehearsal::Rehearsal;
use super::resident::Profile;
use super::{Branches, Inner, Stopwatch, lock};
use crate::core::pool::{Demand, Entry, Stage, target};
use crate::error::BranchesError;
use crate::model::{
    Branch, BranchId, BranchState, From, NewBranch, Preset, Receipt, Template, TemplateId,
};
use crate::store::volume::Driver;

/// How often whoever waits for a pool looks whether there is room for it.
const FREE_LOOKED_AT: Duration = Duration::from_secs(1);

/// How long the volume's free room is taken to be what it was.
const FREE_KNOWN_FOR: Duration = Duration::from_millis(20);

/// The pool's place in the engine.
#[derive(Default)]
pub(crate) struct Pool {
    pub(super) entries: Mutex<HashMap<BranchId, Entry>>,
    demand: Mutex<Demand>,
    /// Sizes that a user chose; they stay over a restart.
    chosen: Mutex<BTreeMap<Preset, u32>>,
    /// What the next client of the proxy is likely to ask for.
    pub(crate) profile: Mutex<Profile>,
    /// The database that users of a template's branches work in, where there is one.
    pub(super) databases: Mutex<HashMap<TemplateId, Option<String>>>,
    /// What sessions of the newest template's branches rehearse, by database.
    pub(crate) rehearsals: Mutex<Vec<Rehearsal>>,
    active_at: Mutex<Option<Instant>>,
    /// Free bytes of the volume and when somebody looked.
    free: Mutex<Option<(u64, Instant)>>,
    /// Whether the registry may hold commits that are not flushed.
    pub(super) unflushed: AtomicBool,
    /// Branches whose manifests are to be written: of those leased they say still that they are in the pool.
    pub(super) unwritten: Mutex<Vec<BranchId>>,
    /// Branches that were never handed out and are to be thrown away, which failed and is tried again.
    pub(super) stranded: Mutex<Vec<BranchId>>,
    /// Somebody has asked for something since the last refill failed: it is not waited any longer.
    pub(super) impatient: AtomicBool,
    /// Something may have to be done.
    pub(crate) due: Notify,
    /// Sent whenever entries have changed.
    changed: watch::Sender<()>,
}

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
    /// Branches on their way there.
    pub filling: usize,
    /// The template that they are clones of.
    pub template: Option<String>,
}

impl Pool {
    /// Notes that somebody is at work, so that background work waits.
    pub(crate) fn note_activity(&self) {
        self.unflushed.store(true, Ordering::Release);
        *lock(&self.active_at) = Some(Instant::now());
    }

    /// Has the pool filled again, however often that has failed: somebody has changed something.
    pub(super) fn hurry(&self) {
        self.impatient.store(true, Ordering::Release);
        self.due.notify_one();
    }

    pub(crate) fn note_free(&self, bytes: u64) {
        *lock(&self.free) = Some((bytes, Instant::now()));
    }

    /// Free room of the volume, if somebody looked just now.
    pub(super) fn free(&self) -> Option<Size> {
        let (bytes, at) = (*lock(&self.free))?;
        (at.elapsed() < FREE_KNOWN_FOR).then_some(Size(bytes))
    }

    /// How long nobody has been at work.
    pub(super) fn quiet_for(&self) -> Duration {
        lock(&self.active_at).map_or(Duration::MAX, |at| at.elapsed())
    }

    /// Takes a hot entry out, whose branch is the caller's from then on.
    fn take(&self, preset: Preset, template: TemplateId) -> Option<Entry> {
        let mut entries = lock(&self.entries);
        let fits = |entry: &&Entry| {
            entry.stage == Stage::Hot && entry.preset == preset && entry.template == template
        };
        let id = entries.values().find(fits)?.id;
        entries.remove(&id)
    }

    /// Puts an entry back that was taken out; a lease gets it when it is hot.
    fn put_back(&self, mut entry: Entry, stage: Stage) {
        entry.stage = stage;
        lock(&self.entries).insert(entry.id, entry);
        self.due.notify_one();
    }

    /// Takes an entry out, unless somebody else has.
    pub(super) fn remove(&self, id: BranchId) -> Option<Entry> {
        let removed = lock(&self.entries).remove(&id);
        self.changed.send_replace(());
        removed
    }

    /// Forgets every entry; their rows tell the next start what to clean up.
    pub(crate) fn forget(&self) {
        lock(&self.entries).clear();
        self.changed.send_replace(());
    }

    pub(super) fn advance(&self, id: BranchId, stage: Stage) {
        if let Some(entry) = lock(&self.entries).get_mut(&id) {
            entry.stage = stage;
        }
        self.changed.send_replace(());
    }

    pub(super) fn snapshot(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = lock(&self.entries).values().copied().collect();
        entries.sort_by_key(|entry| entry.id);
        entries
    }
}

impl Branches {
    /// The pools, by preset: those that have branches or should have.
    ///
    /// # Errors
    /// [`BranchesError`].
    pub fn pools(&self) -> Result<Vec<PoolStatus>, BranchesError> {
        let inner = &self.inner;
        let template = inner.newest_template()?.map(|template| template.id);
        let (targets, entries) = (inner.pool_targets(), inner.pool.snapshot());
        let chosen = lock(&inner.pool.chosen).clone();
        let status = |preset: &Preset| {
            let of_preset = entries
                .iter()
                .filter(|entry| entry.preset == *preset && Some(entry.template) == template);
            let hot = of_preset.clone().filter(|entry| entry.stage == Stage::Hot);
            let (all, hot) = (of_preset.count(), hot.count());
            PoolStatus {
                preset: *preset,
                target: targets.get(preset).copied().unwrap_or(0),
                chosen: chosen.contains_key(preset),
                hot,
                filling: all - hot,
                template: template.map(|id| id.to_string()),
            }
        };
        let all = Preset::ALL.iter().filter(|preset| poolable(**preset));
        Ok(all.map(status).collect())
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
        if !poolable(preset) {
            return Err(BranchesError::Invalid {
                what: "preset",
                reason: format!("branches of preset {preset} are not pooled"),
            });
        }
        // Refused before a template is built, and once more when it is there.
        inner.with_pool_size(&lock(&inner.pool.chosen), preset, size)?;
        if size.is_some_and(|size| size > 0) && inner.newest_template()?.is_none() {
            self.refresh_template().await?;
        }
        inner.choose_pool_size(preset, size)?;
        inner.pool.hurry();
        self.pools()
    }

    /// Waits until every pool has what it should have. Without a template none can have anything,
    /// and nothing is waited for.
    ///
    /// # Errors
    /// [`BranchesError::VolumeFull`] when nothing can be added to a pool that is not full.
    pub async fn pools_filled(&self) -> Result<Vec<PoolStatus>, BranchesError> {
        let mut changed = self.inner.pool.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let pools = self.pools()?;
            let full = |pool: &PoolStatus| {
                let settled = pool.hot == pool.target as usize && pool.filling == 0;
                settled || pool.template.is_none()
            };
            if pools.iter().all(full) {
                return Ok(pools);
            }
            self.inner.check_room()?;
            // The sender lives as long as the engine; free room changes without it.
            let _ = tokio::time::timeout(FREE_LOOKED_AT, changed.changed()).await;
        }
    }
}

/// Whether branches of a preset are the same for everybody who asks for them.
fn poolable(preset: Preset) -> bool {
    preset != Preset::Twin
}

impl Inner {
    /// Takes over the sizes that a user chose earlier.
    pub(crate) fn recall_pool_sizes(&self) -> Result<(), BranchesError> {
        let sizes = self.started()?.registry.pool_sizes()?;
        let known = sizes
            .into_iter()
            .filter_map(|(preset, size)| Some((preset.parse().ok()?, size)));
        *lock(&self.pool.chosen) = known.collect();
        Ok(())
    }

    /// The sizes that users chose with one more, where all pools together stay within their limit.
    fn with_pool_size(
        &self,
        known: &BTreeMap<Preset, u32>,
        preset: Preset,
        size: Option<u32>,
    ) -> Result<BTreeMap<Preset, u32>, BranchesError> {
        let mut chosen = known.clone();
        match size {
            Some(size) => chosen.insert(preset, size),
            None => chosen.remove(&preset),
        };
        let sum: u64 = chosen.values().map(|size| u64::from(*size)).sum();
        let limit = Limit::new("branches.pool_max", u64::from(self.config.pool_max));
        limit.check(sum).map_err(BranchesError::PoolSize)?;
        Ok(chosen)
    }

    /// Notes what a user chose.
    fn choose_pool_size(&self, preset: Preset, size: Option<u32>) -> Result<(), BranchesError> {
        let registry = &self.started()?.registry;
        let mut known = lock(&self.pool.chosen);
        let chosen = self.with_pool_size(&known, preset, size)?;
        registry.set_pool_size(preset.as_str(), size)?;
        *known = chosen;
        drop(known);
        self.pool.changed.send_replace(());
        Ok(())
    }

    /// The newest template of the source that branches can be made from.
    pub(crate) fn newest_template(&self) -> Result<Option<Arc<Template>>, BranchesError> {
        Ok(self.started()?.registry.newest_template())
    }

    pub(super) fn pool_targets(&self) -> BTreeMap<Preset, u32> {
        let shares = self.mounted().volume.driver() != Driver::Copy;
        let chosen = lock(&self.pool.chosen).clone();
        let demand = lock(&self.pool.demand);
        let (now, config) = (self.now(), &self.config);
        let wanted = |preset: &Preset| {
            let floor = if *preset == Preset::Small {
                config.pool_min
            } else {
                0
            };
            let (floor, ceiling) = match shares && config.pool_min > 0 {
                true => (floor, config.pool_demand_max),
                false => (0, 0),
            };
            let peak = demand.peak(*preset, now);
            target(chosen.get(preset).copied(), peak, floor, ceiling)
        };
        let mut presets: Vec<Preset> = Preset::ALL.to_vec();
        presets.retain(|preset| poolable(*preset));
        // Together no more than their limit: what a user chose comes before what demand asks for.
        presets.sort_by_key(|preset| !chosen.contains_key(preset));
        let mut room = config.pool_max;
        let within = |preset: Preset| {
            let size = wanted(&preset).min(room);
            room -= size;
            (preset, size)
        };
        presets.into_iter().map(within).collect()
    }

    /// Gives a hot branch to whoever asks for one that the pool has; `None` when it has none.
    pub(super) fn lease(
        self: &Arc<Self>,
        asked: &NewBranch,
        watch: &mut Stopwatch,
    ) -> Result<Option<Branch>, BranchesError> {
        let alike = asked.from == From::NewestTemplate
            && asked.settings.is_empty()
            && !asked.durable
            && !asked.superuser
            && !asked.role_passwords
            && poolable(asked.preset);
        if !alike {
            return Ok(None);
        }
        self.pool.note_activity();
        lock(&self.pool.demand).note(asked.preset, self.now());
        self.pool.due.notify_one();
        let Some(template) = self.newest_template()? else {
            return Ok(None);
        };
        while let Some(entry) = self.pool.take(asked.preset, template.id) {
            let slot = self.slot(entry.id);
            let Some(postmaster) = slot.running() else {
                // It has just ended; whoever watches finds the entry gone.
                self.discard(entry.id);
                continue;
            };
            if !slot.residents_wait() {
                // Before a refill may connect others.
                slot.forget_residents();
                self.pool.put_back(entry, Stage::Started);
                continue;
            }
            slot.keep_residents_of(&asked.tenant);
            let mut branch = self.row(entry.id, asked, &template);
            branch.state = BranchState::Running;
            branch.boot_id = Some(self.started()?.boot_id.clone());
            branch.postmaster = Some((postmaster.pid(), postmaster.start_ticks()));
            watch.phase("lease");
            branch.receipt = Some(Receipt::new("pooled", &template, watch));
            *lock(&slot.idle_since) = Some(self.now());
            slot.begin_idling();
            self.steps.before("lease.record");
            let leased = self.lease_counted(&branch);
            if !matches!(leased, Ok(true)) {
                // Another request for the name was faster; the caller looks again.
                self.pool.put_back(entry, Stage::Hot);
                if slot.running().is_none() {
                    self.pool_lost(entry.id);
                }
                leased?;
                return Ok(None);
            }
            if slot.live().is_none() {
                // It ended after it was looked at, when the row did not say yet that this matters.
                self.revive_later(branch.id);
            }
            self.steps.before("lease.done");
            watch.phase("record");
            lock(&self.pool.unwritten).push(branch.id);
            self.pool.changed.send_replace(());
            return Ok(Some(branch));
        }
        self.metrics.missed();
        Ok(None)
    }

    /// Turns a branch that was never handed out into a tombstone, later if not now: an entry taken out of the pool,
    /// or one whose creation failed.
    pub(crate) fn discard(&self, id: BranchId) {
        let (subject, faults) = (id.to_string(), &self.faults.discards);
        match self.try_to_discard(id) {
            Ok(()) => faults.recover(
                &subject,
                "a branch that was never handed out is thrown away",
            ),
            Err(_) if self.stopping.load(Ordering::Acquire) => {}
            Err(error) => {
                let message = "a branch that was never handed out was not thrown away yet";
                faults.fail(&subject, &error, message);
                lock(&self.pool.stranded).push(id);
            }
        }
    }

    fn try_to_discard(&self, id: BranchId) -> Result<(), BranchesError> {
        let registry = &self.started()?.registry;
        if let Some(branch) = registry.branch(id)
            && matches!(branch.state, BranchState::Creating | BranchState::Pooled)
        {
            let slot = self.slot(id);
            if let Some(postmaster) = slot.take_live() {
                *lock(&slot.doomed) = Some(postmaster);
            }
            self.bury(branch)?;
        }
        Ok(())
    }

    /// The postmaster of an entry ended by itself; `false` when the branch is not in the pool.
    pub(crate) fn pool_lost(&self, id: BranchId) -> bool {
        if self.pool.remove(id).is_none() {
            return false;
        }
        self.discard(id);
        self.pool.due.notify_one();
        true
    }
}
