//! What belongs together, page by page, for whoever looks whether it agrees.

use std::collections::HashMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{
    Client, Error as PgError, GenericClient, Statement, ToStatement,
};
use futures_util::future::try_join_all;
use uuid::Uuid;

use super::edges::EdgeRows;
use super::query::Portions;
use crate::core::edges::WIDTH;
use crate::model::{CollectionId, TenantId};

/// Rows of a page, at most.
pub const PAGE: u32 = 1_000;

/// The statements of pages, prepared: each has a plan for every partition. What belongs to a row is looked up for that row (`OFFSET 0`), whatever the
/// planner thinks of tables of which it knows nothing.
pub struct Statements {
    documents: Statement,
    document: Statement,
    /// Of [`called`].
    pub called: Statement,
    aliases: Statement,
    alias: Statement,
    edges: Statement,
}

impl Statements {
    /// For a session.
    ///
    /// # Errors
    /// What the server says.
    pub async fn prepare(client: &Client) -> Result<Self, PgError> {
        let sql = [
            documents_sql(),
            document_sql(),
            aliases_sql(),
            alias_sql(),
            edges_sql(),
        ];
        let sql = sql.iter().map(String::as_str);
        let each = sql.chain([CALLED]);
        let prepared = try_join_all(each.map(|sql| client.prepare(sql))).await?;
        let [documents, document, aliases, alias, edges, called] =
            prepared.try_into().expect("as many as were prepared");
        Ok(Self {
            documents,
            document,
            called,
            aliases,
            alias,
            edges,
        })
    }
}

/// A document with the edges that lead from it to what it says it refers to.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub tenant: i32,
    /// Of which collection.
    pub collection: i32,
    /// Its number.
    pub number: i64,
    /// Its id.
    pub id: Uuid,
    /// JSON.
    pub body: String,
    /// What it says it refers to.
    pub targets: Vec<i64>,
    /// To which of them there is an edge, in the order in which the rows of edges have them.
    pub edges: Vec<i64>,
}

impl Row {
    /// Its key: tenant, collection and number.
    pub fn place(&self) -> (i32, i32, i64) {
        (self.tenant, self.collection, self.number)
    }
}

const DOCUMENTS: &str = "SELECT d.tenant_id, d.collection_id, d.number, d.id, d.body::text, d.targets, \
             ARRAY(SELECT s.target FROM generate_series(1, cardinality(d.targets), 4) AS p (place) \
                 CROSS JOIN LATERAL (SELECT * FROM egret.document_edge AS e WHERE e.tenant_id = d.tenant_id \
                     AND e.target = d.targets[p.place] AND e.source = d.number AND e.collection_id = d.collection_id OFFSET 0) AS e \
                 CROSS JOIN LATERAL unnest(ARRAY[e.target, e.target_2, e.target_3, e.target_4]) WITH ORDINALITY AS s (target, slot) \
                 WHERE s.target IS NOT NULL ORDER BY p.place, s.slot) \
         FROM egret.document AS d";

fn documents_sql() -> String {
    format!(
        "{DOCUMENTS} WHERE (d.tenant_id, d.collection_id, d.number) > ($1, $2, $3) \
         ORDER BY d.tenant_id, d.collection_id, d.number LIMIT $4"
    )
}

fn document_sql() -> String {
    format!("{DOCUMENTS} WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number = $3")
}

/// Documents after one, by tenants, collections and numbers.
///
/// # Errors
/// What the server says.
pub async fn documents(
    client: &impl GenericClient,
    statements: &Statements,
    (tenant, collection, number): (i32, i32, i64),
    portions: &mut Portions,
) -> Result<Vec<Row>, PgError> {
    let after: [&(dyn ToSql + Sync); 3] = [&tenant, &collection, &number];
    let rows = portions.next(client, &statements.documents, &after).await?;
    Ok(rows.iter().map(of).collect())
}

/// One document.
///
/// # Errors
/// What the server says.
pub async fn document(
    client: &impl GenericClient,
    statements: &Statements,
    (tenant, collection, number): (i32, i32, i64),
) -> Result<Option<Row>, PgError> {
    let found = client
        .query_opt(&statements.document, &[&tenant, &collection, &number])
        .await?;
    Ok(found.as_ref().map(of))
}

fn of(row: &egret_postgres::tokio_postgres::Row) -> Row {
    Row {
        tenant: row.get(0),
        collection: row.get(1),
        number: row.get(2),
        id: row.get(3),
        body: row.get(4),
        targets: row.get(5),
        edges: row.get(6),
    }
}

/// The statement of [`called`], for a session that asks once.
pub const CALLED: &str = "SELECT a.tenant_id, a.alias, a.collection_id, a.number \
         FROM unnest($1::integer[], $2::uuid[]) AS w (tenant_id, alias) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a";

