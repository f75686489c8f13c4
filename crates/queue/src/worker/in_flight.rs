//! Items in flight: new tasks and reports of calls that are not answered yet.
//!
//! While several tenants are active, each has a bounded number in flight, and further calls of that
//! tenant wait in the order in which they came. A call uses the processor and the logs before it is
//! answered, so one tenant takes no more of either than this number allows, however many calls it
//! makes. A tenant that is active alone has no bound here.
//!
//! Reports have permits of their own: a worker whose report waited behind new tasks would lose its
//! leases.
//!
//! A waiting call must be polled until it has its permit, as everything behind it waits as well.
//! The body of a response is not polled while its client reads nothing, so a stream waits in a task
//! of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::Clock;
use egret_base::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Items that a tenant may have in flight while others are active: one call of the largest size.
const CONTESTED_ITEMS_MAX: u32 = 1_024;

/// How long after its last call a tenant counts as active, in milliseconds.
const ACTIVITY_WINDOW_MS: u64 = 1_000;

/// The items in flight of all tenants.
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    tenants: Mutex<HashMap<u32, Arc<TenantInFlight>>>,
}

/// Whether several tenants are active.
struct Activity {
    clock: Arc<dyn Clock>,
    /// The tenant of the latest call.
    last_tenant: AtomicU32,
    /// When a call came after one of another tenant, as the clock's running time in milliseconds;
    /// zero: never.
    alternated_ms: AtomicU64,
}

impl Activity {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a call. Returns whether other tenants are active.
    fn record_call(&self, tenant: u32) -> bool {
        // Load before store: a cache line that is not written stays shared between cores.
        if self.last_tenant.load(Ordering::Relaxed) != tenant {
            let previous = self.last_tenant.swap(tenant, Ordering::Relaxed);
            if previous != 0 && previous != tenant {
                let now_ms = self.now_ms().max(1);
                self.alternated_ms.store(now_ms, Ordering::Relaxed);
                return true;
            }
        }
        match self.alternated_ms.load(Ordering::Relaxed) {
            0 => false,
            at_ms => self.now_ms().saturating_sub(at_ms) < ACTIVITY_WINDOW_MS,
        }
    }
}

impl InFlight {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            activity: Arc::new(Activity {
                clock,
                last_tenant: AtomicU32::new(0),
                alternated_ms: AtomicU64::new(0),
            }),
            tenants: Mutex::default(),
        }
    }

    /// The items in flight of one tenant.
    pub(crate) fn for_tenant(&self, tenant: u32) -> Arc<TenantInFlight> {
        let mut tenants = lock(&self.tenants);
        if tenants.len() == tenants.capacity() {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        let in_flight = tenants.entry(tenant).or_insert_with(|| {
            Arc::new(TenantInFlight {
                tenant,
                activity: self.activity.clone(),
                tasks: Arc::new(Semaphore::new(CONTESTED_ITEMS_MAX as usize)),
                reports: Arc::new(Semaphore::new(CONTESTED_ITEMS_MAX as usize)),
            })
        });
        in_flight.clone()
    }
}

/// Kind of items in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightKind {
    /// Enqueueing of new tasks.
    Tasks,
    /// What workers report on the tasks that they hold.
    Reports,
}

/// The items in flight of one tenant.
pub struct TenantInFlight {
    tenant: u32,
    activity: Arc<Activity>,
    /// Permits for new tasks while others are active.
    tasks: Arc<Semaphore>,
    /// Permits for reports while others are active.
    reports: Arc<Semaphore>,
}

impl TenantInFlight {
    fn semaphore(&self, kind: InFlightKind) -> &Arc<Semaphore> {
        match kind {
            InFlightKind::Tasks => &self.tasks,
            InFlightKind::Reports => &self.reports,
        }
    }

    /// Records a call of this tenant. Returns how many permits it needs: none while no other tenant
    /// is active.
    fn permits_for(&self, items: usize) -> u32 {
        if !self.activity.record_call(self.tenant) {
            return 0;
        }
        u32::try_from(items).map_or(CONTESTED_ITEMS_MAX, |items| items.min(CONTESTED_ITEMS_MAX))
    }

    /// Waits for the permits of a call with so many items; at once where no other tenant is active.
    pub async fn acquire(self: &Arc<Self>, kind: InFlightKind, items: usize) -> InFlightPermit {
        let permits = self.permits_for(items);
        if permits == 0 {
            return InFlightPermit::default();
        }
        let permit = self.semaphore(kind).clone().acquire_many_owned(permits).await;
        // The semaphore is never closed.
        self.wrap_permit(permit.ok())
    }

    /// A permit keeps the tenant's entry alive: a new entry for the same number would have all
    /// permits again.
    fn wrap_permit(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> InFlightPermit {
        InFlightPermit { permit, _tenant: Some(self.clone()) }
    }

    /// The permit of a call with so many items, unless it would have to wait.
    pub fn try_acquire(
        self: &Arc<Self>,
        kind: InFlightKind,
        items: usize,
    ) -> Option<InFlightPermit> {
        let permits = self.permits_for(items);
        if permits == 0 {
            return Some(InFlightPermit::default());
        }
        let permit = self.semaphore(kind).clone().try_acquire_many_owned(permits);
        permit.ok().map(|permit| self.wrap_permit(Some(permit)))
    }
}

/// Permits for the items of a call, released when it is dropped.
#[derive(Default)]
pub struct InFlightPermit {
    permit: Option<OwnedSemaphorePermit>,
    _tenant: Option<Arc<TenantInFlight>>,
}

/// Permits for the items of a stream, released as they are answered, and all of them when dropped.
pub struct StreamInFlight {
    tenant: Arc<TenantInFlight>,
    kind: InFlightKind,
    held_permits: AtomicUsize,
}

impl StreamInFlight {
    /// A stream without anything in flight.
    pub fn new(tenant: Arc<TenantInFlight>, kind: InFlightKind) -> Self {
        Self { tenant, kind, held_permits: AtomicUsize::new(0) }
    }

    /// Adds the permits of a message.
    pub fn hold(&self, permit: InFlightPermit) {
        if let Some(permit) = permit.permit {
            self.held_permits.fetch_add(permit.num_permits(), Ordering::Relaxed);
            permit.forget();
        }
    }

    /// Releases the permits of answered items.
    pub fn release(&self, items: usize) {
        // Most streams hold nothing.
        if self.held_permits.load(Ordering::Relaxed) == 0 {
            return;
        }
        let subtract = |taken: usize| Some(taken.saturating_sub(items));
        let held_before = self
            .held_permits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract)
            .unwrap_or_default();
        self.tenant.semaphore(self.kind).add_permits(held_before.min(items));
    }
}

impl Drop for StreamInFlight {
    fn drop(&mut self) {
        self.release(usize::MAX);
    }
}

#[cfg(test)]
mod tests;
