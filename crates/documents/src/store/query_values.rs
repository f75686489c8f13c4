//! Values of documents at the declared query paths: which paths there are, and the values of
//! documents that existed before their path.
//!
//! Triggers of `egret.document` maintain the values of every path that is not being dropped. Only
//! one session at a time adds missing values and deletes those of dropped paths: the one that holds
//! the lock.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Error as PgError, GenericClient};
use serde_json::Value;

use crate::core::definition::QueryPath;
use crate::core::path::Segment;
use crate::core::schema::Scalar;
use crate::model::{CollectionId, DocumentNumber, TenantId};

/// A query path of a collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueryPathSpec {
    /// Collection whose documents have the values.
    pub collection: CollectionId,
    /// Path and type of the values.
    pub path: QueryPath,
}

/// Query paths of a collection whose values are complete up to the same document.
#[derive(Clone, Debug)]
pub(crate) struct UnbuiltPaths {
    pub collection: CollectionId,
    pub tenant: TenantId,
    pub number: DocumentNumber,
    pub path_ids: Vec<i32>,
}

/// Documents whose values are added in one transaction, which blocks their changes meanwhile.
pub(crate) const BUILD_DOCUMENTS_MAX: i64 = 200;

/// Values of a dropped path that are deleted in one transaction.
const DROP_VALUES_MAX: i64 = 5_000;

/// The first eight bytes of SHA-256("egret/documents/indexes").
const LOCK_KEY: i64 = 0xfefe_b800_14e4_0a8b_u64.cast_signed();

/// Tries to take the lock. Does not wait: a waiting statement holds a snapshot, and the removal of
/// indexes of earlier versions waits for all older snapshots, so both would block each other.
pub(crate) async fn try_lock(client: &Client) -> Result<bool, PgError> {
    let sql = "SELECT pg_catalog.pg_try_advisory_lock($1)";
    Ok(client.query_one(sql, &[&LOCK_KEY]).await?.get(0))
}

/// Releases the lock, as does the end of the session.
pub(crate) async fn unlock(client: &Client) -> Result<(), PgError> {
    let sql = "SELECT pg_catalog.pg_advisory_unlock($1)";
    client.execute(sql, &[&LOCK_KEY]).await?;
    Ok(())
}

/// Names of the properties that lead to the value.
pub(super) fn property_names(path: &QueryPath) -> Vec<&str> {
    let segments = path.path.segments().iter();
    let names = segments.map(|segment| match segment {
        Segment::Property(name) => name.as_str(),
        Segment::Each => unreachable!("query paths have no `*`"),
    });
    names.collect()
}

/// Letter of the type of a path's values in `egret.query_path`.
pub(super) fn kind_letter(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "s",
        Scalar::Integer | Scalar::Number => "n",
        Scalar::Boolean => "b",
    }
}

/// Makes the stored query paths equal to the required ones. The caller is the owner and has no
/// write in progress, nor has any other Egret: every later write maintains the values of new paths.
pub(crate) async fn sync_paths(
    client: &impl GenericClient,
    required: &[QueryPathSpec],
) -> Result<(), PgError> {
    // Without documents there are no values to add.
    let sql = "WITH required AS MATERIALIZED ( \
             SELECT DISTINCT r.collection_id, r.kind::\"char\" AS kind, \
                 ARRAY(SELECT e.name FROM pg_catalog.jsonb_array_elements_text(r.path) WITH ORDINALITY AS e (name, place) ORDER BY e.place) AS path \
             FROM unnest($1::integer[], $2::jsonb[], $3::text[]) AS r (collection_id, path, kind)), \
         dropped AS (UPDATE egret.query_path AS p SET state = 'd' WHERE p.state <> 'd' AND NOT EXISTS ( \
             SELECT FROM required AS r WHERE r.collection_id = p.collection_id AND r.path = p.path AND r.kind = p.kind)) \
         INSERT INTO egret.query_path (collection_id, path, kind, is_plain, state) \
         SELECT r.collection_id, r.path, r.kind, \
             NOT EXISTS (SELECT FROM pg_catalog.unnest(r.path) AS n WHERE n ~ '^[[:space:]+-]*[0-9]+$'), \
             CASE WHEN EXISTS (SELECT FROM egret.document_tenant AS t \
                 CROSS JOIN LATERAL (SELECT FROM egret.document AS d \
                     WHERE d.tenant_id = t.tenant_id AND d.collection_id = r.collection_id LIMIT 1) AS d) THEN 'b' ELSE 'a' END \
         FROM required AS r WHERE NOT EXISTS (SELECT FROM egret.query_path AS p \
             WHERE p.state <> 'd' AND p.collection_id = r.collection_id AND p.path = r.path AND p.kind = r.kind)";
    let collections: Vec<CollectionId> = required.iter().map(|spec| spec.collection).collect();
    let paths: Vec<Value> = required.iter().map(|spec| property_names(&spec.path).into()).collect();
    let kinds: Vec<&str> = required.iter().map(|spec| kind_letter(spec.path.scalar)).collect();
    client.execute(sql, &[&collections, &paths, &kinds]).await.map(drop)
}

