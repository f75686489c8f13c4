//! The server's answers, as far as text for people is made of them. `--json` prints what came.

use std::collections::BTreeMap;

use egret_base::Timestamp;
use serde::Deserialize;
use serde_json::Value as Json;

#[derive(Debug, Deserialize)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
}

/// A part of the time something took.
#[derive(Debug, Deserialize)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) ms: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Branch {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) parent: Parent,
    pub(crate) preset: String,
    pub(crate) durable: bool,
    #[serde(default)]
    pub(crate) superuser: bool,
    #[serde(default)]
    pub(crate) role_passwords: bool,
    pub(crate) protected: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) age_ms: u64,
    pub(crate) sessions: u64,
    pub(crate) diverged_bytes: Option<u64>,
    pub(crate) failure: Option<String>,
    #[serde(default)]
    pub(crate) notice: Option<String>,
    pub(crate) receipt: Option<Receipt>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Parent {
    pub(crate) template: String,
    pub(crate) branch: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) template_lsn: String,
    pub(crate) template_taken_at: Timestamp,
    pub(crate) total_ms: f64,
    pub(crate) phases: Vec<Phase>,
    pub(crate) source: Source,
    #[serde(default)]
    pub(crate) losses: Option<Vec<Loss>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Loss {
    pub(crate) kind: String,
    pub(crate) total: Option<u64>,
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) system_identifier: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Template {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) origin: Origin,
    pub(crate) lsn: String,
    pub(crate) age_ms: u64,
    pub(crate) branches: u64,
    pub(crate) phases: Vec<Phase>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Origin {
    pub(crate) source: String,
    pub(crate) branch: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pool {
    pub(crate) preset: String,
    pub(crate) target: u32,
    pub(crate) chosen: bool,
    pub(crate) hot: usize,
    pub(crate) filling: usize,
    pub(crate) template: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Volume {
    pub(crate) driver: String,
    pub(crate) path: String,
    pub(crate) image: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) free_bytes_min: u64,
    pub(crate) note: String,
    pub(crate) isolation: String,
    #[serde(default)]
    pub(crate) limits: String,
}

/// A section is present if that server runs the part.
#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) uptime_ms: u64,
    pub(crate) services: Vec<Service>,
    #[serde(default)]
    pub(crate) failed: Vec<PartFailure>,
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) postgres: Option<Postgres>,
    pub(crate) volume: Option<Section<Volume>>,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) branches: Option<Section<Branches>>,
    pub(crate) queue: Option<Section<Queue>>,
    pub(crate) series: Option<Section<Series>>,
    pub(crate) views: Option<Section<Views>>,
    pub(crate) documents: Option<Documents>,
    pub(crate) clock: Option<Clock>,
}

/// How Egret's time follows the wall clock.
#[derive(Debug, Deserialize)]
pub(crate) struct Clock {
    pub(crate) state: String,
    pub(crate) accepted_at: Timestamp,
    pub(crate) wall_at: Timestamp,
    pub(crate) offset_ms: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ClockRelease {
    pub(crate) moved_ms: i64,
    pub(crate) clock: Clock,
}

/// The status of a part, or the reason why it has none, such as that it starts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Section<T> {
    Available(T),
    Failed { error: String },
}

impl<T> Section<T> {
    pub(crate) fn describe_with(self, text: impl FnOnce(T) -> String) -> String {
        match self {
            Section::Available(part) => text(part),
            Section::Failed { error } => error,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) ready: bool,
    pub(crate) reason: Option<String>,
}

/// A part that does not work while the others do.
#[derive(Debug, Deserialize)]
pub(crate) struct PartFailure {
    pub(crate) part: String,
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// A fault that lasts and is tried again.
#[derive(Debug, Deserialize)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) subject: String,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Postgres {
    pub(crate) version: String,
    pub(crate) state: String,
    /// Of the embedded server.
    pub(crate) port: Option<u16>,
    /// Of an external one.
    pub(crate) hosts: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Proxy {
    pub(crate) address: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Branches {
    pub(crate) total: u64,
    pub(crate) by_state: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Queue {
    pub(crate) queues: u64,
    pub(crate) tasks: BTreeMap<String, u64>,
    pub(crate) oldest_ready_ms: u64,
    pub(crate) partitions: u64,
    pub(crate) partitions_stopped: u64,
    pub(crate) durability: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Series {
    pub(crate) series: u64,
    pub(crate) shards: u64,
    pub(crate) shards_failed: u64,
    pub(crate) durability: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Views {
    pub(crate) total: u64,
    pub(crate) by_state: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Documents {
    /// State of document writes in each database, by its name.
    pub(crate) databases: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) expires_at: Option<String>,
    pub(crate) last_used_at: Option<String>,
    pub(crate) token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AuditEntry {
    pub(crate) at: String,
    pub(crate) operation: String,
    pub(crate) object: Option<String>,
    pub(crate) status: u16,
    pub(crate) token: Option<String>,
    pub(crate) token_name: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) duration_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Rows {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Json>>,
    pub(crate) command: String,
    pub(crate) elapsed_ms: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Connection {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) url: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Proof {
    pub(crate) branch: String,
    pub(crate) marker_in_branch: bool,
    pub(crate) marker_in_source: bool,
    pub(crate) source_quiet: bool,
    pub(crate) tables_checked: u64,
    pub(crate) checksums_equal: Option<bool>,
    pub(crate) catalogue_equal: Option<bool>,
    pub(crate) source_unchanged: bool,
    pub(crate) elapsed_ms: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Check {
    pub(crate) consistent: bool,
    pub(crate) branches: u64,
    pub(crate) templates: u64,
    pub(crate) tombstones: u64,
    pub(crate) findings: Vec<Discrepancy>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Discrepancy {
    pub(crate) what: String,
    #[serde(rename = "where")]
    pub(crate) place: String,
    pub(crate) detail: String,
}
