//! Tokens that were verified, until they end: a request with one of them costs no signature.
//!
//! A token with open requests stays, as what ends it finds it here. So at the limit the tokens make
//! room that no request holds, least recently used first.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use egret_base::{Limit, LimitExceeded, Timestamp};
use sha2::{Digest, Sha256};

use super::keys::Fingerprint;
use crate::tokens::{LiveToken, TokenEnd};

/// Most tokens that are remembered as verified.
const VERIFIED_MAX: Limit = Limit::new("oidc_tokens_verified_max", 20_000);

/// Most of them of one tenant.
const TENANT_VERIFIED_MAX: Limit = Limit::new("oidc_tokens_verified_per_tenant_max", 10_000);

/// What part of the tokens makes room at once, as finding the least recently used looks at all.
const EVICTED_FRACTION: usize = 8;

/// What a token is known by: its SHA-256.
pub(super) type TokenDigest = [u8; 32];

#[derive(Debug)]
struct VerifiedToken {
    token: Arc<LiveToken>,
    key: Fingerprint,
}

/// The tokens by their digests.
#[derive(Debug)]
pub(super) struct VerifiedTokens {
    by_digest: RwLock<HashMap<TokenDigest, VerifiedToken>>,
    limit: Limit,
    tenant_limit: Limit,
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
            by_digest: RwLock::default(),
            limit,
            tenant_limit,
        }
    }

    pub(super) fn find(&self, digest: &TokenDigest) -> Option<Arc<LiveToken>> {
        self.read().get(digest).map(|known| known.token.clone())
    }

    /// Remembers a token. Of two requests that verified the same token, the second gets the first one's.
    ///
    /// # Errors
    /// [`LimitExceeded`]: there are as many, all of them in use.
    pub(super) fn insert(
        &self,
        digest: TokenDigest,
        token: LiveToken,
        key: Fingerprint,
    ) -> Result<Arc<LiveToken>, LimitExceeded> {
        let mut tokens = self.write();
        if let Some(known) = tokens.get(&digest) {
            return Ok(known.token.clone());
        }
        // Below the bound of a tenant there is nothing to count.
        if tokens.len() as u64 >= self.tenant_limit.max {
            let tenant = token.tenant.as_str();
            make_room(&mut tokens, self.tenant_limit, |of| of.tenant == tenant)?;
            make_room(&mut tokens, self.limit, |_| true)?;
        }
        let token = Arc::new(token);
        let verified = VerifiedToken {
            token: token.clone(),
            key,
        };
        tokens.insert(digest, verified);
        Ok(token)
    }

    /// Ends the tokens whose time has come, and forgets them.
    pub(super) fn end_expired(&self, now: Timestamp) {
        let has_expired = self
            .read()
            .values()
            .any(|known| known.token.end_if_expired(now));
        if has_expired {
            self.write()
                .retain(|_, known| !known.token.end_if_expired(now));
        }
    }

    /// Ends the tokens of keys that the issuer has no more.
    pub(super) fn end_all_but_of(&self, keys: &HashSet<Fingerprint>) {
        let has_key = |known: &VerifiedToken| keys.contains(&known.key);
        // This is looked at often, and seldom the case.
        if self.read().values().all(has_key) {
            return;
        }
        self.write().retain(|_, known| {
            let is_kept = has_key(known);
            if !is_kept {
                known.token.end(TokenEnd::Revoked);
            }
            is_kept
        });
    }

    pub(super) fn len(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<TokenDigest, VerifiedToken>> {
        // The map is changed by single calls only, so a panic elsewhere leaves it whole.
        self.by_digest
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<TokenDigest, VerifiedToken>> {
        self.by_digest
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more of those tokens that `is_counted` names, by forgetting some that no request holds: of these
/// the map has the only reference, and gives out no other while it is locked.
///
/// # Errors
/// [`LimitExceeded`]: there are as many, all of them in use.
fn make_room(
    tokens: &mut HashMap<TokenDigest, VerifiedToken>,
    limit: Limit,
    is_counted: impl Fn(&LiveToken) -> bool,
) -> Result<(), LimitExceeded> {
    let counted = tokens.iter().filter(|(_, known)| is_counted(&known.token));
    let count = counted.clone().count();
    if limit.check(count as u64 + 1).is_ok() {
        return Ok(());
    }
    let unused = counted.filter(|(_, known)| Arc::strong_count(&known.token) == 1);
    let mut unused: Vec<(Option<Timestamp>, TokenDigest)> = unused
        .map(|(digest, known)| (known.token.last_used(), *digest))
        .collect();
    unused.sort_unstable();
    unused.truncate((count / EVICTED_FRACTION).max(1));
    for (_, digest) in &unused {
        tokens.remove(digest);
    }
    limit.check((count - unused.len()) as u64 + 1)
}

#[cfg(test)]
mod tests;
