//! The two tables that many changes are recorded in, in turn.
//!
//! One is written to. The other is drained: transactions that wrote to it end, and views see what is in it. Then it is truncated, and they
//! change over where enough has come meanwhile. Whoever refreshes reads both, always, so that nothing depends on who writes where:
//! a transaction that has not noticed that they changed over may write to either. A lock that is not to be had is tried for after the
//! next refresh and by itself later; only after some such attempts is it waited for, briefly.

use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row, Transaction};

use super::captures::{BRIEFLY, NO_WAIT};
use super::identity;
use crate::core::capture::{Recorder, Recording, Segment, TRANSACTION, create_second, segment};
use crate::error::ViewsError;

/// How long a lock on a table for changes is waited for, behind which all others wait who use the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Not at all.
    None,
    /// Not so long that anybody would look for a deadlock.
    Brief,
}

impl LockWait {
    /// Locks a table alone until the end of the transaction.
    pub fn lock(self, table: &str, mode: &str) -> String {
        match self {
            Self::None => format!("LOCK TABLE ONLY {table} IN {mode} MODE NOWAIT"),
            Self::Brief => format!("{BRIEFLY}; LOCK TABLE ONLY {table} IN {mode} MODE"),
        }
    }
}

/// What became of the two segments of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// They have changed over.
    Done,
    /// They do not change over now.
    NotDue,
    /// The one that is drained is locked by another session.
    Locked,
}

/// Where there are two they change over when there is more than this part of the size for which the second was made: what has been
/// read is read again until then.
const CHANGED_OVER: u64 = 8;

/// What is in the segments of a table.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    /// The one that is written to.
    pub written: Segment,
    /// The bytes of both; of the second, if there is one.
    bytes: (i64, Option<i64>),
    is_unlogged: bool,
}

impl Segments {
    /// Bytes of one.
    fn bytes(&self, segment: Segment) -> i64 {
        match segment {
            Segment::First => self.bytes.0,
            Segment::Second => self.bytes.1.unwrap_or(0),
        }
    }

    /// Bytes of the one that is written to.
    pub fn bytes_written(&self) -> i64 {
        self.bytes(self.written)
    }

    /// Bytes of the one that is drained.
    fn bytes_drained(&self) -> i64 {
        self.bytes(self.written.other())
    }

    /// Bytes of both.
    pub fn bytes_of_both(&self) -> i64 {
        self.bytes_written() + self.bytes_drained()
    }

    /// Whether the one that is written to has enough to be drained.
    fn is_full(&self, recording: Recording) -> bool {
        let size = match self.bytes.1 {
            Some(_) => recording.segment_size / CHANGED_OVER,
            None => recording.segment_size,
        };
        self.bytes_written().unsigned_abs() > size
    }

    /// Whether there is something to be drained, or to change over for.
    pub fn are_to_turn(&self, recording: Recording) -> bool {
        self.bytes_drained() > 0 || self.is_full(recording)
    }
}

/// What is in the segments $2 and $3 of a capture, as columns that [`segments_of`] reads.
pub const SEGMENTS: &str = "capture.segment, capture.is_unlogged, pg_catalog.pg_relation_size(pg_catalog.to_regclass($2)) AS first, \
     pg_catalog.pg_relation_size(pg_catalog.to_regclass($3)) AS second";

/// The same, of a row. None where they are gone.
pub fn segments_of(row: &Row) -> Option<Segments> {
    Some(Segments {
        written: Segment::numbered(row.get("segment")),
        bytes: (row.get::<_, Option<i64>>("first")?, row.get("second")),
        is_unlogged: row.get("is_unlogged"),
    })
}

/// What is in the segments of a table whose changes are recorded; nothing where that has ended.
async fn segments(transaction: &Transaction<'_>, id: i64) -> Result<Option<Segments>, ViewsError> {
    let sql = format!("SELECT {SEGMENTS} FROM egret.view_capture AS capture WHERE capture.id = $1");
    let names = [Segment::First, Segment::Second].map(|one| segment(id, one));
    let row = transaction
        .query_opt(&sql, &[&id, &names[0], &names[1]])
        .await?;
    Ok(row.as_ref().and_then(segments_of))
}

