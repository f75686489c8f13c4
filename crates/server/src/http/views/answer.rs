//! Responses of views, as JSON.

use egret_base::Timestamp;
use egret_base::settings::Value;
use egret_views::{ViewsError, model};
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// Roles that may request views from SQL.
#[derive(Serialize, ToSchema)]
pub(super) struct ViewGrant {
    /// The database.
    #[schema(example = "shop")]
    pub(super) database: String,
    /// The roles; `public` stands for all roles.
    #[schema(example = json!(["app"]))]
    pub(super) roles: Vec<String>,
}

/// A view and its status.
#[derive(Serialize, ToSchema)]
pub(super) struct View {
    /// The database that it is in.
    #[schema(example = "shop")]
    database: String,
    /// Its name, with its schema.
    #[schema(example = "public.late_by_carrier")]
    name: String,
    /// The query, as it was given.
    query: String,
    /// The owner, with whose rights its query runs.
    #[schema(example = "app")]
    owner: String,
    /// How the view is refreshed: `auto`, `incremental`, `full` or `immediate`.
    #[schema(example = "auto")]
    mode: String,
    /// When the view is refreshed: the maximum lag, a cron expression in UTC, or `manual`; null:
    /// with the views that read it, or after `views.default_lag`.
    #[schema(example = "5s")]
    schedule: Option<String>,
    /// The state. `new`: the view is not filled yet. `active`: it is refreshed. `failing`: its last
    /// refresh failed and is retried. `suspended`: it is no longer refreshed, and keeps its last
    /// content.
    #[schema(example = "active")]
    state: String,
    /// Why the view is failing or suspended.
    reason: Option<String>,
    /// The number of failed refreshes since the last successful one.
    failures: u32,
    /// The tables and views that it reads.
    #[schema(example = json!(["public.flights"]))]
    reads: Vec<String>,
    /// The views that read it.
    read_by: Vec<String>,
    /// The snapshot that the view reflects, as PostgreSQL writes a `pg_snapshot`; null until it is
    /// filled.
    #[schema(example = "812:812:")]
    snapshot: Option<String>,
    /// When the view was last known to be up to date, RFC 3339; null until it is filled.
    #[schema(value_type = Option<String>, format = DateTime)]
    fresh_at: Option<Timestamp>,
    /// Whether the result of its query changes as time passes.
    #[schema(example = false)]
    has_clock: bool,
    /// The lag, in milliseconds: 0 while neither its sources nor a time in its query has changed,
    /// otherwise the time since `fresh_at`; null until it is filled.
    #[schema(example = 0)]
    lag_ms: Option<u64>,
    /// The number of rows of changes that are not applied yet.
    waiting_changes: i64,
    /// Its size on disk, in bytes, including indexes.
    size_bytes: i64,
    /// The durations of its latest successful refreshes; null if there were none.
    durations: Option<Durations>,
    /// The changes that are kept for followers; null: none.
    changes: Option<KeptChanges>,
    /// The last refresh that changed something or failed.
    last_refresh: Option<Refresh>,
    /// Missing indexes; absent in a list, and if they cannot be determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Vec<Advice>>,
}

/// The changes of a view that are kept.
#[derive(Serialize, ToSchema)]
pub(super) struct KeptChanges {
    /// How long change sets are kept.
    #[schema(example = "1d")]
    kept: String,
    /// The number of the last change set.
    sequence: i64,
    /// The number of change sets that are kept.
    #[schema(example = 12)]
    sets: i64,
    /// The size of their content, in bytes.
    size_bytes: i64,
    /// The queue that gets a task for each change set.
    #[schema(example = "late")]
    queue: Option<String>,
    /// The number of change sets without a task.
    #[schema(example = 0)]
    waiting_tasks: i64,
}

impl From<model::KeptChanges> for KeptChanges {
    fn from(changes: model::KeptChanges) -> Self {
        Self {
            kept: changes.retention.show(),
            sequence: changes.sequence,
            sets: changes.sets,
            size_bytes: changes.size_bytes,
            queue: changes.queue,
            waiting_tasks: changes.waiting_tasks,
        }
    }
}

/// The durations of refreshes by phase. The phases of one refresh add up to its total; their
/// quantiles need not.
#[derive(Serialize, ToSchema)]
pub(super) struct Durations {
    /// The time spent waiting for locks.
    waiting: Quantiles,
    /// The time spent computing and writing.
    applying: Quantiles,
    /// The remaining time: reading the state of the view, and waiting for views of its component
    /// that are refreshed before it. The commit is not included in any phase.
    other: Quantiles,
    /// The total of all phases.
    all: Quantiles,
}

