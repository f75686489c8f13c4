//! `egret branch query`: one statement, its rows as a table or as JSON.

use serde_json::{Value as Json, json};

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, grid, printable};
use crate::responses::Rows;

pub(crate) async fn run(
    arguments: cli::BranchQuery,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut body = json!({"sql": arguments.sql});
    if !arguments.params.is_empty() {
        body["params"] = json!(arguments.params);
    }
    if let Some(database) = arguments.database {
        body["database"] = database.into();
    }
    if let Some(rows_max) = arguments.rows_max {
        body["rows_max"] = rows_max.into();
    }
    let path = ["branches", &arguments.name, "query"];
    let answer = output.wait_with_spinner("running", api.post(&path, body)).await?;
    output.print_answer(&answer, text)
}

fn text(rows: Rows) -> String {
    let summary = format!("{} ({:.1} ms)", rows.command, rows.elapsed_ms);
    if rows.columns.is_empty() {
        return summary;
    }
    let head = rows.columns.into_iter().map(|column| printable(&column.name)).collect();
    let cells = rows.rows.iter().map(|row| row.iter().map(cell).collect());
    format!("{}\n\n{summary}", grid(head, cells))
}

/// NULL is empty, as in psql; text goes without quotes; arrays and objects stay JSON.
fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => printable(text),
        other => other.to_string(),
    }
}
