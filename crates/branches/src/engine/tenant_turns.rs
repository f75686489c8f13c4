//! Per tenant, one task at a time measures its branches, and one deletes what it has destroyed.

use super::shared_work::SharedWork;
use crate::model::BranchId;

/// Work for one tenant that one task at a time does.
#[derive(Default)]
pub(crate) struct TenantTurns {
    /// Measurements of its branches. Each tenant has its own lock, so that a large one does not
    /// hold up others.
    pub(crate) measuring: SharedWork<TenantDiskUsage>,
    /// Deletions of its destroyed branches; the result is the bytes that it takes afterwards.
    pub(crate) purging: SharedWork<u64>,
}

/// Bytes that a tenant took on the volume when it was measured last.
#[derive(Clone)]
pub(crate) struct TenantDiskUsage {
    pub(crate) bytes: u64,
    /// Those of destroyed branches whose files are not deleted yet; included in `bytes`.
    pub(crate) tombstone_bytes: u64,
    /// The living branch that has grown most, where the tenant is over its limit.
    pub(crate) growing: Option<BranchId>,
}
