//! Converts settings to what the loops need, and back to the configuration that the API shows.

use std::sync::Arc;

use egret_base::TaskSink;
use egret_metrics_model::Labels;
use egret_metrics_model::number::DURATION_MS_MAX;
use egret_outgoing::{Destinations, Url};
use serde::Serialize;
use std::collections::BTreeMap;

use super::AlertmanagerStatus;
use crate::config::SeriesConfig;
use crate::core::scrape::{ScrapeConfig, ScrapeDefaults};
use crate::core::yaml::DurationMs;
use crate::error::SeriesError;
use crate::metrics::{NoticeMetrics, RuleMetrics, ScrapeMetrics};
use crate::worker::notify::{Destination, ReceiverConfig};
use crate::worker::rules::RulesOptions;
use crate::worker::scrape::ScraperOptions;

/// Tenant of the queue that takes alerts.
const TENANT: &str = "default";

/// Settings that were read.
pub(super) struct MonitorSettings {
    rule_files: Vec<String>,
    scrape_files: Vec<String>,
    defaults: ScrapeDefaults,
    evaluation_interval_ms: i64,
    resend_ms: i64,
    repeat_ms: Option<i64>,
    queue: Option<String>,
    webhooks: Vec<String>,
    alertmanagers: Vec<String>,
    external_labels: Labels,
    external_url: Arc<str>,
}

fn invalid(what: &'static str, reason: impl ToString) -> SeriesError {
    SeriesError::Invalid {
        what,
        reason: reason.to_string(),
    }
}

/// The items of a list between separators.
fn listed(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let parts = text.split(separator).map(str::trim);
    parts.filter(|part| !part.is_empty())
}

fn texts(text: &str) -> Vec<String> {
    listed(text, ';').map(str::to_owned).collect()
}

/// Checks an address; the error says what is wrong.
fn check_url(text: &str) -> Result<(), &'static str> {
    match Url::parse(text) {
        Err(_) => Err("is not a URL: write it as http://host:port/path"),
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        Ok(_) => Err("begins neither with http:// nor with https://"),
    }
}

/// An address fit to be shown: without user name and password, without a slash at its end.
fn without_credentials(text: &str) -> String {
    let mut shown = text.trim_end_matches('/').to_owned();
    if let Some((scheme, rest)) = shown.split_once("://")
        && let Some((authority, path)) = rest.split_once('/').or(Some((rest, "")))
        && let Some((_, host)) = authority.rsplit_once('@')
    {
        let slash = if path.is_empty() { "" } else { "/" };
        shown = format!("{scheme}://{host}{slash}{path}");
    }
    shown
}

fn urls(what: &'static str, text: &str) -> Result<Vec<String>, SeriesError> {
    let urls = texts(text);
    for (url, place) in urls.iter().zip(1..) {
        // The address itself may be a secret.
        check_url(url).map_err(|why| invalid(what, format!("address {place} {why}")))?;
    }
    Ok(urls)
}

fn external_url(config: &SeriesConfig, own_url: &str) -> Result<Arc<str>, SeriesError> {
    let url = match config.external_url.trim() {
        "" => own_url,
        url => {
            let shown = without_credentials(url);
            let refused = |why| invalid("series.external_url", format!("`{shown}` {why}"));
            check_url(url).map_err(refused)?;
            url
        }
    };
    Ok(url.trim_end_matches('/').into())
}

fn external_labels(text: &str) -> Result<Labels, SeriesError> {
    let what = "series.external_labels";
    let mut labels = BTreeMap::new();
    for pair in listed(text, ',') {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(invalid(what, format!("{pair:?} is not name=value")));
        };
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.is_empty() || name.starts_with("__") || value.is_empty() {
            let problem = format!(
                "{pair:?} is not allowed: names are not empty and do not begin with __, values are not empty"
            );
            return Err(invalid(what, problem));
        }
        if labels.insert(name, value).is_some() {
            return Err(invalid(what, format!("{name:?} occurs twice")));
        }
    }
    Ok(Labels::new(labels))
}

fn positive(what: &'static str, ms: u64) -> Result<i64, SeriesError> {
    match i64::try_from(ms) {
        Ok(0) => Err(invalid(
            what,
            "0 is not allowed: use a duration such as 15s",
        )),
        Ok(ms) if ms <= DURATION_MS_MAX => Ok(ms),
        _ => Err(invalid(what, format!("{ms} ms is too long"))),
    }
}

impl MonitorSettings {
    pub(crate) fn new(config: &SeriesConfig, own_url: &str) -> Result<Self, SeriesError> {
        let interval_ms = positive("series.scrape_interval", config.scrape_interval.0)?;
        let timeout_ms = positive("series.scrape_timeout", config.scrape_timeout.0)?;
        let repeat_ms = i64::try_from(config.alert_repeat.0).unwrap_or(DURATION_MS_MAX);
        let queue = config.alert_queue.trim();
        let interval = config.evaluation_interval.0;
        Ok(Self {
            rule_files: texts(&config.rule_files),
            scrape_files: texts(&config.scrape_files),
            defaults: ScrapeDefaults {
                interval_ms,
                timeout_ms: timeout_ms.min(interval_ms),
                body_bytes_max: config.scrape_body_bytes_max.bytes(),
            },
            evaluation_interval_ms: positive("series.evaluation_interval", interval)?,
            resend_ms: positive("series.alert_resend", config.alert_resend.0)?,
            repeat_ms: (repeat_ms > 0).then_some(repeat_ms.min(DURATION_MS_MAX)),
            queue: (!queue.is_empty()).then(|| queue.to_owned()),
            webhooks: urls("series.alert_webhooks", &config.alert_webhooks)?,
            alertmanagers: urls("series.alertmanagers", &config.alertmanagers)?,
            external_labels: external_labels(&config.external_labels)?,
            external_url: external_url(config, own_url)?,
        })
    }

