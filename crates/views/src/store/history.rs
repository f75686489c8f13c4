//! What is remembered of refreshes.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row};

use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::RefreshReport;

/// Adds refreshes to the histories of their views.
const REMEMBER: &str = include_str!("sql/remember.sql");

/// Removes what is beyond the number that is kept.
const TRIM: &str = include_str!("sql/trim.sql");

/// Refreshes to be remembered, a list for each column.
#[derive(Default)]
pub struct History {
    views: Vec<i64>,
    at_ms: Vec<i64>,
    words: [Vec<String>; 3],
    rows: [Vec<i64>; 4],
    spans_ms: [Vec<f64>; 3],
    errors: Vec<Option<String>>,
    plans: Vec<Option<String>>,
}

impl History {
    /// Adds a refresh of a view.
    pub fn add(&mut self, view: i64, report: &RefreshReport) {
        self.views.push(view);
        self.at_ms.push(report.at_ms);
        let words = [&report.outcome, &report.why, &report.snapshot];
        for (list, word) in self.words.iter_mut().zip(words) {
            list.push(word.clone());
        }
        let rows = [report.changes, report.added, report.changed, report.removed];
        for (list, rows) in self.rows.iter_mut().zip(rows) {
            list.push(rows);
        }
        let spans = [report.took_ms, report.waited_ms, report.applied_ms];
        for (list, span) in self.spans_ms.iter_mut().zip(spans) {
            list.push(span);
        }
        self.errors.push(report.error.clone());
        self.plans.push(report.plans.clone());
    }

    /// The values of [`REMEMBER`].
    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![&self.views, &self.at_ms];
        all.extend(self.words.iter().map(|list| list as &(dyn ToSql + Sync)));
        all.extend(self.rows.iter().map(|list| list as &(dyn ToSql + Sync)));
        all.extend(self.spans_ms.iter().map(|list| list as &(dyn ToSql + Sync)));
        all.push(&self.errors);
        all.push(&self.plans);
        all
    }
}

/// Adds a refresh to the history of a view, of which so many are kept.
///
/// # Errors
/// What the server says.
pub async fn remember(
    client: &impl GenericClient,
    view: i64,
    report: &RefreshReport,
    kept_max: u32,
) -> Result<(), ViewsError> {
    let mut history = History::default();
    history.add(view, report);
    client.query(REMEMBER, &history.values()).await?;
    let kept_max = i64::from(kept_max);
    // What is too much now is removed after the next one.
    _ = client.query(TRIM, &[&history.views, &kept_max]).await;
    Ok(())
}

/// The same of several, for which nobody waits: that what is sent next in this session comes after it is enough.
///
/// # Errors
/// That the server cannot be reached.
pub async fn remember_soon(
    client: &impl GenericClient,
    statements: &mut Statements,
    history: &History,
    kept_max: u32,
) -> Result<(), ViewsError> {
    if history.views.is_empty() {
        return Ok(());
    }
    let values = history.values();
    statements.send(client, REMEMBER, &values).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&history.views, &i64::from(kept_max)];
    statements.send(client, TRIM, &values).await
}

/// The latest refreshes of a view, the last first.
///
/// # Errors
/// What the server says.
pub async fn history(
    client: &impl GenericClient,
    view: i64,
    limit: u32,
) -> Result<Vec<RefreshReport>, ViewsError> {
    let rows = client
        .query(include_str!("sql/history.sql"), &[&view, &i64::from(limit)])
        .await?;
    Ok(rows.iter().map(refresh_of).collect())
}

/// A history, the last first, with the refresh that was done last, of which it may not be remembered yet.
pub fn with_latest(
    mut history: Vec<RefreshReport>,
    latest: Option<RefreshReport>,
    limit: u32,
) -> Vec<RefreshReport> {
    let is_new = |latest: &RefreshReport| is_later(latest, history.first());
    if let Some(latest) = latest.filter(is_new) {
        history.insert(0, latest);
        history.truncate(limit as usize);
    }
    history
}

/// Whether a refresh began after another, if there is one.
pub fn is_later(refresh: &RefreshReport, other: Option<&RefreshReport>) -> bool {
    other.is_none_or(|other| refresh.at_ms > other.at_ms)
}

/// A refresh, of a row that has the columns of one.
pub fn refresh_of(row: &Row) -> RefreshReport {
    RefreshReport {
        at_ms: row.get("at_ms"),
        outcome: row.get("outcome"),
        why: row.get("why"),
        snapshot: row.get("snapshot"),
        changes: row.get("changes"),
        added: row.get("added"),
        changed: row.get("changed"),
        removed: row.get("removed"),
        took_ms: row.get("took_ms"),
        waited_ms: row.get("waited_ms"),
        applied_ms: row.get("applied_ms"),
        error: row.get("error"),
        plans: row.get("plans"),
    }
}
