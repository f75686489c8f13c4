//! What is remembered of views, in the database that they are in.

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::refresh::Reached;
use crate::core::capture::{Captured, TRANSACTION};
use crate::error::ViewsError;

/// The first of the numbers of advisory locks that tables for changes have: of SHA-256("egret/views/forget") the first six
/// bytes, positive, and zeros.
const FORGET_LOCK_KEY: i64 = 0x64e5_949e_eaf1_0000;

/// A view to be remembered.
#[derive(Clone, Debug)]
pub struct NewView<'a> {
    /// Where users find it.
    pub name: (&'a str, &'a str),
    /// Its query, as the user wrote it.
    pub query: &'a str,
    /// The same with every name resolved.
    pub definition: &'a str,
}

/// Remembers a view, and returns its number.
///
/// # Errors
/// [`ViewsError::Exists`]; what the server says.
pub async fn add(transaction: &Transaction<'_>, view: &NewView<'_>) -> Result<i64, ViewsError> {
    let (schema, name) = view.name;
    let added = transaction
        .query_opt(
            "INSERT INTO egret.view (schema, name, query, definition, shape) VALUES ($1, $2, $3, $4, '') \
             ON CONFLICT (schema, name) DO NOTHING RETURNING id",
            &[&schema, &name, &view.query, &view.definition],
        )
        .await?;
    match added {
        Some(row) => Ok(row.get(0)),
        None => Err(ViewsError::Exists {
            name: format!("{schema}.{name}"),
        }),
    }
}

/// Remembers which tables a view's stages have.
///
/// # Errors
/// What the server says.
pub async fn set_shape(
    transaction: &Transaction<'_>,
    view: i64,
    shape: &str,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET shape = $2 WHERE id = $1";
    transaction.execute(sql, &[&view, &shape]).await?;
    Ok(())
}

/// The number under which changes of a table are recorded, and whether that is new.
///
/// # Errors
/// What the server says.
pub async fn capture(transaction: &Transaction<'_>, table: u32) -> Result<(i64, bool), ViewsError> {
    let sql = "INSERT INTO egret.view_capture (relation) VALUES ($1) ON CONFLICT (relation) DO NOTHING RETURNING id";
    if let Some(row) = transaction.query_opt(sql, &[&table]).await? {
        return Ok((row.get(0), true));
    }
    // Whoever removes it at this moment is waited for.
    let sql = "SELECT id FROM egret.view_capture WHERE relation = $1 FOR SHARE";
    let row = transaction.query_one(sql, &[&table]).await?;
    Ok((row.get(0), false))
}

/// The columns of a table that are recorded.
///
/// # Errors
/// What the server says.
pub async fn recorded(
    transaction: &Transaction<'_>,
    captured: &Captured,
) -> Result<Vec<String>, ViewsError> {
    let rows = transaction
        .query(
            "SELECT attname::text FROM pg_catalog.pg_attribute \
             WHERE attrelid = $1::text::regclass AND attnum > 2 AND NOT attisdropped ORDER BY attnum",
            &[&captured.changes()],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Remembers that a view reads a table.
///
/// # Errors
/// What the server says.
pub async fn reads(
    transaction: &Transaction<'_>,
    view: i64,
    place: i32,
    capture: i64,
) -> Result<(), ViewsError> {
    let sql = "INSERT INTO egret.view_table (view, place, capture) VALUES ($1, $2, $3)";
    transaction.execute(sql, &[&view, &place, &capture]).await?;
    Ok(())
}

/// How far a view has come; nothing of one that is to be computed anew.
///
/// # Errors
/// [`ViewsError::NotFound`]; what the server says.
pub async fn reached(
    client: &impl GenericClient,
    view: i64,
) -> Result<Option<Reached>, ViewsError> {
    let sql = "SELECT snapshot::text, coalesce(stamp, '') FROM egret.view WHERE id = $1";
    let row = client.query_opt(sql, &[&view]).await?;
    let row = row.ok_or(ViewsError::NotFound {
        name: view.to_string(),
    })?;
    let snapshot: Option<String> = row.get(0);
    Ok(snapshot.map(|snapshot| Reached {
        snapshot,
        stamp: row.get(1),
    }))
}

/// Has changes kept from here on for a view that is about to be computed anew: what commits while that goes on is not
/// forgotten.
///
/// # Errors
/// What the server says.
pub async fn claim(client: &Client, view: i64) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET snapshot = pg_current_snapshot(), stamp = '' WHERE id = $1";
    client.execute(sql, &[&view]).await?;
    Ok(())
}

/// Remembers how far a view has come.
///
/// # Errors
/// What the server says.
pub async fn set_reached(
    transaction: &Transaction<'_>,
    view: i64,
    reached: &Reached,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET snapshot = $2::text::pg_snapshot, stamp = $3 WHERE id = $1";
    let values: [&(dyn egret_postgres::tokio_postgres::types::ToSql + Sync); 3] =
        [&view, &reached.snapshot, &reached.stamp];
    transaction.execute(sql, &values).await?;
    Ok(())
}

/// Removes changes of a table that every view which reads it has seen. Nothing happens while another does.
///
/// # Errors
/// What the server says.
pub async fn forget(client: &mut Client, captured: &Captured) -> Result<u64, ViewsError> {
    let transaction = client.transaction().await?;
    let sql = "SELECT pg_catalog.pg_try_advisory_xact_lock($1)";
    let key = FORGET_LOCK_KEY ^ captured.id;
    let is_alone: bool = transaction.query_one(sql, &[&key]).await?.get(0);
    if !is_alone {
        return Ok(0);
    }
    let sql = format!(
        "DELETE FROM {changes} AS c WHERE NOT EXISTS (SELECT FROM egret.view AS v \
         JOIN egret.view_table AS t ON t.view = v.id \
         WHERE t.capture = $1 AND v.snapshot IS NOT NULL AND NOT pg_visible_in_snapshot(c.{TRANSACTION}, v.snapshot))",
        changes = captured.changes(),
    );
    let removed = transaction.execute(&sql, &[&captured.id]).await?;
    transaction.commit().await?;
    Ok(removed)
}
