//! Status of rules and alerts in Prometheus's JSON: the `data` of `/api/v1/rules` and
//! `/api/v1/alerts`.

use egret_base::Timestamp;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use egret_metrics_model::Labels;

/// Writes labels as an object.
///
/// # Errors
/// Of the serialiser.
pub fn labels_as_map<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, value) in labels.iter() {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// The time that Go writes for none.
pub(super) const NEVER: &str = "0001-01-01T00:00:00Z";

/// Writes a time, or the one that Go writes for none.
///
/// # Errors
/// Of the serialiser.
pub fn moment_or_never<S: Serializer>(
    moment: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match moment {
        Some(moment) => moment.serialize(serializer),
        None => serializer.serialize_str(NEVER),
    }
}

/// Whether a rule could be evaluated, or a target be scraped, the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It was not tried yet.
    #[default]
    Unknown,
    /// It succeeded the last time.
    Ok,
    /// It failed the last time.
    Err,
}

/// Value of `data` in the answer of `/api/v1/rules`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RulesStatus {
    /// By file, then by name.
    pub groups: Vec<GroupStatus>,
    /// What to ask for to go on, where only some groups were wanted and there are more.
    #[serde(rename = "groupNextToken", skip_serializing_if = "Option::is_none")]
    pub group_next_token: Option<String>,
}

/// A group of rules.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// Rules in the order of the file.
    pub rules: Vec<RuleStatus>,
    /// Evaluation interval, in seconds.
    pub interval: f64,
    /// Most series or alerts of a rule; 0: unlimited.
    pub limit: u64,
    /// How long its last evaluation took, in seconds.
    pub evaluation_time: f64,
    /// Time of the last evaluation.
    #[serde(serialize_with = "moment_or_never")]
    pub last_evaluation: Option<Timestamp>,
    /// Evaluations that should have been and were not, since the start.
    pub missed_evaluations: u64,
}

/// Status of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RuleStatus {
    /// Status of an alerting rule.
    #[serde(rename_all = "camelCase")]
    Alerting {
        /// `inactive`, `pending` or `firing`: that of the alert that is farthest.
        state: &'static str,
        /// Name of the alert.
        name: String,
        /// Expression of the rule.
        query: String,
        /// Its `for`, in seconds.
        duration: f64,
        /// Its `keep_firing_for`, in seconds.
        keep_firing_for: f64,
        /// Its labels, templates as written.
        #[serde(serialize_with = "labels_as_map")]
        labels: Labels,
        /// Its annotations, templates as written.
        #[serde(serialize_with = "labels_as_map")]
        annotations: Labels,
        /// Those that are active; nothing when they are not wanted.
        alerts: Option<Vec<AlertStatus>>,
        /// Health as of the last evaluation.
        health: Health,
        /// Error of the last evaluation; empty if it succeeded.
        #[serde(skip_serializing_if = "String::is_empty")]
        last_error: String,
        /// Duration of the last evaluation, in seconds.
        evaluation_time: f64,
        /// Time of the last evaluation.
        #[serde(serialize_with = "moment_or_never")]
        last_evaluation: Option<Timestamp>,
    },
    /// Status of a recording rule.
    #[serde(rename_all = "camelCase")]
    Recording {
        /// Name of the recorded series.
        name: String,
        /// Expression of the rule.
        query: String,
        /// Labels that the rule adds.
        #[serde(serialize_with = "labels_as_map")]
        labels: Labels,
        /// Health as of the last evaluation.
        health: Health,
        /// Error of the last evaluation; empty if it succeeded.
        #[serde(skip_serializing_if = "String::is_empty")]
        last_error: String,
        /// Duration of the last evaluation, in seconds.
        evaluation_time: f64,
        /// Time of the last evaluation.
        #[serde(serialize_with = "moment_or_never")]
        last_evaluation: Option<Timestamp>,
    },
}

/// Value of `data` in the answer of `/api/v1/alerts`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlertsStatus {
    /// Active alerts, ordered by rule.
    pub alerts: Vec<AlertStatus>,
}

/// An alert that is active.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AlertStatus {
    /// Labels of the alert.
    #[serde(serialize_with = "labels_as_map")]
    pub labels: Labels,
    /// Annotations of the alert.
    #[serde(serialize_with = "labels_as_map")]
    pub annotations: Labels,
    /// State of the alert: `pending` or `firing`.
    pub state: &'static str,
    /// Since when its condition holds.
    pub active_at: Timestamp,
    /// Since when its condition does not hold while it fires on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_firing_since: Option<Timestamp>,
    /// The value of its expression, as Go writes it with an exponent.
    pub value: String,
}

impl RulesStatus {
    /// The alerts of all groups.
    pub fn alerts(self) -> AlertsStatus {
        let rules = self.groups.into_iter().flat_map(|group| group.rules);
        let alerts = rules.flat_map(|rule| match rule {
            RuleStatus::Alerting { alerts, .. } => alerts.unwrap_or_default(),
            RuleStatus::Recording { .. } => Vec::new(),
        });
        AlertsStatus { alerts: alerts.collect() }
    }
}
