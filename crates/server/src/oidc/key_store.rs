//! The issuer's keys in memory, and when they are read again.
//!
//! One task fetches, so there is never more than one fetch. It does so at an interval, and when a
//! token names a key that is not there; the latter at most once in a pause, whatever tokens are
//! sent. A fetch that was begun before a request came may have missed the request's key: one more
//! may then follow it at once, also at most once in a pause. A request waits for the fetch that it
//! needs for a bounded time, and only so many requests do.

use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use egret_base::condition::Condition;
use egret_base::sync::{lock, read_lock, write_lock};
use egret_base::{Clock, Limit};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::config::OidcConfig;
use super::jws::SignedToken;
use super::keys::{KeySet, VerificationKey};
use super::metrics::OidcMetrics;
use super::refusal::JwtRefusal;
use super::source::KeySource;
use super::verified::VerifiedTokens;
use crate::error::ServerError;

/// Most requests that wait for a fetch at the same time.
const WAITERS_MAX: Limit = Limit::new("oidc_key_waiters_max", 64);

/// How long a request waits for a fetch.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// How soon a failed fetch is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// The keys, and since when they are known.
#[derive(Clone, Default)]
struct LoadedKeys {
    keys: Arc<KeySet>,
    /// By the clock's running time; `None` before the first fetch.
    loaded_at: Option<Duration>,
}

/// State of the fetches.
#[derive(Default)]
struct FetchState {
    /// The number of the latest fetch that was begun, from 1 on.
    latest_started: u64,
    is_running: bool,
    /// Whether another one is to begin as soon as none runs.
    is_requested: bool,
    /// When a token last wanted a fetch while one was running, by the clock's running time.
    last_follow_up_at: Option<Duration>,
    /// When the latest one ended, by the clock's running time.
    ended_at: Option<Duration>,
    has_failed: bool,
}

/// Which fetch a request waits for.
struct AwaitedFetch {
    number: u64,
    /// Whether the fetch began before the request, and no other may follow it now: a key that it
    /// lacks may exist nevertheless.
    may_miss_key: bool,
    /// The number of the latest fetch that has ended.
    ended_number: watch::Receiver<u64>,
}

/// The keys of the issuer.
pub(super) struct KeyStore {
    source: KeySource,
    clock: Arc<dyn Clock>,
    refresh_interval: Duration,
    refresh_pause: Duration,
    age_max: Duration,
    loaded: RwLock<LoadedKeys>,
    fetches: Mutex<FetchState>,
    fetch_requested: Notify,
    /// The number of the latest fetch that has ended.
    ended_number: watch::Sender<u64>,
    waiters: Semaphore,
    unreachable: Condition,
    metrics: OidcMetrics,
}

impl KeyStore {
    /// A store without keys, but for those of a file.
    ///
    /// # Errors
    /// [`ServerError`]: a setting or the file cannot be used.
    pub(super) fn open(
        config: &OidcConfig,
        source: KeySource,
        clock: Arc<dyn Clock>,
        metrics: OidcMetrics,
    ) -> Result<Self, ServerError> {
        let intervals = [
            ("oidc.refresh_interval", config.refresh_interval),
            ("oidc.refresh_pause", config.refresh_pause),
            ("oidc.keys_age_max", config.keys_age_max),
        ];
        if let Some((setting, _)) = intervals.iter().find(|(_, span)| span.0 < 1_000) {
            return Err(ServerError::Setting {
                setting,
                message: "it must be at least 1s".to_owned(),
            });
        }
        if config.keys_age_max < config.refresh_interval {
            return Err(ServerError::Setting {
                setting: "oidc.keys_age_max",
                message: "it must not be less than oidc.refresh_interval".to_owned(),
            });
        }
        let store = Self {
            clock,
            refresh_interval: config.refresh_interval.duration(),
            refresh_pause: config.refresh_pause.duration(),
            age_max: config.keys_age_max.duration(),
            loaded: RwLock::default(),
            fetches: Mutex::default(),
            fetch_requested: Notify::new(),
            ended_number: watch::channel(0).0,
            waiters: Semaphore::new(usize::try_from(WAITERS_MAX.max).unwrap_or(usize::MAX)),
            unreachable: Condition::new("oidc_keys_unreachable", "oidc.issuer"),
            metrics,
            source,
        };
        if let Some(keys) = store.source.read_file()? {
            store.load(keys);
        }
        Ok(store)
    }

    /// The key of a token; waits for a fetch where the token names a key that is not known.
    ///
    /// # Errors
    /// [`JwtRefusal::KeyUnknown`], [`JwtRefusal::Algorithm`], [`JwtRefusal::KeysUnavailable`].
    pub(super) async fn find_key(
        &self,
        token: &SignedToken<'_>,
    ) -> Result<Arc<VerificationKey>, JwtRefusal> {
        match self.current_keys().find(token) {
            Err(JwtRefusal::KeyUnknown) => {}
            result => return result,
        }
        let is_conclusive = match self.request_fetch() {
            None => true,
            Some(fetch) => {
                let _permit =
                    self.waiters.try_acquire().map_err(|_| JwtRefusal::KeysUnavailable)?;
                let is_certain = !fetch.may_miss_key;
                let waited = tokio::time::timeout(WAIT_MAX, self.await_fetch(fetch, token)).await;
                waited.is_ok() && is_certain
            }
        };
        match self.current_keys().find(token) {
            Err(JwtRefusal::KeyUnknown) if !is_conclusive || !self.has_fetched() => {
                Err(JwtRefusal::KeysUnavailable)
            }
            found => found,
        }
    }