    pub(crate) fn rules(
        &self,
        config: &SeriesConfig,
        metrics: RuleMetrics,
        notice_metrics: NoticeMetrics,
    ) -> RulesOptions {
        RulesOptions {
            files: self.rule_files.clone(),
            interval_ms: self.evaluation_interval_ms,
            resend_ms: self.resend_ms,
            external_labels: self.external_labels.clone(),
            external_url: self.external_url.clone(),
            groups_at_once: config.rule_groups_at_once as usize,
            metrics,
            notice_metrics,
        }
    }

    pub(crate) fn scraper(
        &self,
        config: &SeriesConfig,
        destinations: Destinations,
        metrics: ScrapeMetrics,
    ) -> ScraperOptions {
        ScraperOptions {
            files: self.scrape_files.clone(),
            targets_max: config.scrape_targets_max as usize,
            scrapes_at_once: config.scrapes_at_once as usize,
            defaults: self.defaults,
            destinations,
            metrics,
        }
    }

    /// Refuses a queue for alerts that there cannot be.
    pub(crate) fn check_queue(&self, sink: &dyn TaskSink) -> Result<(), SeriesError> {
        let queue = self.queue.as_deref();
        let checked = queue.map_or(Ok(()), |queue| sink.check_queue(queue));
        checked.map_err(|refused| invalid("series.alert_queue", refused))
    }

    /// The receivers of alerts. Their names stand in metrics: that of a webhook is its place, as
    /// its address may be a secret.
    pub(crate) fn receivers(&self, sink: &Arc<dyn TaskSink>) -> Vec<ReceiverConfig> {
        let queue = self.queue.iter().map(|queue| {
            let destination = Destination::Tasks {
                sink: sink.clone(),
                tenant: TENANT.to_owned(),
                queue: queue.clone(),
            };
            (format!("queue/{queue}"), destination)
        });
        let webhooks = self.webhooks.iter().zip(1..).map(|(url, place)| {
            let url = url.clone();
            (format!("webhook/{place}"), Destination::Webhook { url })
        });
        let managers = self.alertmanagers.iter().zip(1..).map(|(url, place)| {
            let url = url.clone();
            let name = format!("alertmanager/{place}");
            (name, Destination::Alertmanager { url })
        });
        let all = queue.chain(webhooks).chain(managers);
        let receivers = all.map(|(name, destination)| ReceiverConfig {
            name,
            destination,
            repeat_ms: self.repeat_ms,
        });
        receivers.collect()
    }

    pub(crate) fn alertmanagers(&self) -> Vec<AlertmanagerStatus> {
        let urls = self.alertmanagers.iter();
        urls.map(|url| AlertmanagerStatus {
            url: format!("{}/api/v2/alerts", without_credentials(url)),
        })
        .collect()
    }
}

/// What is in force, as Prometheus's configuration file has it.
#[derive(Serialize)]
pub(super) struct EffectiveConfig {
    global: Global,
    #[serde(skip_serializing_if = "Option::is_none")]
    alerting: Option<AlertingConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rule_files: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scrape_config_files: Vec<String>,
    scrape_configs: Vec<ScrapeConfig>,
}

#[derive(Serialize)]
struct Global {
    scrape_interval: DurationMs,
    scrape_timeout: DurationMs,
    evaluation_interval: DurationMs,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    external_labels: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct AlertingConfig {
    alertmanagers: Vec<Alertmanagers>,
}

#[derive(Serialize)]
struct Alertmanagers {
    static_configs: Vec<Addresses>,
}

#[derive(Serialize)]
struct Addresses {
    targets: Vec<String>,
}

impl EffectiveConfig {
    pub(crate) fn new(configured: &MonitorSettings, jobs: Vec<ScrapeConfig>) -> Self {
        let labels = configured.external_labels.iter();
        let managers = configured.alertmanagers.iter();
        let targets = managers
            .map(|url| without_credentials(url))
            .collect::<Vec<_>>();
        Self {
            global: Global {
                scrape_interval: DurationMs(configured.defaults.interval_ms),
                scrape_timeout: DurationMs(configured.defaults.timeout_ms),
                evaluation_interval: DurationMs(configured.evaluation_interval_ms),
                external_labels: labels
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            },
            alerting: (!targets.is_empty()).then(|| AlertingConfig {
                alertmanagers: vec![Alertmanagers {
                    static_configs: vec![Addresses { targets }],
                }],
            }),
            rule_files: configured.rule_files.clone(),
            scrape_config_files: configured.scrape_files.clone(),
            scrape_configs: jobs,
        }
    }

    pub(crate) fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("texts and numbers are written without fail")
    }
}

#[cfg(test)]
mod tests;
