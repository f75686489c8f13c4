//! The tables that views read, and what changes in them: the data of pg_trickle's published
//! figures.
//!
//! A value is a hash of its row and a *salt*. The same salts make the same rows and the same
//! changes, whatever table they are in and whichever PostgreSQL holds it.

use anyhow::Result;
use tokio_postgres::Client;

use super::schema::ScenarioSchema;

/// A source with as many rows as are wished for, and a dimension with one for each of its five
/// regions.
pub(super) struct Tables {
    pub(super) source: String,
    pub(super) dimension: String,
    /// Columns of the source besides its own.
    extra_columns: u32,
}

/// How many rows of a source a cycle changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changes {
    updated: u64,
    deleted: u64,
    inserted: u64,
}

impl Changes {
    /// A percentage of rows: 70% of them are updated, 15% deleted, and as many inserted as are
    /// deleted, so that the table stays as large as it was.
    pub(super) fn from_percent(rows: u32, percent: f64) -> Self {
        let changed = (f64::from(rows) * percent / 100.0).round() as u64;
        let deleted = (changed as f64 * 0.15).round() as u64;
        Self { updated: changed - 2 * deleted, deleted, inserted: deleted }
    }

    pub(super) fn is_empty(self) -> bool {
        self.updated + self.deleted + self.inserted == 0
    }
}

impl Tables {
    /// Makes them, with rows, under names that end alike.
    pub(super) async fn create(
        schema: &ScenarioSchema,
        client: &Client,
        suffix: &str,
        rows: u32,
        salt: u32,
    ) -> Result<Self> {
        Self::create_with_extra_columns(schema, client, suffix, rows, 0, salt).await
    }

    /// Makes them, the source having so many columns besides its own.
    pub(super) async fn create_with_extra_columns(
        schema: &ScenarioSchema,
        client: &Client,
        suffix: &str,
        rows: u32,
        extra_columns: u32,
        salt: u32,
    ) -> Result<Self> {
        let tables = Self {
            extra_columns,
            source: schema.qualified_name(&format!("source_{suffix}")),
            dimension: schema.qualified_name(&format!("dimension_{suffix}")),
        };
        let Self { source, dimension, .. } = &tables;
        let columns: String = (0..extra_columns)
            .map(|number| format!(", {} {}", extra_column_name(number), extra_column_type(number)))
            .collect();
        let insert = tables.insert_statement(u64::from(rows), salt);
        let sql = format!(
            "CREATE TABLE {source} (id serial PRIMARY KEY, region text, category text, amount int, score int{columns});
             {insert};
             CREATE TABLE {dimension} (id serial PRIMARY KEY, region text NOT NULL, region_name text NOT NULL);
             INSERT INTO {dimension} (region, region_name)
             VALUES ('north', 'Northern Region'), ('south', 'Southern Region'), ('east', 'Eastern Region'),
                    ('west', 'Western Region'), ('central', 'Central Region')"
        );
        client.batch_execute(&sql).await?;
        Ok(tables)
    }

    /// Changes rows of the source, in one transaction of a statement of each kind.
    pub(super) async fn change(&self, client: &Client, changes: Changes, salt: u32) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let source = &self.source;
        let Changes { updated, deleted, inserted } = changes;
        let chosen_count = updated + deleted;
        let insert = self.insert_statement(inserted, salt);
        let amount = hash_expression("s.id", salt, 10_000);
        let sql = format!(
            "BEGIN;
             CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS
             SELECT id, row_number() OVER (ORDER BY hashint8extended(id, {salt}), id) AS place
             FROM {source} ORDER BY place LIMIT {chosen_count};
             ANALYZE chosen;
             UPDATE {source} AS s SET amount = {amount} FROM chosen AS c WHERE s.id = c.id AND c.place <= {updated};
             DELETE FROM {source} AS s USING chosen AS c WHERE s.id = c.id AND c.place > {updated};
             {insert};
             COMMIT"
        );
        Ok(client.batch_execute(&sql).await?)
    }

    /// A statement for new rows of the source.
    fn insert_statement(&self, rows: u64, salt: u32) -> String {
        let source = &self.source;
        let (amount, score) =
            (hash_expression("n", salt, 10_000), hash_expression("-n", salt, 100));
        let (mut names, mut values) = (String::new(), String::new());
        for number in 0..self.extra_columns {
            names += &format!(", {}", extra_column_name(number));
            let value = format!("(n + {number}) % 1000");
            values += &match extra_column_type(number) {
                "text" => format!(", 'number ' || {value}"),
                _ => format!(", {value}"),
            };
        }
        format!(
            "INSERT INTO {source} (region, category, amount, score{names})
             SELECT (ARRAY['north', 'south', 'east', 'west', 'central'])[1 + n % 5], (ARRAY['A', 'B', 'C', 'D'])[1 + n % 4],
                    {amount}, {score}{values}
             FROM generate_series(1, {rows}) AS n"
        )
    }

    /// Drops the source and the dimension table.
    pub(super) async fn drop(&self, client: &Client) -> Result<()> {
        let Self { source, dimension, .. } = self;
        Ok(client.batch_execute(&format!("DROP TABLE {source}, {dimension}")).await?)
    }
}

/// The name of a column besides a source's own; they are counted from 0.
pub(super) fn extra_column_name(number: u32) -> String {
    format!("other_{number}")
}

fn extra_column_type(number: u32) -> &'static str {
    if number.is_multiple_of(2) { "int" } else { "text" }
}

/// An expression for a value from 0 to below `bound` that follows from a number and a salt.
fn hash_expression(number: &str, salt: u32, bound: u32) -> String {
    format!("abs(hashint8extended({number}, {salt}) % {bound})::int")
}

#[cfg(test)]
mod tests;
