//! Locations of schedules.

use std::collections::BTreeMap;

use crate::core::state::ScheduleKey;

/// Location of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleLocation {
    /// The partition of the valid copy.
    pub partition: usize,
    /// Partitions that may have a duplicate, of a move that was not completed.
    pub duplicates: Vec<usize>,
}

impl ScheduleLocation {
    pub(crate) fn new(partition: usize) -> Self {
        Self { partition, duplicates: Vec::new() }
    }
}

/// Partitions of schedules, by tenant and name.
pub(crate) type ScheduleLocations = BTreeMap<ScheduleKey, ScheduleLocation>;
