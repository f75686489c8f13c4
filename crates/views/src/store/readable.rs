//! Checks that a caller may read the views in a query: a view of the query would show their rows.

use egret_postgres::tokio_postgres::{GenericClient, Transaction};

use super::describe::describe_user_query;
use super::query_description::{NameResolution, QueryDescription};
use crate::core::analyse::parse::referenced_tables;
use crate::error::ViewsError;
use crate::model::{ReadableViews, ViewName};

/// Describes a query that may read only these views.
///
/// # Errors
/// [`ViewsError::ReadDenied`]; those of [`describe_user_query`].
pub(crate) async fn describe_readable(
    transaction: &mut Transaction<'_>,
    query: &str,
    name_resolution: NameResolution,
    readable: &ReadableViews,
) -> Result<QueryDescription, ViewsError> {
    check_named_views(transaction, query, readable).await?;
    let description = describe_user_query(transaction, query, name_resolution).await?;
    check_read_views(&description, readable, &[])?;
    Ok(description)
}

/// Refuses a query that names a view which the caller may not read, before the server is asked what
/// it says of the query: its messages name columns. What the query reads through plain views is
/// compared by [`check_read_views`].
///
/// # Errors
/// [`ViewsError::ReadDenied`].
async fn check_named_views(
    client: &impl GenericClient,
    query: &str,
    readable: &ReadableViews,
) -> Result<(), ViewsError> {
    if matches!(readable, ReadableViews::All) {
        return Ok(());
    }
    let named_tables = referenced_tables(query);
    let sql = "SELECT schema::text, name::text FROM egret.view";
    for row in client.query(sql, &[]).await? {
        let view = ViewName { schema: row.get(0), name: row.get(1) };
        let full = format!("{}.{}", view.schema, view.name);
        let is_named =
            |named: &String| *named == full || view.schema == DEFAULT_SCHEMA && *named == view.name;
        if named_tables.iter().any(is_named) && !readable.allows(&view) {
            return Err(ViewsError::ReadDenied { relation: view.to_string() });
        }
    }
    Ok(())
}

/// Where a name without a schema is looked for.
const DEFAULT_SCHEMA: &str = "public";

/// Refuses a query that reads a view which the caller may not read, unless it is one of `known`,
/// which the view read before. The error names what the query itself names, and nothing that lies
/// behind it.
///
/// # Errors
/// [`ViewsError::ReadDenied`].
pub(crate) fn check_read_views(
    description: &QueryDescription,
    readable: &ReadableViews,
    already_read: &[i64],
) -> Result<(), ViewsError> {
    let denied = description
        .read_views
        .iter()
        .find(|view| !already_read.contains(&view.id) && !readable.allows(&view.name));
    let Some(denied) = denied else {
        return Ok(());
    };
    let relation = denied.named_by.first();
    Err(ViewsError::ReadDenied { relation: relation.map_or_else(String::new, ToString::to_string) })
}
