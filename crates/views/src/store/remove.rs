//! Takes views away again, or makes their tables anew.

use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{self, Client, GenericClient, Transaction};
use egret_postgres::user_triggers::UserTriggers;

use super::immediate;
use super::patience::Patience;
use super::refresh::LOCK_KEY;
use super::registry::Record;
use crate::core::capture::{Segment, segment};
use crate::core::expression::quoted;
use crate::error::{Dependent, ViewsError};

/// Removes a view, and the record of changes of tables that no other view reads.
///
/// # Errors
/// [`ViewsError::InUse`]; what the server says.
pub async fn remove(
    client: &mut Client,
    record: &Record,
    mut patience: Patience,
) -> Result<(), ViewsError> {
    loop {
        match try_to_remove(client, record).await {
            Err(error) if patience.has_more_for(&error).await => {}
            removed => return removed,
        }
    }
}

async fn try_to_remove(client: &mut Client, record: &Record) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    alone(&transaction, record).await?;
    check_unread(&transaction, record).await?;
    let triggers = UserTriggers::list(&transaction).await?;
    let (schema, name) = (quoted(&record.name.schema), quoted(&record.name.name));
    let drop = format!("DROP VIEW IF EXISTS {schema}.{name} RESTRICT");
    let dropped = transaction.batch_execute(&drop).await;
    dropped.map_err(|error| needed(record, error))?;
    immediate::remove(&transaction, record).await?;
    drop_storage(&transaction, record.id).await?;
    if record.is_of_another {
        take_back(&transaction, record).await?;
    }
    let sql = "DELETE FROM egret.view WHERE id = $1";
    transaction.execute(sql, &[&record.id]).await?;
    drop_unread(&transaction).await?;
    refuse_lost(&transaction, record, triggers).await?;
    Ok(transaction.commit().await?)
}

/// Says that a view is in use, where it is that for which the server does not drop it.
pub fn needed(record: &Record, error: tokio_postgres::Error) -> ViewsError {
    let told = error.as_db_error().filter(|told| {
        let code = told.code();
        *code == SqlState::DEPENDENT_OBJECTS_STILL_EXIST
    });
    match told {
        Some(told) => ViewsError::InUse {
            name: record.name.to_string(),
            dependents: told
                .detail()
                .unwrap_or_default()
                .lines()
                .map(|line| Dependent::Object(line.to_owned()))
                .collect(),
        },
        None => error.into(),
    }
}

/// Takes from an owner the changes of tables that no other view of theirs reads.
async fn take_back(transaction: &Transaction<'_>, record: &Record) -> Result<(), ViewsError> {
    let sql = "SELECT read.capture FROM egret.view_table AS read WHERE read.view = $1 AND read.capture IS NOT NULL \
               AND NOT EXISTS (SELECT FROM egret.view_table AS other JOIN egret.view AS kept ON kept.id = other.view \
               WHERE other.capture = read.capture AND kept.owner = $2 AND kept.id <> $1)";
    let rows = transaction.query(sql, &[&record.id, &record.owner]).await?;
    for row in rows {
        let capture: i64 = row.get(0);
        let owner = quoted(&record.owner);
        let revoke = format!("REVOKE ALL ON egret.changes_{capture} FROM {owner}");
        transaction.batch_execute(&revoke).await?;
    }
    Ok(())
}

/// Waits until nobody refreshes a view, until the end of the transaction. Nor does anybody write to what it reads, where it
/// is kept fresh with that.
///
/// # Errors
/// What the server says.
pub async fn alone(transaction: &Transaction<'_>, record: &Record) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.pg_advisory_xact_lock($1)";
    transaction
        .query_one(sql, &[&(LOCK_KEY ^ record.id)])
        .await?;
    match record.own_capture() {
        Some(view) => immediate::lock_tables(transaction, view).await,
        None => Ok(()),
    }
}

