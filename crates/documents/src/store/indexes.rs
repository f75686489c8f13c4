//! Indexes by which documents are found: one for each declared path, of that collection's documents alone, in each partition.
//!
//! One session at a time makes and drops them: the one that holds a lock, under which it has read what there is to be.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, Error as PgError};

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

/// The first eight bytes of SHA-256("egret/documents/indexes").
const INDEXES_KEY: i64 = 0xfefe_b800_14e4_0a8b_u64.cast_signed();

/// Takes the lock, if nobody else has it. It is not waited for: the server builds an index beside writers only when no statement that began before
/// is left, and one that waits for the lock would be.
///
/// # Errors
/// What the server says.
pub async fn try_lock(client: &Client) -> Result<bool, PgError> {
    let sql = "SELECT pg_catalog.pg_try_advisory_lock($1)";
    Ok(client.query_one(sql, &[&INDEXES_KEY]).await?.get(0))
}

/// Gives the lock back. A session that ends does so, too.
///
/// # Errors
/// What the server says.
pub async fn unlock(client: &Client) -> Result<(), PgError> {
    let sql = "SELECT pg_catalog.pg_advisory_unlock($1)";
    client.execute(sql, &[&INDEXES_KEY]).await?;
    Ok(())
}

impl Wanted {
    /// What it is called after the name of the partition. What is indexed alike is called alike, and nothing else is.
    fn suffix(&self) -> String {
        let (hash, _) = v5(EGRET_NAMESPACE, expression(&self.path, "body")).as_u64_pair();
        format!("_by_{}_{hash:016x}", self.collection.0)
    }
}

/// What there is to be done.
#[derive(Debug, Default)]
struct Difference {
    /// Names of indexes that are not to be there, or are not whole.
    surplus: Vec<String>,
    /// Statements that make those that are not there.
    missing: Vec<String>,
}

impl Difference {
    async fn between(client: &Client, wanted: &[Wanted]) -> Result<Self, PgError> {
        let partitions = "SELECT c.relname::text, pg_catalog.pg_relation_size(c.oid) FROM pg_catalog.pg_inherits AS i \
             JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'egret.document'::regclass ORDER BY 1";
        let partitions = client.query(partitions, &[]).await?;
        let mut there = there(client).await?;
        let mut missing = Vec::new();
        for row in &partitions {
            let (partition, bytes): (&str, i64) = (row.get(0), row.get(1));
            for one in wanted {
                let name = format!("{partition}{}", one.suffix());
                let is_whole = there.get(&name) == Some(&true);
                if is_whole {
                    there.remove(&name);
                    continue;
                }
                let concurrently = if bytes > BYTES_AT_ONCE {
                    "CONCURRENTLY"
                } else {
                    ""
                };
                missing.push(format!(
                    "CREATE INDEX {concurrently} {name} ON egret.{partition} (tenant_id, {}, number) WHERE collection_id = {}",
                    expression(&one.path, "body"),
                    one.collection.0
                ));
            }
        }
        Ok(Self {
            surplus: there.into_keys().collect(),
            missing,
        })
    }
}

/// Whether the indexes that there are to be are there, and no others.
///
/// # Errors
/// What the server says.
pub async fn are_right(client: &Client, wanted: &[Wanted]) -> Result<bool, DocumentsError> {
    let difference = Difference::between(client, wanted).await?;
    Ok(difference.surplus.is_empty() && difference.missing.is_empty())
}

/// Makes the indexes that there are to be and drops the others. Whoever does so holds the lock.
///
/// # Errors
/// What the server says of the first that it did not make; what is missing is made next time.
pub async fn reconcile(client: &Client, wanted: &[Wanted]) -> Result<(), DocumentsError> {
    let difference = Difference::between(client, wanted).await?;
    // First what goes: nothing is found by it, and documents need not be any more what it takes.
    for name in &difference.surplus {
        let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS egret.{name}");
        client.batch_execute(&sql).await?;
    }
    let mut outcome = Ok(());
    for sql in &difference.missing {
        let made = client.batch_execute(sql).await;
        outcome = outcome.and(made.map_err(DocumentsError::from));
    }
    outcome
}

/// Indexes of paths that there are, and whether each is whole.
async fn there(client: &Client) -> Result<BTreeMap<String, bool>, PgError> {
    let sql = "SELECT c.relname::text, x.indisvalid FROM pg_catalog.pg_index AS x \
         JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid \
         JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = x.indrelid \
         WHERE i.inhparent = 'egret.document'::regclass AND c.relname ~ '^document_[0-9]+_by_[0-9]+_[0-9a-f]{16}$'";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
