//! Advisory locks of one Egret in a database, which it takes again when the session that holds them
//! is lost.
//!
//! A server that was frozen, or was cut off by the network, runs the lost session for a while after
//! the next one is open. A session that takes such a lock therefore also takes a shared lock on a
//! number that only its owner knows: a holder of the lock that also holds this number is an earlier
//! session of the same owner, and is terminated.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use egret_base::{Entropy, SystemEntropy};
use tokio_postgres::{Client, Error};

use crate::error::PostgresError;

/// How often a lock is tried while an earlier session of its owner has it.
const ATTEMPTS_MAX: u32 = 3;

/// The wait before the next attempt.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// How long the server waits for the end of an earlier session, in milliseconds.
const END_WAIT_MS: i64 = 5_000;

/// Identity under which one part of one Egret takes locks.
#[derive(Debug)]
pub struct LockOwner {
    /// The number of the shared lock.
    key: AtomicI64,
}

/// Outcome of an attempt to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The session has it.
    Taken,
    /// An earlier session of the same owner has it, and has not ended yet.
    HeldByOwnSession,
    /// Another owner has it.
    HeldElsewhere,
}

impl LockOwner {
    /// An owner with a key of its own, drawn at random.
    pub fn unique() -> Self {
        Self { key: AtomicI64::new(random_key()) }
    }

    /// Takes the shared lock that marks sessions of this owner; returns its key.
    async fn mark_session(&self, client: &Client) -> Result<i64, Error> {
        let own = "SELECT pg_catalog.pg_try_advisory_lock_shared($1)";
        loop {
            let key = self.key.load(Ordering::Relaxed);
            if client.query_one(own, &[&key]).await?.get(0) {
                return Ok(key);
            }
            // Any role can read the number in pg_locks, and take that lock for itself.
            self.key.store(random_key(), Ordering::Relaxed);
        }
    }

    /// Takes a lock until the session ends, unless another owner has it. An earlier session of this
    /// owner that has it is ended.
    pub async fn try_lock(&self, client: &Client, lock: i64) -> Result<LockOutcome, Error> {
        let key = self.mark_session(client).await?;
        for _ in 0..ATTEMPTS_MAX {
            let sql = "SELECT pg_catalog.pg_try_advisory_lock($1)";
            if client.query_one(sql, &[&lock]).await?.get(0) {
                return Ok(LockOutcome::Taken);
            }
            let holder = include_str!("lock_owner/own_holder.sql");
            let Some(holder) = client.query_opt(holder, &[&lock, &key]).await? else {
                return Ok(LockOutcome::HeldElsewhere);
            };
            let pid: i32 = holder.get(0);
            let end = "SELECT pg_catalog.pg_terminate_backend($1, $2)";
            match client.query_one(end, &[&pid, &END_WAIT_MS]).await {
                // A role that may not end it waits until the server notices that its connection is
                // closed.
                Err(error) if error.as_db_error().is_none() => return Err(error),
                _ => tokio::time::sleep(RETRY_WAIT).await,
            }
        }
        Ok(LockOutcome::HeldByOwnSession)
    }
}

fn random_key() -> i64 {
    let mut bytes = [0; 8];
    SystemEntropy.fill(&mut bytes);
    i64::from_le_bytes(bytes)
}

/// The error about [`LockOutcome::HeldByOwnSession`].
pub fn own_session_error() -> PostgresError {
    PostgresError::NotRunning {
        reason: "a lost session of this Egret has not ended yet, and keeps its lock".to_owned(),
    }
}
