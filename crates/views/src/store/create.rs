//! Creates a view: its tables, the captures of its sources, and the PostgreSQL view that users
//! read.

use egret_postgres::tokio_postgres::{Client, Transaction};

use super::build::build;
use super::change_sets::{self, FollowUpdate};
use super::materialized_view::MaterializedView;
use super::planned_view::{check_full_only, check_functions, plan_query};
use super::query_description::{NameResolution, QueryDescription};
use super::readable::describe_readable;
use super::record::Record;
use super::refreshable::Refreshable;
use super::registry;
use super::remove::to_in_use_error;
use super::requests::ResolvedQuery;
use super::source_captures::capture_sources;
use super::status::read_signature;
use super::transaction_settings::SEARCH_PATH;
use super::{immediate, read_guard, rights, views_role, write_guard};
use crate::core::capture::CaptureOptions;
use crate::core::refusal::Refusal;
use crate::error::ViewsError;
use crate::model::{FollowSettings, NewView};

/// Creates a view, which is empty until it is refreshed. With a query that a session has resolved,
/// its names and settings are those of that session.
///
/// # Errors
/// [`ViewsError`]: nothing is left then.
pub async fn create(
    client: &mut Client,
    view: &NewView,
    resolved: Option<&ResolvedQuery>,
    name_resolution: NameResolution,
    capture_options: CaptureOptions,
) -> Result<Refreshable, ViewsError> {
    let query = resolved.map_or(&view.query, |resolved| &resolved.definition);
    let mut transaction = client.transaction().await?;
    if let Some(resolved) = resolved {
        // Its constants are read as that session has written them, here and in what users read.
        transaction.batch_execute(&resolved.settings).await?;
    }
    let readable = &view.rights.readable;
    let description = describe_readable(&mut transaction, query, name_resolution, readable).await?;
    if resolved.is_some() {
        refuse_foreign_equality(&description)?;
    }
    let map_position = |error: ViewsError| error.map_position(&description.canonical, &view.query);
    let plan = plan_query(&description, view.mode).map_err(map_position)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let owner = views_role::choose_owner(&transaction, view.owner.as_deref()).await?;
    let has_other_owner = match &owner {
        Some(owner) => rights::check_owner(&transaction, owner, &view.name.schema).await?,
        None => false,
    };
    let view = &NewView { owner, ..view.clone() };
    check_functions(&description, has_other_owner).map_err(map_position)?;
    check_full_only(&description, &plan, has_other_owner)?;
    immediate::check_mode_immediate(
        &description,
        view.mode,
        view.owner.as_deref().filter(|_| has_other_owner),
    )?;
    let settings = resolved.map(|resolved| resolved.settings.as_str());
    let id = registry::insert_view(&transaction, view, &description, settings).await?;
    let materialized_view = build(&mut transaction, id, plan, &description, true).await?;
    start_retention(&transaction, id, &view.follow_settings).await?;
    let record = registry::read_record(&transaction, id).await?;
    let grants = view.rights.grants;
    rights::check_owner_reads(&transaction, &record, &materialized_view, &description, grants)
        .await?;
    let reads =
        capture_sources(&transaction, &record, &materialized_view, &description, capture_options)
            .await?;
    create_user_view(&mut transaction, &record, &materialized_view).await?;
    read_guard::set_read_guard(&transaction, &record, &materialized_view).await?;
    registry::set_storage_definition(
        &transaction,
        id,
        &materialized_view.storage_definition(),
        materialized_view.has_clock,
    )
    .await?;
    if record.has_other_owner {
        rights::transfer_ownership(&transaction, &record, &materialized_view, &reads).await?;
    }
    let signature = read_signature(&transaction, id).await?;
    transaction.commit().await?;
    Ok(Refreshable {
        record,
        materialized_view,
        sources: reads,
        signature,
        source_rows: description.estimated_rows(),
        reads_views: description.has_views(),
        has_partitions: description.has_partitions(),
    })
}

/// Refuses a query that a session has resolved and that compares values of a type with an equality
/// of its own by an operator that the server does not print: it is not known which one that was.
///
/// # Errors
/// [`ViewsError::Refused`].
fn refuse_foreign_equality(described: &QueryDescription) -> Result<(), ViewsError> {
    if described.equality.is_foreign {
        return Err(ViewsError::Refused(Refusal::in_every_mode(
            "USING, NULLIF, IS DISTINCT FROM or CASE with a value, over a type with an equality of its own, in a query from SQL",
            None,
            "compare with `=`, or make the view by the API or the command line",
        )));
    }
    Ok(())
}

/// Starts the retention of change sets of a new view, if that was requested.
async fn start_retention(
    transaction: &Transaction<'_>,
    id: i64,
    following: &FollowSettings,
) -> Result<(), ViewsError> {
    let Some(retention) = following.retention else {
        return Ok(());
    };
    let retention_ms = i64::try_from(retention.duration().as_millis()).unwrap_or(i64::MAX);
    let update = FollowUpdate {
        retention_ms: Some(Some(retention_ms)),
        queue: Some(following.queue.as_deref()),
    };
    change_sets::set_retention_in_transaction(transaction, id, update).await
}

/// Creates the PostgreSQL view that users read, and the requested indexes. An existing one is
/// replaced, with its grants and dependent objects if possible.
///
/// # Errors
/// [`ViewsError::InUse`] where it cannot, and something depends on it.
pub(crate) async fn create_user_view(
    transaction: &mut Transaction<'_>,
    record: &Record,
    materialized_view: &MaterializedView,
) -> Result<(), ViewsError> {
    for columns in &record.indexes {
        let index = materialized_view.create_index_sql(columns)?;
        transaction.batch_execute(&index).await?;
    }
    if record.storage_definition.is_empty() {
        let create =
            format!("CREATE VIEW {} AS {}", record.name.sql(), materialized_view.user_query());
        rights::check_create_privilege(transaction, &record.name.schema).await?;
        let created = transaction.batch_execute(&create).await;
        created.map_err(|error| ViewsError::Query { error, position: None })?;
    } else {
        replace_user_view(transaction, record, &materialized_view.user_query()).await?;
    }
    write_guard::refuse_writes(transaction, record.id).await
}

/// Replaces the PostgreSQL view that users read.
async fn replace_user_view(
    transaction: &mut Transaction<'_>,
    record: &Record,
    user_query: &str,
) -> Result<(), ViewsError> {
    let name = record.name.sql();
    let savepoint = transaction.transaction().await?;
    let replace = format!("CREATE OR REPLACE VIEW {name} AS {user_query}");
    match savepoint.batch_execute(&replace).await {
        Ok(()) => Ok(savepoint.commit().await?),
        Err(_) => {
            savepoint.rollback().await?;
            let drop_view = format!("DROP VIEW {name}");
            let dropped = transaction.batch_execute(&drop_view);
            dropped.await.map_err(|error| to_in_use_error(record, error))?;
            let create = format!("CREATE VIEW {name} AS {user_query}");
            Ok(transaction.batch_execute(&create).await?)
        }
    }
}
