//! Makes the tables of a view anew from its query: after what it reads was altered, or when its storage is in doubt.

use egret_postgres::tokio_postgres::{Client, Transaction};

use super::build::build;
use super::create::{SEARCH_PATH, capture, show};
use super::describe::{Described, Names, describe};
use super::load::{check_functions, check_whole, planned};
use super::registry::{self, Record};
use super::{immediate, remove, rights};
use crate::error::ViewsError;
use crate::model::Alteration;

/// Repairs a view, altered where that is asked. It is empty until it is refreshed; where its columns are what they were, it stays
/// the same view, with its grants and with what depends on it.
///
/// # Errors
/// [`ViewsError`]: nothing has changed then.
pub async fn repair(
    client: &mut Client,
    record: &Record,
    alteration: Option<&Alteration>,
    changes_size_max: u64,
) -> Result<(), ViewsError> {
    let mut transaction = client.transaction().await?;
    remove::alone(&transaction, record).await?;
    if let Some(alteration) = alteration {
        registry::alter(&transaction, record.id, alteration).await?;
    }
    let record = &registry::record_of(&transaction, record.id).await?;
    let described = resolve(&mut transaction, record).await?;
    check_functions(&described, record.is_of_another)?;
    let plan = planned(&described, record.mode)?;
    check_whole(&described, &plan, record.is_of_another)?;
    immediate::check(&described, record.mode, record.is_of_another)?;
    if record.own_capture().is_some() {
        remove::check_unread(&transaction, record).await?;
    }
    transaction.batch_execute(SEARCH_PATH).await?;
    immediate::remove(&transaction, record.id).await?;
    remove::set_aside(&transaction, record.id).await?;
    let forget = "DELETE FROM egret.view_table WHERE view = $1";
    transaction.execute(forget, &[&record.id]).await?;
    let built = build(&mut transaction, record.id, plan, &described, true).await?;
    registry::renew(&transaction, record.id, &described, &built.shape()).await?;
    if record.is_of_another {
        rights::check_select(&transaction, &record.owner, &built, &described).await?;
    }
    let reads = capture(&transaction, record, &built, (&described, changes_size_max)).await?;
    show(&mut transaction, record, &built).await?;
    if record.is_of_another {
        rights::hand_over(&transaction, record, &built, &reads).await?;
    }
    remove::drop_aside(&transaction, record.id).await?;
    remove::drop_unread(&transaction).await?;
    Ok(transaction.commit().await?)
}

/// What its query means now: by the names that were resolved, or else as the user wrote it.
async fn resolve(
    transaction: &mut Transaction<'_>,
    record: &Record,
) -> Result<Described, ViewsError> {
    match describe(transaction, &record.definition, Names::OfSession).await {
        Err(ViewsError::Query { .. }) => describe(transaction, &record.query, Names::Typed).await,
        described => described,
    }
}
