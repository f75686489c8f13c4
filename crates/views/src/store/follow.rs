//! Reads the change sets of followed views, and removes those past their retention.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row};

use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::{ChangePage, ChangedRow};

/// Rows of a change set in one page, at most.
const PAGE_ROWS_MAX: i64 = 1_000;

/// Position of a follower in the change sets of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowPosition {
    /// Number of the last change set that was delivered as a whole.
    pub sequence: i64,
    /// Delivered rows of the next change set.
    pub rows: i64,
}

/// What follows a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextChanges {
    /// There is no further change set yet.
    Nothing,
    Page(ChangePage),
    /// The next change set is not retained, or never was; the number of the first retained one.
    Gone(Option<i64>),
}

/// The page after a position, of about `bytes_max` bytes of one change set.
///
/// # Errors
/// [`ViewsError::NotFound`] if the view was dropped.
pub(crate) async fn read_next_page(
    client: &Client,
    statements: &mut Statements,
    view: i64,
    name: &str,
    position: FollowPosition,
    bytes_max: i64,
) -> Result<NextChanges, ViewsError> {
    let sql = include_str!("sql/next_set.sql");
    let set_rows = statements.query(client, sql, &[&view, &position.sequence]).await?;
    let Some(change_set) = set_rows.first() else {
        return Err(ViewsError::NotFound { name: name.to_owned() });
    };
    let first: Option<i64> = change_set.get("first");
    let Some(sequence) = change_set.get::<_, Option<i64>>("sequence") else {
        let is_last = change_set.get::<_, i64>("last") == position.sequence;
        return Ok(if is_last && change_set.get("is_kept") {
            NextChanges::Nothing
        } else {
            NextChanges::Gone(first)
        });
    };
    let reset: Option<String> = change_set.get("reset");
    // A change set with a reset makes all earlier ones obsolete.
    if sequence != position.sequence + 1 && reset.is_none() {
        return Ok(NextChanges::Gone(first));
    }
    let changes: i64 = change_set.get("changes");
    let mut page = ChangePage {
        sequence,
        at_ms: change_set.get("at_ms"),
        snapshot: change_set.get("snapshot"),
        reset,
        changes,
        rows: Vec::new(),
        has_more: false,
    };
    if changes == 0 {
        return Ok(NextChanges::Page(page));
    }
    let values: [&(dyn ToSql + Sync); 5] =
        [&view, &sequence, &position.rows, &PAGE_ROWS_MAX, &bytes_max];
    let sql = include_str!("sql/page.sql");
    let rows = statements.query(client, sql, &values).await?;
    page.rows = rows.iter().map(changed_row).collect();
    // The change set may have been removed between the two queries.
    if page.rows.is_empty() {
        return Ok(NextChanges::Gone(first));
    }
    page.has_more = position.rows + (page.rows.len() as i64) < changes;
    Ok(NextChanges::Page(page))
}

fn changed_row(row: &Row) -> ChangedRow {
    let mut content: String = row.get("content");
    // In JSON, line breaks occur only between tokens, where a space is equivalent.
    if content.contains(['\n', '\r']) {
        content = content.replace(['\n', '\r'], " ");
    }
    ChangedRow { weight: row.get("weight"), content }
}

/// Removes change sets past their retention, and of each view the oldest ones beyond `bytes_max`.
/// Change sets without their task are exempt from the retention, but not from the bound on bytes.
pub(crate) async fn delete_expired(client: &Client, bytes_max: i64) -> Result<u64, ViewsError> {
    let sql = include_str!("sql/forget_sets.sql");
    Ok(client.execute(sql, &[&bytes_max]).await?)
}

/// A view whose change sets become tasks.
#[derive(Clone, Debug)]
pub(crate) struct TaskFeed {
    pub view: i64,
    pub name: String,
    pub queue: String,
    /// Number of the last change set whose task was enqueued.
    pub enqueued_sequence: i64,
}

/// Views with change sets that have no task yet.
pub(crate) async fn list_task_feeds(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<TaskFeed>, ViewsError> {
    let sql = include_str!("sql/feeding.sql");
    let rows = statements.query(client, sql, &[]).await?;
    let task_feed = |row: &Row| TaskFeed {
        view: row.get("id"),
        name: crate::model::ViewName { schema: row.get("schema"), name: row.get("name") }
            .to_string(),
        queue: row.get("queue"),
        enqueued_sequence: row.get("handed_over"),
    };
    Ok(rows.iter().map(task_feed).collect())
}

/// Stores that the tasks of a view are enqueued up to a change set.
pub(crate) async fn store_position(
    client: &Client,
    statements: &mut Statements,
    view: i64,
    sequence: i64,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view_handed_over SET sequence = greatest(sequence, $2) WHERE view = $1";
    statements.query(client, sql, &[&view, &sequence]).await?;
    Ok(())
}
