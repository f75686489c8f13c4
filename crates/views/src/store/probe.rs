//! Has the server resolve a query: creates a temporary view of it. A superuser's session does so as
//! the role of views: while a query is parsed, values of some types are checked by code of users.

use egret_postgres::tokio_postgres::error::ErrorPosition;
use egret_postgres::tokio_postgres::{self, Transaction};

use super::views_role;
use crate::error::ViewsError;
use crate::model::Grants;

/// The name of the view that a query is made into for a moment.
const PROBE: &str = "egret_probe";

/// Where in a query an error is, in bytes from 1; the server counts letters, from the beginning of
/// the statement.
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

/// Whether the server refuses the query itself; not a passing error, such as a lock timeout.
fn is_of_query(error: &tokio_postgres::Error) -> bool {
    // Connections, rollbacks, resources, states, operators, the system, and what must not be.
    const OTHERS: [&str; 7] = ["08", "40", "53", "55", "57", "58", "XX"];
    error
        .code()
        .is_some_and(|code| !OTHERS.iter().any(|class| code.code().starts_with(class)))
}

/// Creates a temporary view of a query, and returns its oid.
pub async fn probe(transaction: &Transaction<'_>, sql: &str) -> Result<u32, ViewsError> {
    let sql = sql.trim_end().trim_end_matches(';');
    // One statement at most is taken this way, whatever is in the text.
    let before = format!("CREATE TEMPORARY VIEW {PROBE} AS ");
    let statement = format!("{before}{sql}\n");
    let created = if views_role::runs_as_views(transaction).await? {
        views_role::grant_reads(transaction, &[], Grants::Nothing).await?;
        // To prepare it looks whether it is one statement, and does nothing else.
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