/// The median and the 95th percentile of durations.
#[derive(Serialize, ToSchema)]
struct Quantiles {
    /// The median, in milliseconds.
    #[schema(example = 2.1)]
    p50_ms: f64,
    /// The 95th percentile, in milliseconds.
    #[schema(example = 3.4)]
    p95_ms: f64,
}

impl From<model::Durations> for Durations {
    fn from(durations: model::Durations) -> Self {
        let quantiles =
            |source: model::Quantiles| Quantiles { p50_ms: source.p50_ms, p95_ms: source.p95_ms };
        Self {
            waiting: quantiles(durations.waiting),
            applying: quantiles(durations.applying),
            other: quantiles(durations.other),
            all: quantiles(durations.total),
        }
    }
}

/// A missing index: without it, a refresh reads a whole table, however small the changes are.
#[derive(Serialize, ToSchema)]
pub(super) struct Advice {
    /// The table.
    #[schema(example = "public.orders")]
    table: String,
    /// The columns to index.
    #[schema(example = json!(["customer_id"]))]
    columns: Vec<String>,
    /// The statement that creates the index.
    #[schema(example = "CREATE INDEX ON public.orders (customer_id)")]
    statement: String,
    /// Why rows are looked up by these columns.
    #[schema(
        example = "rows of public.orders are looked up by customer_id when public.customers changes"
    )]
    reason: String,
    /// The estimated number of rows of the table; null if it is unknown.
    rows: Option<i64>,
}

impl From<model::Advice> for Advice {
    fn from(advice: model::Advice) -> Self {
        Self {
            table: advice.table,
            columns: advice.columns,
            statement: advice.statement,
            reason: advice.reason,
            rows: advice.rows,
        }
    }
}

impl View {
    /// A view as it is at a time.
    pub(super) fn from_report(report: model::ViewReport, now: Timestamp) -> Self {
        let fresh_at = report.fresh_at_ms.map(to_timestamp);
        let advice = report.advice.map(convert_advice);
        let lag_ms = fresh_at.map(|fresh_at| {
            if report.is_current {
                0
            } else {
                u64::try_from(now.since(fresh_at).as_millis()).unwrap_or(u64::MAX)
            }
        });
        Self {
            database: report.database,
            name: report.name.to_string(),
            query: report.query,
            owner: report.owner,
            mode: report.mode.as_str().to_owned(),
            schedule: report.schedule.map(|schedule| schedule.to_string()),
            state: report.state.as_str().to_owned(),
            reason: report.reason,
            failures: report.failures,
            reads: report.reads,
            read_by: report.read_by,
            snapshot: report.snapshot,
            fresh_at,
            has_clock: report.has_clock,
            lag_ms,
            waiting_changes: report.waiting_changes,
            size_bytes: report.size_bytes,
            durations: report.durations.map(Durations::from),
            changes: report.changes.map(KeptChanges::from),
            last_refresh: report.last_refresh.map(Refresh::from),
            advice,
        }
    }
}

fn convert_advice(advice: Vec<model::Advice>) -> Vec<Advice> {
    advice.into_iter().map(Advice::from).collect()
}

pub(super) fn to_timestamp(ms: i64) -> Timestamp {
    Timestamp::from_micros(ms.saturating_mul(1_000))
}

/// The views, in order of databases and names.
#[derive(Serialize, ToSchema)]
pub(super) struct ViewList {
    /// The views.
    pub(super) items: Vec<View>,
    /// Whether there may be more views, in databases in which no session can be opened.
    #[schema(example = false)]
    pub(super) incomplete: bool,
}

/// The report of a refresh.
#[derive(Serialize, ToSchema)]
pub(super) struct Refresh {
    /// When it started, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `nothing` (nothing had changed), `incremental`, `full` or `failed`.
    #[schema(example = "incremental")]
    outcome: String,
    /// Why it was incremental or full.
    why: String,
    /// The snapshot that the view reflects after it, as PostgreSQL writes a `pg_snapshot`.
    #[schema(example = "812:812:")]
    snapshot: String,
    /// The number of rows of changes that it read; an update counts as two.
    changes: i64,
    /// The number of rows inserted into the view.
    added: i64,
    /// The number of rows updated in the view.
    changed: i64,
    /// The number of rows deleted from the view.
    removed: i64,
    /// The total duration, in milliseconds.
    took_ms: f64,
    /// The part of the duration spent waiting for locks, in milliseconds.
    waited_ms: f64,
    /// The part of the duration spent computing and writing, in milliseconds.
    applied_ms: f64,
    /// The error of a failed refresh.
    error: Option<String>,
    /// The plans of its statements, as EXPLAIN (ANALYZE, BUFFERS, SETTINGS) shows them, if they
    /// were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    plans: Option<String>,
}

