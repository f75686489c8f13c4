//! Keeps what refreshes change in views that are followed: change sets, numbered within each view.
//!
//! A change set is written in the transaction of the refresh, and takes effect with it. What cannot be told, as it is too much or nothing is
//! known of it, is a change set that has whoever follows the view read it anew.

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::apply::execute_unless_empty;
use super::patience::Patience;
use super::refresh::{Limits, Refreshable};
use super::registry::Record;
use super::statements::Statements;
use super::{remove, rights};
use crate::core::expression::quoted;
use crate::core::sql::WEIGHT;
use crate::error::ViewsError;

/// The longest that change sets are kept, in milliseconds: ten years.
const KEPT_MS_MAX: i64 = 3_650 * 86_400_000;

/// Why a view is to be read anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Its changes are kept from here on.
    Begun,
    /// Its storage was made anew.
    Repaired,
    /// The database was restored.
    Restored,
    /// A refresh changed more than is kept of one.
    TooMuch,
}

impl Reset {
    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Repaired => "repaired",
            Self::Restored => "restored",
            Self::TooMuch => "too_much",
        }
    }
}

/// Keeps what a refresh has changed in a view: about so many rows of `changes`, a subquery with the columns that users see and [`WEIGHT`].
///
/// # Errors
/// What the server says.
pub async fn tell(
    client: &Client,
    statements: &mut Statements,
    view: &Refreshable,
    (changes, rows): (&str, i64),
    limits: Limits,
) -> Result<(), ViewsError> {
    let record = &view.record;
    if rows.unsigned_abs() > limits.change_set_rows_max {
        return reset(client, record.id, Reset::TooMuch).await;
    }
    let columns = view.built.presentation.columns.iter();
    let columns: Vec<String> = columns
        .map(|(name, _)| format!("told.{}", quoted(name)))
        .collect();
    let source = format!(
        "SELECT row_to_json(shown.*)::text AS content, told.{WEIGHT}::bigint AS weight FROM {changes} AS told \
         CROSS JOIN LATERAL (SELECT {}) AS shown",
        columns.join(", ")
    );
    let keep = |source: &str| include_str!("sql/tell.sql").replace("CHANGES", source);
    let kept = match record.is_of_another {
        false => {
            let sql = keep(&source);
            statements.query(client, &sql, &[&record.id]).await?
        }
        true => {
            // Columns may be computed, by functions of the owner's choice.
            let owner = &record.owner;
            execute_unless_empty(client, &rights::make_teller(owner)).await?;
            let sql = keep(rights::tell(owner));
            let kept = statements.query(client, &sql, &[&record.id, &source]).await;
            if kept.is_err() {
                statements.spoil();
            }
            let kept = kept?;
            execute_unless_empty(client, rights::drop_teller(owner)).await?;
            kept
        }
    };
    let size: i64 = kept.first().map_or(0, |row| row.get(0));
    if size.unsigned_abs() > limits.change_set_bytes_max {
        let sql = "WITH last AS (SELECT sequence FROM egret.view WHERE id = $1), forgotten AS ( \
                   DELETE FROM egret.view_change USING last WHERE view = $1 AND view_change.sequence = last.sequence) \
                   UPDATE egret.view_change_set AS kept SET reset = $2, changes = 0, size_bytes = 0 FROM last \
                   WHERE kept.view = $1 AND kept.sequence = last.sequence";
        let why = Reset::TooMuch.as_str();
        client.execute(sql, &[&record.id, &why]).await?;
    }
    Ok(())
}

/// Has those who follow a view read it anew.
///
/// # Errors
/// What the server says.
pub async fn reset(client: &impl GenericClient, view: i64, why: Reset) -> Result<(), ViewsError> {
    let is_new = matches!(why, Reset::Begun | Reset::Restored);
    let sql = include_str!("sql/reset.sql");
    client
        .execute(sql, &[&view, &why.as_str(), &is_new])
        .await?;
    Ok(())
}

