//! What is told of views, as JSON.

use egret_base::Timestamp;
use egret_base::settings::Value;
use egret_views::{ViewsError, model};
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// Roles that may ask for views from SQL.
#[derive(Serialize, ToSchema)]
pub(super) struct ViewGrant {
    /// In which database.
    #[schema(example = "shop")]
    pub(super) database: String,
    /// They; `public` is every role.
    #[schema(example = json!(["app"]))]
    pub(super) roles: Vec<String>,
}

/// A view.
#[derive(Serialize, ToSchema)]
pub(super) struct View {
    /// The database that it is in.
    #[schema(example = "shop")]
    database: String,
    /// Its name, with its schema.
    #[schema(example = "public.late_by_carrier")]
    name: String,
    /// Its query, as it was given.
    query: String,
    /// The role whose rights its query has.
    #[schema(example = "app")]
    owner: String,
    /// How it is brought up to date: `auto`, `incremental` or `full`.
    #[schema(example = "auto")]
    mode: String,
    /// When: the lag that is allowed, a cron expression in UTC, or `manual`; null: with the views that read it, or after
    /// `views.default_lag`.
    #[schema(example = "5s")]
    schedule: Option<String>,
    /// `new`: it is not filled yet. `active`: it is kept fresh. `failing`: its last refresh failed, and is tried again.
    /// `suspended`: it is not tried any more. It shows what it showed last.
    #[schema(example = "active")]
    state: String,
    /// Why it fails or is suspended.
    reason: Option<String>,
    /// Refreshes that failed since one did not.
    failures: u32,
    /// The tables and views that it reads.
    #[schema(example = json!(["public.flights"]))]
    reads: Vec<String>,
    /// The views that read it.
    read_by: Vec<String>,
    /// The snapshot that it shows, as PostgreSQL writes a `pg_snapshot`; null until it is filled.
    #[schema(example = "812:812:")]
    snapshot: Option<String>,
    /// When it was known to be up to date last, RFC 3339; null until it is filled.
    #[schema(value_type = Option<String>, format = DateTime)]
    fresh_at: Option<Timestamp>,
    /// Whether what it shows changes as time passes.
    #[schema(example = false)]
    has_clock: bool,
    /// How far it is behind, in milliseconds: 0 while nothing that it reads has changed, nor time that matters to it, else since
    /// `fresh_at`; null until it is filled.
    #[schema(example = 0)]
    lag_ms: Option<u64>,
    /// Rows of changes that it has not seen yet.
    waiting_changes: i64,
    /// What it takes on disk, in bytes, indexes included.
    size_bytes: i64,
    /// What its latest refreshes took, without those that failed; null where there were none.
    durations: Option<Durations>,
    /// What is kept of its changes for those who follow it; null: nothing.
    changes: Option<KeptChanges>,
    /// The last refresh that changed something or failed.
    last_refresh: Option<Refresh>,
    /// The indexes that it lacks; absent in a list, and where that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Vec<Advice>>,
}

/// What is kept of the changes of a view.
#[derive(Serialize, ToSchema)]
pub(super) struct KeptChanges {
    /// For how long.
    #[schema(example = "1d")]
    kept: String,
    /// The number of the last change set.
    sequence: i64,
    /// How many are kept.
    #[schema(example = 12)]
    sets: i64,
    /// What is in them, in bytes.
    size_bytes: i64,
    /// The queue that gets a task for each.
    #[schema(example = "late")]
    queue: Option<String>,
    /// How many of them have no task yet.
    #[schema(example = 0)]
    waiting_tasks: i64,
}

impl From<model::KeptChanges> for KeptChanges {
    fn from(changes: model::KeptChanges) -> Self {
        Self {
            kept: changes.kept.show(),
            sequence: changes.sequence,
            sets: changes.sets,
            size_bytes: changes.size_bytes,
            queue: changes.queue,
            waiting_tasks: changes.waiting_tasks,
        }
    }
}

/// What refreshes took, phase by phase. The phases of one refresh come to all of it; their quantiles need not.
#[derive(Serialize, ToSchema)]
pub(super) struct Durations {
    /// Waiting for locks.
    waiting: Quantiles,
    /// Computing and writing.
    applying: Quantiles,
    /// The rest: looking at how the view stands, and those of its component that come before it. The commit, with which this is remembered, is in
    /// none of them.
    other: Quantiles,
    /// All of it.
    all: Quantiles,
}

/// What half of the times, and what 95 in a hundred, do not exceed.
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
        let quantiles = |of: model::Quantiles| Quantiles {
            p50_ms: of.p50_ms,
            p95_ms: of.p95_ms,
        };
        Self {
            waiting: quantiles(durations.waiting),
            applying: quantiles(durations.applying),
            other: quantiles(durations.other),
            all: quantiles(durations.all),
        }
    }
}

