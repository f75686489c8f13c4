//! What was asked for from SQL.

use egret_postgres::tokio_postgres::{Client, GenericClient, Row};

use super::statements::Statements;
use crate::core::expression::quoted;
use crate::error::ViewsError;
use crate::model::{Following, MakerRights, NewView, NotUnderstood, ViewName};

/// Requests that are done are remembered for so long.
const REMEMBERED: &str = "7 days";

/// Requests of a role that are done and remembered, at most.
const REMEMBERED_MAX: i64 = 1_000;

/// Bytes of an error that is remembered, at most.
const ERROR_BYTES_MAX: usize = 8_192;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number.
    pub id: i64,
    /// What is asked for.
    pub what: Asked,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A view.
    Create(Box<NewView>, Resolved),
    /// That a view be dropped.
    Drop(ViewName),
    /// That a view be brought up to date.
    Refresh(ViewName),
    /// Nothing that is understood.
    Invalid(String),
}

/// What a session has resolved of a query.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The query with every name resolved.
    pub definition: String,
    /// What sets the settings of the session.
    pub settings: String,
}

/// The requests that are not done: those of each role in order, and roles by turns.
///
/// # Errors
/// What the server says.
pub async fn waiting(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<Request>, ViewsError> {
    let sql = "SELECT id, what, schema::text, name::text, query, definition, settings, mode, schedule, role::text \
               FROM egret.view_request WHERE done_at IS NULL \
               ORDER BY pg_catalog.row_number() OVER (PARTITION BY role ORDER BY id), id LIMIT 100";
    let rows = statements.query(client, sql, &[]).await?;
    Ok(rows.iter().map(request).collect())
}

fn request(row: &Row) -> Request {
    let name = ViewName {
        schema: row.get("schema"),
        name: row.get("name"),
    };
    let what: &str = row.get("what");
    let what = match what {
        "drop" => Asked::Drop(name),
        "refresh" => Asked::Refresh(name),
        _ => match create(row, name) {
            Ok((view, resolved)) => Asked::Create(Box::new(view), resolved),
            Err(error) => Asked::Invalid(error.to_string()),
        },
    };
    Request {
        id: row.get("id"),
        what,
    }
}

fn create(row: &Row, name: ViewName) -> Result<(NewView, Resolved), NotUnderstood> {
    let text = |column| row.get::<_, Option<String>>(column).unwrap_or_default();
    let schedule: Option<String> = row.get("schedule");
    let view = NewView {
        name,
        query: text("query"),
        mode: text("mode").parse()?,
        schedule: schedule.map(|schedule| schedule.parse()).transpose()?,
        indexes: Vec::new(),
        owner: Some(row.get("role")),
        rights: MakerRights::all(),
        following: Following::default(),
    };
    let resolved = Resolved {
        definition: text("definition"),
        settings: text("settings"),
    };
    Ok((view, resolved))
}

/// Remembers that a request is done, or what went wrong.
///
/// # Errors
/// What the server says.
pub async fn done(
    client: &impl GenericClient,
    request: i64,
    error: Option<&str>,
) -> Result<(), ViewsError> {
    let error = error.map(|error| &error[..error.floor_char_boundary(ERROR_BYTES_MAX)]);
    let sql = "UPDATE egret.view_request \
               SET done_at = clock_timestamp(), error = $2, definition = NULL, settings = NULL WHERE id = $1 \
               RETURNING role::text";
    let done = client.query_opt(sql, &[&request, &error]).await?;
    if let Some(role) = done.map(|row| row.get::<_, String>(0)) {
        let sql = "DELETE FROM egret.view_request WHERE role = $1::text::name AND done_at IS NOT NULL AND id <= ( \
                   SELECT id FROM egret.view_request WHERE role = $1::text::name AND done_at IS NOT NULL \
                   ORDER BY id DESC OFFSET $2 LIMIT 1)";
        client.execute(sql, &[&role, &REMEMBERED_MAX]).await?;
    }
    let sql = format!(
        "DELETE FROM egret.view_request WHERE done_at < clock_timestamp() - interval '{REMEMBERED}'"
    );
    client.execute(&sql, &[]).await?;
    Ok(())
}

/// The name that is everybody, and no role's.
const EVERYBODY: &str = "public";

/// Refuses roles that are not there, and none at all.
///
/// # Errors
/// [`ViewsError::Invalid`]; what the server says.
pub async fn check_roles(client: &impl GenericClient, roles: &[String]) -> Result<(), ViewsError> {
    let invalid = |reason| ViewsError::Invalid {
        what: "roles",
        reason,
    };
    if roles.is_empty() {
        return Err(invalid("there is none: name one at least".to_owned()));
    }
    let sql = "SELECT pg_catalog.string_agg(pg_catalog.format('`%s`', asked.name), ', ' ORDER BY asked.place) \
               FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS asked (name, place) \
               WHERE asked.name <> $2 AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = asked.name)";
    let unknown: Option<String> = client.query_one(sql, &[&roles, &EVERYBODY]).await?.get(0);
    match unknown {
        Some(unknown) => Err(invalid(format!("there is no role {unknown}"))),
        None => Ok(()),
    }
}

/// Lets roles ask for views from SQL, all of them or none; `public` is everybody.
///
/// # Errors
/// What the server says.
pub async fn grant(client: &mut Client, roles: &[String]) -> Result<(), ViewsError> {
    let transaction = client.transaction().await?;
    for role in roles {
        let role = match role.as_str() {
            EVERYBODY => "PUBLIC".to_owned(),
            name => quoted(name),
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