/// Refuses a view that others read.
///
/// # Errors
/// [`ViewsError::InUse`]; what the server says.
pub async fn check_unread(client: &impl GenericClient, record: &Record) -> Result<(), ViewsError> {
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

/// Drops the tables of a view.
///
/// # Errors
/// What the server says.
pub async fn drop_storage(transaction: &Transaction<'_>, view: i64) -> Result<(), ViewsError> {
    for table in tables(transaction, view).await? {
        let drop = format!("DROP TABLE egret.{}", quoted(&table));
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}

/// The tables of a view, by their names in schema `egret`.
///
/// # Errors
/// What the server says.
pub async fn tables(client: &impl GenericClient, view: i64) -> Result<Vec<String>, ViewsError> {
    let sql = "SELECT relname::text FROM pg_catalog.pg_class \
               WHERE relnamespace = 'egret'::regnamespace AND relkind = 'r' AND relname ~ $1 ORDER BY 1";
    let pattern = format!("^(view|told|edge)_{view}_[0-9]+$");
    let rows = client.query(sql, &[&pattern]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Moves the tables of a view out of the way of others with their names; [`drop_aside`] drops them.
///
/// # Errors
/// What the server says.
pub async fn set_aside(transaction: &Transaction<'_>, view: i64) -> Result<(), ViewsError> {
    for table in tables(transaction, view).await? {
        let aside = quoted(&format!("{table}_aside"));
        let rename = format!("ALTER TABLE egret.{} RENAME TO {aside}", quoted(&table));
        transaction.batch_execute(&rename).await?;
    }
    Ok(())
}

/// See [`set_aside`].
///
/// # Errors
/// What the server says.
pub async fn drop_aside(transaction: &Transaction<'_>, view: i64) -> Result<(), ViewsError> {
    let sql = "SELECT relname::text FROM pg_catalog.pg_class \
               WHERE relnamespace = 'egret'::regnamespace AND relkind = 'r' AND relname ~ $1";
    let pattern = format!("^(view|told|edge)_{view}_[0-9]+_aside$");
    for row in transaction.query(sql, &[&pattern]).await? {
        let drop = format!("DROP TABLE egret.{}", quoted(row.get(0)));
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}

/// Drops a trigger function of Egret's with Egret's triggers, which only the owners of their tables may drop by themselves.
/// A trigger that a user has made of it would go as well: see [`refuse_lost`].
///
/// # Errors
/// What the server says.
pub async fn drop_trigger_function(
    transaction: &Transaction<'_>,
    function: &str,
) -> Result<(), ViewsError> {
    let drop = format!("DROP FUNCTION IF EXISTS {function} CASCADE");
    Ok(transaction.batch_execute(&drop).await?)
}

/// Refuses a removal or repair of a view with which triggers or rules of users have gone: on what users read, on a table of
/// the view, or calling one of its functions.
///
/// # Errors
/// [`ViewsError::InUse`]; what the server says.
pub async fn refuse_lost(
    transaction: &Transaction<'_>,
    record: &Record,
    triggers: UserTriggers,
) -> Result<(), ViewsError> {
    let lost = triggers.lost(transaction).await?;
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

/// Ends the record of changes of tables that no view reads.
///
/// # Errors
/// What the server says.
pub async fn drop_unread(transaction: &Transaction<'_>) -> Result<(), ViewsError> {
    let sql = "DELETE FROM egret.view_capture AS capture \
               WHERE NOT EXISTS (SELECT FROM egret.view_table AS read WHERE read.capture = capture.id) RETURNING capture.id";
    for row in transaction.query(sql, &[]).await? {
        let id: i64 = row.get(0);
        drop_trigger_function(transaction, &format!("egret.capture_{id}()")).await?;
        let drop = format!(
            "DROP TABLE IF EXISTS {}, {}",
            segment(id, Segment::First),
            segment(id, Segment::Second)
        );
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}

/// Removes every view. Returns how many there were.
///
/// # Errors
/// [`ViewsError::InUse`] where an object of a user's depends on one; what the server says.
pub async fn remove_all(
    client: &mut Client,
    records: &[Record],
    patience: impl Fn() -> Patience,
) -> Result<u64, ViewsError> {
    // Those that read others first.
    for record in records.iter().rev() {
        remove(client, record, patience()).await?;
    }
    Ok(records.len() as u64)
}
