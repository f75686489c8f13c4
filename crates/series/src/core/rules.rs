//! Recording and alerting rules in Prometheus's file format, and what becomes of them over time.
//!
//! Everything here is told the time and given the answers of queries: [`RuleSpec::evaluate`] asks them and changes
//! nothing, [`Group::settle`] takes what was found and decides. Whoever drives a group appends what it says and
//! tells those who wait for alerts.

mod alert;
mod file;
mod filter;
mod group;
mod notice;
mod rule;
mod status;

pub use alert::{AlertState, FOR_GRACE_MS, OUTAGE_TOLERANCE_MS, RESOLVED_KEPT_MS};
pub use file::{RuleFileError, parse};
pub use filter::{RuleFilter, RuleType, takes};
pub use group::{Begin, Group, Settled, Telling};
pub use notice::{
    Fingerprint, Ledger, Notice, Occasion, alertmanager_body, task_body, webhook_body,
};
pub use rule::{
    AlertSpec, Evaluate, Found, GroupSpec, RuleKind, RuleSpec, Surroundings, Text, last_samples,
};
pub use status::{
    AlertStatus, AlertsStatus, GroupStatus, Health, RuleStatus, RulesStatus, labels_as_map,
    moment_or_never,
};

use crate::model::{Labels, TimeMs};

/// A sample to be appended.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSample {
    /// Of which series.
    pub labels: Labels,
    /// When.
    pub time_ms: TimeMs,
    /// What.
    pub value: f64,
}
