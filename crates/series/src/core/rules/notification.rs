//! Notices of alerts: their contents, when they are due to a receiver, and its wire format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use egret_base::Timestamp;
use egret_metrics_model::{Labels, TimeMs};
use serde::Serialize;
use serde_json::json;

use super::status::{NEVER, labels_as_map};

/// What tells alerts apart: as Alertmanager has it, FNV-1a of 64 bits of their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Fingerprint of an alert with these labels.
    pub fn from_labels(labels: &Labels) -> Self {
        let parts = labels.iter().flat_map(|(name, value)| [name, value]);
        let bytes = parts.flat_map(|part| part.bytes().chain([0xff]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// A notification that an alert fires or is resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertNotification {
    /// Fingerprint of the alert's labels.
    pub fingerprint: Fingerprint,
    /// Its labels as the rule made them: the key under which its group knows it.
    pub own_labels: Labels,
    /// Labels of the alert, external ones included.
    pub labels: Labels,
    /// Annotations of the alert.
    pub annotations: Labels,
    /// Since when its condition has held, whatever `for` says; the same after a restart.
    pub active_at: TimeMs,
    /// Since when it fires.
    pub starts_at: TimeMs,
    /// When it was resolved; while it fires, when it may be taken for resolved unless it is told
    /// again.
    pub ends_at: TimeMs,
    /// Whether the alert has ended.
    pub is_resolved: bool,
    /// When the notice was made.
    pub made_at: TimeMs,
    /// The page that shows the rule's expression.
    pub generator_url: Arc<str>,
}

impl AlertNotification {
    fn status(&self) -> &'static str {
        if self.is_resolved { "resolved" } else { "firing" }
    }
}

/// A due notification of one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationKey {
    /// Equal for the same alert, state and repetition, also across restarts of Egret.
    pub key: String,
}

/// Notifications that one receiver has got.
#[derive(Debug)]
pub struct NotificationLog {
    /// After how long it is told again of an alert that still fires, in milliseconds; `None`:
    /// never.
    repeat_ms: Option<i64>,
    /// The last key of each alert, and when it was told.
    delivered: BTreeMap<Fingerprint, (String, TimeMs)>,
}

/// A notification log forgets alerts without a due notification for so long, in milliseconds.
const RETENTION_MIN_MS: i64 = 24 * 3_600_000;

impl NotificationLog {
    /// An empty log: the receiver was not notified of anything yet.
    pub(crate) fn new(repeat_ms: Option<i64>) -> Self {
        let delivered = BTreeMap::new();
        Self { repeat_ms, delivered }
    }

    /// The key under which the receiver is due to be notified; `None` if it is not due.
    pub(crate) fn due_key(&self, notice: &AlertNotification) -> Option<NotificationKey> {
        let repetition = match self.repeat_ms {
            Some(repeat_ms) if repeat_ms > 0 && !notice.is_resolved => {
                (notice.made_at - notice.active_at) / repeat_ms
            }
            _ => 0,
        };
        let active_s = notice.active_at.div_euclid(1_000);
        let (fingerprint, status) = (notice.fingerprint, notice.status());
        let key = format!("series/alert/{fingerprint}/{active_s}/{status}/{repetition}");
        let previous = self.delivered.get(&notice.fingerprint);
        if previous.is_some_and(|(before, _)| *before == key) {
            None
        } else {
            Some(NotificationKey { key })
        }
    }

    /// Records that the receiver was notified.
    pub(crate) fn record_delivered(
        &mut self,
        notice: &AlertNotification,
        notification_key: NotificationKey,
    ) {
        let entry = (notification_key.key, notice.made_at);
        self.delivered.insert(notice.fingerprint, entry);
        let oldest = notice.made_at - RETENTION_MIN_MS.max(self.repeat_ms.unwrap_or(0) * 2);
        self.delivered.retain(|_, (_, at)| *at >= oldest);
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertBody<'a> {
    status: &'a str,
    #[serde(serialize_with = "labels_as_map")]
    labels: &'a Labels,
    #[serde(serialize_with = "labels_as_map")]
    annotations: &'a Labels,
    starts_at: String,
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: &'a str,
    fingerprint: String,
}

fn format_time(time: TimeMs) -> String {
    Timestamp::from_micros(time.saturating_mul(1_000)).to_string()
}

impl<'a> AlertBody<'a> {
    fn new(notice: &'a AlertNotification) -> Self {
        Self {
            status: notice.status(),
            labels: &notice.labels,
            annotations: &notice.annotations,
            starts_at: format_time(notice.starts_at),
            ends_at: if notice.is_resolved {
                format_time(notice.ends_at)
            } else {
                NEVER.to_owned()
            },
            generator_url: &notice.generator_url,
            fingerprint: notice.fingerprint.to_string(),
        }
    }
}

/// The payload of a task: the alert as Alertmanager has it in a webhook.
pub fn task_body(notice: &AlertNotification) -> String {
    serde_json::to_string(&AlertBody::new(notice)).expect("strings are written without fail")
}

/// Body of a POST to `/api/v2/alerts` of Alertmanager.
pub fn alertmanager_body(notices: &[&AlertNotification]) -> String {
    let alerts = notices.iter().map(|notice| {
        json!({
            "labels": labels_to_json(&notice.labels),
            "annotations": labels_to_json(&notice.annotations),
            "startsAt": format_time(notice.starts_at),
            "endsAt": format_time(notice.ends_at),
            "generatorURL": &*notice.generator_url,
        })
    });
    serde_json::Value::Array(alerts.collect()).to_string()
}

/// Version 4 of the payload that Alertmanager sends to webhooks. The notices are of one rule, so
/// that they are one group by `alertname`.
pub fn webhook_body(receiver: &str, external_url: &str, notices: &[&AlertNotification]) -> String {
    let name = notices.first().map_or("", |notice| notice.labels.get("alertname"));
    let is_firing = notices.iter().any(|notice| !notice.is_resolved);
    let alerts: Vec<AlertBody<'_>> = notices.iter().map(|notice| AlertBody::new(notice)).collect();
    json!({
        "version": "4",
        "groupKey": format!("{{}}:{{alertname={name:?}}}"),
        "truncatedAlerts": 0,
        "status": if is_firing { "firing" } else { "resolved" },
        "receiver": receiver,
        "groupLabels": {"alertname": name},
        "commonLabels": labels_to_json(&common_labels(notices.iter().map(|notice| &notice.labels))),
        "commonAnnotations": labels_to_json(&common_labels(notices.iter().map(|notice| &notice.annotations))),
        "externalURL": external_url,
        "alerts": alerts,
    })
    .to_string()
}

fn labels_to_json(labels: &Labels) -> serde_json::Value {
    let pairs = labels.iter().map(|(name, value)| (name.to_owned(), value.into()));
    serde_json::Value::Object(pairs.collect())
}

/// Labels that all have, with equal values.
fn common_labels<'a>(mut label_sets: impl Iterator<Item = &'a Labels>) -> Labels {
    let Some(first) = label_sets.next() else {
        return Labels::default();
    };
    let mut shared: BTreeSet<(&str, &str)> = first.iter().collect();
    for labels in label_sets {
        shared.retain(|(name, value)| labels.get(name) == *value);
    }
    Labels::from_sorted(shared.into_iter())
}
