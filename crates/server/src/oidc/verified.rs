//! Tokens that were verified, until they end: a request with one of them costs no signature.
//!
//! A token with open requests stays, as ending it works through this cache. So at the limit a token
//! that no request holds is evicted, by the clock algorithm ("second chance"): tokens are in
//! queues, one of each tenant and one of all, and a token that was used since it was queued goes to
//! the end once more. At most [`EXAMINED_MAX`] tokens are examined, however many there are.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use egret_base::sync::{read_lock, write_lock};
use egret_base::{Limit, LimitExceeded, Timestamp};
use sha2::{Digest, Sha256};

use super::keys::Fingerprint;
use crate::tokens::{LiveToken, TokenEnd};

/// Most tokens that are remembered as verified.
const VERIFIED_MAX: Limit = Limit::new("oidc_tokens_verified_max", 20_000);

/// Most of them of one tenant.
const TENANT_VERIFIED_MAX: Limit = Limit::new("oidc_tokens_verified_per_tenant_max", 10_000);

/// Tokens that are looked at to find one that makes room.
const EXAMINED_MAX: usize = 64;

/// Entries of a queue beyond twice its tokens at which those of forgotten tokens are removed.
const STALE_MAX: usize = 64;

/// Key of a token in the cache: its SHA-256.
pub(super) type TokenDigest = [u8; 32];

#[derive(Debug)]
struct VerifiedToken {
    token: Arc<LiveToken>,
    key_fingerprint: Fingerprint,
    /// Differs each time a token is cached: queue entries with an older value are stale.
    generation: u64,
}

#[derive(Debug)]
pub(super) struct VerifiedTokens {
    cache: RwLock<VerifiedTokenCache>,
    limit: Limit,
    tenant_limit: Limit,
}

#[derive(Debug, Default)]
struct VerifiedTokenCache {
    by_digest: HashMap<TokenDigest, VerifiedToken>,
    /// All tokens, for the limit of all of them.
    queue: EvictionQueue,
    tenants: HashMap<String, TenantTokens>,
    next_generation: u64,
}

/// The tokens of one tenant.
#[derive(Debug, Default)]
struct TenantTokens {
    count: usize,
    queue: EvictionQueue,
}

/// Tokens in the order in which they are looked at for making room; some may be forgotten already.
#[derive(Debug, Default)]
struct EvictionQueue(VecDeque<QueuedToken>);

#[derive(Debug)]
struct QueuedToken {
    digest: TokenDigest,
    generation: u64,
    /// When the token had been used last when it was put here.
    last_used: Option<Timestamp>,
}

impl Default for VerifiedTokens {
    fn default() -> Self {
        Self::with_limits(VERIFIED_MAX, TENANT_VERIFIED_MAX)
    }
}

pub(super) fn token_digest(text: &str) -> TokenDigest {
    Sha256::digest(text.as_bytes()).into()
}

impl VerifiedTokens {
    /// No tokens yet, and bounds for all of them and those of one tenant.
    fn with_limits(limit: Limit, tenant_limit: Limit) -> Self {
        Self { cache: RwLock::default(), limit, tenant_limit }
    }

    pub(super) fn find(&self, digest: &TokenDigest) -> Option<Arc<LiveToken>> {
        let cache = self.read();
        let verified = cache.by_digest.get(digest)?;
        Some(verified.token.clone())
    }

    /// Remembers a token. Of two requests that verified the same token, the second gets the first
    /// one's.
    ///
    /// # Errors
    /// [`LimitExceeded`]: there are as many, and those that were looked at are all in use.
    pub(super) fn insert(
        &self,
        digest: TokenDigest,
        token: LiveToken,
        key: Fingerprint,
    ) -> Result<Arc<LiveToken>, LimitExceeded> {
        let mut cache = self.write();
        if let Some(verified) = cache.by_digest.get(&digest) {
            return Ok(verified.token.clone());
        }
        cache.evict_for_tenant(&token.tenant, self.tenant_limit)?;
        cache.evict_for_total(self.limit)?;
        let token = Arc::new(token);
        cache.insert(digest, token.clone(), key);
        Ok(token)
    }

    /// Ends the tokens whose time has come, and forgets them.
    pub(super) fn end_expired(&self, now: Timestamp) {
        let has_expired =
            self.read().by_digest.values().any(|known| known.token.end_if_expired(now));
        if has_expired {
            self.write().retain(|known| !known.token.end_if_expired(now));
        }
    }

    /// Ends the tokens of keys that the issuer has no more.
    pub(super) fn end_tokens_of_other_keys(&self, keys: &HashSet<Fingerprint>) {
        let has_key = |known: &VerifiedToken| keys.contains(&known.key_fingerprint);
        // Checked often, and rarely false: avoid the write lock.
        if self.read().by_digest.values().all(has_key) {
            return;
        }
        self.write().retain(|verified| {
            let is_kept = has_key(verified);
            if !is_kept {
                verified.token.end(TokenEnd::Revoked);
            }
            is_kept
        });
    }

