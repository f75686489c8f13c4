//! Locations of schedules.

use std::collections::BTreeMap;

use crate::core::state::ScheduleKey;

/// Location of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleLocation {
    /// The partition of the valid copy.
    pub at: usize,
    /// Partitions that may have a duplicate, of a move that was not completed.
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
