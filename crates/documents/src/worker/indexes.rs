//! Keeps the indexes of documents equal to those that the collections require.
//!
//! Several sessions may do this at once: each caller that declares collections, and periodically
//! the owner. Each holds a lock while it reads the requirements and changes the indexes, so none
//! undoes the work of another.

use std::time::Duration;

use egret_postgres::tokio_postgres::Client;

use super::catalogue::Catalogue;
use crate::error::DocumentsError;
use crate::store::indexes;

/// Pause between two attempts to take the lock.
const AGAIN: Duration = Duration::from_millis(100);

/// Creates and drops indexes until they match the collections; waits for the lock.
///
/// On an error, missing indexes are created later by [`repair`].
pub async fn reconcile(client: &Client) -> Result<(), DocumentsError> {
    while !indexes::try_lock(client).await? {
        tokio::time::sleep(AGAIN).await;
    }
    locked(client).await
}

/// Repairs indexes that do not match the known catalogue, unless another session holds the lock: an
/// index build may have failed, or its session ended.
pub async fn repair(client: &Client, known: &Catalogue) -> Result<(), DocumentsError> {
    let are_right = indexes::are_right(client, &known.indexes()).await?;
    if are_right || !indexes::try_lock(client).await? {
        return Ok(());
    }
    locked(client).await
}

async fn locked(client: &Client) -> Result<(), DocumentsError> {
    let outcome = match Catalogue::read(client).await {
        Ok(catalogue) => indexes::reconcile(client, &catalogue.indexes()).await,
        Err(error) => Err(error),
    };
    let unlocked = indexes::unlock(client).await;
    outcome?;
    Ok(unlocked?)
}
