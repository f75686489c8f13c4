//! Indexes by which documents are found: one for each declared path, of that collection's documents alone, in each partition.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::Client;

use super::query::expression;
use crate::core::definition::QueryPath;
use crate::core::identity::{EGRET_NAMESPACE, v5};
use crate::error::DocumentsError;
use crate::model::CollectionId;

/// An index that there has to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Of the documents of which collection.
    pub collection: CollectionId,
    /// By which path.
    pub path: QueryPath,
}

/// Tables that take more bytes than this are indexed while others write to them, which takes longer.
const BYTES_AT_ONCE: i64 = 8 << 20;

impl Wanted {
    /// What it is called after the name of the partition. The same paths have the same names.
    fn suffix(&self) -> String {
        let text = format!("{} {:?}", self.path.path, self.path.scalar);
        let (hash, _) = v5(EGRET_NAMESPACE, &text).as_u64_pair();
        format!("_by_{}_{hash:016x}", self.collection.0)
    }
}

/// Makes the indexes that there are to be and drops those of collections whose path is no more. One at a time does so.
///
/// # Errors
/// What the server says; what is missing is made next time.
pub async fn reconcile(client: &Client, wanted: &[Wanted]) -> Result<(), DocumentsError> {
    let partitions = "SELECT c.relname::text, pg_catalog.pg_relation_size(c.oid) FROM pg_catalog.pg_inherits AS i \
         JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'egret.document'::regclass ORDER BY 1";
    let partitions: Vec<(String, i64)> = client
        .query(partitions, &[])
        .await?
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let there = there(client).await?;
    let mut left: BTreeSet<&String> = there.keys().collect();
    for (partition, bytes) in &partitions {
        for one in wanted {
            let name = format!("{partition}{}", one.suffix());
            left.remove(&name);
            match there.get(&name) {
                Some(true) => continue,
                Some(false) => drop(client, &name).await?,
                None => {}
            }
            let concurrently = if *bytes > BYTES_AT_ONCE {
                "CONCURRENTLY"
            } else {
                ""
            };
            let sql = format!(
                "CREATE INDEX {concurrently} {name} ON egret.{partition} (tenant_id, {}, number) WHERE collection_id = {}",
                expression(&one.path, "body"),
                one.collection.0
            );
            client.batch_execute(&sql).await?;
        }
    }
    for name in left {
        drop(client, name).await?;
    }
    Ok(())
}

/// Indexes of paths that there are, and whether each is whole.
async fn there(client: &Client) -> Result<BTreeMap<String, bool>, DocumentsError> {
    let sql = "SELECT c.relname::text, x.indisvalid FROM pg_catalog.pg_index AS x \
         JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid \
         JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = x.indrelid \
         WHERE i.inhparent = 'egret.document'::regclass AND c.relname ~ '^document_[0-9]+_by_[0-9]+_[0-9a-f]{16}$'";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

async fn drop(client: &Client, name: &str) -> Result<(), DocumentsError> {
    let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS egret.{name}");
    Ok(client.batch_execute(&sql).await?)
}
