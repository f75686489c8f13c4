//! The two segments in which the changes of a busy table are recorded by turns.
//!
//! One is written to. The other is drained: transactions that wrote to it end, and views apply its
//! rows. Then it is truncated, and the two switch roles once enough has been written. A refresh
//! always reads both, so that it does not matter which one a transaction writes to: one that has
//! not noticed the switch may write to either. If a lock is not available, the attempt is repeated
//! after the next refresh and by a timer; only after several attempts is the lock waited for,
//! briefly.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row, Transaction};

use super::identity;
use super::locks::{LockWait, try_lock};
use super::transaction_settings::ASYNC_COMMIT;
use crate::core::capture::{
    CaptureOptions, Recorder, Segment, TRANSACTION, create_second_segment, segment_table,
};
use crate::error::ViewsError;

/// Result of an attempt to switch segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchOutcome {
    /// The segments have switched roles.
    Done,
    /// A switch is not due, or not possible yet.
    NotDue,
    /// The segment to be drained is locked by another session.
    Locked,
}

/// With two segments, a switch is due at `segment_size` divided by this: until then each refresh
/// reads applied rows again.
const SWITCH_SIZE_DIVISOR: u64 = 8;

/// State of the segments of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    /// The segment that is written to.
    pub active: Segment,
    /// Bytes of the first segment, and of the second if it exists.
    bytes: (i64, Option<i64>),
    is_unlogged: bool,
}

impl Segments {
    fn bytes(&self, segment: Segment) -> i64 {
        match segment {
            Segment::First => self.bytes.0,
            Segment::Second => self.bytes.1.unwrap_or(0),
        }
    }

    /// Bytes of the segment that is written to.
    pub(crate) fn active_bytes(&self) -> i64 {
        self.bytes(self.active)
    }

    /// Bytes of the segment that is drained.
    fn drained_bytes(&self) -> i64 {
        self.bytes(self.active.other())
    }

    pub(crate) fn total_bytes(&self) -> i64 {
        self.active_bytes() + self.drained_bytes()
    }

    /// Whether the segment that is written to is large enough to be drained.
    fn is_full(&self, capture_options: CaptureOptions) -> bool {
        let size = match self.bytes.1 {
            Some(_) => capture_options.segment_size / SWITCH_SIZE_DIVISOR,
            None => capture_options.segment_size,
        };
        self.active_bytes().unsigned_abs() > size
    }

    /// Whether there is something to drain, or a switch is due.
    pub(crate) fn needs_switch(&self, capture_options: CaptureOptions) -> bool {
        self.drained_bytes() > 0 || self.is_full(capture_options)
    }
}

/// State of the segments $2 and $3 of a capture, as columns for [`segments_from_row`].
pub(crate) const SEGMENT_COLUMNS: &str = "capture.segment, capture.is_unlogged, pg_catalog.pg_relation_size(pg_catalog.to_regclass($2)) AS first, \
     pg_catalog.pg_relation_size(pg_catalog.to_regclass($3)) AS second";

/// Reads [`SEGMENT_COLUMNS`] from a row. None if the tables are gone.
pub(crate) fn segments_from_row(row: &Row) -> Option<Segments> {
    Some(Segments {
        active: Segment::from_number(row.get("segment")),
        bytes: (row.get::<_, Option<i64>>("first")?, row.get("second")),
        is_unlogged: row.get("is_unlogged"),
    })
}

/// State of the segments of a capture; none if it does not exist any more.
async fn read_segments(
    transaction: &Transaction<'_>,
    id: i64,
) -> Result<Option<Segments>, ViewsError> {
    let sql = format!(
        "SELECT {SEGMENT_COLUMNS} FROM egret.view_capture AS capture WHERE capture.id = $1"
    );
    let names = [Segment::First, Segment::Second].map(|which| segment_table(id, which));
    let row = transaction.query_opt(&sql, &[&id, &names[0], &names[1]]).await?;
    Ok(row.as_ref().and_then(segments_from_row))
}

