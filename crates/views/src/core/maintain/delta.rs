//! Changes of a stage's input, as SQL: limited in number, and merged.

use crate::core::column_types::{Types, identity_sql};
use crate::core::expression::{ColumnId, stage_column_name};
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
const RAW_CTE: &str = "egret_raw";

impl Delta<'_> {
    /// The changes as an item of FROM; adds a common table expression if they are read twice.
    pub(super) fn raw_changes(&self, from: &str, ctes: &mut Vec<String>) -> String {
        match self.rows_max {
            None => format!("({from})"),
            Some(rows_max) => {
                ctes.push(format!("{RAW_CTE} AS MATERIALIZED {}", self.limit_rows(from)));
                // If there are too many, none is applied: a part of them would not fit the stored
                // rows.
                format!(
                    "(SELECT * FROM {RAW_CTE} WHERE (SELECT count(*) FROM {RAW_CTE}) <= {rows_max})"
                )
            }
        }
    }

    /// The changes as a subquery, cut off at one more row than is allowed.
    pub(super) fn limit_rows(&self, from: &str) -> String {
        match self.rows_max {
            None => format!("({from})"),
            Some(rows_max) => {
                let limit = rows_max + 1;
                format!("(SELECT * FROM ({from}) AS egret_every LIMIT {limit})")
            }
        }
    }

    /// Condition that [`Delta::raw_changes`] has more rows than are allowed.
    pub(super) fn too_many_condition(&self) -> Option<String> {
        let rows_max = self.rows_max?;
        Some(format!("(SELECT count(*) FROM {RAW_CTE}) > {rows_max}"))
    }
}

/// Number of pairs beyond which values are compared as rows: each condition costs planning and
/// start-up.
const CONDITIONS_MAX: usize = 50;

/// Condition that all pairs have the same values, nulls included.
pub(super) fn same_values_condition(pairs: &[(String, String)]) -> String {
    if pairs.len() > CONDITIONS_MAX {
        let row = |side: fn(&(String, String)) -> &str| {
            let values: Vec<&str> = pairs.iter().map(side).collect();
            format!("ROW({})::record", values.join(", "))
        };
        return format!("{} = {}", row(|pair| &pair.0), row(|pair| &pair.1));
    }
    let conditions =
        pairs.iter().map(|(left, right)| format!("{left} IS NOT DISTINCT FROM {right}"));
    if pairs.is_empty() { "true".to_owned() } else { conditions.collect::<Vec<_>>().join(" AND ") }
}

/// Rows with equal ones merged: `from` is an item of FROM with the columns of a stage and
/// [`WEIGHT`]. Rows of weight 0 are left out.
pub(super) fn select_consolidated(types: &Types, columns: &[ColumnId], from: &str) -> String {
    let grouped = select_grouped(types, columns, from, "");
    format!("{grouped} HAVING sum({WEIGHT}) <> 0")
}

/// Rows with equal ones merged, and their number before in a column `rows`; rows of weight 0 are
/// kept.
pub(super) fn select_counted(
    types: &Types,
    columns: &[ColumnId],
    from: &str,
    rows: &str,
) -> String {
    let grouped = select_grouped(types, columns, from, &format!(", count(*) AS {rows}"));
    // Without rows there must be no group.
    format!("{grouped} HAVING count(*) > 0")
}

fn select_grouped(types: &Types, columns: &[ColumnId], from: &str, others: &str) -> String {
    let mut list = Vec::new();
    let mut keys = Vec::new();
    for column in columns {
        let name = stage_column_name(*column);
        let identity = identity_sql(types, *column, &name);
        if types[column].is_exact {
            list.push(name)
        } else {
            list.push(format!("any_value({name}) AS {name}"))
        }
        keys.push(identity);
    }
    list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
    let group =
        if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
    format!("SELECT {}{others} FROM {from} AS egret_all{group}", list.join(", "))
}
