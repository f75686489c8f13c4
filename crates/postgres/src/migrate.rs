//! What Egret keeps inside a database: schema `egret`, migrated in order.
//!
//! Each step's text is checksummed, runs once, in one transaction with the record that it ran.

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, GenericClient, Transaction};

use crate::error::{PostgresError, server_error};
use crate::installation;
use crate::user_triggers::UserTriggers;

/// One step of an engine's schema. Its text never changes once released.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Short name of the step, for messages.
    pub name: &'static str,
    /// The SQL to run; objects are to be made in schema `egret`.
    pub sql: &'static str,
}

/// Serialises migrations of different Egrets: the first eight bytes of SHA-256("egret/migrate").
pub(crate) const LOCK_KEY: i64 = 0x2f4a_9c61_7b0d_35e8;

/// Brings one engine's part of schema `egret` up to date.
///
/// # Errors
/// [`PostgresError::Migration`] when a step has changed or a newer Egret was here;
/// [`PostgresError::Server`] when a step fails, in which case nothing has changed.
pub async fn migrate(
    client: &mut Client,
    engine: &str,
    migrations: &[Migration],
) -> Result<(), PostgresError> {
    let transaction = client.transaction().await.map_err(server_error("begin"))?;
    lock_schema(&transaction).await?;
    // Functions and operators of users must not stand in for the system's.
    transaction
        .batch_execute(
            "SET LOCAL search_path = pg_catalog, pg_temp; CREATE SCHEMA IF NOT EXISTS egret",
        )
        .await
        .map_err(server_error("create schema egret"))?;
    check_schema_owner(&transaction).await?;
    transaction
        .batch_execute(include_str!("migrate/schema.sql"))
        .await
        .map_err(server_error("create schema egret"))?;
    let rows = transaction
        .query(
            "SELECT checksum FROM egret.migration WHERE engine = $1 ORDER BY position",
            &[&engine],
        )
        .await
        .map_err(server_error("read egret.migration"))?;
    let applied: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    if applied.len() > migrations.len() {
        return Err(PostgresError::Migration(format!(
            "{engine} was migrated by a newer Egret ({} steps, this one knows {}): use that version",
            applied.len(),
            migrations.len()
        )));
    }
    for (position, migration) in (0_i32..).zip(migrations) {
        let sum = checksum(migration.sql);
        match applied.get(position as usize) {
            Some(found) if *found == sum => continue,
            Some(_) => {
                return Err(PostgresError::Migration(format!(
                    "step {engine}/{} has changed since it ran: use the Egret version that ran it",
                    migration.name
                )));
            }
            None => {}
        }
        transaction
            .batch_execute(migration.sql)
            .await
            .map_err(server_error("migrate schema egret"))?;
        transaction
            .execute(
                "INSERT INTO egret.migration (engine, position, name, checksum) VALUES ($1, $2, $3, $4)",
                &[&engine, &position, &migration.name, &sum],
            )
            .await
            .map_err(server_error("record a migration"))?;
    }
    installation::install_guard(&transaction).await?;
    transaction.commit().await.map_err(server_error("commit"))
}

/// Refuses a schema `egret` that another role has made or may change: reading its tables would run
/// what that role put there (a view, a trigger) with the rights of this connection. Looks at
/// catalogs only.
///
/// # Errors
/// [`PostgresError::ForeignSchema`] with the roles' names; [`PostgresError::Server`].
pub async fn check_schema_owner(client: &impl GenericClient) -> Result<(), PostgresError> {
    let row = client
        .query_one(include_str!("migrate/foreign.sql"), &[])
        .await
        .map_err(server_error("look at schema egret"))?;
    match row.get(0) {
        Some(roles) => Err(PostgresError::ForeignSchema { roles }),
        None => Ok(()),
    }
}

/// Removes one engine's part of schema `egret` by `sql`, within the caller's transaction.
///
/// # Errors
/// [`PostgresError::UserObjects`] where triggers or rules of users would go with it;
/// [`PostgresError::Server`].
pub async fn remove_engine(
    transaction: &Transaction<'_>,
    engine: &str,
    sql: &str,
) -> Result<(), PostgresError> {
    lock_schema(transaction).await?;
    let doing = "list the triggers of users";
    let triggers = UserTriggers::list(transaction).await.map_err(server_error(doing))?;
    transaction.batch_execute(sql).await.map_err(server_error("remove from schema egret"))?;
    let lost_triggers = triggers.find_missing(transaction).await.map_err(server_error(doing))?;
    if !lost_triggers.is_empty() {
        let lost: Vec<String> = lost_triggers.iter().map(ToString::to_string).collect();
        return Err(PostgresError::UserObjects { objects: lost.join("; ") });
    }
    transaction
        .execute("DELETE FROM egret.migration WHERE engine = $1", &[&engine])
        .await
        .map_err(server_error("forget migrations"))?;
    Ok(())
}

/// Waits for migrations and removals of other Egrets, until the end of the transaction.
///
/// # Errors
/// [`PostgresError::Server`].
pub(crate) async fn lock_schema(transaction: &Transaction<'_>) -> Result<(), PostgresError> {
    let locked = transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK_KEY]);
    locked.await.map_err(server_error("lock schema egret"))?;
    Ok(())
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
