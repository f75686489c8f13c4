//! Metrics of tokens from an OpenID Connect provider.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::refusal::JwtRefusal;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FetchLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OidcMetrics {
    fetches: Family<FetchLabels, Counter>,
    pub(super) keys: Gauge,
    pub(super) verified: Counter,
    pub(super) remembered: Gauge,
    rejected: Family<RejectionLabels, Counter>,
}

impl OidcMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "egret_oidc_key_fetches",
            "Fetches of the issuer's keys, by outcome",
            self.fetches.clone(),
        );
        registry.register("egret_oidc_keys", "Keys of the issuer in use", self.keys.clone());
        registry.register(
            "egret_oidc_tokens_verified",
            "Tokens of the issuer whose signature was verified",
            self.verified.clone(),
        );
        registry.register(
            "egret_oidc_tokens_remembered",
            "Verified tokens in the cache",
            self.remembered.clone(),
        );
        registry.register(
            "egret_oidc_tokens_rejected",
            "JSON Web Tokens that were refused, by reason",
            self.rejected.clone(),
        );
    }

    pub(super) fn count_fetch(&self, has_succeeded: bool) {
        let outcome = if has_succeeded { "ok" } else { "failed" };
        self.fetches.get_or_create(&FetchLabels { outcome }).inc();
    }

    pub(super) fn count_rejection(&self, refusal: &JwtRefusal) {
        let labels = RejectionLabels { reason: refusal.reason() };
        self.rejected.get_or_create(&labels).inc();
    }
}
