//! Slots for the work of tenants: a fixed number in use at a time, of which one tenant takes no
//! more than its share.
//!
//! Work without a free slot waits in the order of arrival; a tenant that has its share is passed
//! over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egret_base::sync::lock;
use egret_base::{Kind, TenantShare, TenantUsage};
use tokio::sync::oneshot;

/// No slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotsTaken {
    /// All slots are in use.
    #[error(
        "limit {limit} is {max}, and all of them are in use: try again in a moment, or raise the setting"
    )]
    All {
        /// Name of the setting that limits them.
        limit: &'static str,
        /// Number of all slots.
        max: u64,
    },
    /// The tenant has as many slots as one tenant may have.
    #[error(
        "limit {limit} is {max}, of which one tenant may have {share}, and all of these are in \
         use: try again in a moment, or raise the setting"
    )]
    Share {
        /// Name of the setting that limits them.
        limit: &'static str,
        /// Number of all slots.
        max: u64,
        /// Number of slots that one tenant may have.
        share: u64,
    },
    /// More slots are needed at once than one tenant may have.
    #[error(
        "limit {limit} is {max}, of which one tenant may have {share}, and {asked} are needed at once: ask for fewer, or raise the setting"
    )]
    Oversized {
        /// Name of the setting that limits them.
        limit: &'static str,
        /// Number of all slots.
        max: u64,
        /// Number of slots that one tenant may have.
        share: u64,
        /// Number of slots that were asked for.
        asked: u64,
    },
}

impl SlotsTaken {
    /// Whether the limit of all tenants is reached, and not what one of them may have.
    pub fn is_of_all(&self) -> bool {
        matches!(self, Self::All { .. })
    }

    /// What an error about it is: the server's fault where all slots are in use, the tenant's where
    /// its share is.
    pub fn kind(&self) -> Kind {
        if self.is_of_all() { Kind::Unavailable } else { Kind::LimitReached }
    }
}

/// Slots shared by tenants, each limited to its share. `K` identifies a tenant. Cheap to clone.
pub struct TenantSlots<K: Ord + Clone> {
    shared: Arc<SlotsInner<K>>,
}

struct SlotsInner<K: Ord + Clone> {
    share: TenantShare,
    state: Mutex<SlotsState<K>>,
}

struct SlotsState<K: Ord + Clone> {
    usage: TenantUsage<K>,
    waiters: VecDeque<Waiter<K>>,
}

struct Waiter<K: Ord + Clone> {
    tenant: K,
    amount: u64,
    grant_sender: oneshot::Sender<Slot<K>>,
}

/// One or more slots, given back when dropped.
pub struct Slot<K: Ord + Clone> {
    /// `None` while the slot is given back.
    shared: Option<Arc<SlotsInner<K>>>,
    tenant: K,
    amount: u64,
}

impl<K: Ord + Clone> Clone for TenantSlots<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Ord + Clone> TenantSlots<K> {
    /// As many slots as a setting says, one at least. One tenant takes three quarters at most.
    pub fn new(limit: &'static str, max: u32) -> Self {
        let share = TenantShare::three_quarters(limit, u64::from(max.max(1)));
        let state = SlotsState { usage: TenantUsage::default(), waiters: VecDeque::new() };
        Self { shared: Arc::new(SlotsInner { share, state: Mutex::new(state) }) }
    }

    /// How many one tenant may have, one at least.
    pub fn share(&self) -> usize {
        usize::try_from(self.shared.share.per_tenant.max).unwrap_or(usize::MAX)
    }

    /// Takes a slot if one is free at once.
    ///
    /// # Errors
    /// [`SlotsTaken`].
    pub fn try_take(&self, tenant: K) -> Result<Slot<K>, SlotsTaken> {
        self.try_take_many(tenant, 1)
    }

    /// Takes `amount` slots if they are free at once.
    ///
    /// # Errors
    /// [`SlotsTaken`].
    pub fn try_take_many(&self, tenant: K, amount: u64) -> Result<Slot<K>, SlotsTaken> {
        let mut state = self.shared.lock();
        self.shared.check_free(&state, &tenant, amount)?;
        Ok(self.shared.grant(&mut state, tenant, amount))
    }

