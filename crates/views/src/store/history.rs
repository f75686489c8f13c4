//! History of refreshes.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row};

use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::RefreshReport;

/// Inserts reports into the histories of their views.
const INSERT_REPORTS: &str = include_str!("sql/remember.sql");

/// Deletes the oldest reports beyond the number that is kept.
const DELETE_OLD_REPORTS: &str = include_str!("sql/trim.sql");

/// Reports to be stored, as a list for each column.
#[derive(Default)]
pub struct History {
    views: Vec<i64>,
    at_ms: Vec<i64>,
    texts: [Vec<String>; 3],
    rows: [Vec<i64>; 4],
    durations_ms: [Vec<f64>; 3],
    errors: Vec<Option<String>>,
    plans: Vec<Option<String>>,
}

impl History {
    /// Adds the report of a view.
    pub fn add(&mut self, view: i64, report: &RefreshReport) {
        self.views.push(view);
        self.at_ms.push(report.at_ms);
        let texts = [&report.outcome, &report.strategy_reason, &report.snapshot];
        for (list, word) in self.texts.iter_mut().zip(texts) {
            list.push(word.clone());
        }
        let rows = [report.changes, report.added, report.changed, report.removed];
        for (list, rows) in self.rows.iter_mut().zip(rows) {
            list.push(rows);
        }
        let durations = [report.took_ms, report.waited_ms, report.applied_ms];
        for (list, span) in self.durations_ms.iter_mut().zip(durations) {
            list.push(span);
        }
        self.errors.push(report.error.clone());
        self.plans.push(report.plans.clone());
    }

    /// Parameters of the statement [`INSERT_REPORTS`].
    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&self.views, &self.at_ms];
        parameters.extend(self.texts.iter().map(|list| list as &(dyn ToSql + Sync)));
        parameters.extend(self.rows.iter().map(|list| list as &(dyn ToSql + Sync)));
        parameters.extend(self.durations_ms.iter().map(|list| list as &(dyn ToSql + Sync)));
        parameters.push(&self.errors);
        parameters.push(&self.plans);
        parameters
    }
}

/// Stores a report in the history of a view, of which `kept_max` reports are kept.
pub(crate) async fn store_report(
    client: &impl GenericClient,
    view: i64,
    report: &RefreshReport,
    history_max: u32,
) -> Result<(), ViewsError> {
    let mut history = History::default();
    history.add(view, report);
    client.query(INSERT_REPORTS, &history.parameters()).await?;
    let kept_max = i64::from(history_max);
    // A report too many is deleted after the next refresh.
    _ = client.query(DELETE_OLD_REPORTS, &[&history.views, &kept_max]).await;
    Ok(())
}

/// Stores several reports without waiting for the answer: later statements of the session come
/// after it.
pub(crate) async fn send_reports(
    client: &impl GenericClient,
    statements: &mut Statements,
    history: &History,
    history_max: u32,
) -> Result<(), ViewsError> {
    if history.views.is_empty() {
        return Ok(());
    }
    let values = history.parameters();
    statements.send(client, INSERT_REPORTS, &values).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&history.views, &i64::from(history_max)];
    statements.send(client, DELETE_OLD_REPORTS, &values).await
}

/// The latest refreshes of a view, newest first.
pub(crate) async fn read_history(
    client: &impl GenericClient,
    view: i64,
    limit: u32,
) -> Result<Vec<RefreshReport>, ViewsError> {
    let rows = client.query(include_str!("sql/history.sql"), &[&view, &i64::from(limit)]).await?;
    Ok(rows.iter().map(report_from_row).collect())
}

/// A history, newest first, with the latest report if the table does not have it yet.
pub(crate) fn merge_latest(
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

/// Whether a refresh began later than another, if there is another.
pub fn is_later(refresh: &RefreshReport, other: Option<&RefreshReport>) -> bool {
    other.is_none_or(|other| refresh.at_ms > other.at_ms)
}

/// Reads a report from a row with its columns.
pub(crate) fn report_from_row(row: &Row) -> RefreshReport {
    RefreshReport {
        at_ms: row.get("at_ms"),
        outcome: row.get("outcome"),
        strategy_reason: row.get("why"),
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
