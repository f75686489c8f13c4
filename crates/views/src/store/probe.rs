//! Has the server resolve a query: creates a temporary view of it. A superuser's session does so as
//! the role of views: while a query is parsed, values of some types are checked by code of users.

use egret_postgres::tokio_postgres::error::ErrorPosition;
use egret_postgres::tokio_postgres::{self, Transaction};

use super::views_role;
use crate::error::ViewsError;
use crate::model::Grants;

/// Name of the temporary view of a query.
const PROBE: &str = "egret_probe";

/// Position of an error in a query, in bytes from 1. The server counts characters from the start of
/// the statement, which begins with `before`.
fn position(error: &tokio_postgres::Error, before: &str, query: &str) -> Option<usize> {
    let letter = match error.as_db_error()?.position()? {
        ErrorPosition::Original(letter) => letter,
        ErrorPosition::Internal { position, query } if query.starts_with(before) => position,
        ErrorPosition::Internal { .. } => return None,
    };
    let letter = usize::try_from(*letter).ok()?;
    let within = letter.checked_sub(before.chars().count() + 1)?;
    let (offset, _) = query.char_indices().nth(within)?;
    Some(offset + 1)
}

/// Whether the server refuses the query itself; false for an error such as a lock timeout.
fn is_of_query(error: &tokio_postgres::Error) -> bool {
    // Connection, rollback, resources, object state, operator intervention, system, internal error.
    const OTHERS: [&str; 7] = ["08", "40", "53", "55", "57", "58", "XX"];
    error
        .code()
        .is_some_and(|code| !OTHERS.iter().any(|class| code.code().starts_with(class)))
}

/// Creates a temporary view of a query, and returns its oid.
pub async fn probe(transaction: &Transaction<'_>, sql: &str) -> Result<u32, ViewsError> {
    let sql = sql.trim_end().trim_end_matches(';');
    // The extended protocol accepts one statement only, whatever the text contains.
    let before = format!("CREATE TEMPORARY VIEW {PROBE} AS ");
    let statement = format!("{before}{sql}\n");
    let created = if views_role::runs_as_views(transaction).await? {
        views_role::grant_reads(transaction, &[], Grants::Nothing).await?;
        // Preparing only checks that the text is one statement.
        match transaction.prepare(&statement).await {
            Ok(_) => transaction.execute(views_role::PROBE, &[&statement]).await,
            Err(error) => Err(error),
        }
    } else {
        transaction.execute(&statement, &[]).await
    };
    created.map_err(|error| {
        if is_of_query(&error) {
            ViewsError::Query {
                position: position(&error, &before, sql),
                error,
            }
        } else {
            error.into()
        }
    })?;
    let row = transaction
        .query_one(
            "SELECT class.oid FROM pg_catalog.pg_class AS class \
             WHERE class.relname = $1 AND class.relnamespace = pg_catalog.pg_my_temp_schema()",
            &[&PROBE],
        )
        .await?;
    Ok(row.get(0))
}
