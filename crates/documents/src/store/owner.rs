//! Which Egret writes documents in a database: one at a time.
//!
//! The owner holds a lock for as long as its session lives, and has a number, the *epoch*, in the database. Every transaction that writes
//! documents updates the row in which the epoch is, on condition that it is its own: what an earlier owner has not committed when another
//! one raises the epoch fails, and what it has committed the other one sees.

use std::time::Duration;

use egret_postgres::tokio_postgres::{Client, Error as PgError, Transaction};

/// The first eight bytes of SHA-256("egret/documents").
const OWNER_KEY: i64 = 0x1f3b_6ad0_52c7_940e;

/// Who writes in a database.
#[derive(Debug)]
pub struct Ownership {
    /// Its session holds the lock.
    pub session: Client,
    /// What every transaction that writes insists on.
    pub epoch: i64,
    /// The largest number that a document has.
    pub number: i64,
}

/// Who has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process on the server.
    pub pid: i32,
    /// Where it is, and since when.
    pub what: String,
}

/// Becomes the owner; else says who is, and gives the session back.
///
/// # Errors
/// What the server says.
pub async fn own(session: Client) -> Result<Result<Ownership, (Holder, Client)>, PgError> {
    let sql = "SELECT pg_catalog.pg_try_advisory_lock($1)";
    let is_held = async || Ok(session.query_one(sql, &[&OWNER_KEY]).await?.get(0));
    while !is_held().await? {
        // Else it has just gone.
        if let Some(holder) = holder(&session).await? {
            return Ok(Err((holder, session)));
        }
    }
    // Waits for what an earlier owner is about to commit.
    let raise = "UPDATE egret.document_owner SET epoch = epoch + 1 RETURNING epoch, number";
    let row = session.query_one(raise, &[]).await?;
    let (epoch, number) = (row.get(0), row.get(1));
    Ok(Ok(Ownership {
        session,
        epoch,
        number,
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

impl Ownership {
    /// Whether a group of an owner was written. It must be under way no more: its epoch is over.
    ///
    /// # Errors
    /// What the server says.
    pub async fn has_written(&self, epoch: i64, group: i64) -> Result<bool, PgError> {
        let sql = "SELECT EXISTS (SELECT FROM (SELECT epoch, group_id FROM egret.document_feed ORDER BY position DESC LIMIT 10000) AS last \
             WHERE epoch = $1 AND group_id = $2)";
        Ok(self.session.query_one(sql, &[&epoch, &group]).await?.get(0))
    }

    /// Whether the session that holds the lock still answers.
    pub async fn is_held(&self, patience: Duration) -> bool {
        let answered = tokio::time::timeout(patience, self.session.batch_execute(""));
        matches!(answered.await, Ok(Ok(())))
    }
}
