//! The views that a query reads, compared with those that the caller may read who makes a view of it: whoever reads the new
//! view reads their rows.

use egret_postgres::tokio_postgres::{GenericClient, Row, Transaction};

use super::describe::{Described, Names, describe_written};
use crate::core::analyse::tables_named;
use crate::error::ViewsError;
use crate::model::{ReadableViews, ViewName};

/// A view that is kept fresh and that a query reads, directly or through plain views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadView {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: ViewName,
    /// The relations that the query itself names and through which it reads this one.
    pub named_by: Vec<ViewName>,
}

/// The views among the relations that a query reads, which are rows of `relations.sql`.
pub fn read_views(rows: &[Row]) -> Vec<ReadView> {
    rows.iter().filter_map(|row| read_view(row, rows)).collect()
}

fn read_view(row: &Row, rows: &[Row]) -> Option<ReadView> {
    let id = row.get::<_, Option<i64>>("kept")?;
    let name = |row: &Row| ViewName {
        schema: row.get("schema"),
        name: row.get("name"),
    };
    let named_by: Vec<u32> = row.get("named_by");
    let named = rows
        .iter()
        .filter(|other| named_by.contains(&other.get("oid")));
    Some(ReadView {
        id,
        name: name(row),
        named_by: named.map(name).collect(),
    })
}

/// What is known of a query as a caller has written it who may read these views.
///
/// # Errors
/// [`ViewsError::ReadDenied`]; those of [`describe_written`].
pub async fn describe_readable(
    transaction: &mut Transaction<'_>,
    (query, names): (&str, Names),
    readable: &ReadableViews,
) -> Result<Described, ViewsError> {
    check_named(transaction, query, readable).await?;
    let described = describe_written(transaction, query, names).await?;
    check_reads(&described, readable, &[])?;
    Ok(described)
}

/// Refuses a query that names a view which the caller may not read, before the server is asked what it says of the
/// query: its messages name columns. What the query reads through plain views is compared by [`check_reads`].
///
/// # Errors
/// [`ViewsError::ReadDenied`]; what the server says.
async fn check_named(
    client: &impl GenericClient,
    query: &str,
    readable: &ReadableViews,
) -> Result<(), ViewsError> {
    if matches!(readable, ReadableViews::All) {
        return Ok(());
    }
    let named = tables_named(query);
    let sql = "SELECT schema::text, name::text FROM egret.view";
    for row in client.query(sql, &[]).await? {
        let view = ViewName {
            schema: row.get(0),
            name: row.get(1),
        };
        let full = format!("{}.{}", view.schema, view.name);
        let is_named =
            |named: &String| *named == full || view.schema == DEFAULT_SCHEMA && *named == view.name;
        if named.iter().any(is_named) && !readable.covers(&view) {
            return Err(ViewsError::ReadDenied {
                relation: view.to_string(),
            });
        }
    }
    Ok(())
}

/// Where a name without a schema is looked for.
const DEFAULT_SCHEMA: &str = "public";

/// Refuses a query that reads a view which the caller may not read, unless it is one of `known`, which the view read
/// before. The error names what the query itself names, and nothing that lies behind it.
///
/// # Errors
/// [`ViewsError::ReadDenied`].
pub fn check_reads(
    described: &Described,
    readable: &ReadableViews,
    known: &[i64],
) -> Result<(), ViewsError> {
    let denied = described
        .read_views
        .iter()
        .find(|view| !known.contains(&view.id) && !readable.covers(&view.name));
    let Some(denied) = denied else {
        return Ok(());
    };
    let relation = denied.named_by.first();
    Err(ViewsError::ReadDenied {
        relation: relation.map_or_else(String::new, ToString::to_string),
    })
}
