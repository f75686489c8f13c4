//! Removes views.

use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{self, Client, GenericClient, Transaction};
use egret_postgres::user_triggers::UserTriggers;

use super::immediate;
use super::lock_retry::LockRetryPolicy;
use super::locks::VIEW_LOCK_KEY_BASE;
use super::record::Record;
use super::view_storage::{drop_storage, drop_trigger_function};
use crate::core::capture::{Segment, segment_table};
use crate::core::expression::quote_identifier;
use crate::error::{Dependent, ViewsError};

/// Removes a view, with the captures of tables that no other view reads.
///
/// # Errors
/// [`ViewsError::InUse`].
pub(crate) async fn remove_view(
    client: &mut Client,
    record: &Record,
    mut retries: LockRetryPolicy,
) -> Result<(), ViewsError> {
    loop {
        match try_to_remove(client, record).await {
            Err(error) if retries.wait_for_retry(&error).await => {}
            removed => return removed,
        }
    }
}

async fn try_to_remove(client: &mut Client, record: &Record) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    exclude_refreshes(&transaction, record).await?;
    check_has_no_readers(&transaction, record).await?;
    let triggers = UserTriggers::list(&transaction).await?;
    let (schema, name) =
        (quote_identifier(&record.name.schema), quote_identifier(&record.name.name));
    let drop = format!("DROP VIEW IF EXISTS {schema}.{name} RESTRICT");
    let dropped = transaction.batch_execute(&drop).await;
    dropped.map_err(|error| to_in_use_error(record, error))?;
    immediate::drop_functions(&transaction, record).await?;
    drop_storage(&transaction, record.id).await?;
    if record.has_other_owner {
        revoke_change_privileges(&transaction, record).await?;
    }
    let sql = "DELETE FROM egret.view WHERE id = $1";
    transaction.execute(sql, &[&record.id]).await?;
    drop_unread_captures(&transaction).await?;
    refuse_lost_triggers(&transaction, record, triggers).await?;
    Ok(transaction.commit().await?)
}

/// Turns an error about dependent objects into [`ViewsError::InUse`].
pub(crate) fn to_in_use_error(record: &Record, error: tokio_postgres::Error) -> ViewsError {
    let refusal = error.as_db_error().filter(|refusal| {
        let code = refusal.code();
        *code == SqlState::DEPENDENT_OBJECTS_STILL_EXIST
    });
    match refusal {
        Some(refusal) => ViewsError::InUse {
            name: record.name.to_string(),
            dependents: refusal
                .detail()
                .unwrap_or_default()
                .lines()
                .map(|line| Dependent::Object(line.to_owned()))
                .collect(),
        },
        None => error.into(),
    }
}

/// Revokes the privileges on recorded changes that the owner needs for no other view.
async fn revoke_change_privileges(
    transaction: &Transaction<'_>,
    record: &Record,
) -> Result<(), ViewsError> {
    let sql = "SELECT read.capture FROM egret.view_table AS read WHERE read.view = $1 AND read.capture IS NOT NULL \
               AND NOT EXISTS (SELECT FROM egret.view_table AS other JOIN egret.view AS kept ON kept.id = other.view \
               WHERE other.capture = read.capture AND kept.owner = $2 AND kept.id <> $1)";
    let rows = transaction.query(sql, &[&record.id, &record.owner]).await?;
    for row in rows {
        let capture: i64 = row.get(0);
        let owner = quote_identifier(&record.owner);
        let revoke = format!("REVOKE ALL ON egret.changes_{capture} FROM {owner}");
        transaction.batch_execute(&revoke).await?;
    }
    Ok(())
}

/// Excludes refreshes of a view until the end of the transaction; in mode immediate, also writers
/// to its tables.
pub(crate) async fn exclude_refreshes(
    transaction: &Transaction<'_>,
    record: &Record,
) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.pg_advisory_xact_lock($1)";
    transaction.query_one(sql, &[&(VIEW_LOCK_KEY_BASE ^ record.id)]).await?;
    match record.immediate_view() {
        Some(view) => immediate::lock_tables(transaction, view).await,
        None => Ok(()),
    }
}

/// Refuses a view that other views read.
///
/// # Errors
/// [`ViewsError::InUse`] with these views.
pub(crate) async fn check_has_no_readers(
    client: &impl GenericClient,
    record: &Record,
) -> Result<(), ViewsError> {
    let sql = "SELECT DISTINCT kept.schema || '.' || kept.name FROM egret.view_table AS read \
               JOIN egret.view AS kept ON kept.id = read.view WHERE read.reads = $1 ORDER BY 1";
    let rows = client.query(sql, &[&record.id]).await?;
    if rows.is_empty() {
        return Ok(());
    }
    Err(ViewsError::InUse {
        name: record.name.to_string(),
        dependents: rows.iter().map(|row| Dependent::View(row.get(0))).collect(),
    })
}

/// Refuses a removal or repair if triggers or rules of users were dropped with it: on the
/// PostgreSQL view, on a table of its storage, or those that call one of its functions.
///
/// # Errors
/// [`ViewsError::InUse`].
pub(crate) async fn refuse_lost_triggers(
    transaction: &Transaction<'_>,
    record: &Record,
    triggers: UserTriggers,
) -> Result<(), ViewsError> {
    let lost = triggers.find_missing(transaction).await?;
    if lost.is_empty() {
        return Ok(());
    }
    Err(ViewsError::InUse {
        name: record.name.to_string(),
        dependents: lost
            .into_iter()
            .map(|trigger| Dependent::Object(trigger.to_string()))
            .collect(),
    })
}

/// Drops the captures of tables that no view reads.
pub(crate) async fn drop_unread_captures(transaction: &Transaction<'_>) -> Result<(), ViewsError> {
    let sql = "DELETE FROM egret.view_capture AS capture \
               WHERE NOT EXISTS (SELECT FROM egret.view_table AS read WHERE read.capture = capture.id) RETURNING capture.id";
    for row in transaction.query(sql, &[]).await? {
        let id: i64 = row.get(0);
        drop_trigger_function(transaction, &format!("egret.capture_{id}()")).await?;
        let drop = format!(
            "DROP TABLE IF EXISTS {}, {}",
            segment_table(id, Segment::First),
            segment_table(id, Segment::Second)
        );
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}

/// Removes all views of a database. Returns their number.
///
/// # Errors
/// [`ViewsError::InUse`] where an object of a user's depends on one.
pub(crate) async fn remove_all_views(
    client: &mut Client,
    records: &[Record],
    retries: impl Fn() -> LockRetryPolicy,
) -> Result<u64, ViewsError> {
    // Those that read others first.
    for record in records.iter().rev() {
        remove_view(client, record, retries()).await?;
    }
    Ok(records.len() as u64)
}
