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
use super::writes::{
    BULK_ROWS_MAX, SingleRowStatements, Table, WIDTHS, WriteSample, alternating_order,
};
use crate::result::Better;

/// How many write one by one at a time.
const WRITER_COUNTS: [usize; 4] = [1, 2, 4, 8];

/// Rows that they write in a round, all together.
const SINGLE_ROWS: usize = 96;

/// Sessions, each with what writes one row of each of two tables.
type WriterSessions = Vec<(Arc<Client>, [SingleRowStatements; 2])>;

/// Measures writes of all widths.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    findings: &mut Findings,
) -> Result<()> {
    let rows = plan.rows.min(BULK_ROWS_MAX);
    for width in WIDTHS {
        let tables = Table::create_pair(schema, client, width).await?;
        let sessions = open_sessions(schema, &tables).await?;
        for round in 0..WARMUP + plan.cycles {
            let mut samples = write_bulk(&tables, width, client, rows, round).await?;
            for writers in WRITER_COUNTS {
                for table_index in alternating_order(round) {
                    let name = format!("single.{width}.{writers}");
                    let operation = operation_name(&name, tables[table_index].kind);
                    samples.extend(
                        write_single_rows(&sessions[..writers], table_index, &operation).await?,
                    );
                }
            }
            if round >= WARMUP {
                samples.into_iter().for_each(|sample| sample.record(findings));
            }
            for table in &tables {
                table.verify_and_clear(schema, client, findings).await?;
            }
        }
        let single_names = WRITER_COUNTS.map(|writers| format!("single.{width}.{writers}"));
        let bulk_names = ["insert", "update"].map(|what| format!("bulk_{what}.{width}"));
        for name in bulk_names.iter().chain(&single_names) {
            let [numerator, denominator] =
                ["viewed", "plain"].map(|kind| operation_name(name, kind));
            findings.add_ratio(format!("overhead.{name}"), numerator, denominator, Better::Lower);
        }
        for table in &tables {
            table.drop(schema, client).await?;
        }
    }
    for name in ["overhead.bulk_insert", "overhead.bulk_update", "overhead.single"] {
        findings.add_worst_ratio(name);
    }
    Ok(())
}

fn operation_name(name: &str, kind: &str) -> String {
    format!("write.{name}.{kind}")
}

async fn open_sessions(schema: &ScenarioSchema, tables: &[Table; 2]) -> Result<WriterSessions> {
    let mut sessions = WriterSessions::new();
    for _ in 0..WRITER_COUNTS[WRITER_COUNTS.len() - 1] {
        let client = schema.connect().await?;
        let [plain, viewed] = tables;
        let one_row =
            [plain.prepare_single_row(&client).await?, viewed.prepare_single_row(&client).await?];
        sessions.push((client.into(), one_row));
    }
    Ok(sessions)
}

/// Many rows by a statement each: inserted in both tables, then updated.
async fn write_bulk(
    tables: &[Table; 2],
    width: usize,
    client: &Client,
    rows: u32,
    round: u32,
) -> Result<Vec<WriteSample>> {
    let mut samples = Vec::new();
    for kind in ["insert", "update"] {
        for table_index in alternating_order(round) {
            let table = &tables[table_index];
            let begun = Instant::now();
            match kind {
                "insert" => table.insert_all(client, rows).await?,
                _ => table.update_all(client).await?,
            }
            samples.push(WriteSample {
                operation: operation_name(&format!("bulk_{kind}.{width}"), table.kind),
                begun,
                duration: begun.elapsed(),
            });
        }
    }
    Ok(samples)
}

/// Rows of the table at this place, one by one, by all of the crew at a time.
async fn write_single_rows(
    sessions: &[(Arc<Client>, [SingleRowStatements; 2])],
    table_index: usize,
    operation: &str,
) -> Result<Vec<WriteSample>> {
    let rows_per_writer = SINGLE_ROWS / sessions.len();
    let mut writers = JoinSet::new();
    for (client, one_row) in sessions {
        let (client, one_row) = (client.clone(), one_row[table_index].clone());
        let operation = operation.to_owned();
        writers.spawn(async move {
            let mut samples = Vec::new();
            for number in 0..rows_per_writer {
                let name = operation.clone();
                samples.push(one_row.insert_and_update(&client, number as i32, name).await?);
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Vec::new();
    while let Some(result) = writers.join_next().await {
        samples.extend(result.context("a writer")??);
    }
    Ok(samples)
}
