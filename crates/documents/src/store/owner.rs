//! Ownership: one Egret at a time writes documents in a database.
//!
//! The owner holds a lock for as long as its session lives, and has a number, the *epoch*, in the
//! database. Every transaction that writes documents updates the row of the epoch, on condition
//! that it is its own. When another owner raises the epoch, uncommitted transactions of the earlier
//! owner fail, and committed ones are visible to the new owner.

use std::time::Duration;

use egret_postgres::lock_owner::{LockOutcome, LockOwner};
use egret_postgres::tokio_postgres::{Client, Error as PgError, Transaction};

use super::feed::LAST_POSITION_SQL;
use crate::model::{DocumentNumber, Epoch, FeedPosition};

/// Key of the advisory lock, drawn at random once: all versions of Egret must use this one.
const OWNER_LOCK_KEY: i64 = 0x1f3b_6ad0_52c7_940e;

/// Ownership of the documents in a database.
#[derive(Debug)]
pub struct Ownership {
    /// The session that holds the lock.
    pub session: Client,
    /// Epoch that every writing transaction checks.
    pub epoch: Epoch,
    /// Largest number of any document so far.
    pub number: DocumentNumber,
    /// Feed position of the last change.
    pub position: FeedPosition,
    /// Feed position up to which changes were deleted.
    pub forgotten: FeedPosition,
}

/// The server process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerInfo {
    pub pid: i32,
    /// Application, address and start of its session, for messages.
    pub description: String,
}

/// Lets the server end a session within seconds when its client vanishes without closing it, and
/// release its lock, so that another Egret can take over. Has no effect on local sockets, which
/// need none.
pub(crate) const KEEPALIVE_SETTINGS: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000";

/// Becomes the owner; otherwise returns the holder, and the session for another attempt.
pub async fn acquire(
    session: Client,
    lock_owner: &LockOwner,
) -> Result<Result<Ownership, (OwnerInfo, Client)>, PgError> {
    session.batch_execute(KEEPALIVE_SETTINGS).await?;
    loop {
        match lock_owner.try_lock(&session, OWNER_LOCK_KEY).await? {
            LockOutcome::Taken => break,
            // A lost session of this Egret that the server does not end is named like any other
            // holder.
            LockOutcome::HeldByOwnSession | LockOutcome::HeldElsewhere => {
                // Otherwise the holder has just gone: try again.
                if let Some(holder) = read_holder(&session).await? {
                    return Ok(Err((holder, session)));
                }
            }
        }
    }
    // Waits for transactions of an earlier owner that are about to commit.
    let raise_sql =
        "UPDATE egret.document_owner SET epoch = epoch + 1 RETURNING epoch, number, forgotten";
    let row = session.query_one(raise_sql, &[]).await?;
    let (epoch, number, forgotten) = (row.get(0), row.get(1), row.get(2));
    // A separate statement, to see what those committed.
    let position = session.query_one(LAST_POSITION_SQL, &[]).await?.get(0);
    Ok(Ok(Ownership { session, epoch, number, position, forgotten }))
}

/// Whether this epoch is still the current one; if so, it stays so until the transaction ends.
pub(crate) async fn lock_epoch(
    transaction: &Transaction<'_>,
    epoch: Epoch,
) -> Result<bool, PgError> {
    let sql = "SELECT FROM egret.document_owner WHERE epoch = $1 FOR UPDATE";
    Ok(transaction.query_opt(sql, &[&epoch]).await?.is_some())
}

/// The holder of the lock, if there is one.
async fn read_holder(session: &Client) -> Result<Option<OwnerInfo>, PgError> {
    let sql = "SELECT a.pid, pg_catalog.format('%s at %s, since %s', a.application_name, coalesce(host(a.client_addr), 'a local socket'), \
         date_trunc('second', a.backend_start)) \
         FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
           AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
           AND (l.classid::bigint << 32) | l.objid::bigint = $1";
    let row = session.query_opt(sql, &[&OWNER_LOCK_KEY]).await?;
    Ok(row.map(|row| OwnerInfo { pid: row.get(0), description: row.get(1) }))
}

/// Whether a group was committed; its feed position would be after this one. It must not be in
/// progress any more: its epoch is over.
pub(crate) async fn is_committed(
    session: &Client,
    epoch: Epoch,
    group: i64,
    after: FeedPosition,
) -> Result<bool, PgError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.document_feed WHERE position > $3 AND epoch = $1 AND group_id = $2)";
    let row = session.query_one(sql, &[&epoch, &group, &after]).await?;
    Ok(row.get(0))
}

/// The current epoch, and the feed position up to which changes were deleted.
pub(crate) async fn read_epoch(session: &Client) -> Result<(Epoch, FeedPosition), PgError> {
    let sql = "SELECT epoch, forgotten FROM egret.document_owner";
    let row = session.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

impl Ownership {
    /// Whether the session that holds the lock still responds, within this time.
    pub async fn is_held(&self, timeout: Duration) -> bool {
        let probe = tokio::time::timeout(timeout, self.session.batch_execute(""));
        matches!(probe.await, Ok(Ok(())))
    }
}
