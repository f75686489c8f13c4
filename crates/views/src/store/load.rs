//! Loads views for refreshes: resolves their definitions again, and compares the result with their
//! tables.

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::build::build;
use super::describe::describe_query;
use super::materialized_view::MaterializedView;
use super::planned_view::{check_full_only, check_functions, plan_query};
use super::query_description::{NameResolution, QueryDescription};
use super::record::Record;
use super::refreshable::{Refreshable, ViewSource};
use super::registry;
use super::source_captures::{describe_columns_read, table_capture};
use super::status::read_signature;
use super::transaction_settings::SEARCH_PATH;
use crate::error::ViewsError;

/// How often a view is loaded again because what it depends on has changed meanwhile.
const LOADS_MAX: u32 = 3;

/// Loads a view for refreshes.
///
/// # Errors
/// [`ViewsError::NotFound`]; [`ViewsError::SourceGone`] if its query no longer fits its stored
/// tables.
pub async fn load(client: &mut Client, view: i64) -> Result<Refreshable, ViewsError> {
    for _ in 1..LOADS_MAX {
        let (loaded, depends_on) = load_once(client, view).await?;
        // The signature is that of the stored dependencies.
        if !registry::store_dependencies(client, view, &depends_on).await? {
            return Ok(loaded);
        }
    }
    Ok(load_once(client, view).await?.0)
}

/// Loads a view, and returns with it the oids of what it depends on besides its tables.
async fn load_once(client: &mut Client, view: i64) -> Result<(Refreshable, Vec<u32>), ViewsError> {
    let mut transaction = client.transaction().await?;
    // First: what is altered from here on differs from it.
    let signature = read_signature(&transaction, view).await?;
    let record = registry::read_record(&transaction, view).await?;
    record.apply_settings(&transaction).await?;
    let source_gone = |error: ViewsError| match error {
        ViewsError::Query { error, .. } => {
            ViewsError::SourceGone { reason: egret_base::error::chain(&error).to_string() }
        }
        error => error,
    };
    let description =
        describe_query(&mut transaction, &record.definition, NameResolution::SessionSearchPath)
            .await
            .map_err(source_gone)?;
    check_functions(&description, record.has_other_owner)?;
    let plan = plan_query(&description, record.mode)?;
    check_full_only(&description, &plan, record.has_other_owner)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let materialized_view = build(&mut transaction, view, plan, &description, false).await?;
    let views = description.tables.iter().map(|table| table.view);
    if !views.eq(record.reads.iter().map(|(_, view)| *view)) {
        return Err(ViewsError::SourceGone {
            reason: "a relation that it reads has become a view of Egret, or is no longer one"
                .to_owned(),
        });
    }
    if materialized_view.storage_definition() != record.storage_definition {
        return Err(ViewsError::SourceGone {
            reason: "the types of its columns, or a key, have changed".to_owned(),
        });
    }
    let reads = load_sources(&transaction, &record, &materialized_view, &description).await?;
    let (rows, reads_views) = (description.estimated_rows(), description.has_views());
    let has_partitions = description.has_partitions();
    let tables = description.tables.iter().enumerate();
    let columns = tables.map(|(at, table)| describe_columns_read(&materialized_view, at, table));
    let columns: Vec<String> = columns.collect();
    transaction.rollback().await?;
    registry::store_source_columns(client, view, &columns).await?;
    let loaded = Refreshable {
        record,
        materialized_view,
        sources: reads,
        signature,
        source_rows: rows,
        reads_views,
        has_partitions,
    };
    Ok((loaded, description.depends_on))
}

/// The sources of a view, in the order of its tables.
async fn load_sources(
    transaction: &Transaction<'_>,
    record: &Record,
    materialized_view: &MaterializedView,
    description: &QueryDescription,
) -> Result<Vec<ViewSource>, ViewsError> {
    let mut sources = Vec::new();
    for (table_index, table) in description.tables.iter().enumerate() {
        sources.push(match table.view {
            Some(view) => ViewSource::View(view),
            None => {
                let immediate_view = record.immediate_view();
                let capture_id = find_capture(transaction, table.oid, immediate_view).await?;
                let number = capture_id.ok_or_else(|| ViewsError::SourceGone {
                    reason: format!("`{}.{}` is a different table now", table.schema, table.name),
                })?;
                ViewSource::Table {
                    oid: table.oid,
                    capture: table_capture(
                        number,
                        materialized_view,
                        table_index,
                        table,
                        immediate_view,
                    ),
                }
            }
        });
    }
    Ok(sources)
}

async fn find_capture(
    client: &impl GenericClient,
    table: u32,
    of: Option<i64>,
) -> Result<Option<i64>, ViewsError> {
    let sql =
        "SELECT id FROM egret.view_capture WHERE relation = $1 AND view IS NOT DISTINCT FROM $2";
    let row = client.query_opt(sql, &[&table, &of]).await?;
    Ok(row.map(|row| row.get(0)))
}
