//! Stages of rows with window functions over their partitions.
//!
//! A changed row may change the results of all rows of its partition, and of none outside. So a
//! partition with changes is recomputed from all of its rows, and the rows that differ from the
//! stored ones are written.

use std::collections::BTreeSet;

use super::delta::{Delta, select_consolidated};
use super::key::{HASH_COLUMN, Key};
use super::rows::RowStage;
use super::statement::Statement;
use super::table::COUNT_COLUMN;
use crate::core::column_types::Types;
use crate::core::expression::{ColumnId, Expression, Names, stage_column_name};
use crate::core::sql::{Block, WEIGHT, select_repeated_rows, union_all};

/// Common table expression of the partitions with changes.
const CHANGED_PARTITIONS: &str = "egret_touched";

/// A stage of rows with window functions.
#[derive(Clone, Debug)]
pub struct WindowStage {
    /// The stored rows, with their table.
    pub rows: RowStage,
    /// The PARTITION BY expressions, over the stage's input.
    pub keys: Vec<Expression>,
    partition_key: Key,
    /// Columns and calls of the window functions.
    pub windows: Vec<(ColumnId, Expression)>,
    filter: Option<Expression>,
}

impl WindowStage {
    /// A stage with its table, whose rows are told apart by `key`, if by anything.
    pub fn new(
        name: &str,
        key: Option<Vec<ColumnId>>,
        partition_columns: Vec<ColumnId>,
        windows: Vec<(ColumnId, Expression)>,
        filter: Option<Expression>,
        columns: &[ColumnId],
        types: &Types,
    ) -> Self {
        let mut rows = RowStage::new(name, columns, key, types);
        let keys = partition_columns.iter().map(|id| Expression::column(*id)).collect();
        let partition_key = Key::new(partition_columns, types);
        if !partition_key.columns.is_empty() {
            rows.table.second_index = Some(if partition_key.is_hashed {
                format!("({})", partition_key.index_expressions())
            } else {
                partition_key.index_expressions()
            });
        }
        Self { rows, keys, partition_key, windows, filter }
    }

    /// Maintains the table. `changes` are those of the input's rows, `current_rows` its current
    /// rows.
    pub fn apply(
        &self,
        types: &Types,
        changes: &[Block],
        current_rows: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let table = &self.rows.table;
        let list = column_list(&self.rows.columns);
        let in_changed_partitions = |row: &str| {
            let same_key = self.partition_key.same_key_as_hashed_condition(types, row, "t");
            format!(" WHERE EXISTS (SELECT FROM {CHANGED_PARTITIONS} AS t WHERE {same_key})")
        };
        let current_sql = self.select_stored(current_rows, &in_changed_partitions("a"));
        let count = table.count_column.map_or("1".to_owned(), |_| format!("s.{COUNT_COLUMN}"));
        let stored_columns: Vec<String> =
            self.rows.columns.iter().map(|id| format!("s.{}", stage_column_name(*id))).collect();
        let from = format!(
            "SELECT {list}, 1::bigint AS {WEIGHT} FROM ({current_sql}) AS egret_now \
             UNION ALL SELECT {}, -{count} FROM {} AS s{}",
            stored_columns.join(", "),
            table.name,
            in_changed_partitions("s"),
        );
        let row_delta = Delta {
            is_consolidated: false,
            // Those of whole partitions are not known.
            expected: 0,
            ..*delta
        };
        let mut statement = self.rows.apply(types, &from, &row_delta);
        statement.ctes.insert(0, self.changed_partitions_cte(types, changes));
        statement
    }

    fn changed_partitions_cte(&self, types: &Types, changes: &[Block]) -> String {
        let input_columns = self.input_columns();
        let changes = format!("({})", union_all(changes, &input_columns));
        let changes = select_consolidated(types, &input_columns, &changes);
        let mut list = self.partition_key.column_names();
        let group = if list.is_empty() {
            " LIMIT 1".to_owned()
        } else {
            format!(" GROUP BY {}", list.join(", "))
        };
        if self.partition_key.is_hashed {
            list.push(format!("{} AS {HASH_COLUMN}", self.partition_key.hash_sql("d")));
        }
        format!(
            "{CHANGED_PARTITIONS} AS MATERIALIZED (SELECT {} FROM ({changes}) AS d{group})",
            list.join(", ")
        )
    }

    /// The input columns that are needed.
    fn input_columns(&self) -> Vec<ColumnId> {
        input_columns(
            &self.partition_key.columns,
            &self.windows,
            self.filter.as_ref(),
            &self.rows.columns,
        )
    }

    /// A SELECT of the rows to store, for input rows that satisfy a condition, or for all.
    fn select_stored(&self, blocks: &[Block], condition: &str) -> String {
        let computed = select_with_windows(blocks, &self.input_columns(), &self.windows, condition);
        match &self.filter {
            None => computed,
            Some(filter) => {
                let inner_names: Names = self
                    .windows
                    .iter()
                    .map(|(id, _)| *id)
                    .chain(self.input_columns())
                    .map(|id| (id, format!("w.{}", stage_column_name(id))))
                    .collect();
                format!(
                    "SELECT {} FROM ({computed}) AS w WHERE {}",
                    column_list(&self.rows.columns),
                    filter.to_sql(&inner_names)
                )
            }
        }
    }

    /// Makes the table equal to `current_rows`, whatever it contains.
    pub fn rebuild(&self, types: &Types, current_rows: &[Block], sink: Option<&str>) -> Statement {
        let list = column_list(&self.rows.columns);
        let current_sql = self.select_stored(current_rows, "");
        let new_rows =
            format!("SELECT {list}, 1::bigint AS {WEIGHT} FROM ({current_sql}) AS egret_now");
        self.rows.rebuild(types, &new_rows, sink)
    }
}

fn column_list(columns: &[ColumnId]) -> String {
    let names: Vec<String> = columns.iter().map(|id| stage_column_name(*id)).collect();
    names.join(", ")
}

/// The input columns that a stage of partitions needs.
pub(crate) fn input_columns(
    partition_columns: &[ColumnId],
    windows: &[(ColumnId, Expression)],
    filter: Option<&Expression>,
    columns: &[ColumnId],
) -> Vec<ColumnId> {
    let window_columns = windows.iter().flat_map(|(_, call)| call.columns());
    let filter_columns = filter.into_iter().flat_map(Expression::columns);
    let stored_columns = columns.iter().chain(partition_columns).copied();
    let used_columns: BTreeSet<ColumnId> =
        stored_columns.chain(window_columns).chain(filter_columns).collect();
    let is_read = |id: &ColumnId| !windows.iter().any(|(window, _)| window == id);
    used_columns.into_iter().filter(is_read).collect()
}

/// A SELECT of rows, repeated by their weights, with the window functions over them.
pub(crate) fn select_with_windows(
    blocks: &[Block],
    input_columns: &[ColumnId],
    windows: &[(ColumnId, Expression)],
    condition: &str,
) -> String {
    let rows = select_repeated_rows(blocks, |block| {
        let columns = input_columns.iter();
        columns.map(|id| format!("{} AS {}", block.names()[id], stage_column_name(*id))).collect()
    });
    let inner_names: Names =
        input_columns.iter().map(|id| (*id, format!("a.{}", stage_column_name(*id)))).collect();
    let mut list: Vec<String> = inner_names.values().cloned().collect();
    for (id, call) in windows {
        list.push(format!("{} AS {}", call.to_sql(&inner_names), stage_column_name(*id)));
    }
    format!("SELECT {} FROM ({rows}) AS a{condition}", list.join(", "))
}
