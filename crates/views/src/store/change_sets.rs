//! Writes the changes of followed views as change sets, numbered within each view.
//!
//! A change set is written in the transaction of the refresh, and becomes visible with it. If
//! changes are too many or not known, the change set is a reset: followers must read the whole view
//! again.

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::lock_retry::LockRetryPolicy;
use super::owner_functions::{self, execute_unless_empty};
use super::record::Record;
use super::refreshable::Refreshable;
use super::remove;
use super::statements::Statements;
use crate::core::expression::quote_identifier;
use crate::core::sql::WEIGHT;
use crate::error::ViewsError;
use crate::model::Limits;

/// Longest retention of change sets, in milliseconds: ten years.
const RETENTION_MS_MAX: i64 = 3_650 * 86_400_000;

/// Why followers must read the whole view again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Retention of change sets starts here.
    RetentionStarted,
    /// The storage of the view was rebuilt.
    Repaired,
    /// The database was restored from a dump.
    Restored,
    /// The change set would have exceeded its bounds.
    TooLarge,
}

impl Reset {
    /// The word of the reason, as followers receive it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetentionStarted => "begun",
            Self::Repaired => "repaired",
            Self::Restored => "restored",
            Self::TooLarge => "too_much",
        }
    }
}

/// Changes of a view that a refresh has made.
#[derive(Clone, Debug)]
pub struct ViewDelta {
    /// A subquery with the columns that users see and [`WEIGHT`].
    pub sql: String,
    /// Estimated number of its rows.
    pub rows: i64,
}

/// Writes the change set of a refresh.
pub(crate) async fn write_change_set(
    client: &Client,
    statements: &mut Statements,
    view: &Refreshable,
    delta: &ViewDelta,
    limits: Limits,
) -> Result<(), ViewsError> {
    let record = &view.record;
    if delta.rows.unsigned_abs() > limits.change_set_rows_max {
        return write_reset(client, record.id, Reset::TooLarge).await;
    }
    let columns: Vec<String> = view
        .materialized_view
        .presentation
        .columns
        .iter()
        .map(|(name, _)| format!("told.{}", quote_identifier(name)))
        .collect();
    let source = format!(
        "SELECT row_to_json(shown.*)::text AS content, told.{WEIGHT}::bigint AS weight FROM {} AS told \
         CROSS JOIN LATERAL (SELECT {}) AS shown",
        delta.sql,
        columns.join(", ")
    );
    let insert = |source: &str| include_str!("sql/tell.sql").replace("CHANGES", source);
    let rows = if !record.has_other_owner {
        let sql = insert(&source);
        statements.query(client, &sql, &[&record.id]).await?
    } else {
        // Computed columns may call functions that the owner has chosen: run them with the owner's
        // rights.
        let owner = &record.owner;
        execute_unless_empty(client, &owner_functions::create_change_reader(owner)).await?;
        let sql = insert(owner_functions::call_change_reader(owner));
        let rows = statements.query(client, &sql, &[&record.id, &source]).await;
        if rows.is_err() {
            statements.mark_spoiled();
        }
        let rows = rows?;
        execute_unless_empty(client, owner_functions::drop_change_reader(owner)).await?;
        rows
    };
    let size: i64 = rows.first().map_or(0, |row| row.get(0));
    if size.unsigned_abs() > limits.change_set_bytes_max {
        let sql = "WITH last AS (SELECT sequence FROM egret.view WHERE id = $1), forgotten AS ( \
                   DELETE FROM egret.view_change USING last WHERE view = $1 AND view_change.sequence = last.sequence) \
                   UPDATE egret.view_change_set AS kept SET reset = $2, changes = 0, size_bytes = 0 FROM last \
                   WHERE kept.view = $1 AND kept.sequence = last.sequence";
        let reason = Reset::TooLarge.as_str();
        client.execute(sql, &[&record.id, &reason]).await?;
    }
    Ok(())
}

/// Records a reset in the change log: followers must read the whole view again.
pub(crate) async fn write_reset(
    client: &impl GenericClient,
    view: i64,
    reason: Reset,
) -> Result<(), ViewsError> {
    let is_new = matches!(reason, Reset::RetentionStarted | Reset::Restored);
    let sql = include_str!("sql/reset.sql");
    client.execute(sql, &[&view, &reason.as_str(), &is_new]).await?;
    Ok(())
}

