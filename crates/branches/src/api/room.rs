//! Keeping room on the volume for the source, by stopping the branch that takes it.
//!
//! The kernel does not say when a file system fills up, so it is asked several times a second,
//! which takes some microseconds. Branches are measured, which takes milliseconds each, only while
//! little room is left and it falls.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::settings::ByteSize;
use egret_base::sync::lock;

use crate::core::plan::SuspendReason;
use crate::core::room::{GROWTH_BYTES_MIN, Room, Trend, fastest_growing};
use crate::engine::Inner;
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchState};
use crate::store::source::blocking;
use crate::store::volume::{DiskUse, disk_use};

/// Interval between two readings of the free room.
const INTERVAL: Duration = Duration::from_millis(50);

/// Sizes of running branches, and the free room when they were measured.
struct Measurement {
    free: u64,
    sizes: HashMap<BranchId, u64>,
}

/// The branches that are being stopped, and those that could not be.
#[derive(Default)]
struct RoomSuspensions {
    stopping: HashSet<BranchId>,
    /// Branches whose last suspension failed.
    failed: HashSet<BranchId>,
}

impl Inner {
    /// Stops branches that fill the volume, until Egret stops.
    pub(crate) async fn suspend_for_room(self: &Arc<Self>) {
        let began = Instant::now();
        let mut trend = Trend::default();
        let mut measured: Option<Measurement> = None;
        let leaving = Arc::new(Mutex::new(RoomSuspensions::default()));
        let unknown = Condition::new("branches_room_unknown", "volume");
        let full = Condition::new("branches_volume_full", "volume");
        while !self.stopping.load(Ordering::Acquire) {
            let looked = self
                .look(began.elapsed(), &mut trend, &mut measured, &leaving)
                .await;
            match looked {
                Ok(free) => {
                    unknown.recover("reading the free space of the volume works again");
                    self.note_room(free, &full);
                }
                Err(_) if self.stopping.load(Ordering::Acquire) => {}
                Err(error) => {
                    unknown.fail(&error, "cannot read the free space of the volume; retrying")
                }
            }
            tokio::select! {
                () = self.ending() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// Notes that the volume is full, until there is twice the room that branches leave free.
    fn note_room(&self, free: u64, full: &Condition) {
        let least = self.config.free_min.bytes();
        if free < least {
            let (free, least) = (ByteSize(free).rounded_down(), self.config.free_min);
            full.fail(
                format_args!("{free} free, branches.free_min is {least}"),
                "the volume is full: growing branches are suspended",
            );
        } else if free >= least.saturating_mul(2) {
            full.recover("the volume has free space again");
        }
    }

    /// Returns the free room in bytes.
    async fn look(
        self: &Arc<Self>,
        elapsed: Duration,
        trend: &mut Trend,
        measured: &mut Option<Measurement>,
        leaving: &Arc<Mutex<RoomSuspensions>>,
    ) -> Result<u64, BranchesError> {
        let mounted = self.mounted();
        let free = blocking(move || mounted.writable_bytes()).await?;
        self.watch_tenants(free)?;
        let room = Room {
            free,
            falling_per_s: trend.add(elapsed, free),
        };
        // Twice what branches leave free: early enough to know how large they were before.
        let is_near = free < self.config.free_min.bytes().saturating_mul(2);
        if !is_near && !room.is_short(&self.config) {
            *measured = None;
            // Nothing need be suspended any more.
            self.faults.suspensions.retain(|_| false);
            lock(leaving).failed.clear();
            return Ok(free);
        }
        let fell = measured
            .as_ref()
            .is_none_or(|measured| free + GROWTH_BYTES_MIN <= measured.free);
        if !fell {
            return Ok(free);
        }
        let running = |branch: &Branch| {
            branch.state == BranchState::Running && !lock(leaving).stopping.contains(&branch.id)
        };
        let branches = self.started()?.registry.branches_where(running);
        let paths = self.paths.clone();
        let ids: Vec<BranchId> = branches.iter().map(|branch| branch.id).collect();
        // The files of a branch may go meanwhile.
        let uses: Vec<(BranchId, DiskUse)> = blocking(move || {
            let disk_use = |id: &BranchId| Some((*id, disk_use(&paths.branch(*id)).ok()?));
            Ok(ids.iter().filter_map(disk_use).collect())
        })
        .await?;
        let sizes: HashMap<BranchId, u64> = uses
            .iter()
            .map(|(id, disk_use)| (*id, disk_use.bytes))
            .collect();
        // How much a branch takes that hides what it has is not known. Where it could not be
        // stopped, the one that grows is, and without such a one it is tried again.
        let hidden: Vec<BranchId> = uses
            .iter()
            .filter(|(_, disk_use)| disk_use.uncounted.is_some())
            .map(|(id, _)| *id)
            .collect();
        let untried = {
            let failed = &lock(leaving).failed;
            hidden.iter().find(|id| !failed.contains(*id)).copied()
        };
        let before = measured.replace(Measurement {
            free,
            sizes: sizes.clone(),
        });
        if let Some(before) = before.filter(|_| room.is_short(&self.config))
            && let Some(id) = untried
                .or_else(|| fastest_growing(&before.sizes, &sizes))
                .or(hidden.first().copied())
        {
            self.stop_for_room(id, leaving);
        }
        Ok(free)
    }

    /// Suspends a branch while room is watched further: writing out what it has left takes a while.
    fn stop_for_room(self: &Arc<Self>, id: BranchId, leaving: &Arc<Mutex<RoomSuspensions>>) {
        lock(leaving).stopping.insert(id);
        let (inner, leaving) = (self.clone(), leaving.clone());
        tokio::spawn(async move {
            let (subject, faults) = (id.to_string(), &inner.faults.suspensions);
            let notice = "suspended while it grew: the volume was nearly full".to_owned();
            let suspended = inner.suspend_due(id, SuspendReason::NoRoom, notice).await;
            let is_failed = suspended.is_err();
            match suspended {
                Ok(true) => faults.recover(&subject, "suspended a branch that fills the volume"),
                Ok(false) => {
                    faults.recover(&subject, "a branch that was filling the volume is gone")
                }
                Err(error) => {
                    let message = "cannot suspend a branch that fills the volume; retrying";
                    faults.fail(&subject, &error, message);
                }
            }
            let mut leaving = lock(&leaving);
            leaving.stopping.remove(&id);
            if is_failed {
                leaving.failed.insert(id);
            } else {
                leaving.failed.remove(&id);
            }
        });
    }
}
