//! Collections and tenants as they are remembered in a database.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};
use serde_json::Value;

use super::install;
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName, TenantId};

/// A collection that is remembered.
#[derive(Clone, Debug)]
pub struct Remembered {
    /// Its number.
    pub id: CollectionId,
    /// As it was declared.
    pub definition: Value,
    /// How often it was changed, from 1.
    pub version: i32,
    /// When it was declared first.
    pub created_at: std::time::SystemTime,
    /// When it was changed last.
    pub changed_at: std::time::SystemTime,
}

/// All collections, by number.
///
/// # Errors
/// What the server says.
pub async fn collections(client: &impl GenericClient) -> Result<Vec<Remembered>, DocumentsError> {
    let sql = "SELECT collection_id, definition, version, created_at, changed_at FROM egret.collection ORDER BY collection_id";
    let rows = client.query(sql, &[]).await?;
    let each = rows.iter().map(|row| Remembered {
        id: CollectionId(row.get(0)),
        definition: row.get(1),
        version: row.get(2),
        created_at: row.get(3),
        changed_at: row.get(4),
    });
    Ok(each.collect())
}

/// What changes whenever a collection does.
///
/// # Errors
/// What the server says.
pub async fn state(client: &impl GenericClient) -> Result<(i64, i64), DocumentsError> {
    let sql = "SELECT count(*), coalesce(sum(version), 0)::bigint FROM egret.collection";
    let row = client.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Keeps others from changing collections until the transaction ends; documents go on being written.
///
/// # Errors
/// What the server says.
pub async fn lock(transaction: &Transaction<'_>) -> Result<(), DocumentsError> {
    let sql = "LOCK TABLE egret.collection IN SHARE ROW EXCLUSIVE MODE";
    Ok(transaction.batch_execute(sql).await?)
}

/// Remembers a collection: a new one, or another definition of one that is there.
///
/// # Errors
/// What the server says.
pub async fn remember(
    transaction: &Transaction<'_>,
    name: &CollectionName,
    definition: &Value,
) -> Result<(), DocumentsError> {
    let sql = "INSERT INTO egret.collection AS c (name, definition) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, version = c.version + 1, changed_at = now()";
    transaction
        .execute(sql, &[&name.as_str(), definition])
        .await?;
    Ok(())
}

/// Whether a collection has documents, of any tenant.
///
/// # Errors
/// What the server says.
pub async fn has_documents(
    transaction: &impl GenericClient,
    collection: CollectionId,
) -> Result<bool, DocumentsError> {
    let sql = "SELECT EXISTS (SELECT FROM egret.document_tenant AS t \
         JOIN egret.document AS d ON d.tenant_id = t.tenant_id AND d.collection_id = $1)";
    Ok(transaction.query_one(sql, &[&collection.0]).await?.get(0))
}

/// How many documents a database has; none: it has no collections.
///
/// # Errors
/// What the server says.
pub async fn count(client: &Client) -> Result<Option<i64>, DocumentsError> {
    if !install::is_installed(client).await? {
        return Ok(None);
    }
    let sql = "SELECT count(*) FROM egret.document";
    Ok(Some(client.query_one(sql, &[]).await?.get(0)))
}

/// The tenants that have documents, or had some.
///
/// # Errors
/// What the server says.
pub async fn tenants(
    client: &impl GenericClient,
) -> Result<BTreeMap<String, TenantId>, DocumentsError> {
    let sql = "SELECT name, tenant_id FROM egret.document_tenant";
    let rows = client.query(sql, &[]).await?;
    let each = rows.iter().map(|row| (row.get(0), TenantId(row.get(1))));
    Ok(each.collect())
}

/// The number of a tenant, who gets one if there is none yet.
///
/// # Errors
/// What the server says.
pub async fn tenant(client: &Client, name: &str) -> Result<TenantId, DocumentsError> {
    let made = "INSERT INTO egret.document_tenant (name) VALUES ($1) ON CONFLICT DO NOTHING";
    client.execute(made, &[&name]).await?;
    // Another statement: it sees the one that somebody else has just made.
    let sql = "SELECT tenant_id FROM egret.document_tenant WHERE name = $1";
    Ok(TenantId(client.query_one(sql, &[&name]).await?.get(0)))
}
