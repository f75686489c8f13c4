//! What writing costs without any view: by hand, into a table with the rows of a query and its key.
//!
//! The *floor* writes what a change of the sources changes in the query's rows, when that has been
//! worked out and waits in a temporary table. No way to keep a view can write less. The
//! *recomputation* computes and writes all of it.

use anyhow::{Result, ensure};
use tokio_postgres::Client;

use super::schema::ScenarioSchema;
use super::shape::Definition;

/// A table with the rows of a query.
pub(super) struct Floor<'a> {
    schema: &'a ScenarioSchema,
    client: &'a Client,
    definition: &'a Definition,
    table: String,
}

impl<'a> Floor<'a> {
    /// Makes the table, filled with the rows of the query.
    pub(super) async fn create(
        schema: &'a ScenarioSchema,
        client: &'a Client,
        definition: &'a Definition,
    ) -> Result<Self> {
        let table = schema.qualified_name("by_hand");
        let Definition { query, key, .. } = definition;
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} AS {query}; ALTER TABLE {table} ADD PRIMARY KEY ({key})"
            ))
            .await?;
        Ok(Self { schema, client, definition, table })
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Works out what has to be written: rows to be deleted, updated and inserted.
    pub(super) async fn compute_net_changes(&self) -> Result<()> {
        let (table, query, key) = (&self.table, &self.definition.query, self.definition.key);
        let (old, new) = (self.column_list("o."), self.column_list("n."));
        let sql = format!(
            "DROP TABLE IF EXISTS pg_temp.net;
             CREATE TEMPORARY TABLE net AS
             WITH new AS MATERIALIZED ({query})
             SELECT 'delete' AS what, o.{key}, {old} FROM {table} AS o
             WHERE NOT EXISTS (SELECT FROM new AS n WHERE n.{key} = o.{key})
             UNION ALL
             SELECT CASE WHEN o.{key} IS NULL THEN 'insert' ELSE 'update' END, n.{key}, {new}
             FROM new AS n LEFT JOIN {table} AS o ON o.{key} = n.{key}
             WHERE o.{key} IS NULL OR ROW({old}) IS DISTINCT FROM ROW({new});
             ANALYZE pg_temp.net"
        );
        Ok(self.client.batch_execute(&sql).await?)
    }

    /// Writes it, in one transaction and one round trip.
    pub(super) async fn apply_net_changes(&self) -> Result<()> {
        let (table, key) = (&self.table, self.definition.key);
        let columns = self.column_list("");
        let assignments = self
            .definition
            .columns
            .iter()
            .map(|name| format!("{name} = n.{name}"))
            .collect::<Vec<String>>()
            .join(", ");
        let sql = format!(
            "BEGIN;
             DELETE FROM {table} AS o USING pg_temp.net AS n WHERE n.what = 'delete' AND o.{key} = n.{key};
             UPDATE {table} AS o SET {assignments} FROM pg_temp.net AS n WHERE n.what = 'update' AND o.{key} = n.{key};
             INSERT INTO {table} ({key}, {columns}) SELECT {key}, {columns} FROM pg_temp.net WHERE what = 'insert';
             COMMIT"
        );
        Ok(self.client.batch_execute(&sql).await?)
    }

    /// Makes an empty table like it.
    pub(super) async fn create_recompute_table(&self) -> Result<()> {
        let (table, recompute_table) = (&self.table, self.schema.qualified_name("anew"));
        let sql = format!(
            "DROP TABLE IF EXISTS {recompute_table}; CREATE TABLE {recompute_table} (LIKE {table} INCLUDING INDEXES)"
        );
        Ok(self.client.batch_execute(&sql).await?)
    }

    /// Computes and writes all rows into the table `anew`.
    pub(super) async fn recompute(&self) -> Result<()> {
        let sql =
            format!("INSERT INTO {} {}", self.schema.qualified_name("anew"), self.definition.query);
        Ok(self.client.batch_execute(&sql).await?)
    }

    /// Drops what was made, after making sure that what was timed was right.
    ///
    /// # Errors
    /// The server's; and when the table is not what the query gives.
    pub(super) async fn verify_and_drop(self) -> Result<()> {
        let query = &self.definition.query;
        let differing_rows =
            self.schema.count_differing_rows(self.client, &self.table, query).await?;
        ensure!(
            differing_rows == 0,
            "{differing_rows} rows that were written by hand differ from the result of the query"
        );
        let recompute_table = self.schema.qualified_name("anew");
        let sql = format!("DROP TABLE {}; DROP TABLE IF EXISTS {recompute_table}", self.table);
        Ok(self.client.batch_execute(&sql).await?)
    }

    /// The columns besides the key.
    fn column_list(&self, prefix: &str) -> String {
        let columns: Vec<String> =
            self.definition.columns.iter().map(|name| format!("{prefix}{name}")).collect();
        columns.join(", ")
    }
}
