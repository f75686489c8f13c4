//! Which partition has which schedule.

use std::collections::BTreeMap;

use crate::core::state::ScheduleKey;

/// Where a schedule is.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleLocation {
    /// The partition of the one that counts.
    pub at: usize,
    /// Partitions that may have another one, of a move that has not come to its end.
    pub also: Vec<usize>,
}

impl ScheduleLocation {
    pub(crate) fn at(partition: usize) -> Self {
        Self {
            at: partition,
            also: Vec::new(),
        }
    }
}

/// Partitions of schedules, by tenant and name.
pub(crate) type ScheduleLocations = BTreeMap<ScheduleKey, ScheduleLocation>;
