//! The issuer's keys in memory, and when they are read again.
//!
//! One task fetches, so there is never more than one fetch. It does so at an interval, and when a
//! token names a key that is not there; the latter at most once in a pause, whatever tokens are sent.
//! A request waits for such a fetch for a bounded time, and only so many requests do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use egret_base::condition::Condition;
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

/// What is known of fetches.
#[derive(Default)]
struct FetchState {
    /// Whether a fetch is wanted or under way.
    is_pending: bool,
    /// When the latest one ended, by the clock's running time.
    ended_at: Option<Duration>,
    has_failed: bool,
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
    wanted: Notify,
    /// Changes when a fetch ends.
    ended: watch::Sender<()>,
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
        let spans = [
            ("oidc.refresh_interval", config.refresh_interval),
            ("oidc.refresh_pause", config.refresh_pause),
            ("oidc.keys_age_max", config.keys_age_max),
        ];
        if let Some((setting, _)) = spans.iter().find(|(_, span)| span.0 < 1_000) {
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
            wanted: Notify::new(),
            ended: watch::channel(()).0,
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
    pub(super) async fn find(
        &self,
        token: &SignedToken<'_>,
    ) -> Result<Arc<VerificationKey>, JwtRefusal> {
        match self.keys().find(token) {
            Err(JwtRefusal::KeyUnknown) => {}
            found => return found,
        }
        if let Some(mut ended) = self.want_fetch() {
            let _permit = self
                .waiters
                .try_acquire()
                .map_err(|_| JwtRefusal::KeysUnavailable)?;
            // Whether it ended or takes too long: what is known now decides.
            let _ = tokio::time::timeout(WAIT_MAX, ended.changed()).await;
        }
        match self.keys().find(token) {
            Err(JwtRefusal::KeyUnknown) if self.is_uncertain() => Err(JwtRefusal::KeysUnavailable),
            found => found,
        }
    }

    /// Has the keys read again now.
    pub(super) fn refresh(&self) {
        self.lock_fetches().is_pending = true;
        self.wanted.notify_one();
    }

    /// Asks for a fetch unless one has ended within the pause; the receiver learns when it has ended.
    fn want_fetch(&self) -> Option<watch::Receiver<()>> {
        let mut fetches = self.lock_fetches();
        if !fetches.is_pending {
            let ended_at = fetches.ended_at;
            let now = self.clock.running();
            if ended_at.is_some_and(|at| now.saturating_sub(at) < self.refresh_pause) {
                return None;
            }
            fetches.is_pending = true;
            self.wanted.notify_one();
        }
        Some(self.ended.subscribe())
    }

    /// Whether a key that is not known may exist all the same.
    fn is_uncertain(&self) -> bool {
        let fetches = self.lock_fetches();
        fetches.is_pending || fetches.has_failed || fetches.ended_at.is_none()
    }

    /// The keys; none when they are too old.
    fn keys(&self) -> Arc<KeySet> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |at: Duration| self.clock.running().saturating_sub(at) <= self.age_max;
        if loaded.loaded_at.is_some_and(is_fresh) {
            loaded.keys.clone()
        } else {
            Arc::default()
        }
    }

    /// Ends the remembered tokens whose keys are gone or too old.
    pub(super) fn end_tokens_without_key(&self, verified: &VerifiedTokens) {
        let keys = self.keys();
        self.metrics
            .keys
            .set(i64::try_from(keys.len()).unwrap_or(i64::MAX));
        verified.end_all_but_of(&keys.fingerprints());
    }

    /// Fetches at the interval and when it is wanted, until `stopping`.
    pub(super) async fn run(&self, verified: &VerifiedTokens, stopping: CancellationToken) {
        loop {
            let fetched = tokio::select! {
                () = stopping.cancelled() => return,
                fetched = self.source.fetch() => fetched,
            };
            let pause = match fetched {
                Ok(_) => self.refresh_interval,
                Err(_) => RETRY_INTERVAL.min(self.refresh_interval),
            };
            self.end_fetch(fetched);
            self.end_tokens_without_key(verified);
            let due = tokio::time::sleep(pause);
            tokio::pin!(due);
            // A wish that an earlier fetch has met is not met again.
            while !self.lock_fetches().is_pending {
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = self.wanted.notified() => {}
                    () = &mut due => break,
                }
            }
        }
    }

    fn end_fetch(&self, fetched: Result<KeySet, String>) {
        self.metrics.count_fetch(fetched.is_ok());
        let has_failed = match fetched {
            Ok(keys) => {
                self.load(keys);
                self.unreachable
                    .recover("the keys of oidc.issuer are read again");
                false
            }
            Err(error) => {
                let message = "cannot read the keys of oidc.issuer; known keys are used for oidc.keys_age_max at most, retrying";
                self.unreachable.fail(&error, message);
                true
            }
        };
        let mut fetches = self.lock_fetches();
        *fetches = FetchState {
            is_pending: false,
            ended_at: Some(self.clock.running()),
            has_failed,
        };
        self.ended.send_replace(());
    }

    fn load(&self, keys: KeySet) {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        *loaded = LoadedKeys {
            keys: Arc::new(keys),
            loaded_at: Some(self.clock.running()),
        };
    }

    fn lock_fetches(&self) -> MutexGuard<'_, FetchState> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
