//! How a view is kept, as text.

use serde::Deserialize;

use crate::output::{format_fields, printable};

#[derive(Debug, Deserialize)]
pub(super) struct Explanation {
    definition: String,
    columns: Vec<Column>,
    reads: Vec<String>,
    stages: Vec<Stage>,
    advice: Vec<Advice>,
}

#[derive(Debug, Deserialize)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
}

#[derive(Debug, Deserialize)]
struct Stage {
    table: String,
    operators: String,
    keeps: Vec<String>,
    sql: String,
}

/// An index that is missing.
#[derive(Debug, Deserialize)]
pub(super) struct Advice {
    statement: String,
    reason: String,
    rows: Option<i64>,
}

/// What would spare a refresh from reading tables as a whole; empty where nothing would.
pub(super) fn format_advice(advice: &[Advice]) -> String {
    let lines = advice.iter().map(|advice| {
        let rows = match advice.rows {
            None => String::new(),
            Some(rows) => format!("; the table has about {rows} rows"),
        };
        format!(
            "advice: {};\n  {}{rows}\n",
            printable(&advice.statement),
            printable(&advice.reason)
        )
    });
    lines.collect()
}

pub(super) fn text(explanation: Explanation) -> String {
    let mut text = summary(&explanation);
    text.push('\n');
    text.push_str(&printable(explanation.definition.trim()));
    text.push('\n');
    if !explanation.advice.is_empty() {
        text.push('\n');
        text.push_str(&format_advice(&explanation.advice));
    }
    for (number, stage) in (1..).zip(&explanation.stages) {
        text.push_str(&format!("\nstage {number}, kept in {}\n", stage.table));
        for line in stage.operators.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        for line in &stage.keeps {
            text.push_str(&format!("  - {line}\n"));
        }
        text.push('\n');
        text.push_str(&printable(stage.sql.trim()));
        text.push('\n');
    }
    text
}

/// The text for a query that can be maintained, and how.
pub(super) fn validation_text(explanation: Explanation) -> String {
    let verdict = "a view of this query can be maintained incrementally";
    let parts = [summary(&explanation), format_advice(&explanation.advice)];
    let parts: String = parts
        .iter()
        .filter(|part| !part.is_empty())
        .map(|part| format!("\n\n{}", part.trim_end()))
        .collect();
    format!("{verdict}{parts}")
}

fn summary(explanation: &Explanation) -> String {
    let columns: Vec<String> = explanation
        .columns
        .iter()
        .map(|column| format!("{} {}", column.name, column.type_name))
        .collect();
    format_fields(&[
        ("columns", columns.join(", ")),
        ("reads", explanation.reads.join(", ")),
        ("stages", explanation.stages.len().to_string()),
    ])
}
