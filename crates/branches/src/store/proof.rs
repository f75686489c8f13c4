//! Proof that a write on a branch did not reach the source: a marker that only the branch has, and
//! checksums of the source's tables and catalogue before and after.

use egret_base::settings::ConfigDuration;
use egret_postgres::error::server_error;
use egret_postgres::wire::{Session, WireError};
use egret_postgres::{EmbeddedServer, PostgresError, databases};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio_postgres::Client;

/// Checksums of the source at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceState {
    /// One checksum over every table's rows, by database and table.
    pub tables: String,
    /// One checksum over the definitions in every database's catalogue.
    pub catalogue: String,
    /// How many tables were read.
    pub tables_checked: u64,
    /// The snapshot of transactions: unchanged when no session wrote meanwhile.
    pub transactions: String,
}

/// The server to be read, and how long a statement may run there once its reader has given up.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub server: &'a EmbeddedServer,
    /// As `statement_timeout` of PostgreSQL.
    pub statement_timeout: ConfigDuration,
}

impl Source<'_> {
    async fn connect(&self, database: &str) -> Result<Client, PostgresError> {
        let mut connection = self.server.connection(database, "branches");
        let timeout_ms = self.statement_timeout.0.min(i32::MAX as u64);
        let options = connection.get_options().unwrap_or_default();
        // The later option wins.
        connection.options(format!("{options} -c statement_timeout={timeout_ms}"));
        self.server.open_session(&connection).await
    }
}

/// Reads the source's state.
pub(crate) async fn read_source_state(source: Source<'_>) -> Result<SourceState, PostgresError> {
    let first = source.connect("postgres").await?;
    let transactions = read_transactions(&first).await?;
    let (mut tables, mut catalogue) = (Sha256::new(), Sha256::new());
    let mut tables_checked = 0;
    for database in databases::list(&first).await? {
        let client = source.connect(&database).await?;
        catalogue.update(format!("{database}:{}", catalogue_checksum(&client).await?));
        let rows = client
            .query(include_str!("sql/user_tables.sql"), &[])
            .await
            .map_err(server_error("list the tables of the source"))?;
        for row in rows {
            let table: String = row.get(0);
            tables.update(format!("{database}.{table}:{}", table_checksum(&client, &table).await?));
            tables_checked += 1;
        }
    }
    Ok(SourceState { tables: hex(tables), catalogue: hex(catalogue), tables_checked, transactions })
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn read_transactions(client: &Client) -> Result<String, PostgresError> {
    let row = client
        .query_one("SELECT pg_current_snapshot()::text", &[])
        .await
        .map_err(server_error("read the transactions"))?;
    Ok(row.get(0))
}

/// Row count and the sum of 128-bit row hashes: independent of order. `table` is quoted already.
///
/// Of all that reads a table, COPY alone runs nothing that its owner defined: a query would call
/// casts of its row type, and planning one evaluates the expressions of its indexes.
async fn table_checksum(client: &Client, table: &str) -> Result<String, PostgresError> {
    let fail = |error| server_error("read a table of the source")(error);
    let copy = format!("COPY {table} TO STDOUT");
    let rows = client.copy_out(&copy).await.map_err(fail)?;
    let mut rows = std::pin::pin!(rows);
    let (mut count, mut sum) = (0_u64, 0_u128);
    while let Some(row) = rows.next().await {
        let hash = Sha256::digest(row.map_err(fail)?);
        let (half, _) = hash.split_first_chunk::<16>().expect("a hash has 32 bytes");
        count += 1;
        sum = sum.wrapping_add(u128::from_be_bytes(*half));
    }
    Ok(format!("{count}:{sum:032x}"))
}

async fn catalogue_checksum(client: &Client) -> Result<String, PostgresError> {
    let row = client
        .query_one(include_str!("sql/catalogue_checksum.sql"), &[])
        .await
        .map_err(server_error("read the catalogue of the source"))?;
    Ok(row.get(0))
}

/// Writes a marker to a branch (a schema, a table, a row), reads it back and removes it.
pub(crate) async fn write_marker(session: &mut Session, marker: &str) -> Result<bool, WireError> {
    let write = format!(
        "CREATE SCHEMA {marker}; CREATE TABLE {marker}.proof (written text);
         INSERT INTO {marker}.proof VALUES ('{marker}'); SELECT written FROM {marker}.proof"
    );
    let answer = session.query(&write, &[], 10, 1_000).await?;
    let found = answer.rows.first().and_then(|row| row.first().cloned().flatten());
    let remove = format!("DROP SCHEMA {marker} CASCADE");
    session.query(&remove, &[], 10, 1_000).await?;
    Ok(found.as_deref() == Some(marker))
}

/// Whether any database of the source has a schema of this name.
pub(crate) async fn source_has_schema(
    source: Source<'_>,
    schema: &str,
) -> Result<bool, PostgresError> {
    let first = source.connect("postgres").await?;
    for database in databases::list(&first).await? {
        let client = source.connect(&database).await?;
        let found = client
            .query_opt("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema])
            .await
            .map_err(server_error("look for the marker in the source"))?;
        if found.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
