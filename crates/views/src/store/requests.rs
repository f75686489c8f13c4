//! What was asked for from SQL.

use egret_postgres::tokio_postgres::{GenericClient, Row};

use crate::error::ViewsError;
use crate::model::{NewView, NotUnderstood, ViewName};

/// Requests that are done are remembered for so long.
const REMEMBERED: &str = "7 days";

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

/// The requests that are not done, in order.
///
/// # Errors
/// What the server says.
pub async fn waiting(client: &impl GenericClient) -> Result<Vec<Request>, ViewsError> {
    let sql = "SELECT id, what, schema::text, name::text, query, definition, settings, mode, schedule, role::text \
               FROM egret.view_request WHERE done_at IS NULL ORDER BY id LIMIT 100";
    let rows = client.query(sql, &[]).await?;
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
    let sql = "UPDATE egret.view_request SET done_at = clock_timestamp(), error = $2 WHERE id = $1";
    client.execute(sql, &[&request, &error]).await?;
    let sql = format!(
        "DELETE FROM egret.view_request WHERE done_at < clock_timestamp() - interval '{REMEMBERED}'"
    );
    client.execute(&sql, &[]).await?;
    Ok(())
}

/// Lets roles ask for views from SQL; `public` is everybody.
///
/// # Errors
/// What the server says.
pub async fn grant(client: &impl GenericClient, roles: &[String]) -> Result<(), ViewsError> {
    for role in roles {
        let role = match role.as_str() {
            "public" => "PUBLIC".to_owned(),
            name => crate::core::expression::quoted(name),
        };
        let sql = format!(
            "GRANT USAGE ON SCHEMA egret TO {role}; \
             GRANT EXECUTE ON FUNCTION egret.view_name, egret.request_view, egret.create_view, egret.drop_view, \
             egret.refresh, egret.request_done, egret.freshness TO {role}"
        );
        client.batch_execute(&sql).await?;
    }
    Ok(())
}
