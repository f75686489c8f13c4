//! Which Egret writes documents in a database: one at a time.
//!
//! The owner holds a lock for as long as its session lives, and has a number, the *epoch*, in the database. Every transaction that writes
//! documents updates the row in which the epoch is, on condition that it is its own: what an earlier owner has not committed when another
//! one raises the epoch fails, and what it has committed the other one sees.

use std::time::Duration;

use egret_postgres::lock_owner::{LockOutcome, LockOwner};
use egret_postgres::tokio_postgres::{Client, Error as PgError, Transaction};

use super::feed::POSITION;

/// Drawn at random, once: whoever writes documents anywhere has to take the same.
const OWNER_KEY: i64 = 0x1f3b_6ad0_52c7_940e;

/// Who writes in a database.
#[derive(Debug)]
pub struct Ownership {
    /// Its session holds the lock.
    pub session: Client,
    /// What every transaction that writes insists on.
    pub epoch: i64,
    /// No document has a number that is larger.
    pub number: i64,
    /// The position of the last change.
    pub position: i64,
    /// Up to this one the feed has been forgotten.
    pub forgotten: i64,
}

/// Who has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process on the server.
    pub pid: i32,
    /// Where it is, and since when.
    pub what: String,
}

/// A session whose other end has gone without a word is ended by the server within seconds, and the lock with it: another one takes over then.
/// By a local socket that needs no asking.
pub const NOTICED: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000";

/// Becomes the owner; else says who is, and gives the session back.
///
/// # Errors
/// What the server says.
pub async fn own(
    session: Client,
    lock_owner: &LockOwner,
) -> Result<Result<Ownership, (Holder, Client)>, PgError> {
    session.batch_execute(NOTICED).await?;
    loop {
        match lock_owner.try_lock(&session, OWNER_KEY).await? {
            LockOutcome::Taken => break,
            // A lost session of this Egret that the server does not end is named like any other holder.
            LockOutcome::HeldByOwnSession | LockOutcome::HeldElsewhere => {
                // Else it has just gone.
                if let Some(holder) = holder(&session).await? {
                    return Ok(Err((holder, session)));
                }
            }
        }
    }
    // Waits for what an earlier owner is about to commit.
    let raise =
        "UPDATE egret.document_owner SET epoch = epoch + 1 RETURNING epoch, number, forgotten";
    let row = session.query_one(raise, &[]).await?;
    let (epoch, number, forgotten) = (row.get(0), row.get(1), row.get(2));
    // Another statement: it sees what was waited for.
    let position = session.query_one(POSITION, &[]).await?.get(0);
    Ok(Ok(Ownership {
        session,
        epoch,
        number,
        position,
        forgotten,
    }))
}

/// Whether writing here is still the business of the owner with this epoch; if so, it stays so until the transaction ends.
///
/// # Errors
/// What the server says.
pub async fn stays(transaction: &Transaction<'_>, epoch: i64) -> Result<bool, PgError> {
    let sql = "SELECT FROM egret.document_owner WHERE epoch = $1 FOR UPDATE";
    Ok(transaction.query_opt(sql, &[&epoch]).await?.is_some())
}

/// Who has the lock, if anybody has.
async fn holder(session: &Client) -> Result<Option<Holder>, PgError> {
    let sql = "SELECT a.pid, pg_catalog.format('%s at %s, since %s', a.application_name, coalesce(host(a.client_addr), 'a local socket'), \
         date_trunc('second', a.backend_start)) \
         FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
           AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
           AND (l.classid::bigint << 32) | l.objid::bigint = $1";
    let row = session.query_opt(sql, &[&OWNER_KEY]).await?;
    Ok(row.map(|row| Holder {
        pid: row.get(0),
        what: row.get(1),
    }))
}

/// Whether a group was written whose place in the feed is after a position, if it has one. It must be under way no more: its epoch is over.
///
/// # Errors
/// What the server says.
pub async fn has_written(
    session: &Client,
    (epoch, group): (i64, i64),
    after: i64,
) -> Result<bool, PgError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.document_feed WHERE position > $3 AND epoch = $1 AND group_id = $2)";
    let row = session.query_one(sql, &[&epoch, &group, &after]).await?;
    Ok(row.get(0))
}

/// The epoch of whoever writes, and up to which position the feed has been forgotten.
///
/// # Errors
/// What the server says.
pub async fn epoch(session: &Client) -> Result<(i64, i64), PgError> {
    let sql = "SELECT epoch, forgotten FROM egret.document_owner";
    let row = session.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

impl Ownership {
    /// Whether the session that holds the lock still answers.
    pub async fn is_held(&self, patience: Duration) -> bool {
        let answered = tokio::time::timeout(patience, self.session.batch_execute(""));
        matches!(answered.await, Ok(Ok(())))
    }
}
