//! State of the server's own handlers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use egret_base::lifecycle::{BoxFuture, Readiness};
use egret_base::{Clock, Timestamp};
use serde_json::Value;

use crate::audit::AuditLog;
use crate::metrics::{FailedParts, Metrics};
use crate::oidc::Oidc;
use crate::quota::Quotas;
use crate::tokens::Tokens;

/// The service's name in `/readyz` and the logs.
pub(crate) const SERVICE_NAME: &str = "server";

/// Returns the readiness of the other services; usually [`egret_base::lifecycle::Stack::readiness`]
/// of a copy of the stack taken before the server was pushed onto it.
pub type ReadinessProbe = Arc<dyn Fn() -> Vec<(&'static str, Readiness)> + Send + Sync>;

/// Returns one section of `/v1/status`.
pub type StatusSection = Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

/// What the program was built from.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Version of the program, such as `0.1.0`.
    pub version: &'static str,
    /// The git commit, with `+dirty` behind it for a changed tree; `unknown` outside a checkout.
    pub commit: &'static str,
    /// `release`, `dev` or the name of another build profile.
    pub profile: &'static str,
}

/// State of the server's own handlers.
pub(crate) struct RouterState {
    pub(crate) build: Build,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started_at: Timestamp,
    pub(crate) tokens: Arc<Tokens>,
    /// `None` where tokens of Egret's own are the only ones.
    pub(crate) oidc: Option<Arc<Oidc>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) status_sections: BTreeMap<&'static str, StatusSection>,
    pub(crate) profile_duration_max: Duration,
    /// `None` where no audit log is kept.
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) failed_parts: FailedParts,
    pub(crate) service_readiness: ReadinessProbe,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) is_open: AtomicBool,
}

impl RouterState {
    /// Every service with its readiness, the server last, as it is started.
    pub(crate) fn readiness(&self) -> Vec<(&'static str, Readiness)> {
        let mut readiness = (self.service_readiness)();
        readiness.push((SERVICE_NAME, self.server_readiness()));
        readiness
    }

    pub(crate) fn server_readiness(&self) -> Readiness {
        if !self.is_open.load(Ordering::Acquire) {
            return Readiness::NotReady("the server is not open".to_owned());
        }
        match self.quotas.exhausted() {
            Some((limit, max)) => Readiness::NotReady(format!(
                "{limit} is {max} and reached: further requests are refused"
            )),
            None => Readiness::Ready,
        }
    }
}
