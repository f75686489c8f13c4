//! What the engine keeps in a database.

use egret_postgres::migrate::{Migration, migrate};
use egret_postgres::tokio_postgres::Client;

use crate::error::ViewsError;

/// The engine's part of schema `egret`.
const MIGRATIONS: &[Migration] = &[Migration {
    name: "functions",
    sql: include_str!("install/migration_1.sql"),
}];

/// Makes the engine's part of schema `egret`, or brings it up to date.
///
/// # Errors
/// [`ViewsError::Postgres`].
pub async fn install(client: &mut Client) -> Result<(), ViewsError> {
    Ok(migrate(client, "views", MIGRATIONS).await?)
}
