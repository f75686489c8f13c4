//! Requests for views that roles have made from SQL.

use egret_postgres::tokio_postgres::{Client, GenericClient, Row};

use super::statements::Statements;
use crate::core::expression::quote_identifier;
use crate::error::ViewsError;
use crate::model::{FollowSettings, MakerRights, NewView, ParseError, ViewName};

/// How long finished requests are kept.
const RETENTION: &str = "7 days";

/// Finished requests that are kept of each role.
const FINISHED_REQUESTS_MAX: i64 = 1_000;

/// Bytes of an error message that are kept.
const ERROR_BYTES_MAX: usize = 8_192;

/// A request that a role has made by a function of schema `egret`.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: i64,
    pub op: RequestOp,
}

/// Operation that a role requests.
#[derive(Clone, Debug)]
pub enum RequestOp {
    /// Creates a view, with its query as the role's session has resolved it.
    Create(Box<NewView>, ResolvedQuery),
    /// Drops the view of this name.
    Drop(ViewName),
    /// Refreshes the view of this name.
    Refresh(ViewName),
    /// Cannot be executed, for this reason.
    Invalid(String),
}

/// A query as resolved by the session that made the request.
#[derive(Clone, Debug)]
pub struct ResolvedQuery {
    /// The query with every name resolved.
    pub definition: String,
    /// Statements that restore the settings of the session.
    pub settings: String,
}

/// The open requests: those of a role in order, and roles by turns.
pub(crate) async fn list_open_requests(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<Request>, ViewsError> {
    let sql = "SELECT id, what, schema::text, name::text, query, definition, settings, mode, schedule, role::text \
               FROM egret.view_request WHERE done_at IS NULL \
               ORDER BY pg_catalog.row_number() OVER (PARTITION BY role ORDER BY id), id LIMIT 100";
    let rows = statements.query(client, sql, &[]).await?;
    Ok(rows.iter().map(request_from_row).collect())
}

fn request_from_row(row: &Row) -> Request {
    let name = ViewName { schema: row.get("schema"), name: row.get("name") };
    let op_name: &str = row.get("what");
    let op = match op_name {
        "drop" => RequestOp::Drop(name),
        "refresh" => RequestOp::Refresh(name),
        _ => match new_view_from_row(row, name) {
            Ok((view, resolved)) => RequestOp::Create(Box::new(view), resolved),
            Err(error) => RequestOp::Invalid(error.to_string()),
        },
    };
    Request { id: row.get("id"), op }
}

fn new_view_from_row(row: &Row, name: ViewName) -> Result<(NewView, ResolvedQuery), ParseError> {
    let text = |column| row.get::<_, Option<String>>(column).unwrap_or_default();
    let schedule: Option<String> = row.get("schedule");
    let view = NewView {
        name,
        query: text("query"),
        mode: text("mode").parse()?,
        schedule: schedule.map(|schedule| schedule.parse()).transpose()?,
        indexes: Vec::new(),
        owner: Some(row.get("role")),
        rights: MakerRights::administrator(),
        follow_settings: FollowSettings::default(),
    };
    let resolved = ResolvedQuery { definition: text("definition"), settings: text("settings") };
    Ok((view, resolved))
}

/// Stores that a request is finished, with its error if it failed.
pub(crate) async fn finish_request(
    client: &impl GenericClient,
    request: i64,
    error: Option<&str>,
) -> Result<(), ViewsError> {
    let error = error.map(|error| &error[..error.floor_char_boundary(ERROR_BYTES_MAX)]);
    let sql = "UPDATE egret.view_request \
               SET done_at = clock_timestamp(), error = $2, definition = NULL, settings = NULL WHERE id = $1 \
               RETURNING role::text";
    let finished = client.query_opt(sql, &[&request, &error]).await?;
    if let Some(role) = finished.map(|row| row.get::<_, String>(0)) {
        let sql = "DELETE FROM egret.view_request WHERE role = $1::text::name AND done_at IS NOT NULL AND id <= ( \
                   SELECT id FROM egret.view_request WHERE role = $1::text::name AND done_at IS NOT NULL \
                   ORDER BY id DESC OFFSET $2 LIMIT 1)";
        client.execute(sql, &[&role, &FINISHED_REQUESTS_MAX]).await?;
    }
    let sql = format!(
        "DELETE FROM egret.view_request WHERE done_at < clock_timestamp() - interval '{RETENTION}'"
    );
    client.execute(&sql, &[]).await?;
    Ok(())
}

/// The name that stands for all roles.
const PUBLIC_ROLE: &str = "public";

/// Refuses an empty list, and roles that do not exist.
///
/// # Errors
/// [`ViewsError::Invalid`] with the unknown names.
pub(crate) async fn check_roles(
    client: &impl GenericClient,
    roles: &[String],
) -> Result<(), ViewsError> {
    let invalid = |reason| ViewsError::Invalid { what: "roles", reason };
    if roles.is_empty() {
        return Err(invalid("the list is empty: name at least one role".to_owned()));
    }
    let sql = "SELECT pg_catalog.string_agg(pg_catalog.format('`%s`', asked.name), ', ' ORDER BY asked.place) \
               FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS asked (name, place) \
               WHERE asked.name <> $2 AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = asked.name)";
    let unknown: Option<String> = client.query_one(sql, &[&roles, &PUBLIC_ROLE]).await?.get(0);
    match unknown {
        Some(unknown) => Err(invalid(format!("there is no role {unknown}"))),
        None => Ok(()),
    }
}

/// Lets roles request views from SQL, all of them or none; `public` stands for all roles.
pub(crate) async fn grant_requests(
    client: &mut Client,
    roles: &[String],
) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    for role in roles {
        let role = match role.as_str() {
            PUBLIC_ROLE => "PUBLIC".to_owned(),
            name => quote_identifier(name),
        };
        let sql = format!(
            "GRANT USAGE ON SCHEMA egret TO {role}; \
             GRANT EXECUTE ON FUNCTION egret.view_name, egret.request_view, egret.create_view, egret.drop_view, \
             egret.refresh, egret.request_done, egret.freshness, egret.change_sequence TO {role}"
        );
        transaction.batch_execute(&sql).await?;
    }
    Ok(transaction.commit().await?)
}