/// Whether all values are complete and no values of dropped paths are left.
pub(crate) async fn are_complete(client: &Client) -> Result<bool, PgError> {
    let sql = "SELECT NOT EXISTS (SELECT FROM egret.query_path AS p WHERE p.state <> 'a' \
             OR NOT EXISTS (SELECT FROM egret.collection AS c WHERE c.collection_id = p.collection_id))";
    let is_complete: bool = client.query_one(sql, &[]).await?.get(0);
    Ok(is_complete && old_indexes(client).await?.is_empty())
}

/// Marks the paths of collections that no longer exist as dropped.
pub(crate) async fn drop_orphans(client: &Client) -> Result<(), PgError> {
    let sql = "UPDATE egret.query_path AS p SET state = 'd' WHERE p.state <> 'd' \
         AND NOT EXISTS (SELECT FROM egret.collection AS c WHERE c.collection_id = p.collection_id)";
    client.execute(sql, &[]).await.map(drop)
}

/// Paths of dropped definitions, by number.
pub(crate) async fn dropped_paths(client: &Client) -> Result<Vec<i32>, PgError> {
    let sql = "SELECT path_id FROM egret.query_path WHERE state = 'd' ORDER BY path_id";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Deletes some values of a dropped path, and the path after the last one. Returns whether it is
/// gone.
pub(crate) async fn delete_values(client: &Client, path: i32) -> Result<bool, PgError> {
    let sql = "DELETE FROM egret.document_value AS v WHERE v.ctid = ANY (ARRAY( \
         SELECT x.ctid FROM egret.document_value AS x WHERE x.path_id = $1 LIMIT $2))";
    if client.execute(sql, &[&path, &DROP_VALUES_MAX]).await? > 0 {
        return Ok(false);
    }
    let sql = "DELETE FROM egret.query_path WHERE path_id = $1 AND state = 'd'";
    client.execute(sql, &[&path]).await?;
    Ok(true)
}

/// Paths that lack values of earlier documents, those of a collection with the same progress
/// together.
pub(crate) async fn unbuilt_paths(client: &Client) -> Result<Vec<UnbuiltPaths>, PgError> {
    let sql = "SELECT collection_id, built_tenant, built_number, pg_catalog.array_agg(path_id ORDER BY path_id) \
         FROM egret.query_path WHERE state = 'b' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    let rows = client.query(sql, &[]).await?;
    let groups = rows.iter().map(|row| UnbuiltPaths {
        collection: row.get(0),
        tenant: row.get(1),
        number: row.get(2),
        path_ids: row.get(3),
    });
    Ok(groups.collect())
}

/// Adds the values of the next documents of a tenant. Returns whether there were any.
pub(crate) async fn build_values(
    client: &Client,
    paths: &mut UnbuiltPaths,
) -> Result<bool, PgError> {
    // The lock makes changes of the documents wait, so that no value of an earlier version is added
    // after a writer has looked for it.
    let sql = "WITH page AS MATERIALIZED (SELECT d.tenant_id, d.number, d.body FROM egret.document AS d \
             WHERE d.tenant_id = $2 AND d.collection_id = $1 AND d.number > $3 ORDER BY d.number LIMIT $4 FOR SHARE), \
         added AS (INSERT INTO egret.document_value (path_id, tenant_id, number, has_value, number_key, string_key) \
             SELECT p.path_id, d.tenant_id, d.number, k.has_value, k.number_key, k.string_key \
             FROM page AS d JOIN egret.query_path AS p ON p.path_id = ANY ($5) AND p.state = 'b' \
             CROSS JOIN LATERAL egret.document_key(d.body, p.path, p.kind, p.is_plain) AS k \
             ON CONFLICT DO NOTHING), \
         reached AS (SELECT max(number) AS number FROM page), \
         recorded AS (UPDATE egret.query_path AS p SET built_tenant = $2, built_number = r.number \
             FROM reached AS r WHERE p.path_id = ANY ($5) AND r.number IS NOT NULL) \
         SELECT number FROM reached";
    let values: [&(dyn ToSql + Sync); 5] =
        [&paths.collection, &paths.tenant, &paths.number, &BUILD_DOCUMENTS_MAX, &paths.path_ids];
    let reached: Option<DocumentNumber> = client.query_one(sql, &values).await?.get(0);
    if let Some(number) = reached {
        paths.number = number;
    }
    Ok(reached.is_some())
}

/// Lets queries use the values of paths: they are complete.
pub(crate) async fn activate(client: &Client, path_ids: &[i32]) -> Result<(), PgError> {
    let sql = "UPDATE egret.query_path SET state = 'a' WHERE path_id = ANY ($1) AND state = 'b'";
    client.execute(sql, &[&path_ids]).await.map(drop)
}

/// Names of indexes on single paths, which earlier versions of Egret made.
pub(crate) async fn old_indexes(client: &Client) -> Result<Vec<String>, PgError> {
    let sql = "SELECT c.relname::text FROM pg_catalog.pg_index AS x \
         JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid \
         JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = x.indrelid \
         WHERE i.inhparent = 'egret.document'::regclass AND c.relname ~ '^document_[0-9]+_by_[0-9]+_[0-9a-f]{16}$' ORDER BY 1";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Drops an index of an earlier version, while documents are written.
pub(crate) async fn drop_index(client: &Client, name: &str) -> Result<(), PgError> {
    let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS egret.{name}");
    client.batch_execute(&sql).await
}
