//! Loads views for refreshes: resolves their definitions again, and compares the result with their
//! tables.

use egret_postgres::tokio_postgres::{Client, GenericClient};

use super::build::build;
use super::describe::describe;
use super::planned_view::{check_functions, check_whole, plan_query};
use super::query_description::NameResolution;
use super::refreshable::{Refreshable, ViewSource};
use super::registry;
use super::source_captures::{capture_of_table, columns_read};
use super::status::signature;
use super::transaction_settings::SEARCH_PATH;
use crate::error::ViewsError;

/// Loads a view for refreshes.
///
/// # Errors
/// [`ViewsError::NotFound`]; [`ViewsError::SourceGone`] if its query no longer fits its stored
/// tables.
pub async fn load(client: &mut Client, view: i64) -> Result<Refreshable, ViewsError> {
    let mut transaction = client.transaction().await?;
    // First: what is altered from here on differs from it.
    let signature = signature(&transaction, view).await?;
    let record = registry::record_of(&transaction, view).await?;
    record.apply_settings(&transaction).await?;
    let gone = |error: ViewsError| match error {
        ViewsError::Query { error, .. } => ViewsError::SourceGone {
            reason: egret_base::error::chain(&error).to_string(),
        },
        error => error,
    };
    let described = describe(
        &mut transaction,
        &record.definition,
        NameResolution::OfSession,
    )
    .await
    .map_err(gone)?;
    check_functions(&described, record.is_of_another)?;
    let plan = plan_query(&described, record.mode)?;
    check_whole(&described, &plan, record.is_of_another)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let built = build(&mut transaction, view, plan, &described, false).await?;
    let views = described.tables.iter().map(|table| table.view);
    if !views.eq(record.reads.iter().map(|(_, view)| *view)) {
        return Err(ViewsError::SourceGone {
            reason: "a relation that it reads has become a view of Egret, or is no longer one"
                .to_owned(),
        });
    }
    if built.shape() != record.shape {
        return Err(ViewsError::SourceGone {
            reason: "the types of its columns, or a key, have changed".to_owned(),
        });
    }
    let mut reads = Vec::new();
    for (at, table) in described.tables.iter().enumerate() {
        reads.push(match table.view {
            Some(view) => ViewSource::View(view),
            None => {
                let of = record.own_capture();
                let number = find_capture(&transaction, table.oid, of).await?;
                let number = number.ok_or_else(|| ViewsError::SourceGone {
                    reason: format!("`{}.{}` is a different table now", table.schema, table.name),
                })?;
                ViewSource::Table {
                    oid: table.oid,
                    captured: capture_of_table(number, &built, at, table, of),
                }
            }
        });
    }
    let (rows, reads_views) = (described.rows(), described.has_views());
    let has_partitions = described.has_partitions();
    let tables = described.tables.iter().enumerate();
    let columns = tables.map(|(at, table)| columns_read(&built, at, table));
    let columns: Vec<String> = columns.collect();
    transaction.rollback().await?;
    registry::set_columns(client, view, &columns).await?;
    Ok(Refreshable {
        record,
        built,
        reads,
        signature,
        rows,
        reads_views,
        has_partitions,
    })
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
