//! What is measured and deleted for one tenant at a time.

use super::shared_work::SharedWork;
use crate::model::BranchId;

/// What is done for one tenant by one task at a time.
#[derive(Default)]
pub(crate) struct TenantTurns {
    /// Its measurements: other tenants are not held up by its size and its requests.
    pub(crate) measuring: SharedWork<TenantDiskUsage>,
    /// Deletions of what it has destroyed, with the bytes that it takes after each.
    pub(crate) purging: SharedWork<u64>,
}

/// What a tenant took a moment ago, in bytes.
#[derive(Clone)]
pub(crate) struct TenantDiskUsage {
    pub(crate) bytes: u64,
    /// How many of them destroyed branches have that are not deleted yet.
    pub(crate) of_tombstones: u64,
    /// The living branch that has grown most, where the tenant is over its limit.
    pub(crate) growing: Option<BranchId>,
}
