//! Pages of documents, aliases and edges with their counterparts, for the consistency check.

use std::collections::HashMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{
    Client, Error as PgError, GenericClient, Statement, ToStatement,
};
use futures_util::future::try_join_all;
use uuid::Uuid;

use super::edges::EdgeRows;
use super::query::BoundedChunks;
use crate::core::edges::EDGE_ROW_WIDTH;
use crate::model::{CollectionId, CollectionKey, DocumentNumber, TenantId};

/// Rows of a page, at most.
pub const PAGE_ROWS_MAX: u32 = 1_000;

/// Prepared statements of the consistency check, with a plan for every partition. `OFFSET 0` forces
/// a lookup for each row, whatever the planner estimates for tables without statistics.
pub(crate) struct CheckStatements {
    documents: Statement,
    document: Statement,
    /// The statement to pass to [`read_alias_owners`].
    pub alias_owners: Statement,
    aliases: Statement,
    alias: Statement,
    edges: Statement,
}

impl CheckStatements {
    /// Prepares the statements on a session.
    pub(crate) async fn prepare(client: &Client) -> Result<Self, PgError> {
        let sql = [documents_sql(), document_sql(), aliases_sql(), alias_sql(), edges_sql()];
        let sql = sql.iter().map(String::as_str);
        let texts = sql.chain([ALIAS_OWNERS_SQL]);
        let prepared = try_join_all(texts.map(|sql| client.prepare(sql))).await?;
        let [documents, document, aliases, alias, edges, alias_owners] =
            prepared.try_into().expect("one statement for each text was prepared");
        Ok(Self { documents, document, alias_owners, aliases, alias, edges })
    }
}

/// Key of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentKey {
    pub tenant: TenantId,
    pub collection: CollectionId,
    pub number: DocumentNumber,
}

/// A document with the edges from it to its stored targets.
#[derive(Clone, Debug)]
pub(crate) struct CheckRow {
    pub tenant: TenantId,
    pub collection: CollectionId,
    pub number: DocumentNumber,
    pub id: Uuid,
    pub body: String,
    /// Targets stored with the document, by number.
    pub targets: Vec<DocumentNumber>,
    /// Those of them to which there is an edge, in the order of the rows of edges.
    pub edges: Vec<DocumentNumber>,
}

impl CheckRow {
    /// Key of the document.
    pub(crate) fn key(&self) -> DocumentKey {
        DocumentKey { tenant: self.tenant, collection: self.collection, number: self.number }
    }
}

const DOCUMENTS_SQL: &str = "SELECT d.tenant_id, d.collection_id, d.number, d.id, d.body::text, d.targets, \
             ARRAY(SELECT s.target FROM generate_series(1, cardinality(d.targets), 4) AS p (place) \
                 CROSS JOIN LATERAL (SELECT * FROM egret.document_edge AS e WHERE e.tenant_id = d.tenant_id \
                     AND e.target = d.targets[p.place] AND e.source = d.number AND e.collection_id = d.collection_id OFFSET 0) AS e \
                 CROSS JOIN LATERAL unnest(ARRAY[e.target, e.target_2, e.target_3, e.target_4]) WITH ORDINALITY AS s (target, slot) \
                 WHERE s.target IS NOT NULL ORDER BY p.place, s.slot) \
         FROM egret.document AS d";

fn documents_sql() -> String {
    format!(
        "{DOCUMENTS_SQL} WHERE (d.tenant_id, d.collection_id, d.number) > ($1, $2, $3) \
         ORDER BY d.tenant_id, d.collection_id, d.number LIMIT $4"
    )
}

fn document_sql() -> String {
    format!("{DOCUMENTS_SQL} WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number = $3")
}

/// The next documents after a key, ordered by tenant, collection and number.
pub(crate) async fn read_documents(
    client: &impl GenericClient,
    statements: &CheckStatements,
    after: DocumentKey,
    chunks: &mut BoundedChunks,
) -> Result<Vec<CheckRow>, PgError> {
    let parameters: [&(dyn ToSql + Sync); 3] = [&after.tenant, &after.collection, &after.number];
    let rows = chunks.next(client, &statements.documents, &parameters).await?;
    Ok(rows.iter().map(check_row).collect())
}

/// Reads one document by its key.
pub(crate) async fn read_document(
    client: &impl GenericClient,
    statements: &CheckStatements,
    key: DocumentKey,
) -> Result<Option<CheckRow>, PgError> {
    let values: [&(dyn ToSql + Sync); 3] = [&key.tenant, &key.collection, &key.number];
    let row = client.query_opt(&statements.document, &values).await?;
    Ok(row.as_ref().map(check_row))
}

fn check_row(row: &egret_postgres::tokio_postgres::Row) -> CheckRow {
    CheckRow {
        tenant: row.get(0),
        collection: row.get(1),
        number: row.get(2),
        id: row.get(3),
        body: row.get(4),
        targets: row.get(5),
        edges: row.get(6),
    }
}

