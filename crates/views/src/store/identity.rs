//! What tables without a key are published by: a publication `FOR ALL TABLES` has those of schema `egret` too, and PostgreSQL
//! refuses to change and delete rows of a published table that has neither a primary key nor another identity.

use egret_postgres::tokio_postgres::{Client, GenericClient};

use super::captures::BRIEFLY;
use super::segments::is_locked;
use crate::error::ViewsError;

/// Gives an identity to the tables that the caller's transaction has made.
///
/// # Errors
/// What the server says.
pub async fn identify(client: &impl GenericClient) -> Result<(), ViewsError> {
    for statement in missing(client, true).await? {
        client.batch_execute(&statement).await?;
    }
    Ok(())
}

/// The same for the tables that an older Egret has made. One that somebody keeps locked gets its identity the next time.
///
/// # Errors
/// What the server says.
pub async fn identify_former(client: &mut Client) -> Result<(), ViewsError> {
    for statement in missing(&*client, false).await? {
        // One by one, as writers to what views read wait for such a lock.
        let transaction = client.transaction().await?;
        transaction.batch_execute(BRIEFLY).await?;
        if is_locked(&transaction, &statement).await? {
            transaction.commit().await?;
        }
    }
    Ok(())
}

/// Statements that give an identity: to tables that the transaction has made, or to all.
async fn missing(client: &impl GenericClient, are_own: bool) -> Result<Vec<String>, ViewsError> {
    let rows = client
        .query(include_str!("sql/without_identity.sql"), &[&are_own])
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
