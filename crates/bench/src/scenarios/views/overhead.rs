//! What writers pay for a view, kind by kind: many rows inserted by a statement, as many updated by
//! one, and rows written one by one, by one writer and by up to eight at a time.
//!
//! The tables are those of the part `write`. In a round each kind of write is done to a table that
//! no view reads and to one that a view reads, in turn. After a round both are empty again.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::findings::Findings;
use super::plan::ViewsPlan;
use super::schema::ScenarioSchema;
use super::timed_refresh::WARMUP;
use super::writes::{BULK_ROWS_MAX, OneRow, Table, WIDTHS, WriteSample, turns};
use crate::result::Better;

/// How many write one by one at a time.
const WRITERS: [usize; 4] = [1, 2, 4, 8];

/// Rows that they write in a round, all together.
const ROWS: usize = 96;

/// Sessions, each with what writes one row of each of two tables.
type Crew = Vec<(Arc<Client>, [OneRow; 2])>;

/// Measures writes of all widths.
pub(super) async fn measure(
    site: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    findings: &mut Findings,
) -> Result<()> {
    let rows = plan.rows.min(BULK_ROWS_MAX);
    for width in WIDTHS {
        let tables = Table::pair(site, client, width).await?;
        let crew = crew(site, &tables).await?;
        for round in 0..WARMUP + plan.cycles {
            let mut samples = bulk(&tables, width, client, rows, round).await?;
            for writers in WRITERS {
                for place in turns(round) {
                    let name = format!("single.{width}.{writers}");
                    let operation = operation(&name, tables[place].kind);
                    samples.extend(single(&crew[..writers], place, &operation).await?);
                }
            }
            if round >= WARMUP {
                samples
                    .into_iter()
                    .for_each(|sample| sample.count(findings));
            }
            for table in &tables {
                table.empty(site, client, findings).await?;
            }
        }
        let single = WRITERS.map(|writers| format!("single.{width}.{writers}"));
        let bulk = ["insert", "update"].map(|what| format!("bulk_{what}.{width}"));
        for name in bulk.iter().chain(&single) {
            let [above, below] = ["viewed", "plain"].map(|kind| operation(name, kind));
            findings.ratio(format!("overhead.{name}"), above, below, Better::Lower);
        }
        for table in &tables {
            table.drop(site, client).await?;
        }
    }
    for name in [
        "overhead.bulk_insert",
        "overhead.bulk_update",
        "overhead.single",
    ] {
        findings.worst(name);
    }
    Ok(())
}

fn operation(name: &str, kind: &str) -> String {
    format!("write.{name}.{kind}")
}

async fn crew(site: &ScenarioSchema, tables: &[Table; 2]) -> Result<Crew> {
    let mut crew = Crew::new();
    for _ in 0..WRITERS[WRITERS.len() - 1] {
        let client = site.client().await?;
        let [plain, viewed] = tables;
        let one_row = [
            plain.one_row(&client).await?,
            viewed.one_row(&client).await?,
        ];
        crew.push((client.into(), one_row));
    }
    Ok(crew)
}

/// Many rows by a statement each: inserted in both tables, then updated.
async fn bulk(
    tables: &[Table; 2],
    width: usize,
    client: &Client,
    rows: u32,
    round: u32,
) -> Result<Vec<WriteSample>> {
    let mut samples = Vec::new();
    for what in ["insert", "update"] {
        for place in turns(round) {
            let table = &tables[place];
            let begun = Instant::now();
            match what {
                "insert" => table.insert_all(client, rows).await?,
                _ => table.update_all(client).await?,
            }
            samples.push(WriteSample {
                operation: operation(&format!("bulk_{what}.{width}"), table.kind),
                begun,
                took: begun.elapsed(),
            });
        }
    }
    Ok(samples)
}

/// Rows of the table at this place, one by one, by all of the crew at a time.
async fn single(
    crew: &[(Arc<Client>, [OneRow; 2])],
    place: usize,
    operation: &str,
) -> Result<Vec<WriteSample>> {
    let each = ROWS / crew.len();
    let mut writers = JoinSet::new();
    for (client, one_row) in crew {
        let (client, one_row) = (client.clone(), one_row[place].clone());
        let operation = operation.to_owned();
        writers.spawn(async move {
            let mut samples = Vec::new();
            for number in 0..each {
                let name = operation.clone();
                samples.push(one_row.write(&client, number as i32, name).await?);
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Vec::new();
    while let Some(written) = writers.join_next().await {
        samples.extend(written.context("a writer")??);
    }
    Ok(samples)
}