impl From<model::RefreshReport> for Refresh {
    fn from(report: model::RefreshReport) -> Self {
        Self {
            at: to_timestamp(report.at_ms),
            outcome: report.outcome,
            why: report.strategy_reason,
            snapshot: report.snapshot,
            changes: report.changes,
            added: report.added,
            changed: report.changed,
            removed: report.removed,
            took_ms: report.took_ms,
            waited_ms: report.waited_ms,
            applied_ms: report.applied_ms,
            error: report.error,
            plans: report.plans,
        }
    }
}

/// The refreshes of a view, the latest first.
#[derive(Serialize, ToSchema)]
pub(super) struct RefreshList {
    /// The refreshes.
    pub(super) items: Vec<Refresh>,
}

/// How a view of a query is, or would be, maintained.
#[derive(Serialize, ToSchema)]
pub(super) struct Explanation {
    /// The query with every name resolved.
    definition: String,
    /// Its columns.
    columns: Vec<ViewColumn>,
    /// The tables and views that it reads.
    #[schema(example = json!(["public.flights"]))]
    reads: Vec<String>,
    /// The stages that store intermediate results, from the first to the last.
    stages: Vec<Stage>,
    /// Missing indexes.
    advice: Vec<Advice>,
}

/// A column of a view.
#[derive(Serialize, ToSchema)]
struct ViewColumn {
    /// Its name.
    #[schema(example = "carrier")]
    name: String,
    /// Its type, as PostgreSQL writes it.
    #[serde(rename = "type")]
    #[schema(example = "text")]
    type_name: String,
}

/// A stage of a view.
#[derive(Serialize, ToSchema)]
struct Stage {
    /// Its table.
    table: String,
    /// Its operators as a tree, one per line, indented by two spaces per level.
    operators: String,
    /// What the stage stores, and how that is maintained.
    keeps: Vec<String>,
    /// The statement that applies the changes of all its sources.
    sql: String,
}

impl From<model::Explanation> for Explanation {
    fn from(explanation: model::Explanation) -> Self {
        let columns = explanation.columns.into_iter();
        let stages = explanation.stages.into_iter();
        Self {
            definition: explanation.definition,
            columns: columns.map(|(name, type_name)| ViewColumn { name, type_name }).collect(),
            reads: explanation.reads,
            advice: convert_advice(explanation.advice),
            stages: stages
                .map(|stage| Stage {
                    table: stage.table,
                    operators: stage.operators,
                    keeps: stage.column_maintenance,
                    sql: stage.sql,
                })
                .collect(),
        }
    }
}

/// How the rows of a view compare with those of its query.
#[derive(Serialize, ToSchema)]
pub(super) struct Verification {
    /// Whether view and query have the same rows.
    equal: bool,
    /// The snapshot at which they were compared.
    #[schema(example = "812:812:")]
    snapshot: String,
    /// The number of rows that both have.
    same: i64,
    /// The number of rows that only the query has.
    missing: i64,
    /// The number of rows that only the view has.
    extra: i64,
}

impl From<model::Verification> for Verification {
    fn from(verification: model::Verification) -> Self {
        Self {
            equal: verification.missing == 0 && verification.extra == 0,
            snapshot: verification.snapshot,
            same: verification.same,
            missing: verification.missing,
            extra: verification.extra,
        }
    }
}

/// The problem of an error, with what is known of a refused query as members of their own.
pub(super) fn to_problem(error: ViewsError) -> Problem {
    match &error {
        ViewsError::Refused(refusal) => {
            let refusal = refusal.clone();
            Problem::from(error)
                .with_member("construct", Some(refusal.construct))
                .with_member("position", refusal.position)
                .with_member("advice", Some(refusal.advice))
        }
        ViewsError::Unsupported { what, advice } | ViewsError::UntrustedCode { what, advice } => {
            let (what, advice) = (what.clone(), advice.clone());
            Problem::from(error)
                .with_member("construct", Some(what))
                .with_member("advice", Some(advice))
        }
        ViewsError::Query { error: source, position } => {
            let (db_error, position) = (source.as_db_error().cloned(), *position);
            let problem = Problem::from(error).with_member("position", position);
            let Some(said) = db_error else {
                return problem;
            };
            problem
                .with_member("sqlstate", Some(said.code().code()))
                .with_member("sql_detail", said.detail())
                .with_member("hint", said.hint())
        }
        _ => Problem::from(error),
    }
}
