//! Running a statement on a branch; its rows as JSON.

use axum::extract::State;
use egret_branches::model::BranchName;
use egret_branches::{Branches, BranchesError, QueryAnswer};
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::request::QueryRequest;
use super::{database, run_detached};
use crate::access::Caller;
use crate::extract::{Json, Path};
use crate::problem::Problem;

mod type_names;

/// The largest integer that every reader of JSON keeps exactly (RFC 8259, section 6).
const EXACT_INTEGER_MAX: i64 = (1 << 53) - 1;

/// The result of a statement.
#[derive(Serialize, ToSchema)]
pub(super) struct QueryResult {
    /// The columns.
    columns: Vec<Column>,
    /// The rows. Booleans, integers that JSON represents exactly, finite floats and JSON values are
    /// JSON; `numeric` and all other types are texts as PostgreSQL writes them.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    rows: Vec<Vec<Cell>>,
    /// The command tag.
    #[schema(example = "SELECT 1")]
    command: String,
    /// Time from the request to the response, in milliseconds.
    elapsed_ms: f64,
}

/// A column.
#[derive(Serialize, ToSchema)]
struct Column {
    /// Its name.
    name: String,
    /// The name of its type, or the oid if it is not one of PostgreSQL's common types.
    #[serde(rename = "type")]
    #[schema(example = "int4")]
    type_name: String,
}

/// A value as JSON has it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Cell {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    /// Not parsed: PostgreSQL's numbers are larger and more exact than a parser's.
    Json(Box<RawValue>),
    Text(String),
}

/// Run a statement
///
/// The statement runs as the branch's own role. A result larger than `branches.query_rows_max` or
/// `branches.query_bytes_max` is an error: a single statement then has changed nothing; of several
/// statements, those before it are committed.
#[utoipa::path(post, path = "/v1/branches/{name}/query", operation_id = "queryBranch",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name.")), request_body = QueryRequest,
    responses(
        (status = 200, description = "The rows.", body = QueryResult),
        (status = 400, description = "PostgreSQL refused the statement, for the reason in \
            `sqlstate`, `position`, `sql_detail` and `hint`; or the result is too large.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No branch has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 504, description = "The statement ran too long and was cancelled.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn run_query(
    State(branches): State<Branches>,
    caller: Caller,
    Path(name): Path<BranchName>,
    Json(request): Json<QueryRequest>,
) -> Result<Json<QueryResult>, Problem> {
    let tenant = caller.tenant().to_owned();
    // A statement whose caller has left must still end: by itself or by its timeout.
    let outcome = run_detached(async move {
        let QueryRequest { sql, params, database, rows_max } = request;
        let database = database::choose_database(&branches, &tenant, &name, database).await?;
        branches.query(&tenant, &name, &database, &sql, &params, rows_max).await
    });
    Ok(Json(to_query_result(outcome.await.map_err(to_problem)?)))
}

/// The problem of an error, with what PostgreSQL said of the statement as members of their own.
pub(super) fn to_problem(error: BranchesError) -> Problem {
    let server = match &error {
        BranchesError::Query(wire) => wire.server().cloned(),
        _ => None,
    };
    let problem = Problem::from(error);
    let Some(server) = server else {
        return problem;
    };
    // A statement that is refused is the caller's to change, whatever its SQLSTATE. Only where
    // there was no server to run it, or no time, does the status say so.
    let problem = match StatusCode::from_u16(problem.status) {
        Ok(StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) => problem,
        _ => problem.with_status(StatusCode::BAD_REQUEST),
    };
    problem
        .with_member("sqlstate", Some(server.sqlstate))
        .with_member("position", server.position)
        .with_member("sql_detail", server.detail)
        .with_member("hint", server.hint)
}

fn to_query_result(answer: QueryAnswer) -> QueryResult {
    let oids: Vec<u32> = answer.columns.iter().map(|column| column.type_oid).collect();
    let row = |row: Vec<Option<String>>| {
        row.into_iter().zip(&oids).map(|(text, oid)| to_cell(*oid, text)).collect()
    };
    let column = |column: egret_branches::QueryColumn| Column {
        type_name: type_names::type_name(column.type_oid)
            .map_or_else(|| column.type_oid.to_string(), str::to_owned),
        name: column.name,
    };
    QueryResult {
        rows: answer.rows.into_iter().map(row).collect(),
        columns: answer.columns.into_iter().map(column).collect(),
        command: answer.command,
        elapsed_ms: answer.elapsed_ms,
    }
}

/// A value's text as JSON; what JSON cannot hold exactly stays text.
fn to_cell(oid: u32, text: Option<String>) -> Cell {
    let Some(text) = text else {
        return Cell::Null;
    };
    let typed = match type_names::type_name(oid) {
        Some("bool") => Some(Cell::Bool(text == "t")),
        Some("int2" | "int4" | "int8" | "oid") => text
            .parse()
            .ok()
            .filter(|value: &i64| value.unsigned_abs() <= EXACT_INTEGER_MAX.unsigned_abs())
            .map(Cell::Integer),
        Some("float4" | "float8") => {
            text.parse().ok().filter(|value: &f64| value.is_finite()).map(Cell::Float)
        }
        Some("json" | "jsonb") => RawValue::from_string(text.clone()).ok().map(Cell::Json),
        _ => None,
    };
    typed.unwrap_or(Cell::Text(text))
}

#[cfg(test)]
mod tests;
