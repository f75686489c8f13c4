//! Installation of the engine's tables in a database.

use egret_postgres::Databases;
use egret_postgres::databases;
use egret_postgres::migrate::{self, Migration, migrate};
use egret_postgres::tokio_postgres::Client;

use crate::error::DocumentsError;

/// The engine's part of schema `egret`.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "documents", sql: include_str!("install/migration_1.sql") },
    Migration { name: "query values", sql: include_str!("install/migration_3.sql") },
];

/// Installs or migrates the engine's part of schema `egret`. New tables get this number of
/// partitions, and foreign keys for references if `is_strict`.
pub async fn install(
    client: &mut Client,
    partitions: u32,
    is_strict: bool,
) -> Result<(), DocumentsError> {
    migrate(client, "documents", MIGRATIONS).await?;
    let partitions = i32::try_from(partitions.clamp(1, PARTITIONS_MAX))
        .expect("the number of partitions is clamped");
    // A concurrent installation that holds the lock later finds the partitions.
    let transaction = client.transaction().await?;
    transaction.batch_execute("LOCK TABLE egret.collection IN EXCLUSIVE MODE").await?;
    let sql = "SELECT egret.document_partitions($1, $2) WHERE NOT EXISTS \
         (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = 'egret.document'::regclass)";
    transaction.query(sql, &[&partitions, &is_strict]).await?;
    Ok(transaction.commit().await?)
}

/// Migrates the engine's part of schema `egret` if there is one, made by an earlier version.
pub(crate) async fn upgrade(client: &mut Client) -> Result<(), DocumentsError> {
    if !is_installed(client).await? {
        return Ok(());
    }
    let sql = "SELECT count(*) FROM egret.migration WHERE engine = 'documents'";
    let applied: i64 = client.query_one(sql, &[]).await?.get(0);
    if usize::try_from(applied) != Ok(MIGRATIONS.len()) {
        migrate(client, "documents", MIGRATIONS).await?;
    }
    Ok(())
}

/// Partitions of a table, at most.
const PARTITIONS_MAX: u32 = 256;

/// Whether a database has no documents any more, or does not exist. False if that is unknown.
pub async fn is_removed(databases: &Databases, database: &str) -> bool {
    match databases.client(database).await {
        Ok(client) => matches!(is_installed(&client).await, Ok(false)),
        Err(error) => databases::is_database_missing(&error),
    }
}

/// The error to return to a caller: [`DocumentsError::Removed`] only if the documents of the
/// database are gone, not if a part of the engine's tables is missing.
pub(crate) async fn check_removal(
    error: DocumentsError,
    databases: &Databases,
    database: &str,
) -> DocumentsError {
    if error.is_removed() && !is_removed(databases, database).await {
        return error.into_damaged_schema();
    }
    error
}

/// Whether a database has the engine's part of schema `egret`. Fails if the schema belongs to
/// another owner.
pub async fn is_installed(client: &Client) -> Result<bool, DocumentsError> {
    let sql = "SELECT pg_catalog.to_regclass('egret.document') IS NOT NULL";
    let exists = client.query_one(sql, &[]).await?.get(0);
    if exists {
        // Tables in a schema of another owner are not read.
        migrate::check_schema_owner(client).await?;
    }
    Ok(exists)
}
