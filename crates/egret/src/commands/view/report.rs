//! Views and their refreshes as text.

use egret_base::Timestamp;
use serde::Deserialize;

use super::explain::{Advice, format_advice};
use crate::output::{format_bytes, format_duration, format_fields, listing, printable};

#[derive(Debug, Deserialize)]
pub(super) struct View {
    pub(super) database: String,
    pub(super) name: String,
    query: String,
    owner: String,
    pub(super) mode: String,
    pub(super) schedule: Option<String>,
    pub(super) state: String,
    reason: Option<String>,
    failures: u32,
    pub(super) reads: Vec<String>,
    read_by: Vec<String>,
    snapshot: Option<String>,
    fresh_at: Option<Timestamp>,
    #[serde(default)]
    has_clock: bool,
    pub(super) lag_ms: Option<u64>,
    pub(super) waiting_changes: i64,
    size_bytes: u64,
    durations: Option<Durations>,
    changes: Option<KeptChanges>,
    last_refresh: Option<Refresh>,
    #[serde(default)]
    advice: Vec<Advice>,
}

/// What is kept of its changes.
#[derive(Debug, Deserialize)]
struct KeptChanges {
    kept: String,
    sequence: i64,
    sets: u64,
    size_bytes: u64,
    queue: Option<String>,
    waiting_tasks: u64,
}

impl KeptChanges {
    fn describe(&self) -> String {
        let Self { kept, sequence, sets, .. } = self;
        format!("for {kept}: {sets} sets, {}, the last {sequence}", format_bytes(self.size_bytes))
    }

