//! Views of a database that was restored from a dump, or copied: what is remembered of them by numbers of tables and of transactions
//! was said in another place, where the same numbers were those of others.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::captures;
use super::create::{SEARCH_PATH, watch};
use super::describe::{Described, Names, SourceTable, describe};
use super::registry::{self, Reads, Record};
use super::segments;
use super::tell;
use crate::core::capture::{Captured, Recording};
use crate::error::ViewsError;

/// Has every view of another place computed anew, and the changes of its tables recorded by their numbers here. Returns whether there
/// was one. What a view shows stays until it is refreshed.
///
/// # Errors
/// What the server says.
pub async fn settle(client: &mut Client, recording: Recording) -> Result<bool, ViewsError> {
    let place = registry::place(client).await?;
    if !is_of_another(client, &place).await? {
        return Ok(false);
    }
    let mut transaction = client.transaction().await?;
    // Nobody makes or refreshes one meanwhile.
    let lock = "LOCK TABLE egret.view IN SHARE ROW EXCLUSIVE MODE";
    transaction.batch_execute(lock).await?;
    if is_of_another(&transaction, &place).await? {
        let tables = tables(&mut transaction).await?;
        transaction.batch_execute(SEARCH_PATH).await?;
        renumber(&transaction, &tables).await?;
        // Those of one view alone are made when that is computed anew.
        let own = captures::own(&transaction).await?;
        for (capture, table) in tables.iter().filter(|(id, _)| !own.contains(id)) {
            segments::record_all(&transaction, *capture, recording.size_max).await?;
            let captured = Captured {
                id: *capture,
                columns: Vec::new(),
                of: None,
            };
            watch(&transaction, &captured, table.oid).await?;
        }
        let sql = "UPDATE egret.view SET snapshot = NULL, stamp = $1";
        transaction.execute(sql, &[&place]).await?;
        tell::restored(&transaction).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// Whether views were made, or refreshed last, in another place than this.
async fn is_of_another(client: &impl GenericClient, place: &str) -> Result<bool, ViewsError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.view AS kept \
               WHERE pg_catalog.split_part(kept.stamp, ';', 1) IS DISTINCT FROM $1::text)";
    Ok(client.query_one(sql, &[&place]).await?.get(0))
}

/// The tables whose changes are recorded, by the number of that: what the queries of views mean here. What these read is
/// remembered in the order that it has here, which is one of numbers. A query that means nothing any more is told of when
/// its view is loaded.
async fn tables(
    transaction: &mut Transaction<'_>,
) -> Result<BTreeMap<i64, SourceTable>, ViewsError> {
    let mut all = BTreeMap::new();
    for record in registry::records(transaction).await? {
        let described = match described_apart(transaction, &record).await {
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
                Some((Some(capture), _)) => Reads::Capture(capture),
                Some((None, Some(view))) => Reads::View(view),
                // It says so when it is loaded.
                _ => continue,
            };
            // Which columns is said when it is loaded.
            let place = (at as i32, name.as_str(), "");
            registry::reads(transaction, record.id, place, what).await?;
            if let Reads::Capture(capture) = what {
                all.entry(capture).or_insert_with(|| table.clone());
            }
        }
    }
    Ok(all)
}

/// What a view's definition means under its settings. The transaction goes on where they are refused.
async fn described_apart(
    transaction: &mut Transaction<'_>,
    record: &Record,
) -> Result<Described, ViewsError> {
    let mut savepoint = transaction.transaction().await?;
    record.apply_settings(&savepoint).await?;
    let described = describe(&mut savepoint, &record.definition, Names::OfSession).await?;
    savepoint.commit().await?;
    Ok(described)
}

/// Remembers the numbers that tables have here, and forgets what changed elsewhere.
async fn renumber(
    transaction: &Transaction<'_>,
    tables: &BTreeMap<i64, SourceTable>,
) -> Result<(), ViewsError> {
    // Numbers that no table has: those of elsewhere may be those of others here, and one that is not found keeps none of them.
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