    pub(super) fn len(&self) -> usize {
        self.read().by_digest.len()
    }

    fn read(&self) -> RwLockReadGuard<'_, VerifiedTokenCache> {
        // Map, counts and queues are changed by calls that do not panic, so a panic elsewhere
        // leaves them whole.
        read_lock(&self.cache)
    }

    fn write(&self) -> RwLockWriteGuard<'_, VerifiedTokenCache> {
        write_lock(&self.cache)
    }
}

impl VerifiedTokenCache {
    fn insert(&mut self, digest: TokenDigest, token: Arc<LiveToken>, key: Fingerprint) {
        let generation = self.next_generation;
        self.next_generation += 1;
        let last_used = token.last_used();
        let new_entry = || QueuedToken { digest, generation, last_used };
        let tenant = self.tenants.entry(token.tenant.clone()).or_default();
        tenant.count += 1;
        tenant.queue.0.push_back(new_entry());
        self.queue.0.push_back(new_entry());
        let token = VerifiedToken { token, key_fingerprint: key, generation };
        self.by_digest.insert(digest, token);
        let count = tenant.count;
        tenant.queue.remove_stale(count, &self.by_digest);
        self.queue.remove_stale(self.by_digest.len(), &self.by_digest);
    }

    /// Forgets a token of the tenant where it has as many as it may.
    fn evict_for_tenant(&mut self, tenant: &str, limit: Limit) -> Result<(), LimitExceeded> {
        let Some(tenant) = self.tenants.get_mut(tenant) else {
            return Ok(());
        };
        let Err(exceeded) = limit.check(tenant.count as u64 + 1) else {
            return Ok(());
        };
        let evicted = tenant.queue.pop_evictable(&self.by_digest).ok_or(exceeded)?;
        self.remove(&evicted);
        Ok(())
    }

    /// Forgets a token where there are as many as may be.
    fn evict_for_total(&mut self, limit: Limit) -> Result<(), LimitExceeded> {
        let Err(exceeded) = limit.check(self.by_digest.len() as u64 + 1) else {
            return Ok(());
        };
        let evicted = self.queue.pop_evictable(&self.by_digest).ok_or(exceeded)?;
        self.remove(&evicted);
        Ok(())
    }

    /// Forgets a token; the queues lose it later.
    fn remove(&mut self, digest: &TokenDigest) {
        let Some(verified) = self.by_digest.remove(digest) else {
            return;
        };
        if let Some(tenant) = self.tenants.get_mut(&verified.token.tenant) {
            tenant.count -= 1;
            if tenant.count == 0 {
                self.tenants.remove(&verified.token.tenant);
            }
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&VerifiedToken) -> bool) {
        let removed: Vec<TokenDigest> = self
            .by_digest
            .iter()
            .filter(|(_, known)| !is_kept(known))
            .map(|(digest, _)| *digest)
            .collect();
        for digest in &removed {
            self.remove(digest);
        }
    }
}

impl EvictionQueue {
    /// A token that no request holds: the first one that was not used since it was put here, else
    /// the least recently used one of those that are looked at. Of a token that no request holds
    /// the map has the only reference, and gives out no other while it is locked.
    fn pop_evictable(
        &mut self,
        tokens: &HashMap<TokenDigest, VerifiedToken>,
    ) -> Option<TokenDigest> {
        let mut idle: Option<QueuedToken> = None;
        let mut examined = 0;
        while examined < EXAMINED_MAX {
            let Some(queued) = self.0.pop_front() else {
                break;
            };
            // A stale entry was put here once and is removed once: it does not count.
            let Some(verified) = queued.find_current(tokens) else {
                continue;
            };
            examined += 1;
            let last_used = verified.token.last_used();
            let is_idle = Arc::strong_count(&verified.token) == 1;
            if is_idle && last_used == queued.last_used {
                self.0.extend(idle);
                return Some(queued.digest);
            }
            let requeued = QueuedToken { last_used, ..queued };
            if is_idle && idle.as_ref().is_none_or(|idle| last_used < idle.last_used) {
                self.0.extend(idle.replace(requeued));
            } else {
                self.0.push_back(requeued);
            }
        }
        idle.map(|idle| idle.digest)
    }

    /// Removes forgotten tokens once they are more than the others.
    fn remove_stale(&mut self, count: usize, tokens: &HashMap<TokenDigest, VerifiedToken>) {
        if self.0.len() > 2 * count + STALE_MAX {
            self.0.retain(|queued| queued.find_current(tokens).is_some());
        }
    }
}

impl QueuedToken {
    /// The token, unless it was forgotten since it was put into the queue.
    fn find_current<'t>(
        &self,
        tokens: &'t HashMap<TokenDigest, VerifiedToken>,
    ) -> Option<&'t VerifiedToken> {
        let verified = tokens.get(&self.digest)?;
        (verified.generation == self.generation).then_some(verified)
    }
}

#[cfg(test)]
mod tests;
