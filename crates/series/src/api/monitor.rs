//! What Egret does with series of its own accord: it scrapes targets, evaluates rules, and notifies
//! the receivers of alerts. One handle for all of it, as its files are read together.

mod settings;

use std::sync::{Arc, Mutex};

use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_base::{Clock, TaskSink};
use egret_metrics_model::{Labels, TimeMs};
use egret_outgoing::Destinations;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::Series;
use crate::core::metadata::MetadataEntry;
use crate::core::rules::{AlertsStatus, RulesStatus};
use crate::core::scrape::{Collect, TargetsStatus};
use crate::error::SeriesError;
use crate::metrics::{NoticeMetrics, RuleMetrics, ScrapeMetrics};
use crate::worker::rules::{ReloadError, Rules};
use crate::worker::scrape::{OwnTarget, Scraper};
use settings::{EffectiveConfig, MonitorSettings};

/// A target that needs no configuration: its metrics are collected within the process.
pub struct OwnMetrics {
    /// Value of the label `instance`: host and port.
    pub instance: String,
    /// URL of the same metrics, shown to people.
    pub url: String,
    /// Yields the metrics of a scrape.
    pub collect: Arc<dyn Collect>,
}

/// What the monitor stands on beside the engine.
pub struct MonitorOptions {
    /// Egret's own metrics: scraped as job `egret`, if `series.scrape_egret` says so.
    pub egret: OwnMetrics,
    /// The statistics of the PostgreSQL it runs on: scraped as job `postgres`, if
    /// `series.scrape_postgres` says so.
    pub postgres: OwnMetrics,
    /// Takes alerts in as tasks.
    pub sink: Arc<dyn TaskSink>,
    /// How others reach Egret, where `series.external_url` does not say it.
    pub external_url: String,
    /// Destinations that scrape targets may redirect to.
    pub destinations: Destinations,
}

/// Targets that are scraped, and rules that are evaluated. Cheap to clone.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<MonitorInner>,
}

struct MonitorInner {
    clock: Arc<dyn Clock>,
    settings: MonitorSettings,
    scraper: Arc<Scraper>,
    rules: Rules,
    /// Held while files are read.
    reload_lock: tokio::sync::Mutex<()>,
    state: Mutex<MonitorState>,
}

#[derive(Default)]
struct MonitorState {
    is_running: bool,
    reload_status: ReloadStatus,
}

/// How the last reading of the files went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadStatus {
    /// When they were last taken, in milliseconds; nothing before the start.
    pub at_ms: Option<TimeMs>,
    /// Whether they were refused since.
    pub has_failed: bool,
}

/// An Alertmanager that alerts are sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlertmanagerStatus {
    /// URL that alerts are posted to.
    pub url: String,
}

impl Monitor {
    /// Neither targets nor rules yet: starting it reads their files.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`] with the setting that cannot be used.
    pub fn new(
        series: &Series,
        options: MonitorOptions,
        registry: &mut Registry,
    ) -> Result<Self, SeriesError> {
        let config = series.config();
        let clock = series.inner.clock.clone();
        let settings = MonitorSettings::new(config, &options.external_url)?;
        settings.check_queue(&*options.sink)?;
        let (rule_metrics, notice_metrics) = (RuleMetrics::default(), NoticeMetrics::default());
        rule_metrics.register(registry);
        notice_metrics.register(registry);
        let scrape_metrics = ScrapeMetrics::default();
        scrape_metrics.register(registry);
        let engine = Arc::new(series.clone());
        let rules = Rules::new(
            settings.rules_options(config, rule_metrics, notice_metrics),
            clock.clone(),
            engine.clone(),
            engine.clone(),
            settings.receiver_configs(&options.sink),
        )
        .map_err(|reason| SeriesError::Invalid { what: "series.alert_webhooks", reason })?;
        let scraper = Scraper::new(
            settings.scraper_options(config, options.destinations.clone(), scrape_metrics),
            &own_targets(series, options),
            clock.clone(),
            engine.clone(),
            engine,
        );
        Ok(Self {
            inner: Arc::new(MonitorInner {
                clock,
                settings,
                scraper: Arc::new(scraper),
                rules,
                reload_lock: tokio::sync::Mutex::default(),
                state: Mutex::default(),
            }),
        })
    }

