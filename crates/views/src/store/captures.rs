//! Tables whose changes are recorded: their numbers, what waits for views, and what every view has seen.

use std::collections::BTreeSet;

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use crate::core::capture::{Captured, TRANSACTION};
use crate::error::ViewsError;

/// The first of the numbers of advisory locks that tables for changes have: of SHA-256("egret/views/forget") the first six
/// bytes, positive, and zeros.
const FORGET_LOCK_KEY: i64 = 0x64e5_949e_eaf1_0000;

/// The number under which changes of a table are recorded, for all views or for that one alone, and whether that is new.
///
/// # Errors
/// What the server says.
pub async fn number(
    transaction: &Transaction<'_>,
    table: u32,
    of: Option<i64>,
) -> Result<(i64, bool), ViewsError> {
    let sql = "INSERT INTO egret.view_capture (relation, view) VALUES ($1, $2) \
               ON CONFLICT (relation, view) DO NOTHING RETURNING id";
    if let Some(row) = transaction.query_opt(sql, &[&table, &of]).await? {
        return Ok((row.get(0), true));
    }
    // Whoever removes it at this moment is waited for.
    let sql = "SELECT id FROM egret.view_capture WHERE relation = $1 AND view IS NOT DISTINCT FROM $2 FOR SHARE";
    let row = transaction.query_one(sql, &[&table, &of]).await?;
    Ok((row.get(0), false))
}

/// The columns of a table that are recorded, with their types.
///
/// # Errors
/// What the server says.
pub async fn recorded(
    transaction: &Transaction<'_>,
    captured: &Captured,
) -> Result<Vec<(String, String)>, ViewsError> {
    let rows = transaction
        .query(
            "SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute \
             WHERE attrelid = $1::text::regclass AND attnum > 2 AND NOT attisdropped ORDER BY attnum",
            &[&captured.changes()],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Which views read which tables whose changes are recorded.
///
/// # Errors
/// What the server says.
pub async fn readers(client: &impl GenericClient) -> Result<Vec<(i64, i64)>, ViewsError> {
    let sql = "SELECT view, capture FROM egret.view_table WHERE capture IS NOT NULL";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Those that are of one view alone.
///
/// # Errors
/// What the server says.
pub async fn own(client: &impl GenericClient) -> Result<BTreeSet<i64>, ViewsError> {
    let sql = "SELECT id FROM egret.view_capture WHERE view IS NOT NULL";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Those of the tables for changes that are not empty.
///
/// # Errors
/// What the server says.
pub async fn waiting(
    client: &impl GenericClient,
    captures: &[i64],
) -> Result<BTreeSet<i64>, ViewsError> {
    let captures: BTreeSet<i64> = captures.iter().copied().collect();
    if captures.is_empty() {
        return Ok(captures);
    }
    let each = captures
        .iter()
        .map(|id| format!("SELECT {id}::bigint WHERE EXISTS (SELECT FROM egret.changes_{id})"));
    let sql = each.collect::<Vec<_>>().join(" UNION ALL ");
    let rows = client.query(&sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// A table for changes that takes more bytes is truncated when it is empty: rows that are deleted leave their space behind.
const TRUNCATE_BYTES: i64 = 1 << 20;

/// Removes changes of a table that every view which reads it has seen. Nothing happens while another does.
///
/// # Errors
/// What the server says.
pub async fn forget(
    client: &mut Client,
    captured: &Captured,
    size_max: u64,
) -> Result<u64, ViewsError> {
    let transaction = client.transaction().await?;
    let sql = "SELECT pg_catalog.pg_try_advisory_xact_lock($1)";
    let key = FORGET_LOCK_KEY ^ captured.id;
    let is_alone: bool = transaction.query_one(sql, &[&key]).await?.get(0);
    if !is_alone {
        return Ok(0);
    }
    let changes = captured.changes();
    let sql = format!(
        "DELETE FROM {changes} AS c WHERE NOT EXISTS (SELECT FROM egret.view AS v \
         JOIN egret.view_table AS t ON t.view = v.id \
         WHERE t.capture = $1 AND v.snapshot IS NOT NULL AND NOT pg_visible_in_snapshot(c.{TRANSACTION}, v.snapshot))",
    );
    let mut removed = transaction.execute(&sql, &[&captured.id]).await?;
    let half = i64::try_from(size_max / 2).unwrap_or(i64::MAX);
    let behind = format!(
        "UPDATE egret.view AS v SET snapshot = NULL FROM egret.view_table AS t \
         WHERE t.view = v.id AND t.capture = $1 AND pg_catalog.pg_relation_size('{changes}') > $2::bigint \
         AND EXISTS (SELECT FROM {changes} AS c WHERE NOT pg_visible_in_snapshot(c.{TRANSACTION}, v.snapshot))"
    );
    // Views that are far behind are computed anew rather than have all others of the table be.
    if transaction.execute(&behind, &[&captured.id, &half]).await? > 0 {
        removed += transaction.execute(&sql, &[&captured.id]).await?;
    }
    transaction.commit().await?;
    let sql = format!(
        "SELECT pg_catalog.pg_relation_size('{changes}') > {TRUNCATE_BYTES} AND NOT EXISTS (SELECT FROM {changes})"
    );
    if client.query_one(&sql, &[]).await?.get(0) {
        truncate(client, &changes).await?;
    }
    Ok(removed)
}

/// Gives back the space of a table for changes, if nobody is about to write to it and it is empty.
async fn truncate(client: &mut Client, changes: &str) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    // Whoever writes to the table that is recorded is not made to wait.
    let lock = format!("LOCK TABLE {changes} IN ACCESS EXCLUSIVE MODE NOWAIT");
    if transaction.batch_execute(&lock).await.is_err() {
        return Ok(());
    }
    let sql = format!("SELECT NOT EXISTS (SELECT FROM {changes})");
    if transaction.query_one(&sql, &[]).await?.get(0) {
        let truncate = format!("TRUNCATE {changes}");
        transaction.batch_execute(&truncate).await?;
    }
    Ok(transaction.commit().await?)
}