/// Has all columns of a table recorded for which there is a place, in the segment that is written to.
///
/// # Errors
/// What the server says.
pub async fn record_all(
    transaction: &Transaction<'_>,
    id: i64,
    size_max: u64,
) -> Result<(), ViewsError> {
    match segments(transaction, id).await? {
        None => Ok(()),
        Some(found) => {
            let drained = found.bytes_drained().unsigned_abs();
            let into = (found.written, size_max.saturating_sub(drained));
            record(transaction, id, into).await
        }
    }
}

/// The same, in a segment, up to a size.
async fn record(
    transaction: &Transaction<'_>,
    id: i64,
    (into, size_max): (Segment, u64),
) -> Result<(), ViewsError> {
    let first = segment(id, Segment::First);
    let places = transaction
        .query(include_str!("sql/recorded.sql"), &[&id, &first])
        .await?;
    let columns = places.iter().map(|row| (row.get(0), row.get(1)));
    let recorder = Recorder {
        id,
        columns: columns.collect(),
    };
    let function = recorder.create_function(into, size_max);
    transaction.batch_execute(&function).await?;
    let sql = "UPDATE egret.view_capture SET segment = $2 WHERE id = $1 AND segment <> $2";
    transaction.execute(sql, &[&id, &into.number()]).await?;
    Ok(())
}

/// Truncates the segment that is drained, where that can be done now, and has the two change over where enough has come. Makes the
/// second where there is none.
///
/// # Errors
/// What the server says.
pub async fn turn(
    client: &mut Client,
    id: i64,
    recording: Recording,
    wait: LockWait,
) -> Result<Turn, ViewsError> {
    if !has_second(client, id, recording).await? {
        return Ok(Turn::NotDue);
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute(NO_WAIT).await?;
    let Some(found) = alone(&transaction, id).await? else {
        return Ok(Turn::NotDue);
    };
    let (written, drained) = (found.written, found.written.other());
    let is_left = found.bytes_drained() > 0;
    if is_left {
        match is_seen(&transaction, id, drained, wait).await? {
            Some(true) => {}
            Some(false) => return Ok(Turn::NotDue),
            None => return Ok(Turn::Locked),
        }
    }
    let turns = found.is_full(recording)
        && (drained == Segment::First || is_known(&transaction, id).await?);
    if !turns && !is_left {
        return Ok(Turn::NotDue);
    }
    let bytes_written = found.bytes_written().unsigned_abs();
    let into = match turns {
        true => (drained, recording.size_max.saturating_sub(bytes_written)),
        // Nothing is left in the other that counted against it.
        false => (written, recording.size_max),
    };
    record(&transaction, id, into).await?;
    if is_left {
        let table = segment(id, drained);
        let lock = wait.lock(&table, "ACCESS EXCLUSIVE");
        if !is_locked(&transaction, &lock).await? {
            return Ok(Turn::Locked);
        }
        let truncate = format!("TRUNCATE ONLY {table}");
        transaction.batch_execute(&truncate).await?;
    }
    transaction.commit().await?;
    Ok(if turns { Turn::Done } else { Turn::NotDue })
}

/// Makes the second segment where it is wanted and there is none, in a transaction before the one after which anybody writes to it:
/// whoever plans a statement from then on knows of it.
async fn has_second(
    client: &mut Client,
    id: i64,
    recording: Recording,
) -> Result<bool, ViewsError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(NO_WAIT).await?;
    let Some(found) = alone(&transaction, id).await? else {
        return Ok(false);
    };
    if found.bytes.1.is_some() {
        return Ok(true);
    }
    // Writers do not wait for this, but it would wait for a vacuum.
    let first = segment(id, Segment::First);
    let lock = LockWait::None.lock(&first, "SHARE UPDATE EXCLUSIVE");
    if !found.is_full(recording) || !is_locked(&transaction, &lock).await? {
        return Ok(false);
    }
    for statement in create_second(id, found.is_unlogged) {
        transaction.batch_execute(&statement).await?;
    }
    identity::identify(&transaction).await?;
    transaction.commit().await?;
    Ok(true)
}