/// The statement of [`read_alias_owners`], for sessions that execute it only once.
pub(crate) const ALIAS_OWNERS_SQL: &str = "SELECT a.tenant_id, a.alias, a.collection_id, a.number \
         FROM unnest($1::integer[], $2::uuid[]) AS w (tenant_id, alias) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a";

/// Documents by alias: collection and number, by tenant and alias.
pub(crate) type AliasOwners = HashMap<(TenantId, Uuid), (CollectionId, DocumentNumber)>;

/// Looks up documents by alias.
pub(crate) async fn read_alias_owners<S: ToStatement + ?Sized + Sync + Send>(
    client: &impl GenericClient,
    statement: &S,
    tenants: &[TenantId],
    aliases: &[Uuid],
) -> Result<AliasOwners, PgError> {
    let rows = client.query(statement, &[&tenants, &aliases]).await?;
    let owners = rows.iter().map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3))));
    Ok(owners.collect())
}

/// Total numbers of aliases and edges.
pub(crate) async fn count_aliases_and_edges(
    client: &impl GenericClient,
) -> Result<(u64, u64), PgError> {
    // Full scans, which the session's settings for lookups would prevent.
    let settings = "SET LOCAL enable_seqscan = on; SET LOCAL max_parallel_workers_per_gather = 2";
    client.batch_execute(settings).await?;
    let sql = "SELECT (SELECT count(*) FROM egret.document_alias), \
         (SELECT count(*) + count(target_2) + count(target_3) + count(target_4) FROM egret.document_edge)";
    let row = client.query_one(sql, &[]).await?;
    client
        .batch_execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0",
        )
        .await?;
    let count = |index: usize| row.get::<_, i64>(index).cast_unsigned();
    Ok((count(0), count(1)))
}

/// An alias with its document, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct AliasRow {
    pub tenant: TenantId,
    pub alias: Uuid,
    pub collection: CollectionId,
    /// Id and body of the document; none: there is no such document.
    pub document: Option<(Uuid, String)>,
}

fn select_aliases_sql(condition: &str) -> String {
    format!(
        "SELECT a.tenant_id, a.alias, a.collection_id, d.id, d.body::text \
         FROM (SELECT * FROM egret.document_alias WHERE {condition}) AS a \
         LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = a.tenant_id AND d.collection_id = a.collection_id AND d.number = a.number OFFSET 0) AS d ON true \
         ORDER BY a.tenant_id, a.alias"
    )
}

fn aliases_sql() -> String {
    select_aliases_sql("(tenant_id, alias) > ($1, $2) ORDER BY tenant_id, alias LIMIT $3")
}

fn alias_sql() -> String {
    select_aliases_sql("tenant_id = $1 AND alias = $2")
}

/// Reads one alias, if it exists.
pub(crate) async fn read_alias(
    client: &impl GenericClient,
    statements: &CheckStatements,
    tenant: TenantId,
    alias: Uuid,
) -> Result<Option<AliasRow>, PgError> {
    let row = client.query_opt(&statements.alias, &[&tenant, &alias]).await?;
    Ok(row.as_ref().map(AliasRow::from_row))
}

impl AliasRow {
    fn from_row(row: &egret_postgres::tokio_postgres::Row) -> Self {
        Self {
            tenant: row.get(0),
            alias: row.get(1),
            collection: row.get(2),
            document: row.get::<_, Option<Uuid>>(3).map(|id| (id, row.get(4))),
        }
    }
}

/// The next aliases after one, ordered by tenant and alias.
pub(crate) async fn read_aliases(
    client: &impl GenericClient,
    statements: &CheckStatements,
    tenant: TenantId,
    alias: Uuid,
    chunks: &mut BoundedChunks,
) -> Result<Vec<AliasRow>, PgError> {
    let parameters: [&(dyn ToSql + Sync); 2] = [&tenant, &alias];
    let rows = chunks.next(client, &statements.aliases, &parameters).await?;
    Ok(rows.iter().map(AliasRow::from_row).collect())
}

/// A row of edges with the number of its source document.
#[derive(Clone, Debug)]
pub(crate) struct CheckEdges {
    pub tenant: TenantId,
    /// Collection of the source document.
    pub collection: CollectionId,
    /// Numbers of the target documents; the first is part of the row's key.
    pub targets: Vec<DocumentNumber>,
    /// Number of the source document.
    pub source: DocumentNumber,
    /// Whether the source document exists and lists exactly these targets as one group of four.
    pub is_listed: bool,
}

/// Condition: document `d` lists the targets of row `e` of its edges as one of its groups of four.
const IS_LISTED_SQL: &str = "array_remove(ARRAY[e.target, e.target_2, e.target_3, e.target_4], NULL) \
     = d.targets[array_position(d.targets, e.target) : array_position(d.targets, e.target) + 3] \
     AND array_position(d.targets, e.target) % 4 = 1";

fn edges_sql() -> String {
    format!(
        "SELECT e.tenant_id, e.collection_id, array_remove(ARRAY[e.target, e.target_2, e.target_3, e.target_4], NULL), e.source, coalesce({IS_LISTED_SQL}, false) \
         FROM (SELECT * FROM egret.document_edge WHERE (tenant_id, target, source) > ($1, $2, $3) \
             ORDER BY tenant_id, target, source LIMIT $4) AS e \
         LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = e.tenant_id AND d.collection_id = e.collection_id AND d.number = e.source OFFSET 0) AS d ON true \
         ORDER BY e.tenant_id, e.target, e.source"
    )
}

