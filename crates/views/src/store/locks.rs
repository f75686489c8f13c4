//! Locks: the advisory locks of views, and locks of tables that are waited for only briefly.

use egret_postgres::tokio_postgres::Transaction;
use egret_postgres::tokio_postgres::error::SqlState;

use super::transaction_settings::BRIEF_LOCK_TIMEOUT;
use crate::error::ViewsError;

/// Base of the advisory lock keys of views: the first six bytes of SHA-256("egret/views"),
/// positive, followed by zeros.
pub(crate) const VIEW_LOCK_KEY_BASE: i64 = 0x1be0_a1b5_3282_0000;

/// Takes the advisory locks of views, always in the same order; also returns the oid of the table
/// of views.
pub(crate) const LOCK_VIEWS: &str = "SELECT pg_catalog.to_regclass('egret.view')::oid, pg_catalog.pg_advisory_lock(key) \
                    FROM (SELECT key FROM pg_catalog.unnest($1::bigint[]) AS key ORDER BY key OFFSET 0) AS keys";

pub(crate) const UNLOCK_VIEWS: &str =
    "SELECT pg_catalog.pg_advisory_unlock(key) FROM pg_catalog.unnest($1::bigint[]) AS key";

/// How long to wait for a lock on a table for changes. All later users of the table queue behind a
/// waiting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// Fails at once if the lock is not available.
    None,
    /// Waits less than `deadlock_timeout`, so that no session starts to look for a deadlock.
    Brief,
}

impl LockWait {
    /// The statement that locks a table until the end of the transaction.
    pub(crate) fn lock_statement(self, table: &str, mode: &str) -> String {
        match self {
            Self::None => format!("LOCK TABLE ONLY {table} IN {mode} MODE NOWAIT"),
            Self::Brief => format!("{BRIEF_LOCK_TIMEOUT}; LOCK TABLE ONLY {table} IN {mode} MODE"),
        }
    }
}

/// Takes a lock without waiting. If it is not available, the transaction has failed.
pub(crate) async fn try_lock(
    transaction: &Transaction<'_>,
    lock: &str,
) -> Result<bool, ViewsError> {
    match transaction.batch_execute(lock).await {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