    /// Waits until a fetch has ended, or an earlier one has brought the key of a token.
    async fn await_fetch(&self, mut fetch: AwaitedFetch, token: &SignedToken<'_>) {
        // The sender lives as long as this store.
        while fetch.ended_number.changed().await.is_ok() {
            let is_unknown = matches!(self.current_keys().find(token), Err(JwtRefusal::KeyUnknown));
            if *fetch.ended_number.borrow_and_update() >= fetch.number || !is_unknown {
                return;
            }
        }
    }

    /// Requests a fetch of the keys now.
    pub(super) fn refresh(&self) {
        self.lock_fetches().is_requested = true;
        self.fetch_requested.notify_one();
    }

    /// The fetch that a request needs whose key is not known; `None` where one has ended within the
    /// pause.
    fn request_fetch(&self) -> Option<AwaitedFetch> {
        let mut fetches = self.lock_fetches();
        let now = self.clock.monotonic();
        let is_recent = |at: Duration| now.saturating_sub(at) < self.refresh_pause;
        let mut may_miss_key = false;
        if !fetches.is_requested {
            if !fetches.is_running {
                if fetches.ended_at.is_some_and(is_recent) {
                    return None;
                }
                fetches.is_requested = true;
            } else if fetches.last_follow_up_at.is_some_and(is_recent) {
                may_miss_key = true;
            } else {
                fetches.last_follow_up_at = Some(now);
                fetches.is_requested = true;
            }
            self.fetch_requested.notify_one();
        }
        Some(AwaitedFetch {
            number: fetches.latest_started + u64::from(!may_miss_key),
            may_miss_key,
            ended_number: self.ended_number.subscribe(),
        })
    }

    /// Whether the latest fetch has brought the issuer's keys.
    fn has_fetched(&self) -> bool {
        let fetches = self.lock_fetches();
        !fetches.has_failed && fetches.ended_at.is_some()
    }

    /// The keys; none when they are too old.
    fn current_keys(&self) -> Arc<KeySet> {
        let loaded = read_lock(&self.loaded);
        let is_fresh = |at: Duration| self.clock.monotonic().saturating_sub(at) <= self.age_max;
        if loaded.loaded_at.is_some_and(is_fresh) { loaded.keys.clone() } else { Arc::default() }
    }

    /// Ends the remembered tokens whose keys are gone or too old.
    pub(super) fn end_tokens_without_key(&self, verified: &VerifiedTokens) {
        let keys = self.current_keys();
        self.metrics.keys.set(i64::try_from(keys.len()).unwrap_or(i64::MAX));
        verified.end_tokens_of_other_keys(&keys.fingerprints());
    }

    /// Fetches at the interval and when it is wanted, until `stopping`.
    pub(super) async fn run(&self, verified: &VerifiedTokens, stopping: CancellationToken) {
        loop {
            self.begin_fetch();
            let result = tokio::select! {
                () = stopping.cancelled() => return,
                fetched = self.source.fetch() => fetched,
            };
            let pause = match result {
                Ok(_) => self.refresh_interval,
                Err(_) => RETRY_INTERVAL.min(self.refresh_interval),
            };
            self.end_fetch(result);
            self.end_tokens_without_key(verified);
            let next_fetch = tokio::time::sleep(pause);
            tokio::pin!(next_fetch);
            while !self.lock_fetches().is_requested {
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = self.fetch_requested.notified() => {}
                    () = &mut next_fetch => break,
                }
            }
        }
    }

    /// Records the start of a fetch, which fulfils all earlier requests.
    fn begin_fetch(&self) {
        let mut fetches = self.lock_fetches();
        fetches.latest_started += 1;
        fetches.is_running = true;
        fetches.is_requested = false;
    }

    fn end_fetch(&self, result: Result<KeySet, String>) {
        self.metrics.count_fetch(result.is_ok());
        let has_failed = match result {
            Ok(keys) => {
                self.load(keys);
                self.unreachable.recover("reading the keys of oidc.issuer works again");
                false
            }
            Err(error) => {
                let message = "cannot read the keys of oidc.issuer; known keys are used for at most oidc.keys_age_max; retrying";
                self.unreachable.fail(&error, message);
                true
            }
        };
        let mut fetches = self.lock_fetches();
        fetches.is_running = false;
        fetches.ended_at = Some(self.clock.monotonic());
        fetches.has_failed = has_failed;
        self.ended_number.send_replace(fetches.latest_started);
    }

    fn load(&self, keys: KeySet) {
        let mut loaded = write_lock(&self.loaded);
        *loaded = LoadedKeys { keys: Arc::new(keys), loaded_at: Some(self.clock.monotonic()) };
    }

    fn lock_fetches(&self) -> MutexGuard<'_, FetchState> {
        lock(&self.fetches)
    }
}

#[cfg(test)]
mod tests;
