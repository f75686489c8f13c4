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
    insert_all: String,
    update_all: String,
}

/// What writes one row of a table, in a session.
#[derive(Clone)]
pub(super) struct OneRow {
    insert: Statement,
    update: Statement,
}

pub(super) struct WriteSample {
    pub(super) operation: String,
    pub(super) begun: Instant,
    pub(super) took: Duration,
}

/// Measures writes of tables of all widths.
pub(super) async fn measure(
    site: &ScenarioSchema,
    client: &Client,
    rows: u32,
    rounds: u32,
    findings: &mut Findings,
) -> Result<()> {
    let rows = rows.min(BULK_ROWS_MAX);
    for width in WIDTHS {
        let tables = Table::pair(site, client, width).await?;
        for round in 0..WARMUP + rounds {
            let samples = self::round(&tables, client, rows, round).await?;
            if round >= WARMUP {
                samples
                    .into_iter()
                    .for_each(|sample| sample.count(findings));
            }
            for table in &tables {
                table.empty(site, client, findings).await?;
            }
        }
        for size in ["bulk", "single"] {
            let [above, below] = ["viewed", "plain"].map(|kind| operation(size, width, kind));
            let name = format!("write_overhead_{size}.{width}");
            findings.ratio(name, above, below, Better::Lower);
        }
        for table in &tables {
            table.drop(site, client).await?;
        }
    }
    findings.worst("write_overhead_bulk");
    findings.worst("write_overhead_single");
    Ok(())
}

/// Writes all rows of a round. The two tables take turns in going first.
async fn round(
    tables: &[Table; 2],
    client: &Client,
    rows: u32,
    round: u32,
) -> Result<Vec<WriteSample>> {
    let mut samples = Vec::new();
    for place in turns(round) {
        samples.push(tables[place].bulk(client, rows).await?);
    }
    let one_row = [
        tables[0].one_row(client).await?,
        tables[1].one_row(client).await?,
    ];
    for number in 0..SINGLE_ROWS {
        for place in turns(number) {
            let operation = operation("single", tables[place].width, tables[place].kind);
            samples.push(
                one_row[place]
                    .write(client, number as i32, operation)
                    .await?,
            );
        }
    }
    Ok(samples)
}

/// Whose turn it is of two, in order: the other one goes first each time.
pub(super) fn turns(number: u32) -> [usize; 2] {
    let first = number as usize % 2;
    [first, 1 - first]
}

fn operation(size: &str, width: usize, kind: &str) -> String {
    format!("write_{size}.{width}.{kind}")
}

impl WriteSample {
    /// Puts it among the findings.
    pub(super) fn count(self, findings: &mut Findings) {
        findings.took(&self.operation, self.begun, self.took);
    }
}

impl OneRow {
    /// Inserts a row, then updates it.
    pub(super) async fn write(
        &self,
        client: &Client,
        number: i32,
        operation: String,
    ) -> Result<WriteSample> {
        let begun = Instant::now();
        let row = client.query_one(&self.insert, &[&number]).await?;
        let id: i32 = row.get(0);
        client.execute(&self.update, &[&id]).await?;
        Ok(WriteSample {
            operation,
            begun,
            took: begun.elapsed(),
        })
    }
}

impl Table {
    /// One without a view, and one with.
    pub(super) async fn pair(
        site: &ScenarioSchema,
        client: &Client,
        width: usize,
    ) -> Result<[Self; 2]> {
        Ok([
            Self::make(site, client, width, "plain").await?,
            Self::make(site, client, width, "viewed").await?,
        ])
    }

    async fn make(
        site: &ScenarioSchema,
        client: &Client,
        width: usize,
        kind: &'static str,
    ) -> Result<Self> {
        let name = site.named(&format!("{kind}_{width}"));
        // Three columns that the view needs, and the others.
        let others: Vec<String> = (3..width).map(|number| format!("other_{number}")).collect();
        let types: String = others
            .iter()
            .map(|other| format!(", {other} text"))
            .collect();
        client
            .batch_execute(&format!(
                "CREATE TABLE {name} (id serial PRIMARY KEY, region text, amount int{types})"
            ))
            .await?;
        let view = match kind {
            "viewed" => Some(site.named(&format!("view_{width}"))),
            _ => None,
        };
        if let Some(view) = &view {
            let query = Self::query(&name);
            let new = NewView {
                name: view,
                query: &query,
                mode: "incremental",
                schedule: "manual",
            };
            site.api.create(&new).await?;
        }
        let columns: String = others.iter().map(|other| format!(", {other}")).collect();
        let texts = ", 'a text of a few words'".repeat(others.len());
        let insert =
            format!("INSERT INTO {name} (region, amount{columns}) SELECT 'north', n{texts} FROM");
        Ok(Self {
            insert_all: insert,
            update_all: format!("UPDATE {name} SET amount = amount + 1"),
            name,
            kind,
            width,
            view,
        })
    }

    fn query(table: &str) -> String {
        format!("SELECT id, region, amount FROM {table}")
    }

    /// Many rows by a statement each.
    async fn bulk(&self, client: &Client, rows: u32) -> Result<WriteSample> {
        let begun = Instant::now();
        self.insert_all(client, rows).await?;
        self.update_all(client).await?;
        Ok(WriteSample {
            operation: operation("bulk", self.width, self.kind),
            begun,
            took: begun.elapsed(),
        })
    }

    /// Inserts so many rows by one statement.
    pub(super) async fn insert_all(&self, client: &Client, rows: u32) -> Result<()> {
        let insert = format!("{} generate_series(1, {rows}) AS n", self.insert_all);
        Ok(client.batch_execute(&insert).await?)
    }

    /// Updates all rows by one statement.
    pub(super) async fn update_all(&self, client: &Client) -> Result<()> {
        Ok(client.batch_execute(&self.update_all).await?)
    }

    /// Prepares what writes one row.
    pub(super) async fn one_row(&self, client: &Client) -> Result<OneRow> {
        let (name, insert) = (&self.name, &self.insert_all);
        let insert = format!("{insert} (SELECT $1::int AS n) AS one RETURNING id");
        let update = format!("UPDATE {name} SET amount = amount + 1 WHERE id = $1");
        Ok(OneRow {
            insert: client.prepare(&insert).await?,
            update: client.prepare(&update).await?,
        })
    }

    /// Compares its view with what it is of, and takes all rows away.
    pub(super) async fn empty(
        &self,
        site: &ScenarioSchema,
        client: &Client,
        findings: &mut Findings,
    ) -> Result<()> {
        if let Some(view) = &self.view {
            site.api.refresh(view).await?;
            findings
                .compare(site, client, view, &Self::query(&self.name))
                .await?;
        }
        client
            .batch_execute(&format!("DELETE FROM {}", self.name))
            .await?;
        if let Some(view) = &self.view {
            site.api.refresh(view).await?;
        }
        site.settle(client, &[&self.name]).await
    }

    /// Drops it with its view.
    pub(super) async fn drop(&self, site: &ScenarioSchema, client: &Client) -> Result<()> {
        if let Some(view) = &self.view {
            site.api.drop(view).await?;
        }
        let sql = format!("DROP TABLE {}", self.name);
        Ok(client.batch_execute(&sql).await?)
    }
}
