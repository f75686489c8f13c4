//! Rows of edges for `egret.document_edge`, column by column.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Error as PgError, GenericClient};

use crate::core::edges::{EDGE_ROW_WIDTH, EdgeRow};
use crate::model::{CollectionId, CollectionKey, DocumentNumber, TenantId};

/// Keys of rows of edges, or single edges, column by column.
#[derive(Debug, Default)]
pub(crate) struct EdgeKeys {
    pub tenants: Vec<TenantId>,
    pub targets: Vec<DocumentNumber>,
    pub sources: Vec<DocumentNumber>,
}

impl EdgeKeys {
    pub(crate) fn push(
        &mut self,
        tenant: TenantId,
        target: DocumentNumber,
        source: DocumentNumber,
    ) {
        self.tenants.push(tenant);
        self.targets.push(target);
        self.sources.push(source);
    }
}

/// Rows of edges to insert.
#[derive(Debug, Default)]
pub(crate) struct EdgeRows {
    tenants: Vec<TenantId>,
    collections: Vec<CollectionId>,
    sources: Vec<DocumentNumber>,
    /// First target of each row.
    first_targets: Vec<DocumentNumber>,
    other_targets: [Vec<Option<DocumentNumber>>; EDGE_ROW_WIDTH - 1],
}

impl EdgeRows {
    /// Adds a row of edges from a document.
    pub(crate) fn push(&mut self, key: CollectionKey, row: &EdgeRow, source: DocumentNumber) {
        self.tenants.push(key.tenant);
        self.collections.push(key.collection);
        self.sources.push(source);
        self.first_targets.push(row[0]);
        for (index, others) in (1..).zip(&mut self.other_targets) {
            others.push(row.get(index).copied());
        }
    }

    /// The columns, in the order of the table.
    pub(crate) fn columns(&self) -> [&(dyn ToSql + Sync); 3 + EDGE_ROW_WIDTH] {
        let [second, third, fourth] = &self.other_targets;
        let (tenants, collections) = (&self.tenants, &self.collections);
        [tenants, collections, &self.sources, &self.first_targets, second, third, fourth]
    }

    /// Inserts the rows into the table.
    pub(crate) async fn write(&self, client: &impl GenericClient) -> Result<(), PgError> {
        let sql = "INSERT INTO egret.document_edge (tenant_id, collection_id, source, target, target_2, target_3, target_4) \
             SELECT * FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])";
        client.execute(sql, &self.columns()).await.map(drop)
    }
}
