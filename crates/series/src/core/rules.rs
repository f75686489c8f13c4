//! Recording and alerting rules in Prometheus's file format, and what becomes of them over time.
//!
//! Everything here is given the time and the answers of queries: [`RuleSpec::evaluate`] runs
//! queries and changes nothing, [`RuleGroup::apply_result`] takes the results and decides. The
//! driver of a group appends the samples that it returns and notifies the receivers of alerts.

mod alert;
mod file;
mod filter;
mod group;
mod notification;
mod rule;
mod status;

use egret_metrics_model::{Labels, TimeMs};

pub use alert::{AlertState, FOR_GRACE_MS, OUTAGE_TOLERANCE_MS, RESOLVED_RETENTION_MS};
pub use file::{RuleFileError, parse};
pub use filter::{RuleFilter, RuleType, matches_labels};
pub use group::{GroupEvaluation, GroupStart, NotifyOptions, RuleGroup};
pub use notification::{
    AlertNotification, Fingerprint, NotificationKey, NotificationLog, alertmanager_body, task_body,
    webhook_body,
};
pub use rule::{
    AlertSpec, EvalEnvironment, Evaluate, GroupSpec, RuleKind, RuleResult, RuleSpec, TemplateText,
    last_samples,
};
pub use status::{
    AlertStatus, AlertsStatus, GroupStatus, Health, RuleStatus, RulesStatus, labels_as_map,
    moment_or_never,
};

/// A sample to be appended.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSample {
    /// Labels of the sample's series.
    pub labels: Labels,
    /// Time of the sample, in milliseconds.
    pub time_ms: TimeMs,
    /// Value of the sample.
    pub value: f64,
}