/// What is in the segments, where nobody else is about to change what is recorded, until the end of the transaction: whoever makes a
/// view holds its captures, and so does another Egret.
async fn alone(transaction: &Transaction<'_>, id: i64) -> Result<Option<Segments>, ViewsError> {
    let sql = "SELECT FROM egret.view_capture WHERE id = $1 AND view IS NULL FOR NO KEY UPDATE SKIP LOCKED";
    match transaction.query_opt(sql, &[&id]).await? {
        Some(_) => segments(transaction, id).await,
        None => Ok(None),
    }
}

/// Whether everybody who reads the table for changes knows that it has a second segment. Who planned to read it before there was one
/// has had a lock on it ever since.
async fn is_known(transaction: &Transaction<'_>, id: i64) -> Result<bool, ViewsError> {
    let sql = "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_locks AS lock \
               JOIN pg_catalog.pg_database AS here ON here.oid = lock.database AND here.datname = pg_catalog.current_database() \
               WHERE lock.relation = pg_catalog.to_regclass($1) AND lock.mode = 'AccessShareLock' \
               AND lock.pid IS DISTINCT FROM pg_catalog.pg_backend_pid())";
    let first = segment(id, Segment::First);
    Ok(transaction.query_one(sql, &[&first]).await?.get(0))
}

/// Whether every view has seen what is in a segment, and nobody is about to write to it, until the end of the transaction; none: somebody
/// is about to. A view that is claimed after this was looked at reads tables after whatever is in the segment was committed: it does not
/// need that.
async fn is_seen(
    transaction: &Transaction<'_>,
    id: i64,
    drained: Segment,
    wait: LockWait,
) -> Result<Option<bool>, ViewsError> {
    let table = segment(id, drained);
    if !is_locked(transaction, &wait.lock(&table, "SHARE")).await? {
        return Ok(None);
    }
    // By a statement of its own, which sees what was committed before the lock was had.
    let frontiers = format!("SELECT {FRONTIERS}");
    let seen: Vec<String> = transaction.query_one(&frontiers, &[&id]).await?.get(0);
    if seen.is_empty() {
        return Ok(Some(true));
    }
    let unseen = format!(
        "SELECT NOT EXISTS (SELECT FROM ONLY {table} WHERE NOT ({}))",
        visible_in(seen.len())
    );
    let values: Vec<&(dyn ToSql + Sync)> = seen.iter().map(|one| one as _).collect();
    Ok(Some(transaction.query_one(&unseen, &values).await?.get(0)))
}

/// How far the views have come that need what changes in a table.
pub const FRONTIERS: &str = "ARRAY(SELECT DISTINCT v.snapshot::text FROM egret.view AS v JOIN egret.view_table AS t ON t.view = v.id \
     WHERE t.capture = $1 AND v.snapshot IS NOT NULL AND v.state <> 'suspended')";

/// Whether a change is seen in each of so many snapshots. Each is read once, not for every row.
pub fn visible_in(snapshots: usize) -> String {
    let each = (1..=snapshots).map(|at| {
        format!("pg_visible_in_snapshot({TRANSACTION}, (SELECT ${at}::text::pg_snapshot))")
    });
    each.collect::<Vec<_>>().join(" AND ")
}

/// Takes a lock that is not waited for. Where it is not to be had the transaction has failed.
pub async fn is_locked(transaction: &Transaction<'_>, lock: &str) -> Result<bool, ViewsError> {
    match transaction.batch_execute(lock).await {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
