//! Quotas of requests, streams and memory of bodies, for one token, for one tenant and for all of
//! them together.
//!
//! Counters are atomic. A request looks its token up once, in one of several maps, so that requests
//! do not wait for each other.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;

use crate::config::ServerConfig;
use crate::error::{RequestError, ServerError};

/// Maps of tokens; each has a lock of its own.
const SHARDS: usize = 16;

/// Entries of one map beyond which those without a request are removed.
const IDLE_ENTRIES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// A request until its response's last byte.
    Request,
    /// A request that lasts as long as its client wants.
    Stream,
    /// Bytes of request bodies in memory, compressed and decompressed.
    BodyMemory,
    /// A request for the metrics, which is answered however many others are at work.
    Scrape,
}

/// Number of variants of [`Resource`].
const RESOURCES: usize = 4;

/// Requests for the metrics at a time: of all callers, of one tenant, with one token. Each holds
/// the whole page in memory until it is read.
const SCRAPES_MAX: [u64; 3] = [64, 16, 4];

impl Resource {
    /// Those whose limits are settings.
    const CONFIGURED: [Resource; 3] = [Resource::Request, Resource::Stream, Resource::BodyMemory];

    fn setting(self, scope: QuotaScope) -> &'static str {
        match (self, scope) {
            (Resource::Request, QuotaScope::All) => "server.concurrency_max",
            (Resource::Request, QuotaScope::Tenant) => "server.concurrency_per_tenant_max",
            (Resource::Request, QuotaScope::Token) => "server.concurrency_per_token_max",
            (Resource::Stream, QuotaScope::All) => "server.streams_max",
            (Resource::Stream, QuotaScope::Tenant) => "server.streams_per_tenant_max",
            (Resource::Stream, QuotaScope::Token) => "server.streams_per_token_max",
            (Resource::BodyMemory, QuotaScope::All) => "server.body_memory_max",
            (Resource::BodyMemory, QuotaScope::Tenant) => "server.body_memory_per_tenant_max",
            (Resource::BodyMemory, QuotaScope::Token) => "server.body_memory_per_token_max",
            (Resource::Scrape, QuotaScope::All) => "metrics_requests_max",
            (Resource::Scrape, QuotaScope::Tenant) => "metrics_requests_per_tenant_max",
            (Resource::Scrape, QuotaScope::Token) => "metrics_requests_per_token_max",
        }
    }
}

/// The token that a request has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder<'a> {
    pub(crate) token_id: &'a str,
    pub(crate) tenant: &'a str,
}

/// The scope of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuotaScope {
    All,
    Tenant,
    Token,
}

/// The largest use of each resource, by scope.
#[derive(Debug, Default)]
struct Limits {
    all: ScopeLimits,
    tenant: ScopeLimits,
    token: ScopeLimits,
}

/// The largest use of each resource; it may change while there is some.
#[derive(Debug, Default)]
struct ScopeLimits([AtomicU64; RESOURCES]);

impl ScopeLimits {
    fn set(&self, limits: [u64; RESOURCES]) {
        for (limit, value) in self.0.iter().zip(limits) {
            limit.store(value, Ordering::Relaxed);
        }
    }

    fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize].load(Ordering::Relaxed)
    }
}

/// The current use of each resource.
#[derive(Debug, Default)]
struct Usage([AtomicU64; RESOURCES]);

impl Usage {
    fn try_add(&self, resource: Resource, amount: u64, max: u64) -> bool {
        let counter = &self.0[resource as usize];
        let before = counter.fetch_add(amount, Ordering::Relaxed);
        let fits = before.saturating_add(amount) <= max;
        if !fits {
            counter.fetch_sub(amount, Ordering::Relaxed);
        }
        fits
    }

    fn subtract(&self, resource: Resource, amount: u64) {
        self.0[resource as usize].fetch_sub(amount, Ordering::Relaxed);
    }

    fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize].load(Ordering::Relaxed)
    }
}

/// What one token and its tenant have in use.
#[derive(Debug)]
struct TokenUsage {
    own: Usage,
    tenant: Arc<Usage>,
}

/// A scope with its use and its limits.
type ScopeUsage<'a> = (QuotaScope, &'a Usage, &'a ScopeLimits);

type UsageMap<T> = Mutex<HashMap<String, Arc<T>>>;

/// Every use and its limits.
#[derive(Debug)]
pub(crate) struct Quotas {
    limits: Limits,
    all: Usage,
    tenants: UsageMap<Usage>,
    tokens: [UsageMap<TokenUsage>; SHARDS],
    hasher: RandomState,
}

impl Quotas {
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        let quotas = Arc::new(Self {
            limits: Limits::default(),
            all: Usage::default(),
            tenants: UsageMap::default(),
            tokens: Default::default(),
            hasher: RandomState::new(),
        });
        quotas.set_limits(config);
        quotas
    }

    /// Replaces the limits. What is held beyond them stays until it is given back.
    pub(crate) fn set_limits(&self, config: &ServerConfig) {
        self.limits.all.set([
            config.concurrency_max.into(),
            config.streams_max.into(),
            config.body_memory_max.bytes(),
            SCRAPES_MAX[0],
        ]);
        self.limits.tenant.set([
            config.concurrency_per_tenant_max.into(),
            config.streams_per_tenant_max.into(),
            config.body_memory_per_tenant_max.bytes(),
            SCRAPES_MAX[1],
        ]);
        self.limits.token.set([
            config.concurrency_per_token_max.into(),
            config.streams_per_token_max.into(),
            config.body_memory_per_token_max.bytes(),
            SCRAPES_MAX[2],
        ]);
    }

    /// Counts one request or stream of a token's holder until the permit is dropped.
    ///
    /// # Errors
    /// [`RequestError::Busy`] when all requests together have reached the limit,
    /// [`RequestError::QuotaExceeded`] when the holder's tenant or token has.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        holder: Holder<'_>,
        resource: Resource,
    ) -> Result<Permit, RequestError> {
        let token = self.token_usage(holder);
        self.reserve(&token, resource, 1)?;
        Ok(Permit { quotas: self.clone(), token, resource, body_bytes: AtomicU64::new(0) })
    }

    /// The first limit that all callers together have reached.
    pub(crate) fn exhausted(&self) -> Option<(&'static str, u64)> {
        let limits = &self.limits.all;
        let is_reached = |resource: &Resource| self.all.get(*resource) >= limits.get(*resource);
        let resource = Resource::CONFIGURED.into_iter().find(is_reached)?;
        Some((resource.setting(QuotaScope::All), limits.get(resource)))
    }

    /// Requests, streams and bytes of bodies in use now.
    pub(crate) fn in_use(&self) -> [u64; 3] {
        Resource::CONFIGURED.map(|resource| self.all.get(resource))
    }

    fn scope_usages<'a>(&'a self, token: &'a TokenUsage) -> [ScopeUsage<'a>; 3] {
        let limits = &self.limits;
        [
            (QuotaScope::Token, &token.own, &limits.token),
            (QuotaScope::Tenant, &token.tenant, &limits.tenant),
            (QuotaScope::All, &self.all, &limits.all),
        ]
    }

    fn reserve(
        &self,
        token: &TokenUsage,
        resource: Resource,
        amount: u64,
    ) -> Result<(), RequestError> {
        let scope_usages = self.scope_usages(token);
        for (index, (scope, usage, limits)) in scope_usages.iter().enumerate() {
            let max = limits.get(resource);
            if usage.try_add(resource, amount, max) {
                continue;
            }
            for (_, usage, _) in &scope_usages[..index] {
                usage.subtract(resource, amount);
            }
            let limit = resource.setting(*scope);
            return Err(match (resource, scope) {
                (Resource::BodyMemory, _) => RequestError::BodyMemory { limit, max },
                (_, QuotaScope::All) => RequestError::Busy { limit, max },
                (_, QuotaScope::Tenant | QuotaScope::Token) => {
                    RequestError::QuotaExceeded { limit, max }
                }
            });
        }
        Ok(())
    }

    fn release(&self, token: &TokenUsage, resource: Resource, amount: u64) {
        for (_, usage, _) in self.scope_usages(token) {
            usage.subtract(resource, amount);
        }
    }

    fn token_usage(&self, holder: Holder<'_>) -> Arc<TokenUsage> {
        let id = holder.token_id;
        let shard = self.hasher.hash_one(id) as usize % SHARDS;
        let mut tokens = lock(&self.tokens[shard]);
        if let Some(usage) = tokens.get(id) {
            return usage.clone();
        }
        remove_idle(&mut tokens);
        let usage = Arc::new(TokenUsage {
            own: Usage::default(),
            tenant: self.tenant_usage(holder.tenant),
        });
        tokens.insert(id.to_owned(), usage.clone());
        usage
    }

    fn tenant_usage(&self, tenant: &str) -> Arc<Usage> {
        let mut tenants = lock(&self.tenants);
        if let Some(usage) = tenants.get(tenant) {
            return usage.clone();
        }
        remove_idle(&mut tenants);
        let usage = Arc::<Usage>::default();
        tenants.insert(tenant.to_owned(), usage.clone());
        usage
    }
}