/// An index that a view lacks: without it a refresh reads a table as a whole, however little changed.
#[derive(Serialize, ToSchema)]
pub(super) struct Advice {
    /// The table.
    #[schema(example = "public.orders")]
    table: String,
    /// Its columns that the index is to be of.
    #[schema(example = json!(["customer_id"]))]
    columns: Vec<String>,
    /// The statement that makes it.
    #[schema(example = "CREATE INDEX ON public.orders (customer_id)")]
    statement: String,
    /// What looks rows up by these columns.
    #[schema(
        example = "rows of public.orders are looked up by customer_id when public.customers changes"
    )]
    reason: String,
    /// How many rows the table has, about; null where that is not known.
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
    pub(super) fn of(report: model::ViewReport, now: Timestamp) -> Self {
        let fresh_at = report.fresh_at_ms.map(moment);
        let advice = report.advice.map(listed);
        let lag_ms = fresh_at.map(|fresh_at| match report.is_current {
            true => 0,
            false => u64::try_from(now.since(fresh_at).as_millis()).unwrap_or(u64::MAX),
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
            last_refresh: report.last.map(Refresh::from),
            advice,
        }
    }
}

fn listed(advice: Vec<model::Advice>) -> Vec<Advice> {
    advice.into_iter().map(Advice::from).collect()
}

pub(super) fn moment(ms: i64) -> Timestamp {
    Timestamp::from_micros(ms.saturating_mul(1_000))
}

/// The views, in order of databases and names.
#[derive(Serialize, ToSchema)]
pub(super) struct ViewList {
    /// The views.
    pub(super) items: Vec<View>,
    /// Whether there may be others, in databases in which no session can be opened.
    #[schema(example = false)]
    pub(super) incomplete: bool,
}

/// What a refresh did.
#[derive(Serialize, ToSchema)]
pub(super) struct Refresh {
    /// When it began, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `nothing` (nothing had changed), `incremental`, `full` or `failed`.
    #[schema(example = "incremental")]
    outcome: String,
    /// What chose between incremental and full, in words.
    why: String,
    /// The snapshot that it reached, as PostgreSQL writes a `pg_snapshot`.
    #[schema(example = "812:812:")]
    snapshot: String,
    /// Rows of changes that it read; an update is two.
    changes: i64,
    /// Rows that were added to the view.
    added: i64,
    /// Rows that were changed in it.
    changed: i64,
    /// Rows that were removed from it.
    removed: i64,
    /// How long it took, in milliseconds: all of it.
    took_ms: f64,
    /// Of that, waiting for locks.
    waited_ms: f64,
    /// Of that, computing and writing.
    applied_ms: f64,
    /// What went wrong.
    error: Option<String>,
    /// The plans of its statements, as EXPLAIN (ANALYZE, BUFFERS, SETTINGS) shows them, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    plans: Option<String>,
}

impl From<model::RefreshReport> for Refresh {
    fn from(report: model::RefreshReport) -> Self {
        Self {
            at: moment(report.at_ms),
            outcome: report.outcome,
            why: report.why,
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

/// How a query is kept, or would be.
#[derive(Serialize, ToSchema)]
pub(super) struct Explanation {
    /// The query with every name resolved.
    definition: String,
    /// Its columns.
    columns: Vec<ViewColumn>,
    /// The tables and views that it reads.
    #[schema(example = json!(["public.flights"]))]
    reads: Vec<String>,
    /// The stages in which it is kept, from the first to the last.
    stages: Vec<Stage>,
    /// The indexes that it lacks.
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
    /// Its operators as a tree, a line each, indented by two spaces a level.
    operators: String,
    /// What it keeps, and how that is maintained.
    keeps: Vec<String>,
    /// The statement that applies changes of all that it reads.
    sql: String,
}

impl From<model::Explanation> for Explanation {
    fn from(explanation: model::Explanation) -> Self {
        let columns = explanation.columns.into_iter();
        let stages = explanation.stages.into_iter();
        Self {
            definition: explanation.definition,
            columns: columns
                .map(|(name, type_name)| ViewColumn { name, type_name })
                .collect(),
            reads: explanation.reads,
            advice: listed(explanation.advice),
            stages: stages
                .map(|stage| Stage {
                    table: stage.table,
                    operators: stage.operators,
                    keeps: stage.keeps,
                    sql: stage.sql,
                })
                .collect(),
        }
    }
}

/// How the rows of a view compare with those of its query.
#[derive(Serialize, ToSchema)]
pub(super) struct Verification {
    /// Whether they are the same.
    equal: bool,
    /// The snapshot at which they were compared.
    #[schema(example = "812:812:")]
    snapshot: String,
    /// Rows that both have.
    same: i64,
    /// Rows that the query has and the view does not.
    missing: i64,
    /// Rows that the view has and the query does not.
    extra: i64,
}

impl From<model::Verification> for Verification {
    fn from(found: model::Verification) -> Self {
        Self {
            equal: found.missing == 0 && found.extra == 0,
            snapshot: found.snapshot,
            same: found.same,
            missing: found.missing,
            extra: found.extra,
        }
    }
}

/// The problem of an error, with what is known of a refused query as members of their own.
pub(super) fn problem(error: ViewsError) -> Problem {
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
        ViewsError::Query {
            error: refused,
            position,
        } => {
            let (said, position) = (refused.as_db_error().cloned(), *position);
            let problem = Problem::from(error).with_member("position", position);
            let Some(said) = said else {
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
