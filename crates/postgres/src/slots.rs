//! Slots for the work of tenants: so many at a time, of which one tenant takes no more than its share.
//!
//! Work that finds none waits in the order in which it came; a tenant that has its share is passed over.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egret_base::{Coded, Kind, TenantShare, TenantUsage};
use tokio::sync::oneshot;

/// No slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotsTaken {
    /// All of them are in use.
    #[error(
        "limit {limit} is {max}, and all of them are in use: try again in a moment, or raise the setting"
    )]
    All {
        /// The setting.
        limit: &'static str,
        /// How many there are.
        max: u64,
    },
    /// The tenant has as many as one may have.
    #[error(
        "limit {limit} is {max}, of which one tenant may have {share}, and has: try again in a moment, or raise the setting"
    )]
    Share {
        /// The setting.
        limit: &'static str,
        /// How many there are.
        max: u64,
        /// How many one tenant may have.
        share: u64,
    },
}

impl Coded for SlotsTaken {
    fn code(&self) -> &'static str {
        "limit_exceeded"
    }

    fn kind(&self) -> Kind {
        Kind::LimitReached
    }
}

/// See the module. `K` tells tenants apart. Cheap to clone.
pub struct TenantSlots<K: Eq + Hash + Clone> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Eq + Hash + Clone> {
    share: TenantShare,
    state: Mutex<State<K>>,
}

struct State<K: Eq + Hash + Clone> {
    usage: TenantUsage<K>,
    waiting: VecDeque<Waiter<K>>,
}

struct Waiter<K: Eq + Hash + Clone> {
    tenant: K,
    granted: oneshot::Sender<Slot<K>>,
}

/// A slot, or several, given back when dropped.
pub struct Slot<K: Eq + Hash + Clone> {
    /// None where it was given back already.
    shared: Option<Arc<Shared<K>>>,
    tenant: K,
    amount: u64,
}

impl<K: Eq + Hash + Clone> Clone for TenantSlots<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<K: Eq + Hash + Clone> TenantSlots<K> {
    /// As many slots as a setting says, one at least. One tenant takes three quarters at most.
    pub fn new(limit: &'static str, max: u32) -> Self {
        let share = TenantShare::three_quarters(limit, u64::from(max.max(1)));
        let state = State {
            usage: TenantUsage::default(),
            waiting: VecDeque::new(),
        };
        Self {
            shared: Arc::new(Shared {
                share,
                state: Mutex::new(state),
            }),
        }
    }

    /// A slot that is free at once.
    ///
    /// # Errors
    /// [`SlotsTaken`].
    pub fn try_take(&self, tenant: K) -> Result<Slot<K>, SlotsTaken> {
        self.try_take_many(tenant, 1)
    }

    /// So many slots that are free at once. A tenant that has none may have more than its share: else what needs more
    /// would never be done.
    ///
    /// # Errors
    /// [`SlotsTaken`].
    pub fn try_take_many(&self, tenant: K, amount: u64) -> Result<Slot<K>, SlotsTaken> {
        let mut state = self.shared.lock();
        self.shared.check(&state, &tenant, amount)?;
        Ok(self.shared.grant(&mut state, tenant, amount))
    }

    /// A slot, as soon as one is free within this time.
    ///
    /// # Errors
    /// [`SlotsTaken`].
    pub async fn take(&self, tenant: K, wait_max: Duration) -> Result<Slot<K>, SlotsTaken> {
        let granted = {
            let mut state = self.shared.lock();
            if self.shared.check(&state, &tenant, 1).is_ok() {
                return Ok(self.shared.grant(&mut state, tenant, 1));
            }
            let (sender, granted) = oneshot::channel();
            state.waiting.push_back(Waiter {
                tenant: tenant.clone(),
                granted: sender,
            });
            granted
        };
        match tokio::time::timeout(wait_max, granted).await {
            Ok(Ok(slot)) => Ok(slot),
            // One that was granted at this moment has been dropped with the channel.
            _ => self.try_take(tenant),
        }
    }
}

impl<K: Eq + Hash + Clone> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, state: &State<K>, tenant: &K, amount: u64) -> Result<(), SlotsTaken> {
        let (all, own) = (state.usage.all(), state.usage.of(tenant));
        let (limit, max) = (self.share.all.name, self.share.all.max);
        if all + amount > max {
            return Err(SlotsTaken::All { limit, max });
        }
        if own == 0 || self.share.check(all, own, amount).is_ok() {
            return Ok(());
        }
        let share = self.share.one.max;
        Err(SlotsTaken::Share { limit, max, share })
    }

    fn grant(self: &Arc<Self>, state: &mut State<K>, tenant: K, amount: u64) -> Slot<K> {
        state.usage.add(tenant.clone(), amount);
        Slot {
            shared: Some(self.clone()),
            tenant,
            amount,
        }
    }

    /// Takes a slot back, and gives what is free to those that wait.
    fn give_back(self: &Arc<Self>, tenant: &K, amount: u64) {
        let mut state = self.lock();
        state.usage.subtract(tenant, amount);
        let mut position = 0;
        while position < state.waiting.len() && state.usage.all() < self.share.all.max {
            let waiter = &state.waiting[position];
            if !waiter.granted.is_closed() && self.check(&state, &waiter.tenant, 1).is_err() {
                position += 1;
                continue;
            }
            let Some(waiter) = state.waiting.remove(position) else {
                break;
            };
            if waiter.granted.is_closed() {
                continue;
            }
            let slot = self.grant(&mut state, waiter.tenant, 1);
            if let Err(mut unclaimed) = waiter.granted.send(slot) {
                // The caller has left at this moment. Dropped, the slot would lock the state once more.
                unclaimed.shared = None;
                state.usage.subtract(&unclaimed.tenant, 1);
            }
        }
    }
}

impl<K: Eq + Hash + Clone> Drop for Slot<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.give_back(&self.tenant, self.amount);
        }
    }
}

#[cfg(test)]
mod tests;
