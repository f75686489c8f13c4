//! Rows of edges, as `egret.document_edge` takes them.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Error as PgError, GenericClient};

use super::write::Place;
use crate::core::edges::{EdgeRow, WIDTH};

/// Rows of edges.
#[derive(Debug, Default)]
pub struct EdgeRows {
    tenants: Vec<i32>,
    collections: Vec<i32>,
    sources: Vec<i64>,
    /// The first target of each.
    firsts: Vec<i64>,
    /// Those after it.
    others: [Vec<Option<i64>>; WIDTH - 1],
}

impl EdgeRows {
    /// A row of the edges that lead from a document.
    pub fn push(&mut self, (tenant, collection): Place, row: &EdgeRow, source: i64) {
        self.tenants.push(tenant.0);
        self.collections.push(collection.0);
        self.sources.push(source);
        self.firsts.push(row[0]);
        for (place, others) in (1..).zip(&mut self.others) {
            others.push(row.get(place).copied());
        }
    }

    /// Column by column, as they are in the table.
    pub fn columns(&self) -> [&(dyn ToSql + Sync); 3 + WIDTH] {
        let [second, third, fourth] = &self.others;
        let (tenants, collections) = (&self.tenants, &self.collections);
        [
            tenants,
            collections,
            &self.sources,
            &self.firsts,
            second,
            third,
            fourth,
        ]
    }

    /// They are there from now on.
    ///
    /// # Errors
    /// What the server says.
    pub async fn write(&self, client: &impl GenericClient) -> Result<(), PgError> {
        let sql = "INSERT INTO egret.document_edge (tenant_id, collection_id, source, target, target_2, target_3, target_4) \
             SELECT * FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])";
        client.execute(sql, &self.columns()).await.map(drop)
    }
}
