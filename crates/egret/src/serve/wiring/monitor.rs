//! The monitor, with what Egret scrapes without being told: itself, and the PostgreSQL it runs on.

use std::sync::Arc;

use egret_series::core::scrape::Exposition;
use egret_series::store::statistics::{PostgresStatistics, StatisticsLimits};
use egret_series::{Monitor, MonitorOptions, OwnMetrics};
use egret_server::Metrics;

use super::sections::hosts;
use super::{Engines, PostgresBackend, Wiring};
use crate::serve::EmbeddedParts;

/// The program's own metrics, as `/metrics` shows them.
struct SelfMetrics(Arc<Metrics>);

impl Exposition for SelfMetrics {
    fn render(&self) -> String {
        self.0.render(egret_server::Exposition::Prometheus)
    }
}

impl Wiring {
    /// The monitor of the series.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub(super) fn monitor(
        &self,
        engines: &Engines,
        backend: &PostgresBackend,
    ) -> anyhow::Result<Monitor> {
        let url = self.own_url.trim_end_matches('/');
        let egret = OwnMetrics {
            instance: self.server.socket_address()?.to_string(),
            url: format!("{url}/metrics"),
            collect: Arc::new(SelfMetrics(self.metrics.clone())),
        };
        let options = MonitorOptions {
            egret,
            postgres: postgres_metrics(backend),
            sink: Arc::new(engines.queues.clone()),
            external_url: format!("{url}/prometheus"),
            destinations: self.destinations.clone(),
        };
        let mut monitor = None;
        self.metrics.register(|registry| {
            monitor = Some(Monitor::new(&engines.series, options, registry));
        });
        Ok(monitor.expect("registering runs its closure")?)
    }
}

fn postgres_metrics(backend: &PostgresBackend) -> OwnMetrics {
    let instance = match backend {
        PostgresBackend::Embedded(EmbeddedParts { postgres, .. })
        | PostgresBackend::Unmounted(postgres) => {
            format!("127.0.0.1:{}", postgres.port())
        }
        PostgresBackend::External(server) => hosts(server.connection()).join(","),
    };
    let databases = backend.databases("series");
    let statistics = PostgresStatistics::new(databases, StatisticsLimits::default());
    OwnMetrics { url: format!("postgres://{instance}"), instance, collect: Arc::new(statistics) }
}
