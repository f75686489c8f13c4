//! Cache from alias to document number, since most references point to few documents.
//!
//! It is correct while one Egret writes: an entry is added or removed after the transaction that
//! creates or deletes the alias has committed, and while that write still holds its lock. Readers
//! hold the lock too.

use quick_cache::sync::Cache;

use crate::model::{AliasId, DocumentNumber, TenantId};

pub(crate) struct AliasCache {
    cache: Cache<(TenantId, AliasId), DocumentNumber>,
}

impl AliasCache {
    /// Creates a cache for that many aliases; the least used are evicted.
    pub(crate) fn new(aliases_max: u32) -> Self {
        Self { cache: Cache::new(aliases_max as usize) }
    }

    /// The number of the document with this alias, if it is cached.
    pub(crate) fn get(&self, tenant: TenantId, alias: AliasId) -> Option<DocumentNumber> {
        self.cache.get(&(tenant, alias))
    }

    pub(crate) fn insert(&self, tenant: TenantId, alias: AliasId, number: DocumentNumber) {
        self.cache.insert((tenant, alias), number);
    }

    pub(crate) fn remove(&self, tenant: TenantId, alias: AliasId) {
        self.cache.remove(&(tenant, alias));
    }

    /// Clears the cache, for example when another Egret may have written.
    pub(crate) fn clear(&self) {
        self.cache.clear();
    }
}
