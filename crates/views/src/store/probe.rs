//! Has the server resolve a query: creates a temporary view of it. A superuser's session does so as
//! the role of views: while a query is parsed, values of some types are checked by code of users.

use egret_postgres::tokio_postgres::error::ErrorPosition;
use egret_postgres::tokio_postgres::{self, Transaction};

use super::views_role;
use crate::error::ViewsError;
use crate::model::Grants;

/// Name of the temporary view of a query.
const PROBE_VIEW: &str = "egret_probe";

/// Position of an error in a query, in bytes from 1. The server counts characters from the start of
/// the statement, which begins with `prefix`.
fn query_offset(error: &tokio_postgres::Error, prefix: &str, query: &str) -> Option<usize> {
    let character_position = match error.as_db_error()?.position()? {
        ErrorPosition::Original(letter) => letter,
        ErrorPosition::Internal { position, query } if query.starts_with(prefix) => position,
        ErrorPosition::Internal { .. } => return None,
    };
    let letter = usize::try_from(*character_position).ok()?;
    let character_offset = letter.checked_sub(prefix.chars().count() + 1)?;
    let (offset, _) = query.char_indices().nth(character_offset)?;
    Some(offset + 1)
}

/// Whether the server refuses the query itself; false for an error such as a lock timeout.
fn is_query_error(error: &tokio_postgres::Error) -> bool {
    // Connection, rollback, resources, object state, operator intervention, system, internal error.
    const OTHER_ERROR_CLASSES: [&str; 7] = ["08", "40", "53", "55", "57", "58", "XX"];
    error
        .code()
        .is_some_and(|code| !OTHER_ERROR_CLASSES.iter().any(|class| code.code().starts_with(class)))
}

/// Creates a temporary view of a query, and returns its oid.
pub async fn probe(transaction: &Transaction<'_>, sql: &str) -> Result<u32, ViewsError> {
    let sql = sql.trim_end().trim_end_matches(';');
    // The extended protocol accepts one statement only, whatever the text contains.
    let prefix = format!("CREATE TEMPORARY VIEW {PROBE_VIEW} AS ");
    let statement = format!("{prefix}{sql}\n");
    let created = if views_role::runs_as_views_role(transaction).await? {
        views_role::grant_select(transaction, &[], Grants::Nothing).await?;
        // Preparing only checks that the text is one statement.
        match transaction.prepare(&statement).await {
            Ok(_) => transaction.execute(views_role::PROBE_AS_VIEWS_ROLE, &[&statement]).await,
            Err(error) => Err(error),
        }
    } else {
        transaction.execute(&statement, &[]).await
    };
    created.map_err(|error| {
        if is_query_error(&error) {
            ViewsError::Query { position: query_offset(&error, &prefix, sql), error }
        } else {
            error.into()
        }
    })?;
    let row = transaction
        .query_one(
            "SELECT class.oid FROM pg_catalog.pg_class AS class \
             WHERE class.relname = $1 AND class.relnamespace = pg_catalog.pg_my_temp_schema()",
            &[&PROBE_VIEW],
        )
        .await?;
    Ok(row.get(0))
}
