//! Collections and tenants stored in a database.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};
use serde_json::Value;

use super::install;
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName, TenantId};

/// Stored row of a collection.
#[derive(Clone, Debug)]
pub(crate) struct CollectionRow {
    pub id: CollectionId,
    /// The definition as it was declared.
    pub definition: Value,
    /// Version of the definition, from 1.
    pub version: i32,
    /// Time of the first declaration.
    pub created_at: std::time::SystemTime,
    /// Time of the last change.
    pub changed_at: std::time::SystemTime,
}

/// All collections, by number.
pub(crate) async fn read_collections(
    client: &impl GenericClient,
) -> Result<Vec<CollectionRow>, DocumentsError> {
    let sql = "SELECT collection_id, definition, version, created_at, changed_at FROM egret.collection ORDER BY collection_id";
    let rows = client.query(sql, &[]).await?;
    let each = rows.iter().map(|row| CollectionRow {
        id: CollectionId(row.get(0)),
        definition: row.get(1),
        version: row.get(2),
        created_at: row.get(3),
        changed_at: row.get(4),
    });
    Ok(each.collect())
}

/// A fingerprint that changes whenever a collection does: number of collections, sum of versions.
pub async fn fingerprint(client: &impl GenericClient) -> Result<(i64, i64), DocumentsError> {
    let sql = "SELECT count(*), coalesce(sum(version), 0)::bigint FROM egret.collection";
    let row = client.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Locks collections against other changes until the transaction ends; documents can still be
/// written.
pub(crate) async fn lock_collections(transaction: &Transaction<'_>) -> Result<(), DocumentsError> {
    let sql = "LOCK TABLE egret.collection IN SHARE ROW EXCLUSIVE MODE";
    Ok(transaction.batch_execute(sql).await?)
}

/// Stores a new collection, or the new definition of an existing one.
pub(crate) async fn put_collection(
    transaction: &Transaction<'_>,
    name: &CollectionName,
    definition: &Value,
) -> Result<(), DocumentsError> {
    let sql = "INSERT INTO egret.collection AS c (name, definition) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, version = c.version + 1, changed_at = now()";
    transaction.execute(sql, &[&name.as_str(), definition]).await?;
    Ok(())
}

/// Whether a collection has documents, of any tenant.
pub(crate) async fn has_documents(
    transaction: &impl GenericClient,
    collection: CollectionId,
) -> Result<bool, DocumentsError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.document_tenant AS t \
         JOIN egret.document AS d ON d.tenant_id = t.tenant_id AND d.collection_id = $1)";
    Ok(transaction.query_one(sql, &[&collection.0]).await?.get(0))
}

/// Number of documents in a database; none: it has no collections.
pub async fn count(client: &Client) -> Result<Option<i64>, DocumentsError> {
    if !install::is_installed(client).await? {
        return Ok(None);
    }
    let sql = "SELECT count(*) FROM egret.document";
    Ok(Some(client.query_one(sql, &[]).await?.get(0)))
}

/// All tenants that have or had documents, by name.
pub(crate) async fn read_tenants(
    client: &impl GenericClient,
) -> Result<BTreeMap<String, TenantId>, DocumentsError> {
    let sql = "SELECT name, tenant_id FROM egret.document_tenant";
    let rows = client.query(sql, &[]).await?;
    let each = rows.iter().map(|row| (row.get(0), TenantId(row.get(1))));
    Ok(each.collect())
}

/// Number of a tenant, which is assigned on first use.
pub(crate) async fn get_or_create_tenant(
    client: &Client,
    name: &str,
) -> Result<TenantId, DocumentsError> {
    let insert_sql = "INSERT INTO egret.document_tenant (name) VALUES ($1) ON CONFLICT DO NOTHING";
    client.execute(insert_sql, &[&name]).await?;
    // A separate statement, to see a row that another session has just inserted.
    let sql = "SELECT tenant_id FROM egret.document_tenant WHERE name = $1";
    Ok(TenantId(client.query_one(sql, &[&name]).await?.get(0)))
}
