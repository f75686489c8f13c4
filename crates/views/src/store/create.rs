//! Creates a view: its tables, the captures of its sources, and the PostgreSQL view that users
//! read.

use egret_postgres::tokio_postgres::{Client, Transaction};

use super::build::build;
use super::change_sets::{self, FollowUpdate};
use super::materialized_view::MaterializedView;
use super::planned_view::{check_functions, check_whole, plan_query};
use super::query_description::{NameResolution, QueryDescription};
use super::readable::describe_readable;
use super::record::Record;
use super::refreshable::Refreshable;
use super::registry;
use super::remove::in_use_or;
use super::requests::ResolvedQuery;
use super::source_captures::capture_sources;
use super::status::signature;
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
    names: NameResolution,
    recording: CaptureOptions,
) -> Result<Refreshable, ViewsError> {
    let query = resolved.map_or(&view.query, |resolved| &resolved.definition);
    let mut transaction = client.transaction().await?;
    if let Some(resolved) = resolved {
        // Its constants are read as that session has written them, here and in what users read.
        transaction.batch_execute(&resolved.settings).await?;
    }
    let readable = &view.rights.readable;
    let described = describe_readable(&mut transaction, query, names, readable).await?;
    if resolved.is_some() {
        refuse_foreign_equality(&described)?;
    }
    let located = |error: ViewsError| error.located(&described.canonical, &view.query);
    let plan = plan_query(&described, view.mode).map_err(located)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let owner = views_role::owner_of_new(&transaction, view.owner.as_deref()).await?;
    let is_of_another = match &owner {
        Some(owner) => rights::check_owner(&transaction, owner, &view.name.schema).await?,
        None => false,
    };
    let view = &NewView {
        owner,
        ..view.clone()
    };
    check_functions(&described, is_of_another).map_err(located)?;
    check_whole(&described, &plan, is_of_another)?;
    immediate::check(
        &described,
        view.mode,
        view.owner.as_deref().filter(|_| is_of_another),
    )?;
    let settings = resolved.map(|resolved| resolved.settings.as_str());
    let id = registry::add(&transaction, view, &described, settings).await?;
    let built = build(&mut transaction, id, plan, &described, true).await?;
    retain_changes(&transaction, id, &view.following).await?;
    let record = registry::record_of(&transaction, id).await?;
    if record.is_of_another {
        let (owner, grants) = (&record.owner, view.rights.grants);
        rights::check_select(&transaction, owner, &built, &described, grants).await?;
    }
    let reads = capture_sources(&transaction, &record, &built, &described, recording).await?;
    create_user_view(&mut transaction, &record, &built).await?;
    read_guard::set_read_guard(&transaction, &record, &built).await?;
    registry::set_shape(&transaction, id, &built.shape(), built.has_clock).await?;
    if record.is_of_another {
        rights::transfer_ownership(&transaction, &record, &built, &reads).await?;
    }
    let signature = signature(&transaction, id).await?;
    transaction.commit().await?;
    Ok(Refreshable {
        record,
        built,
        reads,
        signature,
        rows: described.rows(),
        reads_views: described.has_views(),
        has_partitions: described.has_partitions(),
    })
}

/// Refuses a query that a session has resolved and that compares values of a type with an equality
/// of its own by an operator that the server does not print: it is not known which one that was.
///
/// # Errors
/// [`ViewsError::Refused`].
fn refuse_foreign_equality(described: &QueryDescription) -> Result<(), ViewsError> {
    if described.equality.is_foreign {
        return Err(ViewsError::Refused(Refusal::of_every_mode(
            "USING, NULLIF, IS DISTINCT FROM or CASE with a value, over a type with an equality of its own, in a query from SQL",
            None,
            "compare with `=`, or make the view by the API or the command line",
        )));
    }
    Ok(())
}

/// Starts the retention of change sets of a new view, if that was requested.
async fn retain_changes(
    transaction: &Transaction<'_>,
    id: i64,
    following: &FollowSettings,
) -> Result<(), ViewsError> {
    let Some(kept) = following.kept else {
        return Ok(());
    };
    let kept_ms = i64::try_from(kept.duration().as_millis()).unwrap_or(i64::MAX);
    let update = FollowUpdate {
        kept_ms: Some(Some(kept_ms)),
        queue: Some(following.queue.as_deref()),
    };
    change_sets::set_retention_within(transaction, id, update).await
}

/// Creates the PostgreSQL view that users read, and the requested indexes. An existing one is
/// replaced, with its grants and dependent objects if possible.
///
/// # Errors
/// [`ViewsError::InUse`] where it cannot, and something depends on it.
pub(crate) async fn create_user_view(
    transaction: &mut Transaction<'_>,
    record: &Record,
    built: &MaterializedView,
) -> Result<(), ViewsError> {
    for columns in &record.indexes {
        let index = built.index(columns)?;
        transaction.batch_execute(&index).await?;
    }
    if record.shape.is_empty() {
        let create = format!(
            "CREATE VIEW {} AS {}",
            record.name.sql(),
            built.user_query()
        );
        rights::check_create(transaction, &record.name.schema).await?;
        let created = transaction.batch_execute(&create).await;
        created.map_err(|error| ViewsError::Query {
            error,
            position: None,
        })?;
    } else {
        replace_user_view(transaction, record, &built.user_query()).await?;
    }
    write_guard::refuse_writes(transaction, record.id).await
}

/// Replaces the PostgreSQL view that users read.
async fn replace_user_view(
    transaction: &mut Transaction<'_>,
    record: &Record,
    shown: &str,
) -> Result<(), ViewsError> {
    let name = record.name.sql();
    let savepoint = transaction.transaction().await?;
    let replace = format!("CREATE OR REPLACE VIEW {name} AS {shown}");
    match savepoint.batch_execute(&replace).await {
        Ok(()) => Ok(savepoint.commit().await?),
        Err(_) => {
            savepoint.rollback().await?;
            let drop_view = format!("DROP VIEW {name}");
            let dropped = transaction.batch_execute(&drop_view);
            dropped.await.map_err(|error| in_use_or(record, error))?;
            let create = format!("CREATE VIEW {name} AS {shown}");
            Ok(transaction.batch_execute(&create).await?)
        }
    }
}
