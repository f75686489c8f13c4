//! What the engine keeps in a database.

use egret_postgres::migrate::{self, Migration, migrate};
use egret_postgres::tokio_postgres::Client;

use super::registry::REGISTRY_OID_SQL;
use super::{identity, rights, views_role, write_guard};
use crate::error::ViewsError;

/// The engine's part of schema `egret`.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "views", sql: include_str!("install/migration_1.sql") },
    Migration { name: "requests", sql: include_str!("install/migration_2.sql") },
    Migration { name: "plans", sql: include_str!("install/migration_3.sql") },
    Migration { name: "unlogged changes", sql: include_str!("install/migration_4.sql") },
    Migration { name: "change sets", sql: include_str!("install/migration_5.sql") },
    Migration { name: "clock", sql: include_str!("install/migration_6.sql") },
    Migration { name: "bounds of requests", sql: include_str!("install/migration_7.sql") },
    Migration { name: "write guard", sql: include_str!("install/migration_8.sql") },
    Migration { name: "read guard", sql: include_str!("install/migration_9.sql") },
    Migration { name: "dependencies", sql: include_str!("install/migration_10.sql") },
];

/// Makes the engine's part of schema `egret`, or brings it up to date.
pub async fn install(client: &mut Client) -> Result<(), ViewsError> {
    migrate(client, "views", MIGRATIONS).await?;
    identity::set_missing_identities(client).await?;
    write_guard::refuse_writes_to_former(client).await?;
    if views_role::runs_as_views_role(client).await? {
        client.batch_execute(CREATE_ROLE).await?;
        rights::transfer_from_superusers(client).await?;
    }
    Ok(())
}

/// Creates the role of views, and its functions.
const CREATE_ROLE: &str = include_str!("install/role.sql");

/// Oid of the table of views, if the engine is installed in the database.
pub(crate) async fn find_registry_oid(client: &Client) -> Result<Option<u32>, ViewsError> {
    let registry_oid: Option<u32> = client.query_one(REGISTRY_OID_SQL, &[]).await?.get(0);
    if registry_oid.is_some() {
        // A schema that Egret did not create is not read.
        migrate::check_schema_owner(client).await?;
    }
    Ok(registry_oid)
}

/// Uninstalls the engine from schema `egret`, which has no views any more.
pub async fn uninstall(client: &mut Client) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    migrate::remove_engine(&transaction, "views", include_str!("install/remove.sql")).await?;
    Ok(transaction.commit().await?)
}