/// Replaces the change sets of all followed views by resets in a restored database: those that the
/// original database wrote after the dump are not known here.
pub(crate) async fn reset_followed_views(transaction: &Transaction<'_>) -> Result<(), ViewsError> {
    let sql = "DELETE FROM egret.view_change_set";
    transaction.execute(sql, &[]).await?;
    let sql = "SELECT id FROM egret.view WHERE changes_kept_ms IS NOT NULL ORDER BY id";
    for row in transaction.query(sql, &[]).await? {
        write_reset(transaction, row.get(0), Reset::Restored).await?;
    }
    Ok(())
}

/// Changes of a view's retention and queue. A field that is none leaves its setting as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FollowUpdate<'a> {
    /// Retention in milliseconds; `Some(None)`: change sets are not retained any more.
    pub retention_ms: Option<Option<i64>>,
    /// Queue that gets a task for each change set; `Some(None)`: none.
    pub queue: Option<Option<&'a str>>,
}

/// Starts or stops the retention of change sets, or changes its duration or queue.
///
/// # Errors
/// [`ViewsError::Unsupported`] for a view in mode immediate; [`ViewsError::Invalid`] if a queue
/// needs the change sets, or the duration is out of bounds.
pub(crate) async fn set_retention(
    client: &mut Client,
    record: &Record,
    update: FollowUpdate<'_>,
    mut retries: LockRetryPolicy,
) -> Result<(), ViewsError> {
    loop {
        let transaction = client.transaction().await?;
        // Excludes refreshes: one that is under way may not have written its change set.
        let result = match remove::exclude_refreshes(&transaction, record).await {
            Ok(()) => set_retention_in_transaction(&transaction, record.id, update).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => return Ok(transaction.commit().await?),
            Err(error) => {
                transaction.rollback().await?;
                if !retries.wait_for_retry(&error).await {
                    return Err(error);
                }
            }
        }
    }
}

/// Like [`set_retention`], within a transaction that holds the refresh lock of the view.
///
/// # Errors
/// Those of [`set_retention`].
pub(crate) async fn set_retention_in_transaction(
    transaction: &Transaction<'_>,
    view: i64,
    update: FollowUpdate<'_>,
) -> Result<(), ViewsError> {
    let record = super::registry::read_record(transaction, view).await?;
    let retention_ms = update.retention_ms.unwrap_or(record.retention_ms);
    let queue = update.queue.unwrap_or(record.queue.as_deref());
    if retention_ms.is_some() || queue.is_some() {
        check_can_be_followed(&record)?;
    }
    if retention_ms.is_some_and(|ms| !(1..=RETENTION_MS_MAX).contains(&ms)) {
        return Err(ViewsError::Invalid {
            what: "changes",
            reason: "they must be kept for at least 1ms and at most 3650 days".to_owned(),
        });
    }
    if retention_ms.is_none() && queue.is_some() {
        return Err(ViewsError::Invalid {
            what: "changes",
            reason: "they become tasks, and must be kept until then: remove the queue first"
                .to_owned(),
        });
    }
    let sql = "UPDATE egret.view SET changes_kept_ms = $2, queue = $3 WHERE id = $1";
    transaction.execute(sql, &[&view, &retention_ms, &queue]).await?;
    match (record.is_followed(), retention_ms.is_some()) {
        (false, true) => write_reset(transaction, view, Reset::RetentionStarted).await?,
        (true, false) => {
            let sql = "DELETE FROM egret.view_change_set WHERE view = $1";
            transaction.execute(sql, &[&view]).await?;
        }
        _ => {}
    }
    let sql = match queue {
        // From the current change set on, if there was no queue before.
        Some(_) => {
            "INSERT INTO egret.view_handed_over (view, sequence) SELECT id, sequence FROM egret.view WHERE id = $1 \
             ON CONFLICT (view) DO NOTHING"
        }
        None => "DELETE FROM egret.view_handed_over WHERE view = $1",
    };
    transaction.execute(sql, &[&view]).await?;
    Ok(())
}

/// Refuses a view in mode immediate, which has no change sets.
///
/// # Errors
/// [`ViewsError::Unsupported`] for a view in mode immediate.
pub(crate) fn check_can_be_followed(record: &Record) -> Result<(), ViewsError> {
    match record.immediate_view() {
        None => Ok(()),
        Some(_) => Err(ViewsError::Unsupported {
            what: "following a view in mode immediate, which is refreshed without change sets,"
                .to_owned(),
            advice: "stop keeping its changes, or use another mode".to_owned(),
        }),
    }
}
