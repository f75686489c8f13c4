//! The lock of a managed server: one Egret works with it at a time.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Client;

use super::connect::connect_until;
use crate::error::{PostgresError, server_error};
use crate::lock_owner::{self, LockOutcome, LockOwner};
use crate::pool;

/// A lock on a managed database, held for as long as this value is kept.
pub struct ManagedLock {
    client: Client,
    /// Dropping it drops the connection, also of a server that does not answer.
    _connection_guard: oneshot::Sender<()>,
}

/// How long a server may take to answer an empty command.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long this process may take to read an answer that has arrived.
const READ_MAX: Duration = Duration::from_secs(2);

/// The first eight bytes of SHA-256("egret/managed").
const MANAGED_KEY: i64 = 0x6b1e_04d7_c2f9_8a53;

impl ManagedLock {
    /// Whether the session that holds the lock still answers, within ten seconds.
    pub async fn is_held(&self) -> bool {
        let mut answer = pin!(self.client.batch_execute(""));
        let answered = match tokio::time::timeout(ANSWER_MAX, &mut answer).await {
            Ok(answered) => Ok(answered),
            // A process that was paused may find its time over before it reads the answer.
            Err(_) => tokio::time::timeout(READ_MAX, answer).await,
        };
        matches!(answered, Ok(Ok(())))
    }

    /// Takes the lock for this owner, also from an earlier session of the same owner that is lost.
    ///
    /// # Errors
    /// [`PostgresError::ManagedElsewhere`] with the holder when another Egret has it;
    /// [`PostgresError::NotRunning`] while an earlier session of the owner keeps it; those of
    /// [`connect`](super::connect).
    pub async fn acquire(
        connection: &tokio_postgres::Config,
        owner: &LockOwner,
    ) -> Result<Self, PostgresError> {
        let (connection_guard, closed) = oneshot::channel::<()>();
        let end = async move { _ = closed.await };
        let client = connect_until(connection, end).await?;
        pool::within_timeout(connection, take_lock(&client, owner)).await?;
        Ok(Self { client, _connection_guard: connection_guard })
    }
}

/// Takes the lock of a managed server in a session; the error names the session that holds it.
async fn take_lock(client: &Client, owner: &LockOwner) -> Result<(), PostgresError> {
    let outcome = owner.try_lock(client, MANAGED_KEY).await;
    match outcome.map_err(server_error("take the lock"))? {
        LockOutcome::Taken => return Ok(()),
        LockOutcome::HeldByOwnSession => return Err(lock_owner::own_session_error()),
        LockOutcome::HeldElsewhere => {}
    }
    let holder = client
        .query_opt(include_str!("lock_holder.sql"), &[&MANAGED_KEY])
        .await
        .map_err(server_error("look for the lock's holder"))?;
    let database: String = client
        .query_one("SELECT pg_catalog.current_database()::text", &[])
        .await
        .map_err(server_error("read the database's name"))?
        .get(0);
    Err(PostgresError::ManagedElsewhere {
        database,
        holder: holder
            .map_or_else(|| "its session is hidden from this role".to_owned(), |row| row.get(0)),
    })
}
