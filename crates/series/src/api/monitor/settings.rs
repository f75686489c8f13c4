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
const ALERT_QUEUE_TENANT: &str = "default";

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

fn invalid_setting(what: &'static str, reason: impl ToString) -> SeriesError {
    SeriesError::Invalid { what, reason: reason.to_string() }
}

/// The items of a list between separators.
fn split_list(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let parts = text.split(separator).map(str::trim);
    parts.filter(|part| !part.is_empty())
}

fn parse_list(text: &str) -> Vec<String> {
    split_list(text, ';').map(str::to_owned).collect()
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
fn redact_url(text: &str) -> String {
    let mut redacted = text.trim_end_matches('/').to_owned();
    if let Some((scheme, rest)) = redacted.split_once("://")
        && let Some((authority, path)) = rest.split_once('/').or(Some((rest, "")))
        && let Some((_, host)) = authority.rsplit_once('@')
    {
        let slash = if path.is_empty() { "" } else { "/" };
        redacted = format!("{scheme}://{host}{slash}{path}");
    }
    redacted
}

fn parse_urls(what: &'static str, text: &str) -> Result<Vec<String>, SeriesError> {
    let urls = parse_list(text);
    for (url, number) in urls.iter().zip(1..) {
        // The address itself may be a secret.
        check_url(url).map_err(|why| invalid_setting(what, format!("address {number} {why}")))?;
    }
    Ok(urls)
}

fn parse_external_url(config: &SeriesConfig, own_url: &str) -> Result<Arc<str>, SeriesError> {
    let url = match config.external_url.trim() {
        "" => own_url,
        url => {
            let redacted = redact_url(url);
            let invalid_url =
                |why| invalid_setting("series.external_url", format!("`{redacted}` {why}"));
            check_url(url).map_err(invalid_url)?;
            url
        }
    };
    Ok(url.trim_end_matches('/').into())
}

fn parse_external_labels(text: &str) -> Result<Labels, SeriesError> {
    let what = "series.external_labels";
    let mut labels = BTreeMap::new();
    for pair in split_list(text, ',') {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(invalid_setting(what, format!("{pair:?} is not name=value")));
        };
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.is_empty() || name.starts_with("__") || value.is_empty() {
            let problem = format!(
                "{pair:?} is not allowed: names are not empty and do not begin with __, values are not empty"
            );
            return Err(invalid_setting(what, problem));
        }
        if labels.insert(name, value).is_some() {
            return Err(invalid_setting(what, format!("{name:?} occurs twice")));
        }
    }
    Ok(Labels::new(labels))
}

fn check_positive(what: &'static str, ms: u64) -> Result<i64, SeriesError> {
    match i64::try_from(ms) {
        Ok(0) => Err(invalid_setting(what, "0 is not allowed: use a duration such as 15s")),
        Ok(ms) if ms <= DURATION_MS_MAX => Ok(ms),
        _ => Err(invalid_setting(what, format!("{ms} ms is too long"))),
    }
}

impl MonitorSettings {
    pub(crate) fn new(config: &SeriesConfig, own_url: &str) -> Result<Self, SeriesError> {
        let interval_ms = check_positive("series.scrape_interval", config.scrape_interval.0)?;
        let timeout_ms = check_positive("series.scrape_timeout", config.scrape_timeout.0)?;
        let repeat_ms = i64::try_from(config.alert_repeat.0).unwrap_or(DURATION_MS_MAX);
        let queue = config.alert_queue.trim();
        let interval = config.evaluation_interval.0;
        Ok(Self {
            rule_files: parse_list(&config.rule_files),
            scrape_files: parse_list(&config.scrape_files),
            defaults: ScrapeDefaults {
                interval_ms,
                timeout_ms: timeout_ms.min(interval_ms),
                body_bytes_max: config.scrape_body_bytes_max.bytes(),
            },
            evaluation_interval_ms: check_positive("series.evaluation_interval", interval)?,
            resend_ms: check_positive("series.alert_resend", config.alert_resend.0)?,
            repeat_ms: (repeat_ms > 0).then_some(repeat_ms.min(DURATION_MS_MAX)),
            queue: (!queue.is_empty()).then(|| queue.to_owned()),
            webhooks: parse_urls("series.alert_webhooks", &config.alert_webhooks)?,
            alertmanagers: parse_urls("series.alertmanagers", &config.alertmanagers)?,
            external_labels: parse_external_labels(&config.external_labels)?,
            external_url: parse_external_url(config, own_url)?,
        })
    }

    pub(crate) fn rules_options(
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

    pub(crate) fn scraper_options(
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
        let result = queue.map_or(Ok(()), |queue| sink.check_queue(queue));
        result.map_err(|reason| invalid_setting("series.alert_queue", reason))
    }

    /// The receivers of alerts. Their names stand in metrics: that of a webhook is its place, as
    /// its address may be a secret.
    pub(crate) fn receiver_configs(&self, sink: &Arc<dyn TaskSink>) -> Vec<ReceiverConfig> {
        let queue = self.queue.iter().map(|queue| {
            let destination = Destination::Tasks {
                sink: sink.clone(),
                tenant: ALERT_QUEUE_TENANT.to_owned(),
                queue: queue.clone(),
            };
            (format!("queue/{queue}"), destination)
        });
        let webhooks = self.webhooks.iter().zip(1..).map(|(url, number)| {
            let url = url.clone();
            (format!("webhook/{number}"), Destination::Webhook { url })
        });
        let managers = self.alertmanagers.iter().zip(1..).map(|(url, place)| {
            let url = url.clone();
            let name = format!("alertmanager/{place}");
            (name, Destination::Alertmanager { url })
        });
        let destinations = queue.chain(webhooks).chain(managers);
        let receivers = destinations.map(|(name, destination)| ReceiverConfig {
            name,
            destination,
            repeat_ms: self.repeat_ms,
        });
        receivers.collect()
    }

    pub(crate) fn alertmanager_statuses(&self) -> Vec<AlertmanagerStatus> {
        let urls = self.alertmanagers.iter();
        urls.map(|url| AlertmanagerStatus { url: format!("{}/api/v2/alerts", redact_url(url)) })
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
    pub(crate) fn new(settings: &MonitorSettings, jobs: Vec<ScrapeConfig>) -> Self {
        let labels = settings.external_labels.iter();
        let managers = settings.alertmanagers.iter();
        let targets = managers.map(|url| redact_url(url)).collect::<Vec<_>>();
        Self {
            global: Global {
                scrape_interval: DurationMs(settings.defaults.interval_ms),
                scrape_timeout: DurationMs(settings.defaults.timeout_ms),
                evaluation_interval: DurationMs(settings.evaluation_interval_ms),
                external_labels: labels
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            },
            alerting: (!targets.is_empty()).then(|| AlertingConfig {
                alertmanagers: vec![Alertmanagers { static_configs: vec![Addresses { targets }] }],
            }),
            rule_files: settings.rule_files.clone(),
            scrape_config_files: settings.scrape_files.clone(),
            scrape_configs: jobs,
        }
    }

    pub(crate) fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("texts and numbers are written without fail")
    }
}

#[cfg(test)]
mod tests;
