//! Replica identities of tables without a key: a publication `FOR ALL TABLES` has the tables of
//! schema `egret` too, and PostgreSQL refuses to change or delete rows of a published table that
//! has neither a primary key nor another identity.

use egret_postgres::tokio_postgres::{Client, GenericClient};

use super::locks::try_lock;
use super::transaction_settings::BRIEF_LOCK_TIMEOUT;
use crate::error::ViewsError;

/// Sets a replica identity for the tables that the caller's transaction has created.
pub(crate) async fn set_identities(client: &impl GenericClient) -> Result<(), ViewsError> {
    for statement in missing_identities(client, true).await? {
        client.batch_execute(&statement).await?;
    }
    Ok(())
}

/// Sets a replica identity for tables of older versions of Egret. A table that stays locked gets it
/// the next time.
pub(crate) async fn set_missing_identities(client: &mut Client) -> Result<(), ViewsError> {
    for statement in missing_identities(&*client, false).await? {
        // One transaction each: writers to the sources of views wait for such a lock.
        let transaction = client.transaction().await?;
        transaction.batch_execute(BRIEF_LOCK_TIMEOUT).await?;
        if try_lock(&transaction, &statement).await? {
            transaction.commit().await?;
        }
    }
    Ok(())
}

/// Statements that give an identity: to tables that the transaction has made, or to all.
async fn missing_identities(
    client: &impl GenericClient,
    are_created_by_transaction: bool,
) -> Result<Vec<String>, ViewsError> {
    let rows = client
        .query(include_str!("sql/without_identity.sql"), &[&are_created_by_transaction])
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
