//! State of the pools: branches that were made beforehand, and what their use tells of the next
//! one.
//!
//! Entries live in memory; the registry only knows that a row is `pooled`, which is enough to clean
//! up after a crash. The caller that takes an entry out of the map owns its branch from then on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use tokio::sync::{Notify, watch};

use super::client_profile::Profile;
use super::rehearsal::Rehearsal;
use crate::core::pool::{Demand, PoolEntry, Stage};
use crate::model::{BranchId, Preset, TemplateId};

/// How long a reading of the volume's free room is used before it is read again.
const FREE_ROOM_CACHE_TTL: Duration = Duration::from_millis(20);

/// State of the engine's pools.
#[derive(Default)]
pub(crate) struct Pool {
    pub(crate) entries: Mutex<HashMap<BranchId, PoolEntry>>,
    pub(crate) demand: Mutex<Demand>,
    /// Sizes that a user chose; they stay over a restart.
    pub(crate) chosen_sizes: Mutex<BTreeMap<Preset, u32>>,
    /// Forecast of the next client of the proxy.
    pub(crate) profile: Mutex<Profile>,
    /// The database that users of a template's branches work in, where there is one.
    pub(crate) databases: Mutex<HashMap<TemplateId, Option<String>>>,
    /// Warm-up statements for sessions of the newest template's branches, by database.
    pub(crate) rehearsals: Mutex<Vec<Rehearsal>>,
    last_activity: Mutex<Option<Instant>>,
    /// Free bytes of the volume and when they were read.
    free_room: Mutex<Option<(u64, Instant)>>,
    /// Whether the registry may hold commits that are not flushed.
    pub(crate) has_unflushed_commits: AtomicBool,
    /// Leased branches whose manifests are to be written: they still say that the branch is pooled.
    pub(crate) unwritten_manifests: Mutex<Vec<BranchId>>,
    /// Branches that were never handed out and whose deletion failed; it is tried again.
    pub(crate) pending_discards: Mutex<Vec<BranchId>>,
    /// Set by a request after a failed refill: the next refill does not wait for the pause to end.
    pub(crate) skips_pause: AtomicBool,
    /// Wakes the task that fills the pools.
    pub(crate) wakeup: Notify,
    /// Sent whenever entries have changed.
    pub(crate) changed: watch::Sender<()>,
}

impl Pool {
    /// Notes that a request is being served, so that background work waits.
    pub(crate) fn note_activity(&self) {
        self.has_unflushed_commits.store(true, Ordering::Release);
        *lock(&self.last_activity) = Some(Instant::now());
    }

    /// Has the pool filled again at once, however often that has failed: its size or template
    /// changed.
    pub(crate) fn request_refill(&self) {
        self.skips_pause.store(true, Ordering::Release);
        self.wakeup.notify_one();
    }

    pub(crate) fn cache_free_room(&self, bytes: u64) {
        *lock(&self.free_room) = Some((bytes, Instant::now()));
    }

    /// Free room of the volume, if it was read less than [`FREE_ROOM_CACHE_TTL`] ago.
    pub(crate) fn cached_free_room(&self) -> Option<ByteSize> {
        let (bytes, at) = (*lock(&self.free_room))?;
        (at.elapsed() < FREE_ROOM_CACHE_TTL).then_some(ByteSize(bytes))
    }

    /// Time since the last request.
    pub(crate) fn time_since_activity(&self) -> Duration {
        lock(&self.last_activity).map_or(Duration::MAX, |at| at.elapsed())
    }

    /// Takes a hot entry out, whose branch is the caller's from then on.
    pub(crate) fn take_hot(&self, preset: Preset, template: TemplateId) -> Option<PoolEntry> {
        let mut entries = lock(&self.entries);
        let fits = |entry: &&PoolEntry| {
            entry.stage == Stage::Hot && entry.preset == preset && entry.template == template
        };
        let id = entries.values().find(fits)?.id;
        entries.remove(&id)
    }

    /// Puts an entry back that was taken out; a lease gets it when it is hot.
    pub(crate) fn put_back(&self, mut entry: PoolEntry, stage: Stage) {
        entry.stage = stage;
        lock(&self.entries).insert(entry.id, entry);
        self.wakeup.notify_one();
    }

    /// Takes an entry out; `None` if another task has taken it.
    pub(crate) fn remove(&self, id: BranchId) -> Option<PoolEntry> {
        let removed = lock(&self.entries).remove(&id);
        self.changed.send_replace(());
        removed
    }

    /// Forgets every entry; their rows tell the next start what to clean up.
    pub(crate) fn clear(&self) {
        lock(&self.entries).clear();
        self.changed.send_replace(());
    }

    pub(crate) fn set_stage(&self, id: BranchId, stage: Stage) {
        if let Some(entry) = lock(&self.entries).get_mut(&id) {
            entry.stage = stage;
        }
        self.changed.send_replace(());
    }

    pub(crate) fn snapshot(&self) -> Vec<PoolEntry> {
        let mut entries: Vec<PoolEntry> = lock(&self.entries).values().copied().collect();
        entries.sort_by_key(|entry| entry.id);
        entries
    }
}