/// The quotas of a server, to change their limits while it runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerLimits(pub(crate) Arc<Quotas>);

impl ServerLimits {
    /// The settings that [`ServerLimits::change`] takes over.
    pub const SETTINGS: [&str; 9] = [
        "server.concurrency_max",
        "server.concurrency_per_tenant_max",
        "server.concurrency_per_token_max",
        "server.streams_max",
        "server.streams_per_tenant_max",
        "server.streams_per_token_max",
        "server.body_memory_max",
        "server.body_memory_per_tenant_max",
        "server.body_memory_per_token_max",
    ];

    /// Takes over the limits of requests, streams and memory of bodies. Requests in progress go on.
    ///
    /// # Errors
    /// [`ServerError::Setting`] when a setting is not valid; the limits are unchanged then.
    pub fn change(&self, config: &ServerConfig) -> Result<(), ServerError> {
        config.check()?;
        self.0.set_limits(config);
        Ok(())
    }
}

/// Removes entries that no request holds, once there are many: tokens come and go.
fn remove_idle<T>(entries: &mut HashMap<String, Arc<T>>) {
    if entries.len() >= IDLE_ENTRIES_MAX {
        entries.retain(|_, usage| Arc::strong_count(usage) > 1);
    }
}

/// One request's share, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    quotas: Arc<Quotas>,
    token: Arc<TokenUsage>,
    resource: Resource,
    body_bytes: AtomicU64,
}

impl Permit {
    /// Whether the request lasts as long as its client wants.
    pub(crate) fn is_stream(&self) -> bool {
        self.resource == Resource::Stream
    }

    /// Counts memory for the request's body, before it is allocated.
    ///
    /// # Errors
    /// [`RequestError::BodyMemory`] when all callers, the tenant or the token hold too much.
    pub(crate) fn reserve_body(&self, bytes: u64) -> Result<(), RequestError> {
        self.quotas.reserve(&self.token, Resource::BodyMemory, bytes)?;
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a part of the body's memory back before the request ends.
    pub(crate) fn release_body(&self, bytes: u64) {
        self.body_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.quotas.release(&self.token, Resource::BodyMemory, bytes);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.quotas.release(&self.token, self.resource, 1);
        let bytes = *self.body_bytes.get_mut();
        if bytes > 0 {
            self.quotas.release(&self.token, Resource::BodyMemory, bytes);
        }
    }
}

#[cfg(test)]
mod tests;
