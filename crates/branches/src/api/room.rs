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
use crate::store::source::run_blocking;
use crate::store::volume::{DiskUse, disk_use};

/// Interval between two readings of the free room.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

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
    pub(crate) async fn watch_volume_room(self: &Arc<Self>) {
        let started_at = Instant::now();
        let mut trend = Trend::default();
        let mut last_measurement: Option<Measurement> = None;
        let suspensions = Arc::new(Mutex::new(RoomSuspensions::default()));
        let unknown = Condition::new("branches_room_unknown", "volume");
        let full = Condition::new("branches_volume_full", "volume");
        while !self.stopping.load(Ordering::Acquire) {
            let checked = self
                .check_volume_room(
                    started_at.elapsed(),
                    &mut trend,
                    &mut last_measurement,
                    &suspensions,
                )
                .await;
            match checked {
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
                () = self.await_stop() => {}
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Notes that the volume is full, until there is twice the room that branches leave free.
    fn note_room(&self, free: u64, full: &Condition) {
        let free_min = self.config.free_min.bytes();
        if free < free_min {
            let (free, least) = (ByteSize(free).rounded_down(), self.config.free_min);
            full.fail(
                format_args!("{free} free, branches.free_min is {least}"),
                "the volume is full: growing branches are suspended",
            );
        } else if free >= free_min.saturating_mul(2) {
            full.recover("the volume has free space again");
        }
    }

    /// Returns the free room in bytes.
    async fn check_volume_room(
        self: &Arc<Self>,
        elapsed: Duration,
        trend: &mut Trend,
        last_measurement: &mut Option<Measurement>,
        suspensions: &Arc<Mutex<RoomSuspensions>>,
    ) -> Result<u64, BranchesError> {
        let mounted = self.mounted();
        let free = run_blocking(move || mounted.writable_bytes()).await?;
        self.schedule_tenant_measurements(free)?;
        let room = Room { free, falling_per_s: trend.add(elapsed, free) };
        // Twice what branches leave free: early enough to know how large they were before.
        let is_running_low = free < self.config.free_min.bytes().saturating_mul(2);
        if !is_running_low && !room.is_short(&self.config) {
            *last_measurement = None;
            // Nothing need be suspended any more.
            self.faults.suspensions.retain(|_| false);
            lock(suspensions).failed.clear();
            return Ok(free);
        }
        let has_fallen = last_measurement
            .as_ref()
            .is_none_or(|measured| free + GROWTH_BYTES_MIN <= measured.free);
        if !has_fallen {
            return Ok(free);
        }
        let is_running = |branch: &Branch| {
            branch.state == BranchState::Running && !lock(suspensions).stopping.contains(&branch.id)
        };
        let branches = self.state()?.registry.branches_where(is_running);
        let paths = self.paths.clone();
        let ids: Vec<BranchId> = branches.iter().map(|branch| branch.id).collect();
        // The files of a branch may go meanwhile.
        let uses: Vec<(BranchId, DiskUse)> = run_blocking(move || {
            let disk_use = |id: &BranchId| Some((*id, disk_use(&paths.branch(*id)).ok()?));
            Ok(ids.iter().filter_map(disk_use).collect())
        })
        .await?;
        let sizes: HashMap<BranchId, u64> =
            uses.iter().map(|(id, disk_use)| (*id, disk_use.bytes)).collect();
        // How much a branch takes that hides what it has is not known. Where it could not be
        // stopped, the one that grows is, and without such a one it is tried again.
        let hidden: Vec<BranchId> = uses
            .iter()
            .filter(|(_, disk_use)| disk_use.uncounted.is_some())
            .map(|(id, _)| *id)
            .collect();
        let untried = {
            let failed = &lock(suspensions).failed;
            hidden.iter().find(|id| !failed.contains(*id)).copied()
        };
        let previous = last_measurement.replace(Measurement { free, sizes: sizes.clone() });
        if let Some(before) = previous.filter(|_| room.is_short(&self.config))
            && let Some(id) = untried
                .or_else(|| fastest_growing(&before.sizes, &sizes))
                .or(hidden.first().copied())
        {
            self.spawn_room_suspension(id, suspensions);
        }
        Ok(free)
    }

    /// Suspends a branch while room is watched further: writing out what it has left takes a while.
    fn spawn_room_suspension(
        self: &Arc<Self>,
        id: BranchId,
        suspensions: &Arc<Mutex<RoomSuspensions>>,
    ) {
        lock(suspensions).stopping.insert(id);
        let (inner, leaving) = (self.clone(), suspensions.clone());
        tokio::spawn(async move {
            let (subject, faults) = (id.to_string(), &inner.faults.suspensions);
            let notice = "suspended while it grew: the volume was nearly full".to_owned();
            let suspended = inner.suspend_if_due(id, SuspendReason::NoRoom, notice).await;
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
