//! JSON Web Tokens of an OpenID Connect provider, accepted beside Egret's own tokens.
//!
//! A token is verified here, with the issuer's public keys, and becomes a [`LiveToken`] like any
//! other: quotas, the audit log and the end of open streams work alike. It is remembered until it
//! ends, so that a request with it costs a hash and no signature.

mod config;
mod jws;
mod key_store;
mod keys;
mod metrics;
mod policy;
mod refusal;
mod source;
mod token_type;
mod verification;
mod verified;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_base::Clock;
use egret_outgoing::Destinations;
use tokio_util::sync::CancellationToken;

pub use config::OidcConfig;
pub(crate) use jws::has_jwt_form;
use jws::{SignedToken, TOKEN_BYTES_MAX};
use key_store::KeyStore;
use keys::VerificationKey;
use metrics::OidcMetrics;
use policy::Policy;
pub use refusal::JwtRefusal;
use source::KeySource;
use verification::VerificationQuota;
use verified::{VerifiedTokens, token_digest};

use crate::error::ServerError;
use crate::metrics::Metrics;
use crate::tokens::{LiveToken, TokenError, Tokens};

/// Interval at which cached tokens are checked for expiry.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);

/// Dependencies of the verification of tokens.
pub struct OidcOptions {
    /// The settings of section `oidc`.
    pub config: OidcConfig,
    /// Destinations that the issuer's documents may name in URLs.
    pub destinations: Destinations,
}

/// Verifies the tokens of one issuer.
pub struct Oidc {
    policy: Policy,
    keys: KeyStore,
    verified: VerifiedTokens,
    quota: VerificationQuota,
    tokens: Arc<Tokens>,
    clock: Arc<dyn Clock>,
    metrics: OidcMetrics,
}

impl Oidc {
    /// Creates the verifier that the settings describe; `None` where they name no issuer.
    ///
    /// # Errors
    /// [`ServerError`] with the setting that cannot be used.
    pub(crate) fn open(
        options: OidcOptions,
        tokens: Arc<Tokens>,
        clock: Arc<dyn Clock>,
        registry: &Metrics,
    ) -> Result<Option<Self>, ServerError> {
        let OidcOptions { config, destinations } = options;
        let Some(issuer) = config.issuer.clone() else {
            return match config.audience {
                None => Ok(None),
                Some(_) => Err(ServerError::Setting {
                    setting: "oidc.issuer",
                    message: "it is empty although oidc.audience is set".to_owned(),
                }),
            };
        };
        let source = KeySource::open(&config, &issuer, destinations)?;
        let policy = Policy::read(&config, issuer, &tokens)?;
        let metrics = OidcMetrics::default();
        let keys = KeyStore::open(&config, source, clock.clone(), metrics.clone())?;
        registry.register(|registry| metrics.register(registry));
        Ok(Some(Self {
            policy,
            keys,
            verified: VerifiedTokens::default(),
            quota: VerificationQuota::default(),
            tokens,
            clock,
            metrics,
        }))
    }

    /// Returns the token with this text if it was verified before; touches neither keys nor disk.
    ///
    /// # Errors
    /// [`TokenError`]: it has ended, or is too long to be looked at.
    pub(crate) fn find_verified(&self, text: &str) -> Result<Option<Arc<LiveToken>>, TokenError> {
        if let Err(exceeded) = TOKEN_BYTES_MAX.check(text.len() as u64) {
            return Err(self.reject(JwtRefusal::TooLong(exceeded)));
        }
        let Some(token) = self.verified.find(&token_digest(text)) else {
            return Ok(None);
        };
        self.tokens.record_use(&token)?;
        Ok(Some(token))
    }

    /// Verifies a token that a client at `address` has shown, and remembers it.
    ///
    /// # Errors
    /// [`TokenError::Jwt`].
    pub(crate) async fn verify(
        &self,
        text: &str,
        address: Option<IpAddr>,
    ) -> Result<Arc<LiveToken>, TokenError> {
        let verified = self.verify_and_cache(text, address).await;
        verified.map_err(|refusal| self.reject(refusal))
    }

    async fn verify_and_cache(
        &self,
        text: &str,
        address: Option<IpAddr>,
    ) -> Result<Arc<LiveToken>, JwtRefusal> {
        let signed = SignedToken::parse(text)?;
        self.policy.check_header(&signed)?;
        let key = self.keys.find_key(&signed).await?;
        let permit = self.quota.acquire(address, self.clock.now()).await?;
        // Nothing is waited for while the permit is held.
        let result = self.accept_token(&signed, &key);
        drop(permit);
        let token = result.inspect_err(|_| {
            self.quota.count_failure(address, self.clock.now());
        })?;
        let cached = self
            .verified
            .insert(token_digest(text), token, key.fingerprint)
            .map_err(JwtRefusal::TooMany)?;
        self.update_cached_count();
        Ok(cached)
    }

    /// Verifies the signature of a token with its key, and converts its claims.
    fn accept_token(
        &self,
        signed: &SignedToken<'_>,
        key: &VerificationKey,
    ) -> Result<LiveToken, JwtRefusal> {
        if !key.verifies(signed) {
            return Err(JwtRefusal::Signature);
        }
        self.metrics.verified.inc();
        let now = self.clock.now();
        let token = self.policy.to_token(&signed.claims()?, now, &self.tokens)?;
        Ok(LiveToken::without_secret(token, now))
    }

    fn reject(&self, refusal: JwtRefusal) -> TokenError {
        self.metrics.count_rejection(&refusal);
        TokenError::Jwt(refusal)
    }

    fn update_cached_count(&self) {
        let count = i64::try_from(self.verified.len()).unwrap_or(i64::MAX);
        self.metrics.remembered.set(count);
    }

    /// Requests a fetch of the keys now.
    pub fn refresh(&self) {
        self.keys.refresh();
    }

    /// Keeps the keys fresh, and ends tokens whose time has come, until `stopping`.
    pub(crate) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        tokio::join!(self.keys.run(&self.verified, stopping.clone()), self.run_expiry(stopping));
    }

    async fn run_expiry(&self, stopping: CancellationToken) {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(EXPIRY_INTERVAL) => {}
            }
            self.verified.end_expired(self.clock.now());
            self.keys.end_tokens_without_key(&self.verified);
            self.update_cached_count();
        }
    }
}
