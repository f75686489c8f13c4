//! The flights demo: all 336,776 flights that left New York in 2013 with their airlines, airports,
//! planes and weather, loaded by COPY in one transaction.
//!
//! A load is committed whole or not at all; its last statement leaves a mark (a comment on
//! `flights`), by which a second start knows that there is nothing to do.

mod csv_stream;
mod delays;
mod documents;
mod follow;
mod load_progress;
mod metrics;
mod story;
mod views;

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::SinkExt;
use serde::Serialize;
use tokio_postgres::{Client, Transaction};

use self::csv_stream::CsvStream;
pub use self::load_progress::LoadProgress;
pub(crate) use self::story::run;

/// The mark in the comment on `flights`; `mark.sql` writes it.
const MARK: &str = "[egret demo flights, version 1]";

/// What a load did.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReceipt {
    /// The tables in the order they were filled.
    pub tables: Vec<TableReceipt>,
    /// Flights whose plane `planes` does not have: kept, with a null `plane_tailnum`.
    pub flights_without_plane: u64,
    /// Flights whose destination `airports` does not have: kept, with a null `dest_faa`.
    pub flights_without_airport: u64,
    /// Time for keys, indexes, comments and statistics, in milliseconds.
    pub keys_ms: u64,
    /// Time for everything, the commit included, in milliseconds.
    pub total_ms: u64,
}

impl LoadReceipt {
    /// Rows over all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

/// What was copied into one table.
#[derive(Clone, Debug, Serialize)]
pub struct TableReceipt {
    /// Name of the table.
    pub name: &'static str,
    /// Number of rows copied.
    pub rows: u64,
    /// Time taken, in milliseconds.
    pub elapsed_ms: u64,
}

/// What [`load`] found or did.
#[derive(Clone, Debug)]
pub enum LoadOutcome {
    /// The demo's tables were missing and are there now.
    Loaded(LoadReceipt),
    /// An earlier load is there, complete.
    AlreadyLoaded,
}

/// One table with its file and what the file holds.
struct Table {
    name: &'static str,
    rows: u64,
    csv_zst: &'static [u8],
}

macro_rules! table {
    ($name:literal, $rows:literal) => {
        Table {
            name: $name,
            rows: $rows,
            csv_zst: include_bytes!(concat!("../../../demo/flights/", $name, ".csv.zst")),
        }
    };
}

const AIRLINES: Table = table!("airlines", 16);
const AIRPORTS: Table = table!("airports", 1_458);
const PLANES: Table = table!("planes", 3_322);
const WEATHER: Table = table!("weather", 26_115);
const FLIGHTS: Table = table!("flights", 336_776);
const TABLES: [&Table; 5] = [&AIRLINES, &AIRPORTS, &PLANES, &WEATHER, &FLIGHTS];

/// Loads the demo into the database that `client` is connected to, unless it is there already.
///
/// # Errors
/// When a table of one of the demo's names is there that the demo did not make, or PostgreSQL
/// fails; the database is then as it was.
pub async fn load(
    client: &mut Client,
    progress: &mut (dyn FnMut(LoadProgress) + Send),
) -> anyhow::Result<LoadOutcome> {
    let started = Instant::now();
    let transaction = client.transaction().await?;
    if is_loaded(&transaction).await? {
        return Ok(LoadOutcome::AlreadyLoaded);
    }
    transaction.batch_execute(include_str!("demo/sql/tables.sql")).await?;
    let mut load = Load { transaction: &transaction, progress, rows_sent: 0 };
    let mut tables = Vec::new();
    for table in TABLES {
        tables.push(load.copy_table(table).await?);
    }
    let keys_started = Instant::now();
    (load.progress)(LoadProgress::Keys);
    for sql in [
        include_str!("demo/sql/keys.sql"),
        include_str!("demo/sql/comments.sql"),
        include_str!("demo/sql/statistics.sql"),
        include_str!("demo/sql/mark.sql"),
    ] {
        transaction.batch_execute(sql).await?;
    }
    let (flights_without_plane, flights_without_airport) = count_unmatched(&transaction).await?;
    let keys_ms = milliseconds(keys_started.elapsed());
    transaction.commit().await.context("cannot commit the demo")?;
    Ok(LoadOutcome::Loaded(LoadReceipt {
        tables,
        flights_without_plane,
        flights_without_airport,
        keys_ms,
        total_ms: milliseconds(started.elapsed()),
    }))
}

async fn is_loaded(transaction: &Transaction<'_>) -> anyhow::Result<bool> {
    transaction.batch_execute(include_str!("demo/sql/session.sql")).await?;
    let row = transaction.query_one(include_str!("demo/sql/state.sql"), &[&MARK]).await?;
    let found: Vec<String> = row.get("tables");
    if row.get("complete") {
        return Ok(true);
    }
    if !found.is_empty() {
        bail!(
            "the database already has {}, which the demo did not create: drop or rename it, or \
             use another data directory",
            found.join(", ")
        );
    }
    Ok(false)
}

async fn count_unmatched(transaction: &Transaction<'_>) -> anyhow::Result<(u64, u64)> {
    let row = transaction.query_one(include_str!("demo/sql/unmatched.sql"), &[]).await?;
    let count =
        |column| u64::try_from(row.get::<_, i64>(column)).context("a count is never negative");
    Ok((count("without_plane")?, count("without_airport")?))
}

struct Load<'a> {
    transaction: &'a Transaction<'a>,
    progress: &'a mut (dyn FnMut(LoadProgress) + Send),
    rows_sent: u64,
}

impl Load<'_> {
    async fn copy_table(&mut self, table: &Table) -> anyhow::Result<TableReceipt> {
        let started = Instant::now();
        let mut csv = CsvStream::open(table.csv_zst)?;
        if table.name == FLIGHTS.name {
            csv.add_reference_column("tailnum", "plane_tailnum", PLANES.csv_zst, "tailnum")?;
            csv.add_reference_column("dest", "dest_faa", AIRPORTS.csv_zst, "faa")?;
        }
        let statement = copy_statement(table.name, csv.columns());
        let sink = self.transaction.copy_in(&statement).await?;
        let mut sink = std::pin::pin!(sink);
        while let Some(chunk) = csv.next_chunk()? {
            self.rows_sent += chunk.rows;
            sink.send(chunk.bytes).await?;
            (self.progress)(LoadProgress::Rows {
                sent: self.rows_sent,
                total: TABLES.iter().map(|table| table.rows).sum(),
            });
        }
        let rows =
            sink.finish().await.with_context(|| format!("copying into {} failed", table.name))?;
        ensure!(
            rows == table.rows,
            "{}: {rows} rows arrived instead of {}",
            table.name,
            table.rows
        );
        Ok(TableReceipt { name: table.name, rows, elapsed_ms: milliseconds(started.elapsed()) })
    }
}

/// FREEZE: the table was made in this transaction, so no other session can see its rows too early,
/// and no vacuum has to touch them again.
fn copy_statement(table: &str, columns: &[String]) -> String {
    let columns = columns.join(", ");
    format!("COPY {table} ({columns}) FROM STDIN (FORMAT csv, NULL 'NA', FREEZE)")
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