/// Makes the trigger function record all columns that the table for changes has, in the segment
/// that is written to.
pub(crate) async fn record_all_columns(
    transaction: &Transaction<'_>,
    id: i64,
    size_max: u64,
) -> Result<(), ViewsError> {
    match read_segments(transaction, id).await? {
        None => Ok(()),
        Some(found) => {
            let drained = found.drained_bytes().unsigned_abs();
            let size_max = size_max.saturating_sub(drained);
            set_recorder(transaction, id, found.active, size_max).await
        }
    }
}

/// Makes the trigger function record in this segment, up to a size.
async fn set_recorder(
    transaction: &Transaction<'_>,
    id: i64,
    target: Segment,
    size_max: u64,
) -> Result<(), ViewsError> {
    let first = segment_table(id, Segment::First);
    let column_rows = transaction.query(include_str!("sql/recorded.sql"), &[&id, &first]).await?;
    let columns = column_rows.iter().map(|row| (row.get(0), row.get(1)));
    let recorder = Recorder { id, columns: columns.collect() };
    let function = recorder.create_function(target, size_max);
    transaction.batch_execute(&function).await?;
    let sql = "UPDATE egret.view_capture SET segment = $2 WHERE id = $1 AND segment <> $2";
    transaction.execute(sql, &[&id, &target.number()]).await?;
    Ok(())
}

