//! Statements that rebuild aliases and references when definitions change.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Error as PgError, GenericClient};
use uuid::Uuid;

use super::edges::{EdgeKeys, EdgeRows};
use super::query::BoundedChunks;
use crate::core::edges::{assign_slots, changed_rows};
use crate::model::{CollectionId, CollectionKey, DocumentId, DocumentNumber, TenantId};

/// The columns of a document that a rebuild needs.
#[derive(Clone, Debug)]
pub struct RebuildRow {
    pub tenant: TenantId,
    pub id: DocumentId,
    pub body: String,
    /// Numbers of the documents that it refers to.
    pub targets: Vec<DocumentNumber>,
}

/// Documents of a tenant and collection after a number, in order.
pub async fn read_page(
    client: &impl GenericClient,
    key: CollectionKey,
    after: DocumentNumber,
    chunks: &mut BoundedChunks,
) -> Result<Vec<RebuildRow>, PgError> {
    let sql = "SELECT d.tenant_id, d.id, d.body::text, d.targets FROM egret.document AS d \
         WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number > $3 ORDER BY d.number LIMIT $4";
    let parameters: [&(dyn ToSql + Sync); 3] = [&key.tenant, &key.collection, &after];
    let rows = chunks.next(client, sql, &parameters).await?;
    Ok(rows.iter().map(rebuild_row).collect())
}

/// Those of these documents that exist, of any tenant.
pub(crate) async fn read_documents(
    client: &impl GenericClient,
    collection: CollectionId,
    documents: &[(TenantId, DocumentId)],
) -> Result<Vec<RebuildRow>, PgError> {
    let sql = "SELECT d.tenant_id, d.id, d.body::text, d.targets FROM unnest($2::integer[], $3::bigint[]) AS w (tenant_id, number) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = $1 AND d.number = w.number OFFSET 0) AS d";
    let tenants: Vec<TenantId> = documents.iter().map(|(tenant, _)| *tenant).collect();
    let numbers: Vec<DocumentNumber> = documents.iter().map(|(_, id)| id.number()).collect();
    let rows = client.query(sql, &[&collection, &tenants, &numbers]).await?;
    Ok(rows.iter().map(rebuild_row).collect())
}

fn rebuild_row(row: &egret_postgres::tokio_postgres::Row) -> RebuildRow {
    RebuildRow {
        tenant: row.get(0),
        id: DocumentId::from_stored(row.get(1)),
        body: row.get(2),
        targets: row.get(3),
    }
}

/// New aliases of documents, column by column.
#[derive(Debug, Default)]
pub(crate) struct AliasRows {
    pub tenants: Vec<TenantId>,
    pub aliases: Vec<Uuid>,
    pub numbers: Vec<DocumentNumber>,
}

/// Documents whose references change, column by column.
#[derive(Debug, Default)]
pub(crate) struct ReferenceRows {
    pub tenants: Vec<TenantId>,
    pub numbers: Vec<DocumentNumber>,
    /// End of each document's targets in `targets`.
    pub ends: Vec<i32>,
    /// Numbers of all targets, document after document.
    pub targets: Vec<DocumentNumber>,
    /// Rows of edges to insert.
    inserted: EdgeRows,
    /// Rows of edges to delete, by their first targets.
    deleted: EdgeKeys,
}

impl ReferenceRows {
    /// Adds a document with its new targets, each once, unless they are the same as before.
    pub(crate) fn push(
        &mut self,
        row: &RebuildRow,
        collection: CollectionId,
        targets: &[DocumentNumber],
    ) {
        let order = assign_slots(&row.targets, targets);
        if row.targets == order {
            return;
        }
        let number = row.id.number();
        let (deleted, new) = changed_rows(&row.targets, &order);
        for edges in deleted {
            self.deleted.push(row.tenant, edges[0], number);
        }
        let key = CollectionKey::new(row.tenant, collection);
        for edges in new {
            self.inserted.push(key, edges, number);
        }
        self.tenants.push(row.tenant);
        self.numbers.push(number);
        self.targets.extend(order);
        let end =
            i32::try_from(self.targets.len()).expect("a page has a limited number of documents");
        self.ends.push(end);
    }
}

/// Deletes all aliases of a collection.
pub(crate) async fn delete_aliases(
    client: &impl GenericClient,
    collection: CollectionId,
) -> Result<(), PgError> {
    let sql = "DELETE FROM egret.document_alias WHERE collection_id = $1";
    client.execute(sql, &[&collection.0]).await.map(drop)
}

/// Inserts aliases, except those that belong to another document already. Returns how many were not
/// inserted.
pub(crate) async fn insert_aliases(
    client: &impl GenericClient,
    collection: CollectionId,
    rows: &AliasRows,
) -> Result<u64, PgError> {
    let sql = "INSERT INTO egret.document_alias (tenant_id, collection_id, alias, number) \
         SELECT n.tenant_id, $1, n.alias, n.number FROM unnest($2::integer[], $3::uuid[], $4::bigint[]) AS n (tenant_id, alias, number) \
         ON CONFLICT DO NOTHING";
    let AliasRows { tenants, aliases, numbers } = rows;
    let values: [&(dyn ToSql + Sync); 4] = [&collection, tenants, aliases, numbers];
    let inserted = client.execute(sql, &values).await?;
    Ok(numbers.len() as u64 - inserted)
}

/// Stores the new targets and edges of documents.
pub(crate) async fn update_references(
    client: &impl GenericClient,
    collection: CollectionId,
    rows: &ReferenceRows,
) -> Result<(), PgError> {
    let delete_sql = "DELETE FROM egret.document_edge AS e \
         USING unnest($1::integer[], $2::bigint[], $3::bigint[]) AS g (tenant_id, target, source) \
         WHERE e.tenant_id = g.tenant_id AND e.target = g.target AND e.source = g.source";
    let deleted = &rows.deleted;
    client.execute(delete_sql, &[&deleted.tenants, &deleted.targets, &deleted.sources]).await?;
    let update_sql = "UPDATE egret.document AS d SET targets = ($4::bigint[])[c.begun + 1 : c.ended] \
         FROM (SELECT x.*, lag(x.ended, 1, 0) OVER (ORDER BY x.place) AS begun \
               FROM unnest($2::integer[], $3::bigint[], $5::integer[]) WITH ORDINALITY AS x (tenant_id, number, ended, place)) AS c \
         WHERE d.tenant_id = c.tenant_id AND d.collection_id = $1 AND d.number = c.number";
    let values: [&(dyn ToSql + Sync); 5] =
        [&collection, &rows.tenants, &rows.numbers, &rows.targets, &rows.ends];
    client.execute(update_sql, &values).await?;
    rows.inserted.write(client).await
}
