//! How many queries read the audit log at a time: each may read all of its files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::RequestError;

/// Queries that read at a time; the others wait for their turn.
const READS_MAX: usize = 1;

/// Queries of one tenant that read or wait for their turn.
const READS_PER_TENANT_MAX: usize = 4;

/// The queries that read or wait, by tenant.
#[derive(Debug)]
pub(super) struct AuditReads {
    semaphore: Arc<Semaphore>,
    by_tenant: Arc<Mutex<HashMap<String, usize>>>,
}

impl AuditReads {
    pub(super) fn new() -> Self {
        Self { semaphore: Arc::new(Semaphore::new(READS_MAX)), by_tenant: Arc::default() }
    }

    /// Waits until a query of a tenant may read.
    ///
    /// # Errors
    /// [`RequestError::QuotaExceeded`] when the tenant has as many queries as it may.
    pub(super) async fn acquire_turn(&self, tenant: &str) -> Result<AuditTurn, RequestError> {
        let tenant_slot = self.acquire_tenant_slot(tenant)?;
        let permit = self.semaphore.clone().acquire_owned().await;
        Ok(AuditTurn {
            _permit: permit.expect("the semaphore is never closed"),
            _tenant_slot: tenant_slot,
        })
    }

    fn acquire_tenant_slot(&self, tenant: &str) -> Result<TenantSlot, RequestError> {
        let mut by_tenant = lock(&self.by_tenant);
        let count = by_tenant.entry(tenant.to_owned()).or_default();
        if *count >= READS_PER_TENANT_MAX {
            return Err(RequestError::QuotaExceeded {
                limit: "audit_queries_per_tenant_max",
                max: READS_PER_TENANT_MAX as u64,
            });
        }
        *count += 1;
        Ok(TenantSlot { tenant: tenant.to_owned(), by_tenant: self.by_tenant.clone() })
    }
}

/// The right to read, given back when dropped.
#[derive(Debug)]
pub(crate) struct AuditTurn {
    _permit: OwnedSemaphorePermit,
    _tenant_slot: TenantSlot,
}

/// Counts a query of a tenant until dropped.
#[derive(Debug)]
struct TenantSlot {
    tenant: String,
    by_tenant: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        let mut by_tenant = lock(&self.by_tenant);
        if let Some(count) = by_tenant.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                by_tenant.remove(&self.tenant);
            }
        }
    }
}
