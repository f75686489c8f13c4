//! Triggers that refuse writes to the PostgreSQL views that users read. PostgreSQL would pass a
//! write to a simple view on to the table with the rows, where no refresh expects it.

use egret_postgres::tokio_postgres::{Client, GenericClient};

use super::locks::try_lock;
use super::transaction_settings::BRIEF_LOCK_TIMEOUT;
use crate::error::ViewsError;

/// Query of the statements that create missing triggers.
const UNGUARDED: &str = include_str!("sql/unguarded.sql");

/// Has the PostgreSQL view of a view refuse writes.
pub(crate) async fn refuse_writes(
    client: &impl GenericClient,
    view: i64,
) -> Result<(), ViewsError> {
    for row in client.query(UNGUARDED, &[&Some(view)]).await? {
        client.batch_execute(row.get("statement")).await?;
    }
    Ok(())
}

/// Has the views of older versions of Egret refuse writes. One that stays locked does so after the
/// next start.
pub(crate) async fn refuse_writes_to_former(client: &mut Client) -> Result<(), ViewsError> {
    for row in client.query(UNGUARDED, &[&None::<i64>]).await? {
        let (name, statement): (&str, &str) = (row.get("name"), row.get("statement"));
        let transaction = client.transaction().await?;
        transaction.batch_execute(BRIEF_LOCK_TIMEOUT).await?;
        match try_lock(&transaction, statement).await {
            Ok(true) => transaction.commit().await?,
            Ok(false) => transaction.rollback().await?,
            // The view is of a role that this one is not a member of.
            Err(error) => {
                transaction.rollback().await?;
                tracing::warn!(view = name, %error, "cannot have a view refuse writes");
            }
        }
    }
    Ok(())
}
