//! Tables whose changes are recorded: their captures, the changes that wait, and the removal of
//! those that every view has applied.

use std::collections::BTreeSet;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::locks::{LockWait, try_lock};
use super::segments::{
    FRONTIER_SNAPSHOTS, SEGMENT_COLUMNS, Segments, SwitchOutcome, drain_and_switch,
    segments_from_row, visible_in_all,
};
use super::statements::Statements;
use super::transaction_settings::ASYNC_COMMIT;
use crate::core::capture::{CaptureOptions, Segment, TRANSACTION, TableCapture, segment_table};
use crate::error::ViewsError;

/// Base of the advisory lock keys of tables for changes: the first six bytes of
/// SHA-256("egret/views/forget"), positive, followed by zeros.
const DELETE_LOCK_KEY_BASE: i64 = 0x64e5_949e_eaf1_0000;

/// The number of the capture of a table, for all views or for one in mode immediate, and whether it
/// is new.
pub(crate) async fn find_or_insert(
    transaction: &Transaction<'_>,
    table: u32,
    of: Option<i64>,
    capture_options: CaptureOptions,
) -> Result<(i64, bool), ViewsError> {
    let sql = "INSERT INTO egret.view_capture (relation, view, is_unlogged) VALUES ($1, $2, $3) \
               ON CONFLICT (relation, view) DO NOTHING RETURNING id";
    let is_unlogged = capture_options.is_unlogged && of.is_none();
    let values: [&(dyn ToSql + Sync); 3] = [&table, &of, &is_unlogged];
    if let Some(row) = transaction.query_opt(sql, &values).await? {
        return Ok((row.get(0), true));
    }
    // Waits for a transaction that is removing the capture.
    let sql = "SELECT id FROM egret.view_capture WHERE relation = $1 AND view IS NOT DISTINCT FROM $2 FOR SHARE";
    let row = transaction.query_one(sql, &[&table, &of]).await?;
    Ok((row.get(0), false))
}

