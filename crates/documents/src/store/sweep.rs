//! Deletion of expired rows.
//!
//! Rows carry the database's time. It is compared with the earlier of that time and Egret's own, so
//! that a clock of the database's machine that jumps ahead does not expire anything.

use crate::model::CollectionId;
use std::time::SystemTime;

use egret_postgres::tokio_postgres::{Client, Error as PgError};

/// Rows deleted by one statement, at most.
const BATCH_ROWS: i64 = 5_000;

/// Deletes replies to idempotent requests older than this. Returns how many were deleted.
pub(crate) async fn delete_requests(
    client: &Client,
    as_of: SystemTime,
    seconds: f64,
) -> Result<u64, PgError> {
    let sql = "DELETE FROM egret.document_request WHERE (tenant_id, key) IN (SELECT tenant_id, key FROM egret.document_request \
         WHERE at < least(now(), $3) - make_interval(secs => $1) LIMIT $2)";
    let mut deleted = 0;
    loop {
        let count = client.execute(sql, &[&seconds, &BATCH_ROWS, &as_of]).await?;
        deleted += count;
        if count < BATCH_ROWS as u64 {
            return Ok(deleted);
        }
    }
}

/// Deletes changes older than this from the beginning of the feed, so that it has no gap. The last
/// transaction is kept: the next position follows from it.
pub(crate) async fn trim_feed(
    client: &Client,
    as_of: SystemTime,
    seconds: f64,
) -> Result<(), PgError> {
    let sql = "WITH first AS (SELECT position, at FROM egret.document_feed ORDER BY position LIMIT $2), \
         young AS (SELECT min(position) AS position FROM first WHERE at >= least(now(), $3) - make_interval(secs => $1)), \
         gone AS (DELETE FROM egret.document_feed WHERE position IN (SELECT first.position FROM first, young \
             WHERE young.position IS NULL OR first.position < young.position) \
             AND position < (SELECT max(position) FROM egret.document_feed) RETURNING position), \
         told AS (UPDATE egret.document_owner SET forgotten = (SELECT max(position) FROM gone) WHERE EXISTS (SELECT FROM gone)) \
         SELECT count(*) FROM gone";
    loop {
        let row = client.query_one(sql, &[&seconds, &BATCH_ROWS, &as_of]).await?;
        let deleted: i64 = row.get(0);
        if deleted < BATCH_ROWS {
            return Ok(());
        }
    }
}

/// Deletes versions of a collection's documents that were replaced more than `days` ago.
pub(crate) async fn delete_versions(
    client: &Client,
    as_of: SystemTime,
    collection: CollectionId,
    days: i32,
) -> Result<(), PgError> {
    let sql = "DELETE FROM egret.document_version WHERE (tenant_id, collection_id, number, version) IN ( \
             SELECT tenant_id, collection_id, number, version FROM egret.document_version \
             WHERE collection_id = $1 AND replaced_at < least(now(), $4) - make_interval(days => $2) LIMIT $3)";
    loop {
        let deleted = client.execute(sql, &[&collection, &days, &BATCH_ROWS, &as_of]).await?;
        if deleted < BATCH_ROWS as u64 {
            return Ok(());
        }
    }
}

/// Documents of a tenant's collection with numbers between two bounds, exclusive: their ids, and
/// whether others refer to them.
pub(crate) const EXPIRED_DOCUMENTS_SQL: &str = "SELECT d.id, EXISTS (SELECT FROM egret.document_reference AS e \
         WHERE e.tenant_id = d.tenant_id AND e.target = d.number AND e.source <> d.number) \
     FROM egret.document AS d \
     WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number > $3 AND d.number < $4 ORDER BY d.number LIMIT $5";
