//! Metrics of the loops of rules and targets, and of the notification of alerts. Without a registry
//! they are counted and not shown.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// From a tenth of a millisecond to about a minute and a half.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 21))
}

/// Metrics of the evaluation of rules.
#[derive(Clone, Debug)]
pub struct RuleMetrics {
    evaluations: Counter,
    failures: Counter,
    missed_evaluations: Counter,
    duration: Histogram,
}

impl Default for RuleMetrics {
    fn default() -> Self {
        Self {
            evaluations: Counter::default(),
            failures: Counter::default(),
            missed_evaluations: Counter::default(),
            duration: duration_histogram(),
        }
    }
}

impl RuleMetrics {
    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("egret_series");
        registry.register("rule_evaluations", "Evaluations of rules", self.evaluations.clone());
        registry.register(
            "rule_evaluation_failures",
            "Evaluations of rules that failed, or whose result could not be written",
            self.failures.clone(),
        );
        registry.register(
            "rule_missed_evaluations",
            "Evaluations of groups that were skipped because the previous one was still running",
            self.missed_evaluations.clone(),
        );
        registry.register_with_unit(
            "rule_duration",
            "Time from the start of a rule's evaluation until its samples are written",
            Unit::Seconds,
            self.duration.clone(),
        );
    }

    /// A rule was evaluated.
    pub(crate) fn record_evaluation(&self, elapsed: Duration, has_failed: bool) {
        self.evaluations.inc();
        self.failures.inc_by(u64::from(has_failed));
        self.duration.observe(elapsed.as_secs_f64());
    }

    /// A group has missed some.
    pub(crate) fn record_missed(&self, count: u64) {
        self.missed_evaluations.inc_by(count);
    }
}

/// Metrics of the scrapes of targets.
#[derive(Clone, Debug)]
pub struct ScrapeMetrics {
    scrapes: Counter,
    failures: Counter,
    samples: Counter,
    duration: Histogram,
    /// Targets that are scraped.
    pub(crate) targets: Gauge,
}

impl Default for ScrapeMetrics {
    fn default() -> Self {
        Self {
            scrapes: Counter::default(),
            failures: Counter::default(),
            samples: Counter::default(),
            duration: duration_histogram(),
            targets: Gauge::default(),
        }
    }
}

impl ScrapeMetrics {
    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("egret_series");
        registry.register("scrapes", "Scrapes of targets", self.scrapes.clone());
        registry.register(
            "scrape_failures",
            "Scrapes that failed: no answer, or an invalid one",
            self.failures.clone(),
        );
        registry.register("scraped_samples", "Samples that targets exposed", self.samples.clone());
        registry.register_with_unit(
            "scrape_duration",
            "Time until a target has answered",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register("targets", "Targets that are scraped", self.targets.clone());
    }

    /// A target was scraped.
    pub(crate) fn record_scrape(&self, samples: u64, elapsed: Duration, has_failed: bool) {
        self.scrapes.inc();
        self.failures.inc_by(u64::from(has_failed));
        self.samples.inc_by(samples);
        self.duration.observe(elapsed.as_secs_f64());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReceiverLabels {
    receiver: String,
}

/// Metrics of the notification of receivers.
#[derive(Clone, Debug, Default)]
pub struct NoticeMetrics {
    delivered: Family<ReceiverLabels, Counter>,
    failures: Family<ReceiverLabels, Counter>,
}

impl NoticeMetrics {
    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("egret_series");
        registry.register(
            "alerts_told",
            "Notifications of firing and resolved alerts that a receiver accepted",
            self.delivered.clone(),
        );
        registry.register(
            "alert_failures",
            "Notifications of alerts that could not be delivered to a receiver; they are retried",
            self.failures.clone(),
        );
    }

    /// Counts alerts that a receiver has got.
    pub(crate) fn record_delivered(&self, receiver: &str, count: usize) {
        self.delivered.get_or_create(&labels(receiver)).inc_by(count as u64);
    }

    /// Counts alerts that could not be sent to a receiver.
    pub(crate) fn record_failed(&self, receiver: &str, count: usize) {
        self.failures.get_or_create(&labels(receiver)).inc_by(count as u64);
    }
}

fn labels(receiver: &str) -> ReceiverLabels {
    ReceiverLabels { receiver: receiver.to_owned() }
}
