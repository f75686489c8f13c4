//! Bounds the cost of verifying signatures: a forged token that names a known key costs one
//! verification before it is refused.
//!
//! Only a part of the processors verifies, a bounded number of requests waits for that, and an
//! address that has sent too many unaccepted tokens within a minute is refused before any of its
//! tokens is verified. Tokens that are cached as verified are not affected.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use egret_base::sync::lock;
use egret_base::{Limit, LimitExceeded, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::refusal::JwtRefusal;
use crate::peer::site_address;

/// Requests that wait for their token to be verified, or have it verified.
const WAITERS_MAX: Limit = Limit::new("oidc_verifications_waiting_max", 512);

/// Tokens of one address (of IPv6, of one /64) in a minute that were verified and not accepted.
const FAILURES_MAX: Limit = Limit::new("oidc_failures_per_address_max", 600);

/// Addresses whose tokens are counted one by one in a minute; those of further ones are counted
/// together.
const ADDRESSES_MAX: usize = 65_536;

/// The bounds of verifications.
pub(super) struct VerificationQuota {
    active_slots: Semaphore,
    waiter_slots: Semaphore,
    failures: Mutex<Failures>,
}

/// Tokens of the current minute that were verified and not accepted.
#[derive(Default)]
struct Failures {
    minute: i64,
    by_address: HashMap<Option<IpAddr>, u64>,
}

/// The right to verify one token, given back when dropped.
pub(super) struct VerificationPermit<'q> {
    _active_slot: SemaphorePermit<'q>,
    _waiter: SemaphorePermit<'q>,
}

impl Default for VerificationQuota {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new((processors / 2).max(1))
    }
}

impl VerificationQuota {
    /// A quota of so many verifications at once.
    fn new(active_max: usize) -> Self {
        let waiters_max = usize::try_from(WAITERS_MAX.max).unwrap_or(usize::MAX);
        Self {
            active_slots: Semaphore::new(active_max),
            waiter_slots: Semaphore::new(waiters_max),
            failures: Mutex::default(),
        }
    }

    /// Waits for the right to verify a token of an address.
    ///
    /// # Errors
    /// [`JwtRefusal::TooManyFailures`], [`JwtRefusal::Busy`].
    pub(super) async fn acquire(
        &self,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<VerificationPermit<'_>, JwtRefusal> {
        let count = self.lock_failures(now).count(address);
        FAILURES_MAX.check(count + 1).map_err(JwtRefusal::TooManyFailures)?;
        let busy_refusal = || {
            JwtRefusal::Busy(LimitExceeded {
                name: WAITERS_MAX.name,
                max: WAITERS_MAX.max,
                asked: WAITERS_MAX.max + 1,
            })
        };
        let waiter = self.waiter_slots.try_acquire().map_err(|_| busy_refusal())?;
        // The semaphore is never closed.
        let active_slot = self.active_slots.acquire().await.map_err(|_| busy_refusal())?;
        Ok(VerificationPermit { _active_slot: active_slot, _waiter: waiter })
    }

    /// Counts a token that was verified and not accepted.
    pub(super) fn count_failure(&self, address: Option<IpAddr>, now: Timestamp) {
        self.lock_failures(now).add(address);
    }

    fn lock_failures(&self, now: Timestamp) -> MutexGuard<'_, Failures> {
        // Single counts are changed, so a panic elsewhere leaves them sound.
        let mut failures = lock(&self.failures);
        let minute = now.as_micros().div_euclid(60_000_000);
        if minute != failures.minute {
            *failures = Failures { minute, ..Failures::default() };
        }
        failures
    }
}

impl Failures {
    fn address_key(&self, address: Option<IpAddr>) -> Option<IpAddr> {
        let address = address.map(site_address);
        let is_known = self.by_address.contains_key(&address);
        if is_known || self.by_address.len() < ADDRESSES_MAX { address } else { None }
    }

    fn count(&self, address: Option<IpAddr>) -> u64 {
        let count = self.by_address.get(&self.address_key(address));
        count.copied().unwrap_or(0)
    }

    fn add(&mut self, address: Option<IpAddr>) {
        let key = self.address_key(address);
        *self.by_address.entry(key).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
