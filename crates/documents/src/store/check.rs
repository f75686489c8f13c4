//! What belongs together, page by page, for whoever looks whether it agrees.

use std::collections::HashMap;

use egret_postgres::tokio_postgres::{
    Client, Error as PgError, GenericClient, Statement, ToStatement,
};
use futures_util::future::try_join_all;
use uuid::Uuid;

/// Rows of a page.
pub const PAGE: i64 = 1_000;

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
        let sql = [documents_sql(), document_sql(), aliases_sql(), alias_sql()];
        let sql = sql.iter().map(String::as_str);
        let each = sql.chain([CALLED, EDGES]);
        let prepared = try_join_all(each.map(|sql| client.prepare(sql))).await?;
        let [documents, document, aliases, alias, called, edges] =
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
    /// To which of them there is an edge.
    pub edges: Vec<i64>,
}

impl Row {
    /// Its key: tenant, collection and number.
    pub fn place(&self) -> (i32, i32, i64) {
        (self.tenant, self.collection, self.number)
    }
}

const DOCUMENTS: &str = "SELECT d.tenant_id, d.collection_id, d.number, d.id, d.body::text, d.targets, \
             ARRAY(SELECT e.target FROM unnest(d.targets) AS t (target) \
                 CROSS JOIN LATERAL (SELECT e.target FROM egret.document_edge AS e \
                     WHERE e.tenant_id = d.tenant_id AND e.target = t.target AND e.source = d.number AND e.collection_id = d.collection_id OFFSET 0) AS e) \
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
) -> Result<Vec<Row>, PgError> {
    let rows = client
        .query(
            &statements.documents,
            &[&tenant, &collection, &number, &PAGE],
        )
        .await?;
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
    let sql = "SELECT (SELECT count(*) FROM egret.document_alias), (SELECT count(*) FROM egret.document_edge)";
    let row = client.query_one(sql, &[]).await?;
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
) -> Result<Vec<Alias>, PgError> {
    let rows = client
        .query(&statements.aliases, &[&tenant, &alias, &PAGE])
        .await?;
    Ok(rows.iter().map(Alias::of).collect())
}

/// An edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Whose.
    pub tenant: i32,
    /// To which document.
    pub target: i64,
    /// From which.
    pub source: i64,
    /// Whether the document from which it leads is there and says so.
    pub is_said: bool,
}

const EDGES: &str = "SELECT e.tenant_id, e.target, e.source, coalesce(e.target = ANY (d.targets), false) \
         FROM (SELECT * FROM egret.document_edge WHERE (tenant_id, target, source) > ($1, $2, $3) \
             ORDER BY tenant_id, target, source LIMIT $4) AS e \
         LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = e.tenant_id AND d.collection_id = e.collection_id AND d.number = e.source OFFSET 0) AS d ON true \
         ORDER BY e.tenant_id, e.target, e.source";

/// Edges after one, by tenants, targets and sources.
///
/// # Errors
/// What the server says.
pub async fn edges(
    client: &impl GenericClient,
    statements: &Statements,
    (tenant, target, source): (i32, i64, i64),
) -> Result<Vec<Edge>, PgError> {
    let rows = client
        .query(&statements.edges, &[&tenant, &target, &source, &PAGE])
        .await?;
    let each = rows.iter().map(|row| Edge {
        tenant: row.get(0),
        target: row.get(1),
        source: row.get(2),
        is_said: row.get(3),
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

/// An edge is there no more, unless the document from which it leads refers to that by now.
///
/// # Errors
/// What the server says.
pub async fn forget_edge(client: &impl GenericClient, edge: &Edge) -> Result<(), PgError> {
    let sql = "DELETE FROM egret.document_edge AS e WHERE tenant_id = $1 AND target = $2 AND source = $3 AND NOT EXISTS ( \
             SELECT FROM egret.document AS d WHERE d.tenant_id = e.tenant_id AND d.collection_id = e.collection_id AND d.number = e.source \
               AND e.target = ANY (d.targets))";
    client
        .execute(sql, &[&edge.tenant, &edge.target, &edge.source])
        .await
        .map(drop)
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
    let place: [&(dyn egret_postgres::tokio_postgres::types::ToSql + Sync); 3] =
        [&row.tenant, &row.collection, &row.number];
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
    let over = "DELETE FROM egret.document_edge WHERE tenant_id = $1 AND source = $2 AND target = ANY ($3) AND target <> ALL ($4)";
    client
        .execute(over, &[tenant, number, &row.targets, &targets])
        .await?;
    let edges = "INSERT INTO egret.document_edge (tenant_id, collection_id, target, source) \
         SELECT $1, $2, target, $3 FROM unnest($4::bigint[]) AS t (target) \
         ON CONFLICT (tenant_id, target, source) DO UPDATE SET collection_id = excluded.collection_id \
         WHERE document_edge.collection_id <> excluded.collection_id";
    client
        .execute(edges, &[tenant, collection, number, &targets])
        .await
        .map(drop)
}
