//! What a write takes longer for a view that reads the table: of tables that are more and more wide, of which the view needs
//! three columns.
//!
//! Two tables of each width are written in turn, with a view and without. In a round each gets as many rows as are wished for
//! by one statement, which another one updates; then a few rows one by one, each updated at once, every statement a
//! transaction. After a round both are empty again.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::{Client, Statement};

use super::api::NewView;
use super::findings::Findings;
use super::site::Site;
use super::turn::WARMUP;
use crate::result::Better;

/// Columns of the tables.
const WIDTHS: [usize; 3] = [4, 12, 24];

/// Rows that one statement writes, at most.
const BULK_ROWS_MAX: u32 = 10_000;

/// Rows that are written one by one in a round.
const SINGLE_ROWS: u32 = 100;

/// A table that is written.
struct Table {
    name: String,
    /// `plain`, or `viewed` for one that a view reads.
    kind: &'static str,
    width: usize,
    view: Option<String>,
    /// What inserts rows, their number being missing behind it.
    insert_all: String,
    update_all: String,
    insert_one: Statement,
    update_one: Statement,
}

/// What was timed.
struct Sample {
    operation: String,
    begun: Instant,
    took: Duration,
}

/// Measures all widths.
///
/// # Errors
/// Egret's or the server's.
pub(super) async fn measure(
    site: &Site,
    client: &Client,
    rows: u32,
    rounds: u32,
    findings: &mut Findings,
) -> Result<()> {
    let rows = rows.min(BULK_ROWS_MAX);
    for width in WIDTHS {
        let tables = [
            Table::make(site, client, width, "plain").await?,
            Table::make(site, client, width, "viewed").await?,
        ];
        for round in 0..WARMUP + rounds {
            for sample in self::round(&tables, client, rows, round).await? {
                if round >= WARMUP {
                    findings.took(&sample.operation, sample.begun, sample.took);
                }
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

/// Writes all rows of a round. Who goes first is the other one each time.
async fn round(tables: &[Table; 2], client: &Client, rows: u32, round: u32) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let turns = |first: u32| [first % 2, (first + 1) % 2].map(|place| &tables[place as usize]);
    for table in turns(round) {
        samples.push(table.bulk(client, rows).await?);
    }
    for number in 0..SINGLE_ROWS {
        for table in turns(number) {
            samples.push(table.single(client, number as i32).await?);
        }
    }
    Ok(samples)
}

fn operation(size: &str, width: usize, kind: &str) -> String {
    format!("write_{size}.{width}.{kind}")
}

impl Table {
    async fn make(site: &Site, client: &Client, width: usize, kind: &'static str) -> Result<Self> {
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
        let insert_one = format!("{insert} (SELECT $1::int AS n) AS one RETURNING id");
        let update_one = format!("UPDATE {name} SET amount = amount + 1 WHERE id = $1");
        Ok(Self {
            insert_all: insert,
            update_all: format!("UPDATE {name} SET amount = amount + 1"),
            insert_one: client.prepare(&insert_one).await?,
            update_one: client.prepare(&update_one).await?,
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
    async fn bulk(&self, client: &Client, rows: u32) -> Result<Sample> {
        let insert = format!("{} generate_series(1, {rows}) AS n", self.insert_all);
        let begun = Instant::now();
        client.batch_execute(&insert).await?;
        client.batch_execute(&self.update_all).await?;
        Ok(Sample {
            operation: operation("bulk", self.width, self.kind),
            begun,
            took: begun.elapsed(),
        })
    }

    /// One row.
    async fn single(&self, client: &Client, number: i32) -> Result<Sample> {
        let begun = Instant::now();
        let row = client.query_one(&self.insert_one, &[&number]).await?;
        let id: i32 = row.get(0);
        client.execute(&self.update_one, &[&id]).await?;
        Ok(Sample {
            operation: operation("single", self.width, self.kind),
            begun,
            took: begun.elapsed(),
        })
    }

    /// Compares its view with what it is of, and takes all rows away.
    async fn empty(&self, site: &Site, client: &Client, findings: &mut Findings) -> Result<()> {
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

    async fn drop(&self, site: &Site, client: &Client) -> Result<()> {
        if let Some(view) = &self.view {
            site.api.drop(view).await?;
        }
        let sql = format!("DROP TABLE {}", self.name);
        Ok(client.batch_execute(&sql).await?)
    }
}
