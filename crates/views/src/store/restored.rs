//! Views of a database that was restored from a dump, or copied. The registry identifies tables and
//! transactions by numbers that are valid on the original server only.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::describe::describe;
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
pub async fn adopt(client: &mut Client, recording: CaptureOptions) -> Result<bool, ViewsError> {
    let place = registry::place(client).await?;
    if !is_of_another(client, &place).await? {
        return Ok(false);
    }
    let mut transaction = client.transaction().await?;
    // Excludes creations and refreshes of views.
    let lock = "LOCK TABLE egret.view IN SHARE ROW EXCLUSIVE MODE";
    transaction.batch_execute(lock).await?;
    if is_of_another(&transaction, &place).await? {
        let tables = resolve_tables(&mut transaction).await?;
        transaction.batch_execute(SEARCH_PATH).await?;
        store_relations(&transaction, &tables).await?;
        // Captures of views in mode immediate are created when these are rebuilt.
        let own = captures::own_captures(&transaction).await?;
        for (capture, table) in tables.iter().filter(|(id, _)| !own.contains(id)) {
            segments::record_all_columns(&transaction, *capture, recording.size_max).await?;
            let captured = TableCapture {
                id: *capture,
                columns: Vec::new(),
                view: None,
            };
            install_triggers(&transaction, &captured, table.oid).await?;
        }
        let sql = "UPDATE egret.view SET snapshot = NULL, stamp = $1";
        transaction.execute(sql, &[&place]).await?;
        change_sets::reset_all(&transaction).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// Whether views were created, or refreshed last, on another server.
async fn is_of_another(client: &impl GenericClient, place: &str) -> Result<bool, ViewsError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.view AS kept \
               WHERE pg_catalog.split_part(kept.stamp, ';', 1) IS DISTINCT FROM $1::text)";
    Ok(client.query_one(sql, &[&place]).await?.get(0))
}

/// The captured tables by the number of their capture: resolves the queries of all views on this
/// server, and stores their sources in the order that they have here. A query that cannot be
/// resolved is reported when its view is loaded.
async fn resolve_tables(
    transaction: &mut Transaction<'_>,
) -> Result<BTreeMap<i64, SourceTable>, ViewsError> {
    let mut all = BTreeMap::new();
    for record in registry::records(transaction).await? {
        let described = match describe_in_savepoint(transaction, &record).await {
            Err(error) if error.is_lasting() || matches!(error, ViewsError::Query { .. }) => {
                continue;
            }
            described => described?,
        };
        let sql = "UPDATE egret.view SET inlined = $2 WHERE id = $1";
        let inlined = &described.inlined;
        transaction.execute(sql, &[&record.id, inlined]).await?;
        let mut read = BTreeMap::new();
        let sql = "DELETE FROM egret.view_table WHERE view = $1 RETURNING name, capture, reads";
        for row in transaction.query(sql, &[&record.id]).await? {
            read.insert(row.get::<_, String>(0), (row.get(1), row.get(2)));
        }
        for (at, table) in described.tables.iter().enumerate() {
            let name = table.full_name();
            let what = match read.remove(&name) {
                Some((Some(capture), _)) => SourceId::Capture(capture),
                Some((None, Some(view))) => SourceId::View(view),
                // The source is missing: loading the view reports that.
                _ => continue,
            };
            // Loading the view stores the columns.
            registry::add_source(transaction, record.id, at as i32, &name, "", what).await?;
            if let SourceId::Capture(capture) = what {
                all.entry(capture).or_insert_with(|| table.clone());
            }
        }
    }
    Ok(all)
}

/// Describes the query of a view under its settings. The transaction survives an error.
async fn describe_in_savepoint(
    transaction: &mut Transaction<'_>,
    record: &Record,
) -> Result<QueryDescription, ViewsError> {
    let mut savepoint = transaction.transaction().await?;
    record.apply_settings(&savepoint).await?;
    let described = describe(
        &mut savepoint,
        &record.definition,
        NameResolution::OfSession,
    )
    .await?;
    savepoint.commit().await?;
    Ok(described)
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
        let forget = format!("DELETE FROM egret.changes_{}", row.get::<_, i64>(0));
        transaction.batch_execute(&forget).await?;
    }
    let sql = "UPDATE egret.view_capture AS capture SET relation = $2 WHERE id = $1 \
               AND NOT EXISTS (SELECT FROM egret.view_capture AS other \
               WHERE other.relation = $2 AND other.view IS NOT DISTINCT FROM capture.view)";
    for (capture, table) in tables {
        transaction.execute(sql, &[capture, &table.oid]).await?;
    }
    Ok(())
}
