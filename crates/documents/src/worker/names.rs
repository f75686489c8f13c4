//! What documents are called, as far as it is remembered: most writes refer to the same few.
//!
//! It is right as long as one Egret writes: a name is put in, or taken out, after the transaction has committed that made it, or its document,
//! or removed it, and while that write still claims it. Whoever asks claims it, too.

use quick_cache::sync::Cache;

use crate::model::{AliasId, TenantId};

/// See the module.
pub struct Names {
    cache: Cache<(TenantId, AliasId), i64>,
}

impl Names {
    /// So many at most; those that nobody asks for go first.
    pub fn new(names_max: u32) -> Self {
        Self {
            cache: Cache::new(names_max as usize),
        }
    }

    /// The number of the document that is called so.
    pub fn get(&self, tenant: TenantId, alias: AliasId) -> Option<i64> {
        self.cache.get(&(tenant, alias))
    }

    /// A document is called so.
    pub fn insert(&self, tenant: TenantId, alias: AliasId, number: i64) {
        self.cache.insert((tenant, alias), number);
    }

    /// None is any more.
    pub fn remove(&self, tenant: TenantId, alias: AliasId) {
        self.cache.remove(&(tenant, alias));
    }

    /// Another Egret may have written.
    pub fn clear(&self) {
        self.cache.clear();
    }
}