/// Truncates the drained segment, if that is possible, and switches roles if that is due. Creates
/// the second segment if there is none.
pub(crate) async fn drain_and_switch(
    client: &mut Client,
    id: i64,
    capture_options: CaptureOptions,
    wait: LockWait,
) -> Result<SwitchOutcome, ViewsError> {
    if !ensure_second_segment(client, id, capture_options).await? {
        return Ok(SwitchOutcome::NotDue);
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute(ASYNC_COMMIT).await?;
    let Some(segments) = lock_capture(&transaction, id).await? else {
        return Ok(SwitchOutcome::NotDue);
    };
    let (active, drained) = (segments.active, segments.active.other());
    let has_drained_rows = segments.drained_bytes() > 0;
    if has_drained_rows {
        match lock_and_check_applied(&transaction, id, drained, wait).await? {
            Some(true) => {}
            Some(false) => return Ok(SwitchOutcome::NotDue),
            None => return Ok(SwitchOutcome::Locked),
        }
    }
    let is_switch_due = segments.is_full(capture_options)
        && (drained == Segment::First || is_second_segment_known(&transaction, id).await?);
    if !is_switch_due && !has_drained_rows {
        return Ok(SwitchOutcome::NotDue);
    }
    let bytes_written = segments.active_bytes().unsigned_abs();
    let (target, size_max) = if is_switch_due {
        (drained, capture_options.size_max.saturating_sub(bytes_written))
    } else {
        (active, capture_options.size_max)
    };
    set_recorder(&transaction, id, target, size_max).await?;
    if has_drained_rows {
        let table = segment_table(id, drained);
        let lock = wait.lock_statement(&table, "ACCESS EXCLUSIVE");
        if !try_lock(&transaction, &lock).await? {
            return Ok(SwitchOutcome::Locked);
        }
        let truncate = format!("TRUNCATE ONLY {table}");
        transaction.batch_execute(&truncate).await?;
    }
    transaction.commit().await?;
    Ok(if is_switch_due { SwitchOutcome::Done } else { SwitchOutcome::NotDue })
}

/// Creates the second segment if it is due. It commits before the transaction after which it is
/// written to: a statement that is planned from then on reads it.
async fn ensure_second_segment(
    client: &mut Client,
    id: i64,
    capture_options: CaptureOptions,
) -> Result<bool, ViewsError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(ASYNC_COMMIT).await?;
    let Some(segments) = lock_capture(&transaction, id).await? else {
        return Ok(false);
    };
    if segments.bytes.1.is_some() {
        return Ok(true);
    }
    // The lock does not block writers, but it conflicts with a vacuum.
    let first = segment_table(id, Segment::First);
    let lock = LockWait::None.lock_statement(&first, "SHARE UPDATE EXCLUSIVE");
    if !segments.is_full(capture_options) || !try_lock(&transaction, &lock).await? {
        return Ok(false);
    }
    for statement in create_second_segment(id, segments.is_unlogged) {
        transaction.batch_execute(&statement).await?;
    }
    identity::set_identities(&transaction).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Locks the capture until the end of the transaction and returns the state of its segments. None
/// if another transaction has locked it: one that creates a view, or another Egret process.
async fn lock_capture(
    transaction: &Transaction<'_>,
    id: i64,
) -> Result<Option<Segments>, ViewsError> {
    let sql = "SELECT FROM egret.view_capture WHERE id = $1 AND view IS NULL FOR NO KEY UPDATE SKIP LOCKED";
    match transaction.query_opt(sql, &[&id]).await? {
        Some(_) => read_segments(transaction, id).await,
        None => Ok(None),
    }
}

/// Whether all readers of the table for changes know its second segment. A reader that planned its
/// query before the segment existed has held a lock on the table ever since.
async fn is_second_segment_known(
    transaction: &Transaction<'_>,
    id: i64,
) -> Result<bool, ViewsError> {
    let sql = "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_locks AS lock \
               JOIN pg_catalog.pg_database AS here ON here.oid = lock.database AND here.datname = pg_catalog.current_database() \
               WHERE lock.relation = pg_catalog.to_regclass($1) AND lock.mode = 'AccessShareLock' \
               AND lock.pid IS DISTINCT FROM pg_catalog.pg_backend_pid())";
    let first = segment_table(id, Segment::First);
    Ok(transaction.query_one(sql, &[&first]).await?.get(0))
}

/// Locks a segment against writers until the end of the transaction, and returns whether every view
/// has applied its rows; none if it cannot be locked. A view that is claimed later reads its tables
/// after the rows of the segment were committed, and does not need them.
async fn lock_and_check_applied(
    transaction: &Transaction<'_>,
    id: i64,
    drained: Segment,
    wait: LockWait,
) -> Result<Option<bool>, ViewsError> {
    let table = segment_table(id, drained);
    if !try_lock(transaction, &wait.lock_statement(&table, "SHARE")).await? {
        return Ok(None);
    }
    // A statement of its own: its snapshot is taken after the lock.
    let frontiers = format!("SELECT {FRONTIER_SNAPSHOTS}");
    let snapshots: Vec<String> = transaction.query_one(&frontiers, &[&id]).await?.get(0);
    if snapshots.is_empty() {
        return Ok(Some(true));
    }
    let all_applied_query = format!(
        "SELECT NOT EXISTS (SELECT FROM ONLY {table} WHERE NOT ({}))",
        visible_in_all(snapshots.len())
    );
    let values: Vec<&(dyn ToSql + Sync)> = snapshots.iter().map(|snapshot| snapshot as _).collect();
    Ok(Some(transaction.query_one(&all_applied_query, &values).await?.get(0)))
}

/// Snapshots of the views that need the changes of a table.
pub(crate) const FRONTIER_SNAPSHOTS: &str = "ARRAY(SELECT DISTINCT v.snapshot::text FROM egret.view AS v JOIN egret.view_table AS t ON t.view = v.id \
     WHERE t.capture = $1 AND v.snapshot IS NOT NULL AND v.state <> 'suspended')";

/// Condition that a change is visible in each of so many snapshots, each of which is parsed once.
pub(crate) fn visible_in_all(snapshots: usize) -> String {
    let conditions = (1..=snapshots).map(|number| {
        format!("pg_visible_in_snapshot({TRANSACTION}, (SELECT ${number}::text::pg_snapshot))")
    });
    conditions.collect::<Vec<_>>().join(" AND ")
}
