//! Which branch is stopped so that the volume does not fill up: the one that grows.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::config::BranchesConfig;
use crate::model::BranchId;

/// The longest time that a stop takes, in seconds: free room is extrapolated that far.
const REACTION_S: u64 = 2;

/// Growth below this is what any idle server writes.
pub(crate) const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// Free room of the volume and its trend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes that can be written.
    pub free: u64,
    /// Bytes a second by which that falls.
    pub falling_per_s: u64,
}

impl Room {
    /// Whether something has to be stopped now for the source to keep its room.
    pub(crate) fn is_short(&self, config: &BranchesConfig) -> bool {
        let lost = self.falling_per_s.saturating_mul(REACTION_S);
        self.free.saturating_sub(lost) < config.free_critical.bytes()
    }
}

/// Over how long the fall of free room is averaged: the file system writes out in bursts, and one
/// of them is no rate.
const WINDOW: Duration = Duration::from_millis(500);

/// A reading of the free room.
struct FreeRoomSample {
    /// Since any fixed moment.
    at: Duration,
    free: u64,
}

/// The readings of the last half second.
#[derive(Default)]
pub(crate) struct Trend {
    readings: VecDeque<FreeRoomSample>,
}

impl Trend {
    /// Adds a reading at a time since any fixed moment. Returns by how many bytes a second free
    /// room has fallen.
    pub(crate) fn add(&mut self, at: Duration, free: u64) -> u64 {
        let is_old = |reading: &FreeRoomSample| at.saturating_sub(reading.at) >= WINDOW;
        while self.readings.get(1).is_some_and(is_old) {
            self.readings.pop_front();
        }
        let rate = self.readings.front().map_or(0, |first| {
            let fallen = first.free.saturating_sub(free) as f64;
            let elapsed = at.saturating_sub(first.at).max(WINDOW);
            (fallen / elapsed.as_secs_f64()) as u64
        });
        self.readings.push_back(FreeRoomSample { at, free });
        rate
    }
}

/// The branch that has grown most between two measurements of bytes on the disk; `None` when none
/// has: stopping one that does not grow gives nothing back.
pub(crate) fn fastest_growing(
    before: &HashMap<BranchId, u64>,
    after: &HashMap<BranchId, u64>,
) -> Option<BranchId> {
    let growth = |id: &BranchId, bytes: u64| Some(bytes.saturating_sub(*before.get(id)?));
    after
        .iter()
        .filter_map(|(id, bytes)| Some((growth(id, *bytes)?, *id)))
        .filter(|(growth, _)| *growth >= GROWTH_BYTES_MIN)
        .max()
        .map(|(_, id)| id)
}

#[cfg(test)]
mod tests;
