//! Reads what is kept of changes in views that are followed, and forgets it when its time is over.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row};

use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::{ChangePage, ChangedRow};

/// Rows of a change set that are looked at for one page.
const PAGE_ROWS: i64 = 1_000;

/// How far somebody who follows a view has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Up to and with this change set, …
    pub sequence: i64,
    /// … and so many rows of the next.
    pub rows: i64,
}

/// What comes after a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Nothing,
    /// This.
    Page(ChangePage),
    /// It is not kept any more, or never was: from this change set on it is.
    Gone(Option<i64>),
}

/// What comes after a place in the change sets of a view: about so many bytes of one of them.
///
/// # Errors
/// [`ViewsError::NotFound`]; what the server says.
pub async fn next(
    client: &Client,
    statements: &mut Statements,
    (view, name): (i64, &str),
    place: Place,
    bytes_max: i64,
) -> Result<Next, ViewsError> {
    let sql = include_str!("sql/next_set.sql");
    let found = statements
        .query(client, sql, &[&view, &place.sequence])
        .await?;
    let Some(set) = found.first() else {
        return Err(ViewsError::NotFound {
            name: name.to_owned(),
        });
    };
    let first: Option<i64> = set.get("first");
    let Some(sequence) = set.get::<_, Option<i64>>("sequence") else {
        let is_last = set.get::<_, i64>("last") == place.sequence;
        return Ok(match is_last && set.get("is_kept") {
            true => Next::Nothing,
            false => Next::Gone(first),
        });
    };
    let reset: Option<String> = set.get("reset");
    // Whatever came before one that has the view read anew is of no use.
    if sequence != place.sequence + 1 && reset.is_none() {
        return Ok(Next::Gone(first));
    }
    let changes: i64 = set.get("changes");
    let mut page = ChangePage {
        sequence,
        at_ms: set.get("at_ms"),
        snapshot: set.get("snapshot"),
        reset,
        changes,
        rows: Vec::new(),
        has_more: false,
    };
    if changes == 0 {
        return Ok(Next::Page(page));
    }
    let values: [&(dyn ToSql + Sync); 5] = [&view, &sequence, &place.rows, &PAGE_ROWS, &bytes_max];
    let sql = include_str!("sql/page.sql");
    let rows = statements.query(client, sql, &values).await?;
    page.rows = rows.iter().map(changed).collect();
    // It may be forgotten between the two queries.
    if page.rows.is_empty() {
        return Ok(Next::Gone(first));
    }
    page.has_more = place.rows + (page.rows.len() as i64) < changes;
    Ok(Next::Page(page))
}

fn changed(row: &Row) -> ChangedRow {
    let mut content: String = row.get("content");
    // In JSON a line ends between tokens only, where a space is as good.
    if content.contains(['\n', '\r']) {
        content = content.replace(['\n', '\r'], " ");
    }
    ChangedRow {
        weight: row.get("weight"),
        content,
    }
}

/// Forgets change sets that are older than they are kept, and of each view the oldest where all take more bytes than that. Those of which
/// tasks are to be made are kept until these are, but for the bytes.
///
/// # Errors
/// What the server says.
pub async fn forget(client: &Client, bytes_max: i64) -> Result<u64, ViewsError> {
    let sql = include_str!("sql/forget_sets.sql");
    Ok(client.execute(sql, &[&bytes_max]).await?)
}

/// A view whose change sets become tasks.
#[derive(Clone, Debug)]
pub struct Feeding {
    /// Its number.
    pub view: i64,
    /// Its name.
    pub name: String,
    /// The queue.
    pub queue: String,
    /// Up to and with which change set tasks have been handed over.
    pub handed_over: i64,
}

/// Views with change sets of which tasks are to be made.
///
/// # Errors
/// What the server says.
pub async fn feeding(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<Feeding>, ViewsError> {
    let sql = include_str!("sql/feeding.sql");
    let rows = statements.query(client, sql, &[]).await?;
    let feeding = |row: &Row| Feeding {
        view: row.get("id"),
        name: crate::model::ViewName {
            schema: row.get("schema"),
            name: row.get("name"),
        }
        .to_string(),
        queue: row.get("queue"),
        handed_over: row.get("handed_over"),
    };
    Ok(rows.iter().map(feeding).collect())
}

/// Remembers that tasks of a view have been handed over, up to and with a change set.
///
/// # Errors
/// What the server says.
pub async fn handed_over(
    client: &Client,
    statements: &mut Statements,
    view: i64,
    sequence: i64,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view_handed_over SET sequence = greatest(sequence, $2) WHERE view = $1";
    statements.query(client, sql, &[&view, &sequence]).await?;
    Ok(())
}
