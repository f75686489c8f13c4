//! Views of a database that was restored from a dump, or copied. The registry identifies tables and
//! transactions by numbers that are valid on the original server only.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::describe::describe_query;
use super::query_description::{NameResolution, QueryDescription, SourceTable};
use super::record::Record;
use super::registry::{self, SourceId};
use super::source_captures::install_triggers;
use super::transaction_settings::SEARCH_PATH;
use super::{captures, change_sets, segments};
use crate::core::capture::{CaptureOptions, TableCapture};
use crate::error::ViewsError;

/// Marks every view of another server as to be rebuilt, and records the changes of its tables by
/// their numbers on this one. Returns whether there was one. A view shows its old rows until it is
/// refreshed.
pub(crate) async fn adopt_restored(
    client: &mut Client,
    capture_options: CaptureOptions,
) -> Result<bool, ViewsError> {
    let database_identity = registry::read_database_identity(client).await?;
    if !has_views_of_other_server(client, &database_identity).await? {
        return Ok(false);
    }
    let mut transaction = client.transaction().await?;
    // Excludes creations and refreshes of views.
    let lock = "LOCK TABLE egret.view IN SHARE ROW EXCLUSIVE MODE";
    transaction.batch_execute(lock).await?;
    if has_views_of_other_server(&transaction, &database_identity).await? {
        let tables = resolve_captured_tables(&mut transaction).await?;
        transaction.batch_execute(SEARCH_PATH).await?;
        store_relations(&transaction, &tables).await?;
        // Captures of views in mode immediate are created when these are rebuilt.
        let immediate_captures = captures::immediate_captures(&transaction).await?;
        for (capture, table) in tables.iter().filter(|(id, _)| !immediate_captures.contains(id)) {
            segments::record_all_columns(&transaction, *capture, capture_options.size_max).await?;
            let table_capture = TableCapture { id: *capture, columns: Vec::new(), view: None };
            install_triggers(&transaction, &table_capture, table.oid).await?;
        }
        let sql = "UPDATE egret.view SET snapshot = NULL, stamp = $1";
        transaction.execute(sql, &[&database_identity]).await?;
        change_sets::reset_followed_views(&transaction).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// Whether views were created, or refreshed last, on another server.
async fn has_views_of_other_server(
    client: &impl GenericClient,
    database_identity: &str,
) -> Result<bool, ViewsError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.view AS kept \
               WHERE pg_catalog.split_part(kept.stamp, ';', 1) IS DISTINCT FROM $1::text)";
    Ok(client.query_one(sql, &[&database_identity]).await?.get(0))
}

/// The captured tables by the number of their capture: resolves the queries of all views on this
/// server, and stores their sources in the order that they have here. A query that cannot be
/// resolved is reported when its view is loaded.
async fn resolve_captured_tables(
    transaction: &mut Transaction<'_>,
) -> Result<BTreeMap<i64, SourceTable>, ViewsError> {
    let mut tables = BTreeMap::new();
    for record in registry::list_records(transaction).await? {
        let description = match describe_in_savepoint(transaction, &record).await {
            Err(error) if error.is_permanent() || matches!(error, ViewsError::Query { .. }) => {
                continue;
            }
            described => described?,
        };
        let sql = "UPDATE egret.view SET inlined = $2, depends_on = $3 WHERE id = $1";
        let (inlined, depends_on) = (&description.inlined, &description.depends_on);
        transaction.execute(sql, &[&record.id, inlined, depends_on]).await?;
        let mut sources_by_name = BTreeMap::new();
        let sql = "DELETE FROM egret.view_table WHERE view = $1 RETURNING name, capture, reads";
        for row in transaction.query(sql, &[&record.id]).await? {
            sources_by_name.insert(row.get::<_, String>(0), (row.get(1), row.get(2)));
        }
        for (source_index, table) in description.tables.iter().enumerate() {
            let name = table.full_name();
            let source = match sources_by_name.remove(&name) {
                Some((Some(capture), _)) => SourceId::Capture(capture),
                Some((None, Some(view))) => SourceId::View(view),
                // The source is missing: loading the view reports that.
                _ => continue,
            };
            // Loading the view stores the columns.
            registry::add_source(transaction, record.id, source_index as i32, &name, "", source)
                .await?;
            if let SourceId::Capture(capture) = source {
                tables.entry(capture).or_insert_with(|| table.clone());
            }
        }
    }
    Ok(tables)
}

/// Describes the query of a view under its settings. The transaction survives an error.
async fn describe_in_savepoint(
    transaction: &mut Transaction<'_>,
    record: &Record,
) -> Result<QueryDescription, ViewsError> {
    let mut savepoint = transaction.transaction().await?;
    record.apply_settings(&savepoint).await?;
    let description =
        describe_query(&mut savepoint, &record.definition, NameResolution::SessionSearchPath)
            .await?;
    savepoint.commit().await?;
    Ok(description)
}

/// Stores the oids that the tables have on this server, and deletes changes that were recorded on
/// another.
async fn store_relations(
    transaction: &Transaction<'_>,
    tables: &BTreeMap<i64, SourceTable>,
) -> Result<(), ViewsError> {
    // First set oids that no table has: an oid of the other server may belong to another table
    // here, and a capture whose table is not found must not keep it.
    let sql = "UPDATE egret.view_capture SET relation = (4294967295 - id)::oid RETURNING id";
    for row in transaction.query(sql, &[]).await? {
        let delete_changes = format!("DELETE FROM egret.changes_{}", row.get::<_, i64>(0));
        transaction.batch_execute(&delete_changes).await?;
    }
    let sql = "UPDATE egret.view_capture AS capture SET relation = $2 WHERE id = $1 \
               AND NOT EXISTS (SELECT FROM egret.view_capture AS other \
               WHERE other.relation = $2 AND other.view IS NOT DISTINCT FROM capture.view)";
    for (capture, table) in tables {
        transaction.execute(sql, &[capture, &table.oid]).await?;
    }
    Ok(())
}