/// The next rows of edges after one, ordered by tenant, first target and source.
pub(crate) async fn read_edges(
    client: &impl GenericClient,
    statements: &CheckStatements,
    tenant: TenantId,
    target: DocumentNumber,
    source: DocumentNumber,
    chunks: &mut BoundedChunks,
) -> Result<Vec<CheckEdges>, PgError> {
    let parameters: [&(dyn ToSql + Sync); 3] = [&tenant, &target, &source];
    let rows = chunks.next(client, &statements.edges, &parameters).await?;
    let each = rows.iter().map(|row| CheckEdges {
        tenant: row.get(0),
        collection: row.get(1),
        targets: row.get(2),
        source: row.get(3),
        is_listed: row.get(4),
    });
    Ok(each.collect())
}

/// Deletes a stale alias.
pub(crate) async fn delete_alias(
    client: &impl GenericClient,
    tenant: TenantId,
    alias: Uuid,
) -> Result<(), PgError> {
    let sql = "DELETE FROM egret.document_alias WHERE tenant_id = $1 AND alias = $2";
    client.execute(sql, &[&tenant, &alias]).await.map(drop)
}

/// Deletes a stale row of edges. If the source document exists, its rows are rebuilt from its
/// stored targets.
pub(crate) async fn repair_edges(
    client: &impl GenericClient,
    edges: &CheckEdges,
) -> Result<(), PgError> {
    let sql = format!(
        "SELECT d.targets, coalesce(s.is_said, false) FROM egret.document AS d \
         LEFT JOIN LATERAL (SELECT {IS_LISTED_SQL} AS is_said FROM egret.document_edge AS e WHERE e.tenant_id = d.tenant_id \
             AND e.collection_id = d.collection_id AND e.source = d.number AND e.target = $4) AS s ON true \
         WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number = $3"
    );
    let (tenant, collection, source) = (edges.tenant, edges.collection, edges.source);
    let values: [&(dyn ToSql + Sync); 4] = [&tenant, &collection, &source, &edges.targets[0]];
    let found = client.query_opt(&sql, &values).await?;
    if let Some(row) = found {
        let (targets, is_listed): (Vec<DocumentNumber>, bool) = (row.get(0), row.get(1));
        return if is_listed {
            Ok(())
        } else {
            let key = DocumentKey { tenant, collection, number: source };
            replace_edges(client, key, &edges.targets, &targets).await
        };
    }
    let delete_sql = "DELETE FROM egret.document_edge WHERE tenant_id = $1 AND target = $2 AND source = $3 AND collection_id = $4";
    client.execute(delete_sql, &[&tenant, &edges.targets[0], &source, &collection]).await.map(drop)
}

/// Replaces the rows of edges of a document by those of `targets`; rows with one of these targets
/// or one of `before` are deleted first.
pub(crate) async fn replace_edges(
    client: &impl GenericClient,
    document: DocumentKey,
    before: &[DocumentNumber],
    targets: &[DocumentNumber],
) -> Result<(), PgError> {
    let number = document.number;
    for slot in ["target", "target_2", "target_3", "target_4"] {
        let delete_sql = format!(
            "DELETE FROM egret.document_edge WHERE tenant_id = $1 AND source = $2 AND {slot} = ANY ($3::bigint[] || $4::bigint[])"
        );
        client.execute(&delete_sql, &[&document.tenant, &number, &before, &targets]).await?;
    }
    let mut edges = EdgeRows::default();
    let key = CollectionKey::new(document.tenant, document.collection);
    for targets in targets.chunks(EDGE_ROW_WIDTH) {
        edges.push(key, targets, number);
    }
    edges.write(client).await
}

/// Adds the aliases of a document, sets its stored targets and rebuilds its edges.
pub(crate) async fn repair_document(
    client: &impl GenericClient,
    row: &CheckRow,
    aliases: &[Uuid],
    targets: &[DocumentNumber],
) -> Result<(), PgError> {
    let key: [&(dyn ToSql + Sync); 3] = [&row.tenant, &row.collection, &row.number];
    let [tenant, collection, number] = key;
    let insert_sql = "INSERT INTO egret.document_alias (tenant_id, collection_id, alias, number) \
         SELECT $1, $2, alias, $3 FROM unnest($4::uuid[]) AS n (alias) WHERE NOT EXISTS ( \
             SELECT FROM egret.document_alias AS a WHERE a.tenant_id = $1 AND a.alias = n.alias AND a.number = $3)";
    client.execute(insert_sql, &[tenant, collection, number, &aliases]).await?;
    let update_sql = "UPDATE egret.document SET targets = $4 \
         WHERE tenant_id = $1 AND collection_id = $2 AND number = $3 AND targets <> $4";
    client.execute(update_sql, &[tenant, collection, number, &targets]).await?;
    replace_edges(client, row.key(), &row.targets, targets).await
}