    /// Takes a slot as soon as one is free, within `wait_max`.
    ///
    /// # Errors
    /// [`SlotsTaken`].
    pub async fn take(&self, tenant: K, wait_max: Duration) -> Result<Slot<K>, SlotsTaken> {
        let waited = tokio::time::timeout(wait_max, self.shared.wait(tenant.clone(), 1)).await;
        match waited {
            Ok(slot) => Ok(slot),
            // A slot that was granted at this moment has been dropped with the wait.
            Err(_) => self.try_take(tenant),
        }
    }
}

impl<K: Ord + Clone> SlotsInner<K> {
    fn lock(&self) -> MutexGuard<'_, SlotsState<K>> {
        lock(&self.state)
    }

    fn check_free(&self, state: &SlotsState<K>, tenant: &K, amount: u64) -> Result<(), SlotsTaken> {
        let (all, own) = (state.usage.total(), state.usage.used_by(tenant));
        let (limit, max) = (self.share.total.name, self.share.total.max);
        let share = self.share.per_tenant.max;
        if amount > share {
            return Err(SlotsTaken::Oversized { limit, max, share, asked: amount });
        }
        if all + amount > max {
            return Err(SlotsTaken::All { limit, max });
        }
        let result = self.share.check(all, own, amount);
        result.map_err(|_| SlotsTaken::Share { limit, max, share })
    }

    fn grant(self: &Arc<Self>, state: &mut SlotsState<K>, tenant: K, amount: u64) -> Slot<K> {
        state.usage.add(tenant.clone(), amount);
        Slot { shared: Some(self.clone()), tenant, amount }
    }

    /// Takes `amount` slots, however long it takes until they are free.
    async fn wait(self: &Arc<Self>, tenant: K, amount: u64) -> Slot<K> {
        let granted = {
            let mut state = self.lock();
            if self.check_free(&state, &tenant, amount).is_ok() {
                return self.grant(&mut state, tenant, amount);
            }
            let (sender, granted) = oneshot::channel();
            state.waiters.push_back(Waiter { tenant, amount, grant_sender: sender });
            granted
        };
        let granted = granted.await;
        granted.expect("a waiter whose receiver is there is removed by a grant only")
    }

    /// Takes slots back, and grants free ones to waiters.
    fn release(self: &Arc<Self>, tenant: &K, amount: u64) {
        let mut state = self.lock();
        state.usage.subtract(tenant, amount);
        let mut position = 0;
        while position < state.waiters.len() && state.usage.total() < self.share.total.max {
            let waiter = &state.waiters[position];
            let checked = self.check_free(&state, &waiter.tenant, waiter.amount);
            if !waiter.grant_sender.is_closed() && checked.is_err() {
                position += 1;
                continue;
            }
            let Some(waiter) = state.waiters.remove(position) else {
                break;
            };
            if waiter.grant_sender.is_closed() {
                continue;
            }
            let slot = self.grant(&mut state, waiter.tenant, waiter.amount);
            if let Err(mut unclaimed) = waiter.grant_sender.send(slot) {
                // The waiter has left at this moment. Dropping the slot would lock the state once
                // more.
                unclaimed.shared = None;
                state.usage.subtract(&unclaimed.tenant, unclaimed.amount);
            }
        }
    }
}

impl<K: Ord + Clone> Slot<K> {
    /// Gives the slot back while `work` waits for something else, and takes it again afterwards, in
    /// turn with others and without a time limit: work in progress is not refused halfway.
    pub async fn yield_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let Some(shared) = self.shared.take() else {
            return work.await;
        };
        shared.release(&self.tenant, self.amount);
        let outcome = work.await;
        *self = shared.wait(self.tenant.clone(), self.amount).await;
        outcome
    }
}

impl<K: Ord + Clone> Drop for Slot<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.release(&self.tenant, self.amount);
        }
    }
}

#[cfg(test)]
mod tests;
