//! Rights of views: their statements run as the owner of the view, not as the role that refreshes
//! it, and never as a superuser.
//!
//! They run in a SECURITY DEFINER function of the owner, in which no code can change the role
//! again, as it could after SET ROLE. The function is temporary and created within the transaction,
//! so that the owner cannot alter it before it is called.

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::materialized_view::{MaterializedView, sink_table, stage_table};
use super::query_description::{QueryDescription, SourceTable};
use super::record::Record;
use super::refreshable::ViewSource;
use super::views_role::{VIEWS_ROLE, grant_select, runs_as_views_role, transfer_to_views_role};
use super::{registry, view_storage};
use crate::core::capture::TRANSACTION;
use crate::core::expression::quote_identifier;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::{Grants, State};

/// Transfers views from owners that are superusers to [`VIEWS_ROLE`]. A view for which that fails
/// is suspended.
pub(crate) async fn transfer_from_superusers(client: &mut Client) -> Result<(), ViewsError> {
    if !runs_as_views_role(client).await? {
        return Ok(());
    }
    for row in client.query(include_str!("sql/superusers.sql"), &[]).await? {
        let (view, reads): (i64, Vec<u32>) = (row.get("id"), row.get("reads"));
        let (schema, name): (&str, &str) = (row.get("schema"), row.get("name"));
        let transaction = client.transaction().await?;
        match change_owner(&transaction, view, &reads).await {
            Ok(()) => {
                transaction.commit().await?;
                tracing::info!(schema, name, "changed the owner of a view to egret_views");
            }
            Err(error) => {
                transaction.rollback().await?;
                let reason = format!(
                    "it has the rights of a superuser, and cannot be given to egret_views \
                     ({error}): drop it, and create it again"
                );
                tracing::warn!(schema, name, reason, "a view is suspended");
                registry::store_failure(client, view, State::Suspended, &reason, true).await?;
            }
        }
    }
    Ok(())
}

async fn change_owner(
    transaction: &Transaction<'_>,
    view: i64,
    reads: &[u32],
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET owner = $2::text WHERE id = $1";
    transaction.execute(sql, &[&view, &VIEWS_ROLE]).await?;
    grant_select(transaction, reads, Grants::SelectOnSources).await?;
    transfer_to_views_role(transaction, view).await
}

/// Refuses an owner that this session cannot act as, or that may not create the view. Returns
/// whether the owner is another role than the session's.
///
/// # Errors
/// [`ViewsError::Invalid`] for a missing role or schema, [`ViewsError::PrivilegeMissing`] for a
/// missing privilege.
pub(crate) async fn check_owner(
    transaction: &Transaction<'_>,
    owner: &str,
    schema: &str,
) -> Result<bool, ViewsError> {
    let sql = "SELECT pg_catalog.pg_has_role(current_user, role.oid, 'MEMBER'), current_user::text, \
               (SELECT pg_catalog.has_schema_privilege(role.oid, namespace.oid, 'CREATE') \
                FROM pg_catalog.pg_namespace AS namespace WHERE namespace.nspname = $2) \
               FROM pg_catalog.pg_roles AS role WHERE role.rolname = $1";
    let Some(row) = transaction.query_opt(sql, &[&owner, &schema]).await? else {
        return Err(ViewsError::Invalid {
            what: "owner",
            reason: format!("there is no role `{owner}`"),
        });
    };
    let (is_member, current_role): (bool, String) = (row.get(0), row.get(1));
    let Some(may_create) = row.get::<_, Option<bool>>(2) else {
        return Err(ViewsError::Invalid {
            what: "name",
            reason: format!(
                "there is no schema `{schema}`: create it with CREATE SCHEMA, or name another"
            ),
        });
    };
    if !is_member {
        return Err(ViewsError::PrivilegeMissing {
            what: format!("`{current_role}` cannot act as `{owner}`"),
            grant: format!(
                "GRANT {} TO {}",
                quote_identifier(owner),
                quote_identifier(&current_role)
            ),
        });
    }
    if !may_create && owner != VIEWS_ROLE {
        return Err(ViewsError::PrivilegeMissing {
            what: format!("`{owner}` may not create a view in schema `{schema}`"),
            grant: format!(
                "GRANT CREATE ON SCHEMA {} TO {}",
                quote_identifier(schema),
                quote_identifier(owner)
            ),
        });
    }
    Ok(current_role != owner)
}

/// Refuses a table on which this session may not create triggers.
///
/// # Errors
/// [`ViewsError::PrivilegeMissing`] with the missing grant.
pub(crate) async fn check_trigger_privilege(
    transaction: &Transaction<'_>,
    table: &SourceTable,
) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.has_table_privilege($1::oid, 'TRIGGER'), current_user::text";
    let row = transaction.query_one(sql, &[&table.oid]).await?;
    let (has_privilege, current_role): (bool, String) = (row.get(0), row.get(1));
    if has_privilege {
        Ok(())
    } else {
        Err(ViewsError::PrivilegeMissing {
            what: format!(
                "`{current_role}` may not record changes of `{}.{}`",
                table.schema, table.name
            ),
            grant: format!(
                "GRANT TRIGGER ON {} TO {}",
                table.quoted_name(),
                quote_identifier(&current_role)
            ),
        })
    }
}

