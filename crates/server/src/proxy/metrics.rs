//! Metrics of the proxy: `egret_proxy_<noun>_<unit>`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the connect duration's buckets, in seconds.
const CONNECT_BUCKETS: [f64; 12] =
    [0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.12, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Why a connection did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The packets are no PostgreSQL, or another version of it.
    Protocol,
    /// The startup packet is too large.
    StartupTooLarge,
    /// The TLS handshake failed.
    Tls,
    /// The client took too long to authenticate.
    AuthenticationTimeout,
    /// No branch, two branches, replication.
    Route,
    /// The directory refused before authentication.
    Lookup,
    /// Wrong role or password.
    Password,
    /// The limit `proxy.sessions_max` is reached.
    SessionsMax,
    /// The limit `proxy.handshakes_max` is reached.
    HandshakesMax,
    /// The directory refused after authentication, or took too long.
    Attach,
    /// The branch's server refused or could not be reached.
    Backend,
    Stopping,
    /// The client left first.
    ClientLeft,
}

impl Cause {
    /// The equivalent HTTP status, for the audit log.
    pub(super) fn http_status(self) -> u16 {
        match self {
            Cause::Protocol | Cause::StartupTooLarge | Cause::Tls | Cause::Route => 400,
            Cause::Password => 401,
            Cause::AuthenticationTimeout => 408,
            Cause::SessionsMax | Cause::HandshakesMax => 429,
            Cause::Lookup | Cause::Attach | Cause::Stopping => 503,
            Cause::Backend => 502,
            Cause::ClientLeft => 499,
        }
    }

    /// The word in metrics and in the audit log.
    pub(super) fn label(self) -> &'static str {
        match self {
            Cause::Protocol => "protocol",
            Cause::StartupTooLarge => "startup_too_large",
            Cause::Tls => "tls",
            Cause::AuthenticationTimeout => "authentication_timeout",
            Cause::Route => "route",
            Cause::Lookup => "lookup",
            Cause::Password => "password",
            Cause::SessionsMax => "sessions_max",
            Cause::HandshakesMax => "handshakes_max",
            Cause::Attach => "attach",
            Cause::Backend => "backend",
            Cause::Stopping => "stopping",
            Cause::ClientLeft => "client_left",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

pub(super) struct ProxyMetrics {
    sessions_open: Gauge,
    sessions: Counter,
    refused: Family<CauseLabels, Counter>,
    cancel_requests: Counter,
    /// Bytes from clients to branches.
    pub received_bytes: Counter,
    /// Bytes from branches to clients.
    pub sent_bytes: Counter,
    connect_seconds: Histogram,
}

impl ProxyMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            sessions_open: Gauge::default(),
            sessions: Counter::default(),
            refused: Family::default(),
            cancel_requests: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            connect_seconds: Histogram::new(CONNECT_BUCKETS),
        };
        registry.register(
            "egret_proxy_sessions_open",
            "Open sessions through the proxy",
            metrics.sessions_open.clone(),
        );
        registry.register(
            "egret_proxy_sessions",
            "Sessions opened through the proxy",
            metrics.sessions.clone(),
        );
        registry.register(
            "egret_proxy_connections_refused",
            "Connections that ended before a session was opened, by cause",
            metrics.refused.clone(),
        );
        registry.register(
            "egret_proxy_cancel_requests",
            "Cancel requests received, whether they matched a session or not",
            metrics.cancel_requests.clone(),
        );
        registry.register(
            "egret_proxy_received_bytes",
            "Bytes copied from clients to branches",
            metrics.received_bytes.clone(),
        );
        registry.register(
            "egret_proxy_sent_bytes",
            "Bytes copied from branches to clients",
            metrics.sent_bytes.clone(),
        );
        registry.register(
            "egret_proxy_connect_seconds",
            "Time from accepting a connection to its session being ready for a query",
            metrics.connect_seconds.clone(),
        );
        metrics
    }

    pub(super) fn count_refused(&self, cause: Cause) {
        let labels = CauseLabels { cause: cause.label() };
        self.refused.get_or_create(&labels).inc();
    }

    pub(super) fn count_cancel_request(&self) {
        self.cancel_requests.inc();
    }

    /// Counts a session as open until the guard is dropped.
    pub(super) fn track_session(&self, connect_time: Duration) -> SessionOpen {
        self.sessions.inc();
        self.sessions_open.inc();
        self.connect_seconds.observe(connect_time.as_secs_f64());
        SessionOpen(self.sessions_open.clone())
    }
}

/// One open session, given back when dropped.
pub(super) struct SessionOpen(Gauge);

impl Drop for SessionOpen {
    fn drop(&mut self) {
        self.0.dec();
    }
}