/// Who is called so: tenants and aliases, with the collections and numbers of their documents.
pub type Called = HashMap<(i32, Uuid), (i32, i64)>;

/// Who is called so, by tenants and aliases.
///
/// # Errors
/// What the server says.
pub async fn called(
    client: &impl GenericClient,
    statement: &(impl ToStatement + ?Sized + Sync + Send),
    tenants: &[i32],
    aliases: &[Uuid],
) -> Result<Called, PgError> {
    let rows = client.query(statement, &[&tenants, &aliases]).await?;
    let each = rows
        .iter()
        .map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3))));
    Ok(each.collect())
}

/// How many aliases and edges there are.
///
/// # Errors
/// What the server says.
pub async fn counts(client: &impl GenericClient) -> Result<(u64, u64), PgError> {
    // All rows of tables: what a session that looks up single ones has no use for.
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
    let count = |at: usize| row.get::<_, i64>(at).cast_unsigned();
    Ok((count(0), count(1)))
}

/// An alias, and the document that it is of, if there is one.
#[derive(Clone, Debug)]
pub struct Alias {
    /// Whose.
    pub tenant: i32,
    /// It.
    pub alias: Uuid,
    /// Of which collection.
    pub collection: i32,
    /// Of a document that is there its id and its body.
    pub document: Option<(Uuid, String)>,
}

fn aliases_of(some: &str) -> String {
    format!(
        "SELECT a.tenant_id, a.alias, a.collection_id, d.id, d.body::text \
         FROM (SELECT * FROM egret.document_alias WHERE {some}) AS a \
         LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = a.tenant_id AND d.collection_id = a.collection_id AND d.number = a.number OFFSET 0) AS d ON true \
         ORDER BY a.tenant_id, a.alias"
    )
}

fn aliases_sql() -> String {
    aliases_of("(tenant_id, alias) > ($1, $2) ORDER BY tenant_id, alias LIMIT $3")
}

fn alias_sql() -> String {
    aliases_of("tenant_id = $1 AND alias = $2")
}

/// An alias, if there is one.
///
/// # Errors
/// What the server says.
pub async fn alias(
    client: &impl GenericClient,
    statements: &Statements,
    (tenant, alias): (i32, Uuid),
) -> Result<Option<Alias>, PgError> {
    let found = client
        .query_opt(&statements.alias, &[&tenant, &alias])
        .await?;
    Ok(found.as_ref().map(Alias::of))
}

impl Alias {
    fn of(row: &egret_postgres::tokio_postgres::Row) -> Self {
        Self {
            tenant: row.get(0),
            alias: row.get(1),
            collection: row.get(2),
            document: row.get::<_, Option<Uuid>>(3).map(|id| (id, row.get(4))),
        }
    }
}

/// Aliases after one, by tenants and themselves.
///
/// # Errors
/// What the server says.
pub async fn aliases(
    client: &impl GenericClient,
    statements: &Statements,
    (tenant, alias): (i32, Uuid),
    portions: &mut Portions,
) -> Result<Vec<Alias>, PgError> {
    let after: [&(dyn ToSql + Sync); 2] = [&tenant, &alias];
    let rows = portions.next(client, &statements.aliases, &after).await?;
    Ok(rows.iter().map(Alias::of).collect())
}

/// A row of edges.
#[derive(Clone, Debug)]
pub struct Edges {
    /// Whose.
    pub tenant: i32,
    /// Of which collection the document is from which they lead.
    pub collection: i32,
    /// To which documents; the first of them is part of the row's key.
    pub targets: Vec<i64>,
    /// From which.
    pub source: i64,
    /// Whether the document from which they lead is there and notes them just so.
    pub is_said: bool,
}

/// That a document `d` notes its edges as a row `e` has them.
const IS_SAID: &str = "array_remove(ARRAY[e.target, e.target_2, e.target_3, e.target_4], NULL) \
     = d.targets[array_position(d.targets, e.target) : array_position(d.targets, e.target) + 3] \
     AND array_position(d.targets, e.target) % 4 = 1";

fn edges_sql() -> String {
    format!(
        "SELECT e.tenant_id, e.collection_id, array_remove(ARRAY[e.target, e.target_2, e.target_3, e.target_4], NULL), e.source, coalesce({IS_SAID}, false) \
         FROM (SELECT * FROM egret.document_edge WHERE (tenant_id, target, source) > ($1, $2, $3) \
             ORDER BY tenant_id, target, source LIMIT $4) AS e \
         LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = e.tenant_id AND d.collection_id = e.collection_id AND d.number = e.source OFFSET 0) AS d ON true \
         ORDER BY e.tenant_id, e.target, e.source"
    )
}