/// Refuses a view in a schema in which Egret's role may not create one. A missing schema passes.
///
/// # Errors
/// [`ViewsError::PrivilegeMissing`] with the missing grant.
pub(crate) async fn check_create_privilege(
    transaction: &Transaction<'_>,
    schema: &str,
) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.has_schema_privilege(oid, 'CREATE'), current_user::text \
               FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let Some(row) = transaction.query_opt(sql, &[&schema]).await? else {
        return Ok(());
    };
    let (has_privilege, role): (bool, String) = (row.get(0), row.get(1));
    if has_privilege {
        return Ok(());
    }
    Err(ViewsError::PrivilegeMissing {
        what: format!("`{role}` may not create a view in schema `{schema}`"),
        grant: format!(
            "GRANT CREATE ON SCHEMA {} TO {}, or name another schema",
            quote_identifier(schema),
            quote_identifier(&role)
        ),
    })
}

/// Refuses tables with columns that another owner may not read: the view would reveal their
/// changes.
/// [`VIEWS_ROLE`] is granted what it lacks.
///
/// # Errors
/// [`ViewsError::PrivilegeMissing`] with the missing grant.
pub(crate) async fn check_owner_reads(
    transaction: &Transaction<'_>,
    record: &Record,
    materialized_view: &MaterializedView,
    description: &QueryDescription,
    grants: Grants,
) -> Result<(), ViewsError> {
    let owner = record.owner.as_str();
    if !record.has_other_owner {
        return Ok(());
    }
    if owner == VIEWS_ROLE {
        let tables = description.tables.iter().map(|table| table.oid);
        let reads: Vec<u32> = tables.chain(description.inlined.iter().copied()).collect();
        return grant_select(transaction, &reads, grants).await;
    }
    for (table_index, table) in description.tables.iter().enumerate() {
        let columns = materialized_view.read_columns(Source::Table(table_index));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        check_column_privileges(transaction, owner, table.oid, &table.quoted_name(), &columns)
            .await?;
    }
    Ok(())
}

/// Refuses columns of a table that a role may not read.
///
/// # Errors
/// [`ViewsError::PrivilegeMissing`] with the missing grant.
pub(crate) async fn check_column_privileges(
    transaction: &impl GenericClient,
    role: &str,
    table: u32,
    name: &str,
    columns: &[&str],
) -> Result<(), ViewsError> {
    let sql = "SELECT column_name FROM unnest($3::text[]) AS column_name \
               WHERE NOT pg_catalog.has_column_privilege($1::name, $2::oid, column_name, 'SELECT')";
    let rows = transaction.query(sql, &[&role, &table, &columns]).await?;
    let missing: Vec<String> = rows.iter().map(|row| quote_identifier(row.get(0))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(ViewsError::PrivilegeMissing {
        what: format!("`{role}` may not read {missing} of {name}"),
        grant: format!("GRANT SELECT ({missing}) ON {name} TO {}", quote_identifier(role)),
    })
}

/// Makes the record's owner the owner of the PostgreSQL view, with exactly the privileges to read
/// and write the storage and to read recorded changes.
pub(crate) async fn transfer_ownership(
    transaction: &Transaction<'_>,
    record: &Record,
    materialized_view: &MaterializedView,
    reads: &[ViewSource],
) -> Result<(), ViewsError> {
    if record.owner == VIEWS_ROLE {
        return transfer_to_views_role(transaction, record.id).await;
    }
    let (id, owner) = (record.id, quote_identifier(&record.owner));
    let mut statements = vec![format!("GRANT USAGE ON SCHEMA egret TO {owner}")];
    for stage in 0..materialized_view.stages.len() {
        let edge = materialized_view.stages[stage].table().edge_table.clone();
        let stage_tables = [stage_table(id, stage), sink_table(id, stage)];
        for table in stage_tables.into_iter().chain(edge) {
            statements.push(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {owner}"));
        }
    }
    for view_source in reads {
        if let ViewSource::View(other) = view_source {
            // The rows of the source are read from its storage, and its changes from its sinks.
            for table in view_storage::list_storage_tables(transaction, *other).await? {
                let table = quote_identifier(&table);
                statements.push(format!("GRANT SELECT ON egret.{table} TO {owner}"));
            }
        }
        if let ViewSource::Table { capture: captured, .. } = view_source {
            // A query that is only recomputed does not read changes.
            let columns: String = captured
                .columns
                .iter()
                .filter(|_| !materialized_view.is_full_only)
                .map(|column| format!(", {}", quote_identifier(&column.name)))
                .collect();
            statements.push(format!(
                "GRANT SELECT ({TRANSACTION}, {WEIGHT}{columns}) ON {} TO {owner}",
                captured.changes_table()
            ));
        }
    }
    let (schema, name) =
        (quote_identifier(&record.name.schema), quote_identifier(&record.name.name));
    statements.push(format!("ALTER VIEW {schema}.{name} OWNER TO {owner}"));
    for statement in statements {
        transaction.batch_execute(&statement).await?;
    }
    Ok(())
}
