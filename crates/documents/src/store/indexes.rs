//! Indexes for queries: one for each declared query path, on the documents of its collection, in
//! each partition.
//!
//! Only one session at a time creates and drops indexes: the one that holds the lock, under which
//! it has read the requirements.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, Error as PgError};

use super::query::expression;
use crate::core::definition::QueryPath;
use crate::core::identity::{EGRET_NAMESPACE, uuid_v5};
use crate::error::DocumentsError;
use crate::model::CollectionId;

/// An index that the collections require.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// Collection whose documents are indexed.
    pub collection: CollectionId,
    /// Path whose values are the key.
    pub path: QueryPath,
}

/// Size of a table in bytes above which indexes are built concurrently, which is slower but does
/// not block writes.
const BLOCKING_BUILD_BYTES_MAX: i64 = 8 << 20;

/// The first eight bytes of SHA-256("egret/documents/indexes").
const INDEX_LOCK_KEY: i64 = 0xfefe_b800_14e4_0a8b_u64.cast_signed();

/// Tries to take the lock. Does not wait: a waiting statement holds a snapshot, and concurrent
/// index builds wait for all older snapshots, so both would block each other.
pub async fn try_lock(client: &Client) -> Result<bool, PgError> {
    let sql = "SELECT pg_catalog.pg_try_advisory_lock($1)";
    Ok(client.query_one(sql, &[&INDEX_LOCK_KEY]).await?.get(0))
}

/// Releases the lock, as does the end of the session.
pub(crate) async fn unlock(client: &Client) -> Result<(), PgError> {
    let sql = "SELECT pg_catalog.pg_advisory_unlock($1)";
    client.execute(sql, &[&INDEX_LOCK_KEY]).await?;
    Ok(())
}

impl IndexSpec {
    /// Suffix of the index's name after the name of its partition. It contains a hash of the
    /// indexed expression, so equal names mean equal indexes.
    fn suffix(&self) -> String {
        let (hash, _) = uuid_v5(EGRET_NAMESPACE, expression(&self.path, "body")).as_u64_pair();
        format!("_by_{}_{hash:016x}", self.collection.0)
    }
}

/// Changes that make the indexes match the requirements.
#[derive(Debug, Default)]
struct IndexDiff {
    /// Names of indexes that are not required, or are invalid.
    surplus: Vec<String>,
    /// Statements that create the missing ones.
    missing: Vec<String>,
}

impl IndexDiff {
    async fn between(client: &Client, required: &[IndexSpec]) -> Result<Self, PgError> {
        let partitions = "SELECT c.relname::text, pg_catalog.pg_relation_size(c.oid) FROM pg_catalog.pg_inherits AS i \
             JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'egret.document'::regclass ORDER BY 1";
        let partitions = client.query(partitions, &[]).await?;
        let mut existing = read_indexes(client).await?;
        let mut missing = Vec::new();
        for row in &partitions {
            let (partition, bytes): (&str, i64) = (row.get(0), row.get(1));
            for spec in required {
                let name = format!("{partition}{}", spec.suffix());
                let is_valid = existing.get(&name) == Some(&true);
                if is_valid {
                    existing.remove(&name);
                    continue;
                }
                let concurrently =
                    if bytes > BLOCKING_BUILD_BYTES_MAX { "CONCURRENTLY" } else { "" };
                missing.push(format!(
                    "CREATE INDEX {concurrently} {name} ON egret.{partition} (tenant_id, {}, number) WHERE collection_id = {}",
                    expression(&spec.path, "body"),
                    spec.collection.0
                ));
            }
        }
        Ok(Self { surplus: existing.into_keys().collect(), missing })
    }
}

/// Whether exactly the required indexes exist.
pub(crate) async fn are_current(
    client: &Client,
    required: &[IndexSpec],
) -> Result<bool, DocumentsError> {
    let diff = IndexDiff::between(client, required).await?;
    Ok(diff.surplus.is_empty() && diff.missing.is_empty())
}

/// Creates missing indexes and drops all others. The caller holds the lock.
///
/// On an error the remaining indexes are still created; the first error is returned, and the
/// missing ones are created next time.
pub async fn reconcile(client: &Client, required: &[IndexSpec]) -> Result<(), DocumentsError> {
    let diff = IndexDiff::between(client, required).await?;
    // Drop first: no query uses these indexes, and documents may no longer fit into them.
    for name in &diff.surplus {
        let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS egret.{name}");
        client.batch_execute(&sql).await?;
    }
    let mut result = Ok(());
    for sql in &diff.missing {
        let created = client.batch_execute(sql).await;
        result = result.and(created.map_err(DocumentsError::from));
    }
    result
}

/// Existing indexes on paths, and whether each is valid.
async fn read_indexes(client: &Client) -> Result<BTreeMap<String, bool>, PgError> {
    let sql = "SELECT c.relname::text, x.indisvalid FROM pg_catalog.pg_index AS x \
         JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid \
         JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = x.indrelid \
         WHERE i.inhparent = 'egret.document'::regclass AND c.relname ~ '^document_[0-9]+_by_[0-9]+_[0-9a-f]{16}$'";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
