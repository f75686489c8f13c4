//! Functions that run statements of a view as its owner.
//!
//! They are SECURITY DEFINER functions of the owner, in which no code can change the role again, as
//! it could after SET ROLE. They are temporary and created within the transaction, so that the
//! owner cannot alter them before they are called.

use egret_postgres::tokio_postgres::Client;

use super::views_role::VIEWS_ROLE;
use crate::core::expression::quote_identifier;
use crate::error::ViewsError;

/// Statements that create the function which runs SQL as an owner, for this transaction. Its
/// parameters are the statement, the refresh point and its time; it returns the counts of a
/// maintenance statement.
pub(crate) fn create_runner(owner: &str) -> String {
    if owner == VIEWS_ROLE {
        return String::new();
    }
    format!(
        "SET LOCAL ROLE {}; \
         CREATE FUNCTION pg_temp.egret_run(text, text, text) \
         RETURNS TABLE (added bigint, changed bigint, removed bigint, wrong bigint) \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp \
         AS 'BEGIN RETURN QUERY EXECUTE $1 USING $2, $3; END'; \
         RESET ROLE",
        quote_identifier(owner)
    )
}

/// The query that calls the function of [`create_runner`].
pub(crate) fn call_runner(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        "SELECT added, changed, removed, wrong FROM egret.run_as_views($1, $2, $3)"
    } else {
        "SELECT added, changed, removed, wrong FROM pg_temp.egret_run($1, $2, $3)"
    }
}

pub(crate) fn drop_runner(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE { "" } else { "DROP FUNCTION pg_temp.egret_run(text, text, text)" }
}

/// Statements that create the function which explains SQL as an owner, for this transaction.
pub(crate) fn create_explainer(owner: &str) -> String {
    if owner == VIEWS_ROLE {
        return String::new();
    }
    format!(
        "SET LOCAL ROLE {}; \
         CREATE FUNCTION pg_temp.egret_explain(text, text, text) RETURNS SETOF text \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp \
         AS 'BEGIN RETURN QUERY EXECUTE $1 USING $2, $3; END'; \
         RESET ROLE",
        quote_identifier(owner)
    )
}

/// The query that calls the function of [`create_explainer`].
pub(crate) fn call_explainer(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        "SELECT line FROM egret.explain_as_views($1, $2, $3) AS line"
    } else {
        "SELECT line FROM pg_temp.egret_explain($1, $2, $3) AS line"
    }
}

/// Statements that create the function which reads the changes of a view as its owner: rows with
/// their weights.
pub(crate) fn create_change_reader(owner: &str) -> String {
    if owner == VIEWS_ROLE {
        return String::new();
    }
    format!(
        "SET LOCAL ROLE {}; \
         CREATE FUNCTION pg_temp.egret_tell(text) RETURNS TABLE (content text, weight bigint) \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp \
         AS 'BEGIN RETURN QUERY EXECUTE $1; END'; \
         RESET ROLE",
        quote_identifier(owner)
    )
}

/// The query that calls the function of [`create_change_reader`], with the changes as its second
/// parameter.
pub(crate) fn call_change_reader(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        "SELECT content, weight FROM egret.tell_as_views($2)"
    } else {
        "SELECT content, weight FROM pg_temp.egret_tell($2)"
    }
}

pub(crate) fn drop_change_reader(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE { "" } else { "DROP FUNCTION pg_temp.egret_tell(text)" }
}

/// Executes a statement that is empty for some owners.
pub(crate) async fn execute_unless_empty(client: &Client, sql: &str) -> Result<(), ViewsError> {
    if !sql.is_empty() {
        client.batch_execute(sql).await?;
    }
    Ok(())
}
