//! What is remembered of refreshes.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row};

use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::RefreshReport;

/// Adds refreshes to the histories of their views, …
const REMEMBER: &str = include_str!("sql/remember.sql");

/// … and remembers how far these have come.
pub const REACHED: &str = concat!(
    "WITH remembered AS (",
    include_str!("sql/remember.sql"),
    ")\n",
    include_str!("sql/reached.sql")
);

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

    /// The first values of [`REACHED`], which are all that [`REMEMBER`] has.
    pub fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
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
    client.query(TRIM, &[&vec![view], &kept_max]).await?;
    Ok(())
}

/// Removes refreshes beyond so many of each view. Nobody waits for that: what fails is done after the next one.
///
/// # Errors
/// That the server cannot be reached.
pub async fn trim(
    client: &impl GenericClient,
    statements: &mut Statements,
    views: &[i64],
    kept_max: u32,
) -> Result<(), ViewsError> {
    let values: [&(dyn ToSql + Sync); 2] = [&views, &i64::from(kept_max)];
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