    fn tasks(&self) -> String {
        match (&self.queue, self.waiting_tasks) {
            (None, _) => String::new(),
            (Some(queue), 0) => format!("queue {queue}"),
            (Some(queue), waiting) => format!("queue {queue}; {waiting} changes have no task yet"),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Durations {
    waiting: Quantiles,
    applying: Quantiles,
    other: Quantiles,
    all: Quantiles,
}

#[derive(Debug, Deserialize)]
struct Quantiles {
    p50_ms: f64,
    p95_ms: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Refresh {
    at: Timestamp,
    outcome: String,
    why: String,
    snapshot: String,
    changes: i64,
    added: i64,
    changed: i64,
    removed: i64,
    took_ms: f64,
    waited_ms: f64,
    error: Option<String>,
    plans: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Verification {
    pub(super) equal: bool,
    snapshot: String,
    same: i64,
    missing: i64,
    extra: i64,
}

/// Roles that may ask for views from SQL.
#[derive(Debug, Deserialize)]
pub(super) struct Grant {
    database: String,
    roles: Vec<String>,
}

/// Text that names the roles that may manage views from SQL.
pub(super) fn describe_grant(grant: Grant) -> String {
    let (roles, database) = (grant.roles.join(", "), grant.database);
    format!(
        "{roles} may manage views in database {database} with egret.create_view and the other functions"
    )
}

impl View {
    pub(super) fn schedule(&self) -> String {
        match (&self.schedule, self.read_by.is_empty()) {
            (Some(schedule), _) => schedule.clone(),
            (None, _) if self.mode == "immediate" => "none".to_owned(),
            (None, true) => "default".to_owned(),
            (None, false) => "with its readers".to_owned(),
        }
    }

    pub(super) fn lag(&self) -> String {
        self.lag_ms.map_or_else(String::new, format_duration)
    }
}

impl Durations {
    fn describe(&self) -> String {
        let phases = [
            ("waiting for locks", &self.waiting),
            ("computing and writing", &self.applying),
            ("other", &self.other),
            ("all", &self.all),
        ];
        let milliseconds = |ms: f64| format!("{ms:.1} ms");
        let rows = phases.map(|(phase, quantiles)| {
            vec![phase.to_owned(), milliseconds(quantiles.p50_ms), milliseconds(quantiles.p95_ms)]
        });
        listing(&["refreshes take", "median", "p95"], rows)
    }
}

impl Refresh {
    /// What came of it, in few words.
    fn outcome(&self) -> String {
        match self.outcome.as_str() {
            "nothing" => "nothing had changed".to_owned(),
            "failed" => format!("failed: {}", self.error.as_deref().unwrap_or("")),
            mode => format!(
                "{mode}, {} changes read; rows: {} added, {} changed, {} removed",
                self.changes, self.added, self.changed, self.removed
            ),
        }
    }

    /// Text for the caller that asked for this refresh.
    pub(super) fn describe(&self, name: &str) -> String {
        let Self { took_ms, waited_ms, .. } = self;
        let why = match self.why.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let plans = self.plans.as_deref().map(|plans| format!("\n\n{}", printable(plans)));
        format!(
            "view {name} is up to date: {}{why}\ntook {took_ms:.1} ms, {waited_ms:.1} ms of it waiting for locks; snapshot {}{}",
            self.outcome(),
            self.snapshot,
            plans.unwrap_or_default()
        )
    }
}

impl Verification {
    pub(super) fn describe(&self, name: &str) -> String {
        let Self { same, missing, extra, snapshot, .. } = self;
        if self.equal {
            format!(
                "view {name} equals the result of its query: {same} rows at snapshot {snapshot}"
            )
        } else {
            format!(
                "{same} rows match, {missing} are missing, {extra} are surplus, at snapshot \
                 {snapshot}"
            )
        }
    }
}

pub(super) fn table(views: &[View]) -> String {
    let rows = views.iter().map(|view| {
        let last = view.last_refresh.as_ref();
        vec![
            view.database.clone(),
            view.name.clone(),
            view.mode.clone(),
            view.schedule(),
            view.state.clone(),
            view.lag(),
            format_bytes(view.size_bytes),
            last.map_or_else(String::new, |last| {
                format!("{}, {:.1} ms", last.outcome, last.took_ms)
            }),
        ]
    });
    let head = ["database", "view", "mode", "schedule", "state", "lag", "size", "last refresh"];
    listing(&head, rows)
}

pub(super) fn describe(view: &View) -> String {
    let failures = match view.failures {
        0 => String::new(),
        failures => format!("{failures} in a row"),
    };
    let waiting = match view.waiting_changes {
        0 => String::new(),
        rows => format!("{rows} rows"),
    };
    let last = view.last_refresh.as_ref().map(|last| format!("{}, at {}", last.outcome(), last.at));
    let summary = format_fields(&[
        ("view", view.name.clone()),
        ("database", view.database.clone()),
        ("owner", view.owner.clone()),
        ("state", view.state.clone()),
        ("reason", view.reason.clone().unwrap_or_default()),
        ("failures", failures),
        ("mode", view.mode.clone()),
        ("schedule", view.schedule()),
        ("lag", view.lag()),
        ("up to date at", view.fresh_at.map_or_else(String::new, |at| at.to_string())),
        ("depends on", if view.has_clock { "the clock".to_owned() } else { String::new() }),
        ("changes waiting", waiting),
        ("size", format_bytes(view.size_bytes)),
        ("changes kept", view.changes.as_ref().map_or_else(String::new, KeptChanges::describe)),
        ("a task for each", view.changes.as_ref().map_or_else(String::new, KeptChanges::tasks)),
        ("reads", view.reads.join(", ")),
        ("read by", view.read_by.join(", ")),
        ("last refresh", last.unwrap_or_default()),
        ("snapshot", view.snapshot.clone().unwrap_or_default()),
    ]);
    let durations = view.durations.as_ref().map(Durations::describe);
    let sections = [durations.unwrap_or_default(), format_advice(&view.advice)];
    let more: String =
        sections.iter().filter(|text| !text.is_empty()).map(|text| format!("\n{text}\n")).collect();
    format!("{summary}\n{}\n{more}", printable(view.query.trim()))
}

/// The plans that were kept of refreshes.
pub(super) fn plans(refreshes: &[Refresh]) -> String {
    let texts: Vec<String> = refreshes
        .iter()
        .filter_map(|refresh| {
            let plans = refresh.plans.as_deref()?;
            let Refresh { at, outcome, .. } = refresh;
            Some(format!("{at}, {outcome}\n\n{}", printable(plans)))
        })
        .collect();
    if texts.is_empty() {
        "no plan was recorded for these refreshes".to_owned()
    } else {
        texts.join("\n\n")
    }
}

pub(super) fn history(refreshes: &[Refresh]) -> String {
    let rows = refreshes.iter().map(|refresh| {
        vec![
            refresh.at.to_string(),
            refresh.outcome.clone(),
            format!("{:.1} ms", refresh.took_ms),
            refresh.changes.to_string(),
            refresh.added.to_string(),
            refresh.changed.to_string(),
            refresh.removed.to_string(),
            refresh.error.clone().unwrap_or_else(|| refresh.why.clone()),
        ]
    });
    let head = ["at", "outcome", "took", "changes", "added", "changed", "removed", "why"];
    listing(&head, rows)
}
