//! Rebuilds the tables of a view from its query: after a source was altered, or when the storage is
//! in doubt.

use egret_postgres::tokio_postgres::{Client, Transaction};
use egret_postgres::user_triggers::UserTriggers;

use super::build::build;
use super::change_sets::{self, Reset};
use super::create::create_user_view;
use super::describe::describe;
use super::lock_retry::LockRetryPolicy;
use super::planned_view::{check_functions, check_whole, plan_query};
use super::query_description::{NameResolution, QueryDescription};
use super::record::Record;
use super::source_captures::capture_sources;
use super::transaction_settings::SEARCH_PATH;
use super::{immediate, read_guard, readable, registry, remove, rights, view_storage};
use crate::core::capture::CaptureOptions;
use crate::error::ViewsError;
use crate::model::{Alteration, MakerRights, State};

/// Repairs a view: it is empty until it is refreshed. Where it is altered instead, it shows what it
/// did until then. Where its columns are what they were, it stays the same view, with its grants
/// and with what depends on it.
///
/// # Errors
/// [`ViewsError`]: nothing has changed then.
pub async fn repair(
    client: &mut Client,
    record: &Record,
    alteration: Option<&Alteration>,
    rights: &MakerRights,
    recording: CaptureOptions,
    mut retries: LockRetryPolicy,
) -> Result<(), ViewsError> {
    loop {
        match try_to_repair(client, record, alteration, rights, recording).await {
            Err(error) if retries.may_retry(&error).await => {}
            repaired => return repaired,
        }
    }
}

async fn try_to_repair(
    client: &mut Client,
    record: &Record,
    alteration: Option<&Alteration>,
    maker: &MakerRights,
    recording: CaptureOptions,
) -> Result<(), ViewsError> {
    let mut transaction = client.transaction().await?;
    remove::exclude_refreshes(&transaction, record).await?;
    if let Some(alteration) = alteration {
        registry::alter(&transaction, record.id, alteration).await?;
    }
    let is_made_anew = alteration.is_none();
    let record = &registry::record_of(&transaction, record.id).await?;
    record.apply_settings(&transaction).await?;
    let described = resolve(&mut transaction, record).await?;
    let known: Vec<i64> = record.reads.iter().filter_map(|(_, view)| *view).collect();
    readable::check_reads(&described, &maker.readable, &known)?;
    check_functions(&described, record.is_of_another)?;
    let plan = plan_query(&described, record.mode)?;
    check_whole(&described, &plan, record.is_of_another)?;
    let other_owner = Some(record.owner.as_str()).filter(|_| record.is_of_another);
    immediate::check(&described, record.mode, other_owner)?;
    if record.own_capture().is_some() {
        remove::check_unread(&transaction, record).await?;
    }
    transaction.batch_execute(SEARCH_PATH).await?;
    let triggers = UserTriggers::list(&transaction).await?;
    immediate::remove(&transaction, record).await?;
    if is_made_anew {
        view_storage::set_aside(&transaction, record.id).await?;
    }
    let forget = "DELETE FROM egret.view_table WHERE view = $1";
    transaction.execute(forget, &[&record.id]).await?;
    let built = build(&mut transaction, record.id, plan, &described, is_made_anew).await?;
    if !is_made_anew && built.shape() != record.shape {
        return Err(ViewsError::SourceGone {
            reason: "the types of its columns, or a key, have changed".to_owned(),
        });
    }
    let stays_suspended = !is_made_anew && record.state == State::Suspended;
    let (id, shape) = (record.id, built.shape());
    registry::store_rebuilt(&transaction, id, &described, &shape, stays_suspended).await?;
    if record.is_of_another {
        let (owner, grants) = (&record.owner, maker.grants);
        rights::check_select(&transaction, owner, &built, &described, grants).await?;
    }
    let reads = capture_sources(&transaction, record, &built, &described, recording).await?;
    if is_made_anew {
        create_user_view(&mut transaction, record, &built).await?;
    }
    read_guard::set_read_guard(&transaction, record, &built).await?;
    if record.is_of_another {
        rights::transfer_ownership(&transaction, record, &built, &reads).await?;
    }
    if is_made_anew && record.is_followed() {
        change_sets::reset(&transaction, record.id, Reset::Repaired).await?;
    }
    view_storage::drop_aside(&transaction, record.id).await?;
    remove::drop_unread_captures(&transaction).await?;
    remove::refuse_lost_triggers(&transaction, record, triggers).await?;
    Ok(transaction.commit().await?)
}

/// Resolves the view's query again: the resolved definition, or else the text the user wrote.
async fn resolve(
    transaction: &mut Transaction<'_>,
    record: &Record,
) -> Result<QueryDescription, ViewsError> {
    match describe(transaction, &record.definition, NameResolution::OfSession).await {
        Err(ViewsError::Query { .. }) => {
            describe(transaction, &record.query, NameResolution::Typed).await
        }
        // An earlier version has stored the query without its operators.
        Ok(described) if described.equality.is_foreign => {
            let written = describe(transaction, &record.query, NameResolution::Typed).await;
            Ok(written.unwrap_or(described))
        }
        described => described,
    }
}
