//! Changes of a stage's input, as SQL: limited in number, and merged.

use crate::core::column_types::{Types, identity};
use crate::core::expression::{ColumnId, stage_column};
use crate::core::sql::WEIGHT;

/// How a statement reads changes, and what it does with its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delta<'a> {
    /// Number of changes for which the statement is planned.
    pub expected: u64,
    /// If there are more changes than this, before opposite ones are merged, nothing is applied.
    pub rows_max: Option<u64>,
    /// Whether the changes have no two opposite rows.
    pub is_consolidated: bool,
    /// Table that receives the changes of the stage.
    pub sink: Option<&'a str>,
}

/// The changes before opposite ones are merged.
const RAW: &str = "egret_raw";

impl Delta<'_> {
    /// The changes as an item of FROM; adds a common table expression if they are read twice.
    pub(super) fn raw(&self, from: &str, with: &mut Vec<String>) -> String {
        match self.rows_max {
            None => format!("({from})"),
            Some(rows_max) => {
                with.push(format!("{RAW} AS MATERIALIZED {}", self.limited(from)));
                // If there are too many, none is applied: a part of them would not fit the stored
                // rows.
                format!("(SELECT * FROM {RAW} WHERE (SELECT count(*) FROM {RAW}) <= {rows_max})")
            }
        }
    }

    /// The changes as a subquery, cut off at one more row than is allowed.
    pub(super) fn limited(&self, from: &str) -> String {
        match self.rows_max {
            None => format!("({from})"),
            Some(rows_max) => {
                let most = rows_max + 1;
                format!("(SELECT * FROM ({from}) AS egret_every LIMIT {most})")
            }
        }
    }

    /// Condition that [`Delta::raw`] has more rows than are allowed.
    pub(super) fn is_raw_over(&self) -> Option<String> {
        let rows_max = self.rows_max?;
        Some(format!("(SELECT count(*) FROM {RAW}) > {rows_max}"))
    }
}

/// Number of pairs beyond which values are compared as rows: each condition costs planning and
/// start-up.
const CONDITIONS_MAX: usize = 50;

/// Condition that all pairs have the same values, nulls included.
pub(super) fn are_same(pairs: &[(String, String)]) -> String {
    if pairs.len() > CONDITIONS_MAX {
        let row = |of: fn(&(String, String)) -> &str| {
            let values: Vec<&str> = pairs.iter().map(of).collect();
            format!("ROW({})::record", values.join(", "))
        };
        return format!("{} = {}", row(|pair| &pair.0), row(|pair| &pair.1));
    }
    let each = pairs
        .iter()
        .map(|(left, right)| format!("{left} IS NOT DISTINCT FROM {right}"));
    if pairs.is_empty() {
        "true".to_owned()
    } else {
        each.collect::<Vec<_>>().join(" AND ")
    }
}

/// Rows with equal ones merged: `from` is an item of FROM with the columns of a stage and
/// [`WEIGHT`]. Rows of weight 0 are left out.
pub(super) fn consolidated(types: &Types, columns: &[ColumnId], from: &str) -> String {
    let once = once(types, columns, from, "");
    format!("{once} HAVING sum({WEIGHT}) <> 0")
}

/// Rows with equal ones merged, and their number before in a column `rows`; rows of weight 0 are
/// kept.
pub(super) fn counted(types: &Types, columns: &[ColumnId], from: &str, rows: &str) -> String {
    let once = once(types, columns, from, &format!(", count(*) AS {rows}"));
    // Without rows there must be no group.
    format!("{once} HAVING count(*) > 0")
}

fn once(types: &Types, columns: &[ColumnId], from: &str, others: &str) -> String {
    let mut list = Vec::new();
    let mut keys = Vec::new();
    for column in columns {
        let name = stage_column(*column);
        let identity = identity(types, *column, &name);
        if types[column].is_exact {
            list.push(name)
        } else {
            list.push(format!("any_value({name}) AS {name}"))
        }
        keys.push(identity);
    }
    list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
    let group = if keys.is_empty() {
        String::new()
    } else {
        format!(" GROUP BY {}", keys.join(", "))
    };
    format!(
        "SELECT {}{others} FROM {from} AS egret_all{group}",
        list.join(", ")
    )
}