/// Rows of edges after one, by tenants, first targets and sources.
///
/// # Errors
/// What the server says.
pub async fn edges(
    client: &impl GenericClient,
    statements: &Statements,
    (tenant, target, source): (i32, i64, i64),
    portions: &mut Portions,
) -> Result<Vec<Edges>, PgError> {
    let after: [&(dyn ToSql + Sync); 3] = [&tenant, &target, &source];
    let rows = portions.next(client, &statements.edges, &after).await?;
    let each = rows.iter().map(|row| Edges {
        tenant: row.get(0),
        collection: row.get(1),
        targets: row.get(2),
        source: row.get(3),
        is_said: row.get(4),
    });
    Ok(each.collect())
}

/// Nothing is called so any more.
///
/// # Errors
/// What the server says.
pub async fn forget_alias(
    client: &impl GenericClient,
    tenant: i32,
    alias: Uuid,
) -> Result<(), PgError> {
    let sql = "DELETE FROM egret.document_alias WHERE tenant_id = $1 AND alias = $2";
    client.execute(sql, &[&tenant, &alias]).await.map(drop)
}

/// A row of edges is there no more, but those that the document notes from which they lead, if it is there.
///
/// # Errors
/// What the server says.
pub async fn mend_edges(client: &impl GenericClient, edges: &Edges) -> Result<(), PgError> {
    let sql = format!(
        "SELECT d.targets, coalesce(s.is_said, false) FROM egret.document AS d \
         LEFT JOIN LATERAL (SELECT {IS_SAID} AS is_said FROM egret.document_edge AS e WHERE e.tenant_id = d.tenant_id \
             AND e.collection_id = d.collection_id AND e.source = d.number AND e.target = $4) AS s ON true \
         WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number = $3"
    );
    let (tenant, collection, source) = (edges.tenant, edges.collection, edges.source);
    let values: [&(dyn ToSql + Sync); 4] = [&tenant, &collection, &source, &edges.targets[0]];
    let found = client.query_opt(&sql, &values).await?;
    if let Some(row) = found {
        let (targets, is_said): (Vec<i64>, bool) = (row.get(0), row.get(1));
        return match is_said {
            true => Ok(()),
            false => {
                lay(
                    client,
                    (tenant, collection, source),
                    &edges.targets,
                    &targets,
                )
                .await
            }
        };
    }
    let gone = "DELETE FROM egret.document_edge WHERE tenant_id = $1 AND target = $2 AND source = $3 AND collection_id = $4";
    client
        .execute(gone, &[&tenant, &edges.targets[0], &source, &collection])
        .await
        .map(drop)
}

/// The rows of a document's edges are those of these targets, and no others that have one of them or of those `before`.
///
/// # Errors
/// What the server says.
pub async fn lay(
    client: &impl GenericClient,
    (tenant, collection, number): (i32, i32, i64),
    before: &[i64],
    targets: &[i64],
) -> Result<(), PgError> {
    for slot in ["target", "target_2", "target_3", "target_4"] {
        let over = format!(
            "DELETE FROM egret.document_edge WHERE tenant_id = $1 AND source = $2 AND {slot} = ANY ($3::bigint[] || $4::bigint[])"
        );
        client
            .execute(&over, &[&tenant, &number, &before, &targets])
            .await?;
    }
    let mut edges = EdgeRows::default();
    let place = (TenantId(tenant), CollectionId(collection));
    for targets in targets.chunks(WIDTH) {
        edges.push(place, targets, number);
    }
    edges.write(client).await
}

/// A document is called so, and refers to these, each once, and to no other that is noted with it.
///
/// # Errors
/// What the server says, and that another one is called so.
pub async fn mend(
    client: &impl GenericClient,
    row: &Row,
    names: &[Uuid],
    targets: &[i64],
) -> Result<(), PgError> {
    let place: [&(dyn ToSql + Sync); 3] = [&row.tenant, &row.collection, &row.number];
    let [tenant, collection, number] = place;
    let named = "INSERT INTO egret.document_alias (tenant_id, collection_id, alias, number) \
         SELECT $1, $2, alias, $3 FROM unnest($4::uuid[]) AS n (alias) WHERE NOT EXISTS ( \
             SELECT FROM egret.document_alias AS a WHERE a.tenant_id = $1 AND a.alias = n.alias AND a.number = $3)";
    client
        .execute(named, &[tenant, collection, number, &names])
        .await?;
    let referring = "UPDATE egret.document SET targets = $4 \
         WHERE tenant_id = $1 AND collection_id = $2 AND number = $3 AND targets <> $4";
    client
        .execute(referring, &[tenant, collection, number, &targets])
        .await?;
    lay(client, row.place(), &row.targets, targets).await
}
