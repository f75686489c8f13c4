//! Indexes by which documents are found are those that the collections ask for.
//!
//! Several may see to that at a time: who declares collections, and the owner once in a while. Each reads under a lock what the collections ask for,
//! so that none undoes what another one has made.

use std::time::Duration;

use egret_postgres::tokio_postgres::Client;

use super::catalogue::Catalogue;
use crate::error::DocumentsError;
use crate::store::indexes;

/// How soon is looked again whether another session has ended what it is at.
const AGAIN: Duration = Duration::from_millis(100);

/// Makes and drops indexes until they are what the collections ask for now, after another session that is at that.
///
/// # Errors
/// What the server says; what is missing is made by [`repair`].
pub async fn reconcile(client: &Client) -> Result<(), DocumentsError> {
    while !indexes::try_lock(client).await? {
        tokio::time::sleep(AGAIN).await;
    }
    locked(client).await
}

/// The same where indexes are not what the collections ask for, as these are known, and no other session is at that: an index may have failed, or
/// whoever was to make it has ended.
///
/// # Errors
/// What the server says.
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
