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
    key: Fingerprint,
    /// Differs each time a token is cached: queue entries with an older value are stale.
    remembrance: u64,
}

#[derive(Debug)]
pub(super) struct VerifiedTokens {
    remembered: RwLock<VerifiedTokenCache>,
    limit: Limit,
    tenant_limit: Limit,
}

#[derive(Debug, Default)]
struct VerifiedTokenCache {
    by_digest: HashMap<TokenDigest, VerifiedToken>,
    /// All tokens, for the limit of all of them.
    queue: EvictionQueue,
    tenants: HashMap<String, TenantTokens>,
    next_remembrance: u64,
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
    remembrance: u64,
    /// When the token had been used last when it was put here.
    last_used: Option<Timestamp>,
}

impl Default for VerifiedTokens {
    fn default() -> Self {
        Self::bounded(VERIFIED_MAX, TENANT_VERIFIED_MAX)
    }
}

pub(super) fn digest(text: &str) -> TokenDigest {
    Sha256::digest(text.as_bytes()).into()
}

impl VerifiedTokens {
    /// No tokens yet, and bounds for all of them and those of one tenant.
    fn bounded(limit: Limit, tenant_limit: Limit) -> Self {
        Self {
            remembered: RwLock::default(),
            limit,
            tenant_limit,
        }
    }

    pub(super) fn find(&self, digest: &TokenDigest) -> Option<Arc<LiveToken>> {
        let remembered = self.read();
        let known = remembered.by_digest.get(digest)?;
        Some(known.token.clone())
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
        let mut remembered = self.write();
        if let Some(known) = remembered.by_digest.get(&digest) {
            return Ok(known.token.clone());
        }
        remembered.make_room_of_tenant(&token.tenant, self.tenant_limit)?;
        remembered.make_room(self.limit)?;
        let token = Arc::new(token);
        remembered.add(digest, token.clone(), key);
        Ok(token)
    }

    /// Ends the tokens whose time has come, and forgets them.
    pub(super) fn end_expired(&self, now: Timestamp) {
        let has_expired = self
            .read()
            .by_digest
            .values()
            .any(|known| known.token.end_if_expired(now));
        if has_expired {
            self.write()
                .retain(|known| !known.token.end_if_expired(now));
        }
    }

    /// Ends the tokens of keys that the issuer has no more.
    pub(super) fn end_all_but_of(&self, keys: &HashSet<Fingerprint>) {
        let has_key = |known: &VerifiedToken| keys.contains(&known.key);
        // Checked often, and rarely false: avoid the write lock.
        if self.read().by_digest.values().all(has_key) {
            return;
        }
        self.write().retain(|known| {
            let is_kept = has_key(known);
            if !is_kept {
                known.token.end(TokenEnd::Revoked);
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
        read_lock(&self.remembered)
    }

    fn write(&self) -> RwLockWriteGuard<'_, VerifiedTokenCache> {
        write_lock(&self.remembered)
    }
}

impl VerifiedTokenCache {
    fn add(&mut self, digest: TokenDigest, token: Arc<LiveToken>, key: Fingerprint) {
        let remembrance = self.next_remembrance;
        self.next_remembrance += 1;
        let last_used = token.last_used();
        let queued = || QueuedToken {
            digest,
            remembrance,
            last_used,
        };
        let tenant = self.tenants.entry(token.tenant.clone()).or_default();
        tenant.count += 1;
        tenant.queue.0.push_back(queued());
        self.queue.0.push_back(queued());
        let token = VerifiedToken {
            token,
            key,
            remembrance,
        };
        self.by_digest.insert(digest, token);
        let count = tenant.count;
        tenant.queue.shrink(count, &self.by_digest);
        self.queue.shrink(self.by_digest.len(), &self.by_digest);
    }

    /// Forgets a token of the tenant where it has as many as it may.
    fn make_room_of_tenant(&mut self, tenant: &str, limit: Limit) -> Result<(), LimitExceeded> {
        let Some(tenant) = self.tenants.get_mut(tenant) else {
            return Ok(());
        };
        let Err(exceeded) = limit.check(tenant.count as u64 + 1) else {
            return Ok(());
        };
        let evicted = tenant.queue.pick(&self.by_digest).ok_or(exceeded)?;
        self.forget(&evicted);
        Ok(())
    }

    /// Forgets a token where there are as many as may be.
    fn make_room(&mut self, limit: Limit) -> Result<(), LimitExceeded> {
        let Err(exceeded) = limit.check(self.by_digest.len() as u64 + 1) else {
            return Ok(());
        };
        let evicted = self.queue.pick(&self.by_digest).ok_or(exceeded)?;
        self.forget(&evicted);
        Ok(())
    }

    /// Forgets a token; the queues lose it later.
    fn forget(&mut self, digest: &TokenDigest) {
        let Some(known) = self.by_digest.remove(digest) else {
            return;
        };
        if let Some(tenant) = self.tenants.get_mut(&known.token.tenant) {
            tenant.count -= 1;
            if tenant.count == 0 {
                self.tenants.remove(&known.token.tenant);
            }
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&VerifiedToken) -> bool) {
        let gone: Vec<TokenDigest> = self
            .by_digest
            .iter()
            .filter(|(_, known)| !is_kept(known))
            .map(|(digest, _)| *digest)
            .collect();
        for digest in &gone {
            self.forget(digest);
        }
    }
}

impl EvictionQueue {
    /// A token that no request holds: the first one that was not used since it was put here, else
    /// the least recently used one of those that are looked at. Of a token that no request holds
    /// the map has the only reference, and gives out no other while it is locked.
    fn pick(&mut self, tokens: &HashMap<TokenDigest, VerifiedToken>) -> Option<TokenDigest> {
        let mut idle: Option<QueuedToken> = None;
        let mut examined = 0;
        while examined < EXAMINED_MAX {
            let Some(queued) = self.0.pop_front() else {
                break;
            };
            // A stale entry was put here once and is removed once: it does not count.
            let Some(known) = queued.remembered(tokens) else {
                continue;
            };
            examined += 1;
            let last_used = known.token.last_used();
            let is_idle = Arc::strong_count(&known.token) == 1;
            if is_idle && last_used == queued.last_used {
                self.0.extend(idle);
                return Some(queued.digest);
            }
            let again = QueuedToken {
                last_used,
                ..queued
            };
            if is_idle && idle.as_ref().is_none_or(|idle| last_used < idle.last_used) {
                self.0.extend(idle.replace(again));
            } else {
                self.0.push_back(again);
            }
        }
        idle.map(|idle| idle.digest)
    }

    /// Removes forgotten tokens once they are more than the others.
    fn shrink(&mut self, count: usize, tokens: &HashMap<TokenDigest, VerifiedToken>) {
        if self.0.len() > 2 * count + STALE_MAX {
            self.0.retain(|queued| queued.remembered(tokens).is_some());
        }
    }
}

impl QueuedToken {
    /// The token, unless it was forgotten since it was put into the queue.
    fn remembered<'t>(
        &self,
        tokens: &'t HashMap<TokenDigest, VerifiedToken>,
    ) -> Option<&'t VerifiedToken> {
        let known = tokens.get(&self.digest)?;
        (known.remembrance == self.remembrance).then_some(known)
    }
}

#[cfg(test)]
mod tests;