    /// Reads the files of rules and jobs again. What did not change goes on, what is no more ends
    /// its series.
    ///
    /// # Errors
    /// [`ReloadError`] with what is wrong; then nothing changes.
    pub async fn reload(&self) -> Result<ReloadStatus, ReloadError> {
        let inner = &self.inner;
        let _reloading = inner.reload_lock.lock().await;
        let reloading = async {
            let rules = inner.rules.read_specs().await?;
            inner.scraper.reload().await?;
            inner.rules.apply(rules).await;
            Ok(())
        };
        let result: Result<(), ReloadError> = reloading.await;
        let mut state = lock(&inner.state);
        state.reload_status.has_failed = result.is_err();
        result?;
        let now_ms = inner.clock.now().as_micros().div_euclid(1_000);
        state.reload_status.at_ms = Some(now_ms);
        Ok(state.reload_status)
    }

    /// How the last reading of the files went.
    pub fn reload_status(&self) -> ReloadStatus {
        lock(&self.inner.state).reload_status
    }

    /// The rules, and how they are.
    pub fn rules(&self) -> RulesStatus {
        self.inner.rules.status()
    }

    /// The alerts that are active.
    pub fn alerts(&self) -> AlertsStatus {
        self.inner.rules.alerts()
    }

    /// The targets, and how they are.
    pub fn targets(&self) -> TargetsStatus {
        self.inner.scraper.status()
    }

    /// What each target said of its metrics when it was last scraped, with the target's labels.
    pub fn target_metadata(&self) -> Vec<(Labels, Arc<[Arc<MetadataEntry>]>)> {
        self.inner.scraper.metadata()
    }

    /// The names of jobs, in their order.
    pub async fn scrape_pools(&self) -> Vec<String> {
        let jobs = self.inner.scraper.jobs().await;
        let mut names: Vec<String> = jobs.into_iter().map(|job| job.job_name).collect();
        names.sort_unstable();
        names
    }

    /// The Alertmanagers that alerts are sent to.
    pub fn alertmanagers(&self) -> Vec<AlertmanagerStatus> {
        self.inner.settings.alertmanager_statuses()
    }

    /// What is in force of settings and files, in the form of Prometheus's configuration file;
    /// without secrets.
    pub async fn configuration(&self) -> String {
        let jobs = self.inner.scraper.jobs().await;
        EffectiveConfig::new(&self.inner.settings, jobs).to_yaml()
    }
}

fn own_targets(series: &Series, options: MonitorOptions) -> Vec<OwnTarget> {
    let config = series.config();
    let own_metrics = [
        ("egret", config.scrape_egret, options.egret),
        ("postgres", config.scrape_postgres, options.postgres),
    ];
    let enabled = own_metrics.into_iter().filter(|(_, is_wanted, _)| *is_wanted);
    let targets = enabled.map(|(job, _, known)| OwnTarget {
        job: job.to_owned(),
        instance: known.instance,
        url: known.url,
        interval_ms: config.scrape_interval.0 as i64,
        timeout_ms: config.scrape_timeout.0 as i64,
        collect: known.collect,
    });
    targets.collect()
}

impl Service for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let result = self.reload().await;
            result.map_err(|error| StartError {
                service: "monitor",
                is_fatal: true,
                message: error.problems.join("; "),
            })?;
            lock(&self.inner.state).is_running = true;
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        if lock(&self.inner.state).is_running {
            Readiness::Ready
        } else {
            Readiness::NotReady("scraping and rule evaluation are not running".to_owned())
        }
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            lock(&self.inner.state).is_running = false;
            tokio::join!(self.inner.scraper.stop(), self.inner.rules.stop());
        })
    }
}
