//! How much of the volume the branches of each tenant take, and when that is to be measured again.
//!
//! Measuring looks at the extents of every changed file, free room at two numbers. So what is
//! written anywhere on the volume is counted by the fall of free room, and a tenant is measured
//! when that could have taken it over its limit: never while it is far from it, and each
//! [`STEP_BYTES`] when it is near. A tenant that is new has what was written since it was missing
//! in the list, at most, and is not measured for being new: that of all branches of a burst takes
//! longer than to make them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::core::room::fastest_growing;
use crate::model::BranchId;

/// A tenant near its limit is measured when so much has been written to the volume.
pub(crate) const STEP_BYTES: u64 = 16 << 20;

/// What the branches of one tenant take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantDisk {
    /// In all, its own templates included.
    pub bytes: u64,
    /// By branch: what is shared by some is counted at one of them, or at their template.
    pub branches: HashMap<BranchId, u64>,
    /// Branches of which not all is counted, with the reason.
    pub uncounted: BTreeMap<BranchId, String>,
}

impl TenantDisk {
    /// What cannot be counted any more still takes what it took before.
    fn carry_over_uncounted(&mut self, previous: &TenantDisk) {
        for id in self.uncounted.keys() {
            let previous_bytes = previous.branches.get(id).copied().unwrap_or(0);
            let counted = self.branches.entry(*id).or_default();
            self.bytes += previous_bytes.saturating_sub(*counted);
            *counted = previous_bytes.max(*counted);
        }
    }
}

/// Tenants that had branches or templates, and what had been written before they were listed.
struct TenantList {
    written_before: u64,
    tenants: BTreeSet<String>,
}

#[derive(Default)]
struct TenantMeasurement {
    disk: TenantDisk,
    /// [`TenantDisks::written`] before it was made.
    written_before: u64,
    is_full: bool,
}

/// The latest measurement of each tenant.
#[derive(Default)]
pub(crate) struct TenantDisks {
    free: Option<u64>,
    /// By how many bytes free room has fallen since the start; rises are not taken off.
    written: u64,
    last_list: Option<TenantList>,
    tenants: HashMap<String, TenantMeasurement>,
}

impl TenantDisks {
    /// Notes how much can be written to the volume.
    pub(crate) fn note_free(&mut self, free: u64) {
        let previous = self.free.replace(free).unwrap_or(free);
        self.written = self.written.saturating_add(previous.saturating_sub(free));
    }

    /// How much has been written: to be passed to [`TenantDisks::record`] with what is measured
    /// now.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether a tenant may have grown over the limit since it was measured.
    pub(crate) fn is_due(&self, tenant: &str, limit: u64) -> bool {
        let Some(measurement) = self.tenants.get(tenant) else {
            return true;
        };
        let remaining = limit.saturating_sub(measurement.disk.bytes);
        self.written - measurement.written_before >= remaining.max(STEP_BYTES)
    }

    /// Notes what was measured; a branch of which not all is counted takes no less than before.
    /// Returns the branch to be stopped: where the tenant is over the limit, the one that has grown
    /// most.
    pub(crate) fn record(
        &mut self,
        tenant: &str,
        written_before: u64,
        mut disk: TenantDisk,
        limit: u64,
    ) -> Option<BranchId> {
        if let Some(previous) = self.tenants.get(tenant) {
            disk.carry_over_uncounted(&previous.disk);
        }
        let is_over = disk.bytes > limit;
        let is_full = disk.bytes >= limit;
        let measurement = TenantMeasurement { disk, written_before, is_full };
        let mut before =
            self.tenants.insert(tenant.to_owned(), measurement).filter(|_| is_over)?.disk.branches;
        let current = &self.tenants.get(tenant)?.disk.branches;
        // Branches that are new since then had nothing.
        for id in current.keys() {
            before.entry(*id).or_default();
        }
        fastest_growing(&before, current)
    }

    /// What a tenant took when it was measured last; 0 when it never was.
    pub(crate) fn bytes_of(&self, tenant: &str) -> u64 {
        self.tenants.get(tenant).map_or(0, |measurement| measurement.disk.bytes)
    }

    /// Whether a tenant took as much as it may when it was measured last.
    pub(crate) fn is_full(&self, tenant: &str) -> bool {
        self.tenants.get(tenant).is_some_and(|measurement| measurement.is_full)
    }

    /// Notes which tenants have branches or templates; `at` is [`TenantDisks::written`] before they
    /// were listed. Others are forgotten. Those of the first list may have anything.
    pub(crate) fn note_tenants(&mut self, written_before: u64, tenants: BTreeSet<String>) {
        self.tenants.retain(|tenant, _| tenants.contains(tenant));
        let list = TenantList { written_before, tenants };
        let Some(previous_list) = self.last_list.replace(list) else {
            return;
        };
        let tenants = self.last_list.iter().flat_map(|list| &list.tenants);
        for tenant in tenants.filter(|tenant| !previous_list.tenants.contains(*tenant)) {
            let measurement = TenantMeasurement {
                written_before: previous_list.written_before,
                ..TenantMeasurement::default()
            };
            self.tenants.entry(tenant.clone()).or_insert(measurement);
        }
    }
}

/// Ranges of bytes of a device that do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// The end of each by its start.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range. Returns how many bytes of it are new.
    pub(crate) fn add(&mut self, start: u64, length: u64) -> u64 {
        let (mut merged_start, mut end) = (start, start.saturating_add(length));
        let mut overlapped = 0;
        // Those that begin before its end and end at or behind its start, the last one first.
        while let Some((&other_start, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < merged_start {
                break;
            }
            let overlap = other_end.min(start + length).saturating_sub(other_start.max(start));
            overlapped += overlap;
            self.ends.remove(&other_start);
            merged_start = merged_start.min(other_start);
            end = end.max(other_end);
        }
        if end > merged_start {
            self.ends.insert(merged_start, end);
        }
        length - overlapped
    }
}

#[cfg(test)]
mod tests;
