//! The tables and trigger functions of a view in schema `egret`.

use egret_postgres::tokio_postgres::{GenericClient, Transaction};

use crate::core::expression::quote_identifier;
use crate::error::ViewsError;

/// The tables of a view, by their names in schema `egret`.
pub(crate) async fn list_storage_tables(
    client: &impl GenericClient,
    view: i64,
) -> Result<Vec<String>, ViewsError> {
    let sql = "SELECT relname::text FROM pg_catalog.pg_class \
               WHERE relnamespace = 'egret'::regnamespace AND relkind = 'r' AND relname ~ $1 ORDER BY 1";
    let pattern = format!("^(view|told|edge)_{view}_[0-9]+$");
    let rows = client.query(sql, &[&pattern]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Drops the tables of a view.
pub(crate) async fn drop_storage(
    transaction: &Transaction<'_>,
    view: i64,
) -> Result<(), ViewsError> {
    for table in list_storage_tables(transaction, view).await? {
        let drop = format!("DROP TABLE egret.{}", quote_identifier(&table));
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}

/// Renames the tables of a view, to make room for new ones; [`drop_renamed_storage`] drops them.
pub(crate) async fn rename_storage_aside(
    transaction: &Transaction<'_>,
    view: i64,
) -> Result<(), ViewsError> {
    for table in list_storage_tables(transaction, view).await? {
        let aside = quote_identifier(&format!("{table}_aside"));
        let rename = format!("ALTER TABLE egret.{} RENAME TO {aside}", quote_identifier(&table));
        transaction.batch_execute(&rename).await?;
    }
    Ok(())
}

/// Drops the tables that [`rename_storage_aside`] has renamed.
pub(crate) async fn drop_renamed_storage(
    transaction: &Transaction<'_>,
    view: i64,
) -> Result<(), ViewsError> {
    let sql = "SELECT relname::text FROM pg_catalog.pg_class \
               WHERE relnamespace = 'egret'::regnamespace AND relkind = 'r' AND relname ~ $1";
    let pattern = format!("^(view|told|edge)_{view}_[0-9]+_aside$");
    for row in transaction.query(sql, &[&pattern]).await? {
        let drop = format!("DROP TABLE egret.{}", quote_identifier(row.get(0)));
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}

/// Drops a trigger function with its triggers: by themselves, only the owners of their tables may
/// drop them. A trigger that a user has made with the function would go as well, which
/// `remove::refuse_lost_triggers` detects.
pub(crate) async fn drop_trigger_function(
    transaction: &Transaction<'_>,
    function: &str,
) -> Result<(), ViewsError> {
    let drop = format!("DROP FUNCTION IF EXISTS {function} CASCADE");
    Ok(transaction.batch_execute(&drop).await?)
}
