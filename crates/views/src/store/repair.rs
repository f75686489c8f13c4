//! Rebuilds the tables of a view from its query: after a source was altered, or when the storage is
//! in doubt.

use egret_postgres::tokio_postgres::{Client, Transaction};
use egret_postgres::user_triggers::UserTriggers;

use super::build::build;
use super::change_sets::{self, Reset};
use super::create::create_user_view;
use super::describe::describe_query;
use super::lock_retry::LockRetryPolicy;
use super::planned_view::{check_full_only, check_functions, plan_query};
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
pub async fn repair_view(
    client: &mut Client,
    record: &Record,
    alteration: Option<&Alteration>,
    rights: &MakerRights,
    capture_options: CaptureOptions,
    mut retries: LockRetryPolicy,
) -> Result<(), ViewsError> {
    loop {
        match try_to_repair(client, record, alteration, rights, capture_options).await {
            Err(error) if retries.wait_for_retry(&error).await => {}
            repaired => return repaired,
        }
    }
}

async fn try_to_repair(
    client: &mut Client,
    record: &Record,
    alteration: Option<&Alteration>,
    rights: &MakerRights,
    capture_options: CaptureOptions,
) -> Result<(), ViewsError> {
    let mut transaction = client.transaction().await?;
    remove::exclude_refreshes(&transaction, record).await?;
    if let Some(alteration) = alteration {
        registry::store_alteration(&transaction, record.id, alteration).await?;
    }
    let rebuilds_storage = alteration.is_none();
    let record = &registry::read_record(&transaction, record.id).await?;
    record.apply_settings(&transaction).await?;
    let description = resolve_query(&mut transaction, record).await?;
    let already_read: Vec<i64> = record.reads.iter().filter_map(|(_, view)| *view).collect();
    readable::check_read_views(&description, &rights.readable, &already_read)?;
    check_functions(&description, record.has_other_owner)?;
    let plan = plan_query(&description, record.mode)?;
    check_full_only(&description, &plan, record.has_other_owner)?;
    let other_owner = Some(record.owner.as_str()).filter(|_| record.has_other_owner);
    immediate::check_mode_immediate(&description, record.mode, other_owner)?;
    if record.immediate_view().is_some() {
        remove::check_has_no_readers(&transaction, record).await?;
    }
    transaction.batch_execute(SEARCH_PATH).await?;
    let triggers = UserTriggers::list(&transaction).await?;
    immediate::drop_functions(&transaction, record).await?;
    if rebuilds_storage {
        view_storage::rename_storage_aside(&transaction, record.id).await?;
    }
    let delete_sources = "DELETE FROM egret.view_table WHERE view = $1";
    transaction.execute(delete_sources, &[&record.id]).await?;
    let materialized_view =
        build(&mut transaction, record.id, plan, &description, rebuilds_storage).await?;
    if !rebuilds_storage && materialized_view.storage_definition() != record.storage_definition {
        return Err(ViewsError::SourceGone {
            reason: "the types of its columns, or a key, have changed".to_owned(),
        });
    }
    let stays_suspended = !rebuilds_storage && record.state == State::Suspended;
    let (id, storage_definition) = (record.id, materialized_view.storage_definition());
    registry::store_rebuilt(&transaction, id, &description, &storage_definition, stays_suspended)
        .await?;
    let grants = rights.grants;
    rights::check_owner_reads(&transaction, record, &materialized_view, &description, grants)
        .await?;
    let reads =
        capture_sources(&transaction, record, &materialized_view, &description, capture_options)
            .await?;
    if rebuilds_storage {
        create_user_view(&mut transaction, record, &materialized_view).await?;
    }
    read_guard::set_read_guard(&transaction, record, &materialized_view).await?;
    if record.has_other_owner {
        rights::transfer_ownership(&transaction, record, &materialized_view, &reads).await?;
    }
    if rebuilds_storage && record.is_followed() {
        change_sets::write_reset(&transaction, record.id, Reset::Repaired).await?;
    }
    view_storage::drop_renamed_storage(&transaction, record.id).await?;
    remove::drop_unread_captures(&transaction).await?;
    remove::refuse_lost_triggers(&transaction, record, triggers).await?;
    Ok(transaction.commit().await?)
}

/// Resolves the view's query again: the resolved definition, or else the text the user wrote.
async fn resolve_query(
    transaction: &mut Transaction<'_>,
    record: &Record,
) -> Result<QueryDescription, ViewsError> {
    match describe_query(transaction, &record.definition, NameResolution::SessionSearchPath).await {
        Err(ViewsError::Query { .. }) => {
            describe_query(transaction, &record.query, NameResolution::PublicSchema).await
        }
        // An earlier version has stored the query without its operators.
        Ok(described) if described.equality.is_foreign => {
            let written =
                describe_query(transaction, &record.query, NameResolution::PublicSchema).await;
            Ok(written.unwrap_or(described))
        }
        described => described,
    }
}
