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
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Creates and drops indexes until they match the collections; waits for the lock.
///
/// On an error, missing indexes are created later by [`repair`].
pub async fn reconcile(client: &Client) -> Result<(), DocumentsError> {
    while !indexes::try_lock(client).await? {
        tokio::time::sleep(LOCK_RETRY_DELAY).await;
    }
    reconcile_locked(client).await
}

/// Repairs indexes that do not match the known catalogue, unless another session holds the lock: an
/// index build may have failed, or its session ended.
pub async fn repair(client: &Client, catalogue: &Catalogue) -> Result<(), DocumentsError> {
    let are_current = indexes::are_current(client, &catalogue.indexes()).await?;
    if are_current || !indexes::try_lock(client).await? {
        return Ok(());
    }
    reconcile_locked(client).await
}

async fn reconcile_locked(client: &Client) -> Result<(), DocumentsError> {
    let reconcile_result = match Catalogue::read(client).await {
        Ok(catalogue) => indexes::reconcile(client, &catalogue.indexes()).await,
        Err(error) => Err(error),
    };
    let unlock_result = indexes::unlock(client).await;
    reconcile_result?;
    Ok(unlock_result?)
}
