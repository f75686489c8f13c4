//! Tables whose changes are recorded: their numbers, what waits for views, and what every view has seen.

use std::collections::BTreeSet;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::segments::{
    FRONTIERS, LockWait, SEGMENTS, Segments, Turn, is_locked, segments_of, turn, visible_in,
};
use super::statements::Statements;
use crate::core::capture::{Captured, Recording, Segment, TRANSACTION, segment};
use crate::error::ViewsError;

/// How long a lock on a table is waited for, where others wait for what this transaction has: they look for a deadlock after
/// `deadlock_timeout`, a second, and the one that finds it is ended.
pub const BRIEFLY: &str = "SET LOCAL lock_timeout = '300ms'";

/// What is lost in a crash is done again: nobody waits for the disk.
pub const NO_WAIT: &str = "SET LOCAL synchronous_commit = off";

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
    recording: Recording,
) -> Result<(i64, bool), ViewsError> {
    let sql = "INSERT INTO egret.view_capture (relation, view, is_unlogged) VALUES ($1, $2, $3) \
               ON CONFLICT (relation, view) DO NOTHING RETURNING id";
    let is_unlogged = recording.is_unlogged && of.is_none();
    let values: [&(dyn ToSql + Sync); 3] = [&table, &of, &is_unlogged];
    if let Some(row) = transaction.query_opt(sql, &values).await? {
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

/// What all tables for changes take, in bytes, and how many of their rows are dead, as the server estimates.
///
/// # Errors
/// What the server says.
pub async fn sizes(client: &impl GenericClient) -> Result<(i64, i64), ViewsError> {
    let sql = "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(changes)), 0)::bigint, \
               coalesce(sum(pg_catalog.pg_stat_get_dead_tuples(changes)), 0)::bigint \
               FROM (SELECT pg_catalog.to_regclass('egret.changes_' || id || suffix) AS changes \
               FROM egret.view_capture, unnest(ARRAY['', '_second']) AS suffix) AS kept";
    let row = client.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
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
    (client, statements): (&Client, &mut Statements),
    captures: &BTreeSet<i64>,
) -> Result<BTreeSet<i64>, ViewsError> {
    if captures.is_empty() {
        return Ok(BTreeSet::new());
    }
    let each = captures
        .iter()
        .map(|id| format!("SELECT {id}::bigint WHERE EXISTS (SELECT FROM egret.changes_{id})"));
    let sql = each.collect::<Vec<_>>().join(" UNION ALL ");
    let rows = statements.query(client, &sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// A table for changes that takes more bytes is truncated when it is empty: rows that are deleted leave their space behind.
const TRUNCATE_BYTES: i64 = 1 << 20;

/// Whether the space of changes that were removed was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// It was, or there is none to give back.
    Free,
    /// Another session has locked the table.
    Locked,
}

/// Removes changes of a table that every view which reads it has seen. What is lost of that in a crash is done again: nobody waits for the
/// disk. Where changes of the table take more than half of what they may, views that have not seen them are computed anew. Nothing
/// happens while another does that.
///
/// # Errors
/// What the server says.
pub async fn forget(
    client: &mut Client,
    statements: &mut Statements,
    captured: &Captured,
    recording: Recording,
    wait: LockWait,
) -> Result<Space, ViewsError> {
    let id = captured.id;
    let mut may_turn = captured.of.is_none();
    let mut space = Space::Free;
    loop {
        let transaction = client.transaction().await?;
        transaction.batch_execute(NO_WAIT).await?;
        let looked = look(&transaction, statements, captured, recording).await?;
        let Some((found, seen)) = looked else {
            transaction.commit().await?;
            return Ok(space);
        };
        if may_turn && found.are_to_turn(recording) {
            transaction.commit().await?;
            match turn(client, id, recording, wait).await? {
                // Nothing has been read yet of what is written to from here on.
                Turn::Done => return Ok(Space::Free),
                Turn::NotDue => {}
                Turn::Locked => space = Space::Locked,
            }
            may_turn = false;
            continue;
        }
        let written = segment(id, found.written);
        delete(&transaction, statements, (id, &written), &seen).await?;
        transaction.commit().await?;
        if found.bytes_written() > TRUNCATE_BYTES
            && truncate(client, &written, wait).await? == Space::Locked
        {
            space = Space::Locked;
        }
        return Ok(space);
    }
}

/// What a table for changes has, and how far the views have come that need it. None where there is nothing to be done, or
/// another is at it.
async fn look(
    transaction: &Transaction<'_>,
    statements: &mut Statements,
    captured: &Captured,
    recording: Recording,
) -> Result<Option<(Segments, Vec<String>)>, ViewsError> {
    let (id, changes) = (captured.id, captured.changes());
    let sql = format!(
        "SELECT {SEGMENTS}, pg_catalog.pg_try_advisory_xact_lock($4) AS is_alone, {FRONTIERS} AS seen \
         FROM egret.view_capture AS capture WHERE capture.id = $1"
    );
    let names = [Segment::First, Segment::Second].map(|one| segment(id, one));
    let key = FORGET_LOCK_KEY ^ id;
    let values: [&(dyn ToSql + Sync); 4] = [&id, &names[0], &names[1], &key];
    let rows = statements.query(transaction, &sql, &values).await?;
    let Some(row) = rows.first().filter(|row| row.get("is_alone")) else {
        return Ok(None);
    };
    let found = segments_of(row).filter(|found| found.bytes_of_both() > 0);
    let Some(found) = found else {
        return Ok(None);
    };
    let half = i64::try_from(recording.size_max / 2).unwrap_or(i64::MAX);
    if found.bytes_of_both() <= half {
        return Ok(Some((found, row.get("seen"))));
    }
    // Views that are far behind are computed anew rather than have all others of the table be.
    let behind = format!(
        "UPDATE egret.view AS v SET snapshot = NULL FROM egret.view_table AS t \
         WHERE t.view = v.id AND t.capture = $1 \
         AND EXISTS (SELECT FROM {changes} AS c WHERE NOT pg_visible_in_snapshot(c.{TRANSACTION}, v.snapshot))"
    );
    transaction.execute(&behind, &[&id]).await?;
    let row = statements.query_one(transaction, &sql, &values).await?;
    Ok(Some((found, row.get("seen"))))
}

/// Removes what has been seen from the segment that is written to.
async fn delete(
    transaction: &Transaction<'_>,
    statements: &mut Statements,
    (id, written): (i64, &str),
    seen: &[String],
) -> Result<(), ViewsError> {
    if seen.is_empty() {
        // One that is claimed meanwhile may need them: this looks for such at the same moment.
        let delete = format!(
            "DELETE FROM ONLY {written} WHERE NOT EXISTS (SELECT FROM egret.view AS v \
             JOIN egret.view_table AS t ON t.view = v.id \
             WHERE t.capture = $1 AND v.snapshot IS NOT NULL AND v.state <> 'suspended')"
        );
        transaction.execute(&delete, &[&id]).await?;
        return Ok(());
    }
    let delete = format!(
        "DELETE FROM ONLY {written} WHERE {}",
        visible_in(seen.len())
    );
    let values: Vec<&(dyn ToSql + Sync)> = seen.iter().map(|one| one as _).collect();
    statements.query(transaction, &delete, &values).await?;
    Ok(())
}

/// Gives back the space of the segment that is written to, if nobody is about to do that and it is empty.
async fn truncate(client: &mut Client, written: &str, wait: LockWait) -> Result<Space, ViewsError> {
    let sql = format!("SELECT NOT EXISTS (SELECT FROM ONLY {written})");
    if !client.query_one(&sql, &[]).await?.get::<_, bool>(0) {
        return Ok(Space::Free);
    }
    let transaction = client.transaction().await?;
    if !is_locked(&transaction, &wait.lock(written, "ACCESS EXCLUSIVE")).await? {
        return Ok(Space::Locked);
    }
    if transaction.query_one(&sql, &[]).await?.get(0) {
        let truncate = format!("TRUNCATE ONLY {written}");
        transaction.batch_execute(&truncate).await?;
        transaction.commit().await?;
    }
    Ok(Space::Free)
}
