//! Status of targets in Prometheus's JSON: the `data` of `/api/v1/targets`.

use std::collections::BTreeMap;

use egret_base::Timestamp;
use egret_metrics_model::Labels;
use serde::Serialize;

use super::target::ScrapeTarget;
use crate::core::rules::{labels_as_map, moment_or_never};
use crate::core::yaml::DurationMs;

/// Whether a target could be scraped the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetHealth {
    /// It was not tried yet.
    #[default]
    Unknown,
    /// The last scrape succeeded.
    Up,
    /// The last scrape failed.
    Down,
}

/// Value of `data` in the answer of `/api/v1/targets`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetsStatus {
    /// By job, then by labels.
    pub active_targets: Vec<TargetStatus>,
    /// Some of those that relabelling dropped.
    pub dropped_targets: Vec<DroppedStatus>,
    /// Number of dropped targets by job; `None` if not requested.
    pub dropped_target_counts: Option<BTreeMap<String, u64>>,
}

impl TargetsStatus {
    /// Only the targets of a job.
    pub fn for_pool(mut self, pool: &str) -> Self {
        self.active_targets.retain(|target| target.scrape_pool == pool);
        self.dropped_targets.retain(|one| one.scrape_pool == pool);
        if let Some(counts) = &mut self.dropped_target_counts {
            counts.retain(|name, _| name == pool);
        }
        self
    }

    /// Only those that are scraped.
    pub fn only_active(self) -> Self {
        Self { active_targets: self.active_targets, ..Self::default() }
    }

    /// Only those that were dropped.
    pub fn only_dropped(self) -> Self {
        Self { active_targets: Vec::new(), ..self }
    }
}

/// A target that relabelling dropped.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DroppedStatus {
    /// Labels of the target before relabelling.
    #[serde(serialize_with = "labels_as_map")]
    pub discovered_labels: Labels,
    /// Name of the target's job.
    pub scrape_pool: String,
}

/// Status of one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Labels of the target before relabelling.
    #[serde(serialize_with = "labels_as_map")]
    pub discovered_labels: Labels,
    /// The labels of its samples.
    #[serde(serialize_with = "labels_as_map")]
    pub labels: Labels,
    /// Name of the target's job.
    pub scrape_pool: String,
    /// URL of its metrics page.
    pub scrape_url: String,
    /// The same, as others reach it.
    pub global_url: String,
    /// Why the last scrape failed; empty when it did not.
    pub last_error: String,
    /// Time of the last scrape.
    #[serde(serialize_with = "moment_or_never")]
    pub last_scrape: Option<Timestamp>,
    /// Duration of the last scrape, in seconds.
    pub last_scrape_duration: f64,
    /// Whether the last scrape succeeded.
    pub health: TargetHealth,
    /// Between two scrapes, as a duration.
    pub scrape_interval: String,
    /// What a scrape may take, as a duration.
    pub scrape_timeout: String,
}

impl TargetStatus {
    /// Of a target that was not scraped yet.
    pub fn new(job: &str, target: &ScrapeTarget) -> Self {
        Self {
            discovered_labels: target.discovered_labels.clone(),
            labels: target.labels.clone(),
            scrape_pool: job.to_owned(),
            scrape_url: target.url.clone(),
            global_url: target.url.clone(),
            last_error: String::new(),
            last_scrape: None,
            last_scrape_duration: 0.0,
            health: TargetHealth::Unknown,
            scrape_interval: DurationMs(target.interval_ms).to_string(),
            scrape_timeout: DurationMs(target.timeout_ms).to_string(),
        }
    }
}
