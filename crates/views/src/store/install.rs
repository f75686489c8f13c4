//! What the engine keeps in a database.

use egret_postgres::migrate::{self, Migration, migrate};
use egret_postgres::tokio_postgres::Client;

use crate::error::ViewsError;

/// The engine's part of schema `egret`.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "views",
        sql: include_str!("install/migration_1.sql"),
    },
    Migration {
        name: "requests",
        sql: include_str!("install/migration_2.sql"),
    },
];

/// Makes the engine's part of schema `egret`, or brings it up to date.
///
/// # Errors
/// [`ViewsError::Postgres`].
pub async fn install(client: &mut Client) -> Result<(), ViewsError> {
    Ok(migrate(client, "views", MIGRATIONS).await?)
}

/// Whether a database has the engine's part of schema `egret`.
///
/// # Errors
/// What the server says.
pub async fn is_installed(client: &Client) -> Result<bool, ViewsError> {
    let is_there = is_there(client).await?;
    if is_there {
        // What somebody else has made there is not read.
        migrate::check_owner(client).await?;
    }
    Ok(is_there)
}

/// Whether a database has what looks like it.
///
/// # Errors
/// What the server says.
pub async fn is_there(client: &Client) -> Result<bool, ViewsError> {
    let sql = "SELECT pg_catalog.to_regclass('egret.view') IS NOT NULL";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Removes the engine's part of schema `egret`, in which there are no views any more.
///
/// # Errors
/// What the server says.
pub async fn uninstall(client: &mut Client) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    migrate::remove(&transaction, "views", include_str!("install/remove.sql")).await?;
    Ok(transaction.commit().await?)
}
