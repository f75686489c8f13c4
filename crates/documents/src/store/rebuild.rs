//! What is written anew of documents when what is declared of them changes: names, and what they refer to.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Error as PgError, GenericClient};
use uuid::Uuid;

use super::edges::EdgeRows;
use super::query::Portions;
use crate::core::edges::{arranged, changed};
use crate::model::{CollectionId, DocumentId, TenantId};

/// A document as far as what is declared of it matters.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub tenant: i32,
    /// Its id.
    pub id: DocumentId,
    /// JSON.
    pub body: String,
    /// The numbers of the documents that it refers to.
    pub targets: Vec<i64>,
}

/// Documents of a tenant and collection after a number, in order.
///
/// # Errors
/// What the server says.
pub async fn page(
    client: &impl GenericClient,
    (tenant, collection): (TenantId, CollectionId),
    after: i64,
    portions: &mut Portions,
) -> Result<Vec<Row>, PgError> {
    let sql = "SELECT d.tenant_id, d.id, d.body::text, d.targets FROM egret.document AS d \
         WHERE d.tenant_id = $1 AND d.collection_id = $2 AND d.number > $3 ORDER BY d.number LIMIT $4";
    let after: [&(dyn ToSql + Sync); 3] = [&tenant.0, &collection.0, &after];
    let rows = portions.next(client, sql, &after).await?;
    Ok(rows.iter().map(of).collect())
}

/// Those of these documents that are there, whosever they are.
///
/// # Errors
/// What the server says.
pub async fn these(
    client: &impl GenericClient,
    collection: CollectionId,
    documents: &[(i32, DocumentId)],
) -> Result<Vec<Row>, PgError> {
    let sql = "SELECT d.tenant_id, d.id, d.body::text, d.targets FROM unnest($2::integer[], $3::bigint[]) AS w (tenant_id, number) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = $1 AND d.number = w.number OFFSET 0) AS d";
    let tenants: Vec<i32> = documents.iter().map(|(tenant, _)| *tenant).collect();
    let numbers: Vec<i64> = documents.iter().map(|(_, id)| id.number()).collect();
    let rows = client
        .query(sql, &[&collection.0, &tenants, &numbers])
        .await?;
    Ok(rows.iter().map(of).collect())
}

fn of(row: &egret_postgres::tokio_postgres::Row) -> Row {
    Row {
        tenant: row.get(0),
        id: DocumentId::stored(row.get(1)),
        body: row.get(2),
        targets: row.get(3),
    }
}

/// Names of documents, column by column.
#[derive(Debug, Default)]
pub struct Named {
    /// Whose.
    pub tenants: Vec<i32>,
    /// How they are called.
    pub aliases: Vec<Uuid>,
    /// Which they are.
    pub numbers: Vec<i64>,
}

/// Documents that refer to something else than they did, column by column.
#[derive(Debug, Default)]
pub struct Referring {
    /// Whose.
    pub tenants: Vec<i32>,
    /// Which they are.
    pub numbers: Vec<i64>,
    /// Where the targets of each end.
    pub ends: Vec<i32>,
    /// What they refer to.
    pub targets: Vec<i64>,
    /// Rows of edges that were not there.
    new: EdgeRows,
    /// Rows of edges that go: whose, the first target of each, from which document.
    gone: (Vec<i32>, Vec<i64>, Vec<i64>),
}

impl Referring {
    /// A document of a collection that refers to these, each once; nothing is written where it did so before.
    pub fn push(&mut self, row: &Row, collection: CollectionId, targets: &[i64]) {
        let order = arranged(&row.targets, targets);
        if row.targets == order {
            return;
        }
        let number = row.id.number();
        let (gone, new) = changed(&row.targets, &order);
        for edges in gone {
            self.gone.0.push(row.tenant);
            self.gone.1.push(edges[0]);
            self.gone.2.push(number);
        }
        let place = (TenantId(row.tenant), collection);
        for edges in new {
            self.new.push(place, edges, number);
        }
        self.tenants.push(row.tenant);
        self.numbers.push(number);
        self.targets.extend(order);
        let end =
            i32::try_from(self.targets.len()).expect("a page has a limited number of documents");
        self.ends.push(end);
    }
}

/// Nothing of a collection is found by an identity any more.
///
/// # Errors
/// What the server says.
pub async fn forget_names(
    client: &impl GenericClient,
    collection: CollectionId,
) -> Result<(), PgError> {
    let sql = "DELETE FROM egret.document_alias WHERE collection_id = $1";
    client.execute(sql, &[&collection.0]).await.map(drop)
}

/// Documents are found by these identities, those aside that others have. Returns how many that are not.
///
/// # Errors
/// What the server says.
pub async fn name(
    client: &impl GenericClient,
    collection: CollectionId,
    named: &Named,
) -> Result<u64, PgError> {
    let sql = "INSERT INTO egret.document_alias (tenant_id, collection_id, alias, number) \
         SELECT n.tenant_id, $1, n.alias, n.number FROM unnest($2::integer[], $3::uuid[], $4::bigint[]) AS n (tenant_id, alias, number) \
         ON CONFLICT DO NOTHING";
    let Named {
        tenants,
        aliases,
        numbers,
    } = named;
    let values: [&(dyn ToSql + Sync); 4] = [&collection.0, tenants, aliases, numbers];
    let written = client.execute(sql, &values).await?;
    Ok(numbers.len() as u64 - written)
}

/// Documents refer to these from now on.
///
/// # Errors
/// What the server says.
pub async fn refer(
    client: &impl GenericClient,
    collection: CollectionId,
    referring: &Referring,
) -> Result<(), PgError> {
    let gone = "DELETE FROM egret.document_edge AS e \
         USING unnest($1::integer[], $2::bigint[], $3::bigint[]) AS g (tenant_id, target, source) \
         WHERE e.tenant_id = g.tenant_id AND e.target = g.target AND e.source = g.source";
    let (tenants, targets, sources) = &referring.gone;
    client.execute(gone, &[tenants, targets, sources]).await?;
    let changed = "UPDATE egret.document AS d SET targets = ($4::bigint[])[c.begun + 1 : c.ended] \
         FROM (SELECT x.*, lag(x.ended, 1, 0) OVER (ORDER BY x.place) AS begun \
               FROM unnest($2::integer[], $3::bigint[], $5::integer[]) WITH ORDINALITY AS x (tenant_id, number, ended, place)) AS c \
         WHERE d.tenant_id = c.tenant_id AND d.collection_id = $1 AND d.number = c.number";
    let values: [&(dyn ToSql + Sync); 5] = [
        &collection.0,
        &referring.tenants,
        &referring.numbers,
        &referring.targets,
        &referring.ends,
    ];
    client.execute(changed, &values).await?;
    referring.new.write(client).await
}
