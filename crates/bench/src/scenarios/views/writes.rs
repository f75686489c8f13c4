//! What a write takes longer for a view that reads the table: of tables that are more and more
//! wide, of which the view needs three columns.
//!
//! Two tables of each width are written in turn, with a view and without. In a round each gets as
//! many rows as are wished for by one statement, which another one updates; then a few rows one by
//! one, each updated at once, every statement a transaction. After a round both are empty again.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::{Client, Statement};

use super::api::NewView;
use super::findings::Findings;
use super::schema::ScenarioSchema;
use super::timed_refresh::WARMUP;
use crate::result::Better;

/// Columns of the tables.
pub(super) const WIDTHS: [usize; 3] = [4, 12, 24];

/// Rows that one statement writes, at most.
pub(super) const BULK_ROWS_MAX: u32 = 10_000;

/// Rows that are written one by one in a round.
const SINGLE_ROWS: u32 = 100;

/// A table that is written.
pub(super) struct Table {
    name: String,
    /// `plain`, or `viewed` for one that a view reads.
    pub(super) kind: &'static str,
    width: usize,
    view: Option<String>,
    /// What inserts rows, their number being missing behind it.
    insert_all_sql: String,
    update_all_sql: String,
}

/// What writes one row of a table, in a session.
#[derive(Clone)]
pub(super) struct SingleRowStatements {
    insert: Statement,
    update: Statement,
}

pub(super) struct WriteSample {
    pub(super) operation: String,
    pub(super) begun: Instant,
    pub(super) duration: Duration,
}

/// Measures writes of tables of all widths.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    rows: u32,
    rounds: u32,
    findings: &mut Findings,
) -> Result<()> {
    let rows = rows.min(BULK_ROWS_MAX);
    for width in WIDTHS {
        let tables = Table::create_pair(schema, client, width).await?;
        for round in 0..WARMUP + rounds {
            let samples = self::write_round(&tables, client, rows, round).await?;
            if round >= WARMUP {
                samples.into_iter().for_each(|sample| sample.record(findings));
            }
            for table in &tables {
                table.verify_and_clear(schema, client, findings).await?;
            }
        }
        for size in ["bulk", "single"] {
            let [numerator, denominator] =
                ["viewed", "plain"].map(|kind| operation_name(size, width, kind));
            let name = format!("write_overhead_{size}.{width}");
            findings.add_ratio(name, numerator, denominator, Better::Lower);
        }
        for table in &tables {
            table.drop(schema, client).await?;
        }
    }
    findings.add_worst_ratio("write_overhead_bulk");
    findings.add_worst_ratio("write_overhead_single");
    Ok(())
}

/// Writes all rows of a round. The two tables take turns in going first.
async fn write_round(
    tables: &[Table; 2],
    client: &Client,
    rows: u32,
    round: u32,
) -> Result<Vec<WriteSample>> {
    let mut samples = Vec::new();
    for table_index in alternating_order(round) {
        samples.push(tables[table_index].write_bulk(client, rows).await?);
    }
    let one_row =
        [tables[0].prepare_single_row(client).await?, tables[1].prepare_single_row(client).await?];
    for number in 0..SINGLE_ROWS {
        for place in alternating_order(number) {
            let operation = operation_name("single", tables[place].width, tables[place].kind);
            samples.push(one_row[place].insert_and_update(client, number as i32, operation).await?);
        }
    }
    Ok(samples)
}

/// Whose turn it is of two, in order: the other one goes first each time.
pub(super) fn alternating_order(number: u32) -> [usize; 2] {
    let first = number as usize % 2;
    [first, 1 - first]
}

fn operation_name(size: &str, width: usize, kind: &str) -> String {
    format!("write_{size}.{width}.{kind}")
}

impl WriteSample {
    /// Puts it among the findings.
    pub(super) fn record(self, findings: &mut Findings) {
        findings.record(&self.operation, self.begun, self.duration);
    }
}

impl SingleRowStatements {
    /// Inserts a row, then updates it.
    pub(super) async fn insert_and_update(
        &self,
        client: &Client,
        number: i32,
        operation: String,
    ) -> Result<WriteSample> {
        let begun = Instant::now();
        let row = client.query_one(&self.insert, &[&number]).await?;
        let id: i32 = row.get(0);
        client.execute(&self.update, &[&id]).await?;
        Ok(WriteSample { operation, begun, duration: begun.elapsed() })
    }
}