/// Begins anew with the change sets of every view that is followed, in a database that was restored: what they were elsewhere after
/// the dump is not known here.
///
/// # Errors
/// What the server says.
pub async fn restored(transaction: &Transaction<'_>) -> Result<(), ViewsError> {
    let sql = "DELETE FROM egret.view_change_set";
    transaction.execute(sql, &[]).await?;
    let sql = "SELECT id FROM egret.view WHERE changes_kept_ms IS NOT NULL ORDER BY id";
    for row in transaction.query(sql, &[]).await? {
        reset(transaction, row.get(0), Reset::Restored).await?;
    }
    Ok(())
}

/// How changes of a view are to be kept; what is none stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeping<'a> {
    /// For how long, in milliseconds; `Some(None)`: not any more.
    pub kept_ms: Option<Option<i64>>,
    /// The queue that gets a task for each change set; `Some(None)`: none.
    pub queue: Option<Option<&'a str>>,
}

/// Begins or ends to keep what changes in a view, or keeps it for another time or queue.
///
/// # Errors
/// [`ViewsError::Unsupported`] of a view whose changes nobody is told; [`ViewsError::Invalid`] where tasks are made of them and they are
/// not to be kept; what the server says.
pub async fn keep(
    client: &mut Client,
    record: &Record,
    keeping: Keeping<'_>,
    mut patience: Patience,
) -> Result<(), ViewsError> {
    loop {
        let transaction = client.transaction().await?;
        // A refresh that is under way has not told anybody.
        let kept = match remove::alone(&transaction, record).await {
            Ok(()) => keep_within(&transaction, record.id, keeping).await,
            Err(error) => Err(error),
        };
        match kept {
            Ok(()) => return Ok(transaction.commit().await?),
            Err(error) => {
                transaction.rollback().await?;
                if !patience.has_more_for(&error).await {
                    return Err(error);
                }
            }
        }
    }
}

/// The same within a transaction, in which nobody else refreshes the view.
///
/// # Errors
/// Those of [`keep`].
pub async fn keep_within(
    transaction: &Transaction<'_>,
    view: i64,
    keeping: Keeping<'_>,
) -> Result<(), ViewsError> {
    let now = super::registry::record_of(transaction, view).await?;
    let kept_ms = keeping.kept_ms.unwrap_or(now.changes_kept_ms);
    let queue = keeping.queue.unwrap_or(now.queue.as_deref());
    if kept_ms.is_some() || queue.is_some() {
        check(&now)?;
    }
    if kept_ms.is_some_and(|ms| !(1..=KEPT_MS_MAX).contains(&ms)) {
        return Err(ViewsError::Invalid {
            what: "changes",
            reason: "they are kept for 1ms at least, and 3650 days at most".to_owned(),
        });
    }
    if kept_ms.is_none() && queue.is_some() {
        return Err(ViewsError::Invalid {
            what: "changes",
            reason:
                "they become tasks, and are kept until they are: end that first, by naming no queue"
                    .to_owned(),
        });
    }
    let sql = "UPDATE egret.view SET changes_kept_ms = $2, queue = $3 WHERE id = $1";
    transaction.execute(sql, &[&view, &kept_ms, &queue]).await?;
    match (now.is_followed(), kept_ms.is_some()) {
        (false, true) => reset(transaction, view, Reset::Begun).await?,
        (true, false) => {
            let sql = "DELETE FROM egret.view_change_set WHERE view = $1";
            transaction.execute(sql, &[&view]).await?;
        }
        _ => {}
    }
    let sql = match queue {
        // From here on, if there was none before.
        Some(_) => {
            "INSERT INTO egret.view_handed_over (view, sequence) SELECT id, sequence FROM egret.view WHERE id = $1 \
             ON CONFLICT (view) DO NOTHING"
        }
        None => "DELETE FROM egret.view_handed_over WHERE view = $1",
    };
    transaction.execute(sql, &[&view]).await?;
    Ok(())
}

/// Refuses a view whose changes nobody is told.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub fn check(record: &Record) -> Result<(), ViewsError> {
    match record.own_capture() {
        None => Ok(()),
        Some(_) => Err(ViewsError::Unsupported {
            what: "a view in mode immediate, which changes within the transactions that write and not by refreshes, and is followed,"
                .to_owned(),
            advice: "end to keep its changes, or use another mode".to_owned(),
        }),
    }
}
