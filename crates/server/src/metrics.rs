//! The program's metrics: one registry, into which the server and every engine put theirs.
//!
//! Names follow `egret_<part>_<noun>_<unit>`; those of the process are the customary ones.

mod exposition;
mod failed;
mod process;
mod quotas;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use egret_base::Timestamp;
use egret_base::sync::lock;

use crate::quota::Quotas;
use quotas::QuotaUse;

pub use exposition::Exposition;
pub use failed::FailedParts;

/// Upper bounds of the request duration's buckets, in seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComponentLabels {
    component: &'static str,
}

type Seconds = Counter<f64, AtomicU64>;

/// The registry and the server's own metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    request_duration: Family<RouteLabels, Histogram>,
    requests_in_flight: Gauge,
    connections_open: Gauge,
    refusals: Family<RefusalLabels, Counter>,
    component_seconds: Family<ComponentLabels, Seconds>,
}

impl Metrics {
    /// A registry with the server's and the process's metrics.
    ///
    /// `version` is the program's, `started_at` the moment it started.
    pub fn new(version: &'static str, started_at: Timestamp) -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            requests: Family::default(),
            request_duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            requests_in_flight: Gauge::default(),
            connections_open: Gauge::default(),
            refusals: Family::default(),
            component_seconds: Family::default(),
        };
        metrics.register(|registry| metrics.register_server_metrics(registry, version, started_at));
        metrics
    }

    fn register_server_metrics(
        &self,
        registry: &mut Registry,
        version: &'static str,
        started_at: Timestamp,
    ) {
        registry.register(
            "egret_http_requests",
            "Requests answered, by method, route and status",
            self.requests.clone(),
        );
        registry.register(
            "egret_http_request_duration_seconds",
            "Time from a request's head to the end of its response, by method and route",
            self.request_duration.clone(),
        );
        registry.register(
            "egret_http_requests_in_flight",
            "Requests in progress",
            self.requests_in_flight.clone(),
        );
        registry.register(
            "egret_http_connections_open",
            "Open connections",
            self.connections_open.clone(),
        );
        registry.register(
            "egret_http_refusals",
            "Requests and connections refused or closed because a limit was reached, by limit",
            self.refusals.clone(),
        );
        registry.register(
            "egret_component_seconds",
            "Time spent in each named component",
            self.component_seconds.clone(),
        );
        registry.register(
            "egret_build",
            "The program's version",
            Info::new([("version", version)]),
        );
        registry.register_collector(Box::new(process::Process { started_at }));
    }

    /// Registers the collector of failed parts.
    pub(crate) fn register_failed_parts(&self, parts: FailedParts) {
        self.register(|registry| {
            registry.register_collector(Box::new(failed::FailedPartsCollector { parts }))
        });
    }

    /// Lets a part register its metrics.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut lock(&self.registry));
    }

    /// Registers the collector of quota use.
    pub(crate) fn register_quotas(&self, quotas: Arc<Quotas>) {
        self.register(|registry| registry.register_collector(Box::new(QuotaUse(quotas))));
    }

    /// Counts a request that was refused because a limit was reached.
    pub(crate) fn count_refusal(&self, limit: &'static str) {
        self.refusals.get_or_create(&RefusalLabels { limit }).inc();
    }

    /// The counter of time spent in the component of this name, e.g. `server.authorize`.
    pub(crate) fn component_time(&self, name: &'static str) -> ComponentTime {
        let labels = ComponentLabels { component: name };
        ComponentTime(self.component_seconds.get_or_create_owned(&labels))
    }

    /// All metrics as text.
    pub fn render(&self, exposition: Exposition) -> String {
        let registry = lock(&self.registry);
        exposition.render(&registry)
    }

    /// Counts one answered request.
    pub(crate) fn count_request(
        &self,
        method: &'static str,
        route: &str,
        status: u16,
        duration: Duration,
    ) {
        let labels = RequestLabels { method, route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        let labels = RouteLabels { method, route: labels.route };
        self.request_duration.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(crate) fn track_request(&self) -> GaugeGuard {
        GaugeGuard::increment(&self.requests_in_flight)
    }

    /// Counts a connection as open until the guard is dropped.
    pub(crate) fn track_connection(&self) -> GaugeGuard {
        GaugeGuard::increment(&self.connections_open)
    }
}

/// Time spent in one component, added up in `egret_component_seconds_total`.
#[derive(Clone, Debug)]
pub(crate) struct ComponentTime(Seconds);

impl ComponentTime {
    /// Adds a duration measured elsewhere.
    pub(crate) fn add(&self, duration: Duration) {
        self.0.inc_by(duration.as_secs_f64());
    }

    /// Runs `work` and adds the time it took.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.add(started.elapsed());
        result
    }
}

/// One unit of a gauge, given back when dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn increment(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