/// The recorded columns of a table, with their types.
pub(crate) async fn recorded_columns(
    transaction: &Transaction<'_>,
    capture: &TableCapture,
) -> Result<Vec<(String, String)>, ViewsError> {
    let rows = transaction
        .query(
            "SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute \
             WHERE attrelid = $1::text::regclass AND attnum > 2 AND NOT attisdropped ORDER BY attnum",
            &[&capture.changes_table()],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Pairs of a view and a capture that it reads.
pub(crate) async fn list_readers(
    client: &impl GenericClient,
) -> Result<Vec<(i64, i64)>, ViewsError> {
    let sql = "SELECT view, capture FROM egret.view_table WHERE capture IS NOT NULL";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Bytes of all tables for changes, and their dead rows as the server estimates.
pub(crate) async fn read_sizes(client: &impl GenericClient) -> Result<(i64, i64), ViewsError> {
    let sql = "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(changes)), 0)::bigint, \
               coalesce(sum(pg_catalog.pg_stat_get_dead_tuples(changes)), 0)::bigint \
               FROM (SELECT pg_catalog.to_regclass('egret.changes_' || id || suffix) AS changes \
               FROM egret.view_capture, unnest(ARRAY['', '_second']) AS suffix) AS kept";
    let row = client.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

/// The captures of views in mode immediate.
pub(crate) async fn immediate_captures(
    client: &impl GenericClient,
) -> Result<BTreeSet<i64>, ViewsError> {
    let sql = "SELECT id FROM egret.view_capture WHERE view IS NOT NULL";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The captures among these that have changes.
pub(crate) async fn captures_with_changes(
    client: &Client,
    statements: &mut Statements,
    captures: &BTreeSet<i64>,
) -> Result<BTreeSet<i64>, ViewsError> {
    if captures.is_empty() {
        return Ok(BTreeSet::new());
    }
    let selects = captures
        .iter()
        .map(|id| format!("SELECT {id}::bigint WHERE EXISTS (SELECT FROM egret.changes_{id})"));
    let sql = selects.collect::<Vec<_>>().join(" UNION ALL ");
    let rows = statements.query(client, &sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Size in bytes beyond which an empty table for changes is truncated: deleted rows leave their
/// space behind.
const TRUNCATE_BYTES: i64 = 1 << 20;

/// Whether the space of deleted changes could be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TruncateOutcome {
    /// It is free, or there was none to free.
    Free,
    /// Another session had locked the table.
    Locked,
}

/// Deletes the changes of a table that all its views have applied. The commit does not wait for the
/// disk: after a crash the deletion is repeated. If the changes take more than half of their bound,
/// views that have not applied them are rebuilt instead. Does nothing while another session does
/// the same.
pub(crate) async fn delete_applied(
    client: &mut Client,
    statements: &mut Statements,
    capture: &TableCapture,
    capture_options: CaptureOptions,
    wait: LockWait,
) -> Result<TruncateOutcome, ViewsError> {
    let id = capture.id;
    let mut may_switch = capture.view.is_none();
    let mut outcome = TruncateOutcome::Free;
    loop {
        let transaction = client.transaction().await?;
        transaction.batch_execute(ASYNC_COMMIT).await?;
        let state = read_segments(&transaction, statements, capture, capture_options).await?;
        let Some((segments, snapshots)) = state else {
            transaction.commit().await?;
            return Ok(outcome);
        };
        if may_switch && segments.needs_switch(capture_options) {
            transaction.commit().await?;
            match drain_and_switch(client, id, capture_options, wait).await? {
                // The segment that is written to from here on has no applied rows yet.
                SwitchOutcome::Done => return Ok(TruncateOutcome::Free),
                SwitchOutcome::NotDue => {}
                SwitchOutcome::Locked => outcome = TruncateOutcome::Locked,
            }
            may_switch = false;
            continue;
        }
        let active_segment = segment_table(id, segments.active);
        delete_rows(&transaction, statements, id, &active_segment, &snapshots).await?;
        transaction.commit().await?;
        if segments.active_bytes() > TRUNCATE_BYTES
            && truncate(client, &active_segment, wait).await? == TruncateOutcome::Locked
        {
            outcome = TruncateOutcome::Locked;
        }
        return Ok(outcome);
    }
}

/// The segments of a table for changes, and the snapshots of the views that need it. None if there
/// is nothing to do, or another session is at it.
async fn read_segments(
    transaction: &Transaction<'_>,
    statements: &mut Statements,
    captured: &TableCapture,
    capture_options: CaptureOptions,
) -> Result<Option<(Segments, Vec<String>)>, ViewsError> {
    let (id, changes) = (captured.id, captured.changes_table());
    let sql = format!(
        "SELECT {SEGMENT_COLUMNS}, pg_catalog.pg_try_advisory_xact_lock($4) AS is_alone, {FRONTIER_SNAPSHOTS} AS seen \
         FROM egret.view_capture AS capture WHERE capture.id = $1"
    );
    let names = [Segment::First, Segment::Second].map(|which| segment_table(id, which));
    let key = DELETE_LOCK_KEY_BASE ^ id;
    let values: [&(dyn ToSql + Sync); 4] = [&id, &names[0], &names[1], &key];
    let rows = statements.query(transaction, &sql, &values).await?;
    let Some(row) = rows.first().filter(|row| row.get("is_alone")) else {
        return Ok(None);
    };
    let segments = segments_from_row(row).filter(|found| found.total_bytes() > 0);
    let Some(found) = segments else {
        return Ok(None);
    };
    let half = i64::try_from(capture_options.size_max / 2).unwrap_or(i64::MAX);
    if found.total_bytes() <= half {
        return Ok(Some((found, row.get("seen"))));
    }
    // Rebuilding the views that are far behind avoids a break, which would rebuild all views of the
    // table.
    let invalidate_lagging = format!(
        "UPDATE egret.view AS v SET snapshot = NULL FROM egret.view_table AS t \
         WHERE t.view = v.id AND t.capture = $1 \
         AND EXISTS (SELECT FROM {changes} AS c WHERE NOT pg_visible_in_snapshot(c.{TRANSACTION}, v.snapshot))"
    );
    transaction.execute(&invalidate_lagging, &[&id]).await?;
    let row = statements.query_one(transaction, &sql, &values).await?;
    Ok(Some((found, row.get("seen"))))
}

/// Deletes applied changes from the segment that is written to.
async fn delete_rows(
    transaction: &Transaction<'_>,
    statements: &mut Statements,
    id: i64,
    active_segment: &str,
    snapshots: &[String],
) -> Result<(), ViewsError> {
    if snapshots.is_empty() {
        // A view that is claimed in the meantime may need the changes: the statement checks for one
        // itself.
        let delete = format!(
            "DELETE FROM ONLY {active_segment} WHERE NOT EXISTS (SELECT FROM egret.view AS v \
             JOIN egret.view_table AS t ON t.view = v.id \
             WHERE t.capture = $1 AND v.snapshot IS NOT NULL AND v.state <> 'suspended')"
        );
        transaction.execute(&delete, &[&id]).await?;
        return Ok(());
    }
    let delete =
        format!("DELETE FROM ONLY {active_segment} WHERE {}", visible_in_all(snapshots.len()));
    let values: Vec<&(dyn ToSql + Sync)> = snapshots.iter().map(|snapshot| snapshot as _).collect();
    statements.query(transaction, &delete, &values).await?;
    Ok(())
}

/// Truncates the segment that is written to, if it is empty and can be locked.
async fn truncate(
    client: &mut Client,
    active_segment: &str,
    wait: LockWait,
) -> Result<TruncateOutcome, ViewsError> {
    let sql = format!("SELECT NOT EXISTS (SELECT FROM ONLY {active_segment})");
    if !client.query_one(&sql, &[]).await?.get::<_, bool>(0) {
        return Ok(TruncateOutcome::Free);
    }
    let transaction = client.transaction().await?;
    if !try_lock(&transaction, &wait.lock_statement(active_segment, "ACCESS EXCLUSIVE")).await? {
        return Ok(TruncateOutcome::Locked);
    }
    if transaction.query_one(&sql, &[]).await?.get(0) {
        let truncate = format!("TRUNCATE ONLY {active_segment}");
        transaction.batch_execute(&truncate).await?;
        transaction.commit().await?;
    }
    Ok(TruncateOutcome::Free)
}