impl Table {
    /// One without a view, and one with.
    pub(super) async fn create_pair(
        schema: &ScenarioSchema,
        client: &Client,
        width: usize,
    ) -> Result<[Self; 2]> {
        Ok([
            Self::create(schema, client, width, "plain").await?,
            Self::create(schema, client, width, "viewed").await?,
        ])
    }

    async fn create(
        schema: &ScenarioSchema,
        client: &Client,
        width: usize,
        kind: &'static str,
    ) -> Result<Self> {
        let name = schema.qualified_name(&format!("{kind}_{width}"));
        // Three columns that the view needs, and the others.
        let extra_columns: Vec<String> =
            (3..width).map(|number| format!("other_{number}")).collect();
        let types: String = extra_columns.iter().map(|column| format!(", {column} text")).collect();
        client
            .batch_execute(&format!(
                "CREATE TABLE {name} (id serial PRIMARY KEY, region text, amount int{types})"
            ))
            .await?;
        let view = match kind {
            "viewed" => Some(schema.qualified_name(&format!("view_{width}"))),
            _ => None,
        };
        if let Some(view) = &view {
            let query = Self::view_query(&name);
            let new =
                NewView { name: view, query: &query, mode: "incremental", schedule: "manual" };
            schema.api.create(&new).await?;
        }
        let columns: String = extra_columns.iter().map(|other| format!(", {other}")).collect();
        let texts = ", 'a text of a few words'".repeat(extra_columns.len());
        let insert =
            format!("INSERT INTO {name} (region, amount{columns}) SELECT 'north', n{texts} FROM");
        Ok(Self {
            insert_all_sql: insert,
            update_all_sql: format!("UPDATE {name} SET amount = amount + 1"),
            name,
            kind,
            width,
            view,
        })
    }

    fn view_query(table: &str) -> String {
        format!("SELECT id, region, amount FROM {table}")
    }

    /// Many rows by a statement each.
    async fn write_bulk(&self, client: &Client, rows: u32) -> Result<WriteSample> {
        let begun = Instant::now();
        self.insert_all(client, rows).await?;
        self.update_all(client).await?;
        Ok(WriteSample {
            operation: operation_name("bulk", self.width, self.kind),
            begun,
            duration: begun.elapsed(),
        })
    }

    /// Inserts so many rows by one statement.
    pub(super) async fn insert_all(&self, client: &Client, rows: u32) -> Result<()> {
        let insert = format!("{} generate_series(1, {rows}) AS n", self.insert_all_sql);
        Ok(client.batch_execute(&insert).await?)
    }

    /// Updates all rows by one statement.
    pub(super) async fn update_all(&self, client: &Client) -> Result<()> {
        Ok(client.batch_execute(&self.update_all_sql).await?)
    }

    /// Prepares what writes one row.
    pub(super) async fn prepare_single_row(&self, client: &Client) -> Result<SingleRowStatements> {
        let (name, insert) = (&self.name, &self.insert_all_sql);
        let insert = format!("{insert} (SELECT $1::int AS n) AS one RETURNING id");
        let update = format!("UPDATE {name} SET amount = amount + 1 WHERE id = $1");
        Ok(SingleRowStatements {
            insert: client.prepare(&insert).await?,
            update: client.prepare(&update).await?,
        })
    }

    /// Compares its view with what it is of, and takes all rows away.
    pub(super) async fn verify_and_clear(
        &self,
        schema: &ScenarioSchema,
        client: &Client,
        findings: &mut Findings,
    ) -> Result<()> {
        if let Some(view) = &self.view {
            schema.api.refresh(view).await?;
            findings.compare_view(schema, client, view, &Self::view_query(&self.name)).await?;
        }
        client.batch_execute(&format!("DELETE FROM {}", self.name)).await?;
        if let Some(view) = &self.view {
            schema.api.refresh(view).await?;
        }
        schema.vacuum_and_checkpoint(client, &[&self.name]).await
    }

    /// Drops it with its view.
    pub(super) async fn drop(&self, schema: &ScenarioSchema, client: &Client) -> Result<()> {
        if let Some(view) = &self.view {
            schema.api.drop(view).await?;
        }
        let sql = format!("DROP TABLE {}", self.name);
        Ok(client.batch_execute(&sql).await?)
    }
}
