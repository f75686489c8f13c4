//! Stages of rows with window functions over their partitions.
//!
//! A changed row may change the results of all rows of its partition, and of none outside. So a
//! partition with changes is recomputed from all of its rows, and the rows that differ from the
//! stored ones are written.

use std::collections::BTreeSet;

use super::delta::{Delta, consolidated};
use super::key::{HASH, Key};
use super::rows::RowStage;
use super::statement::Statement;
use super::table::COUNT;
use crate::core::column_types::Types;
use crate::core::expression::{ColumnId, Expression, Names, stage_column};
use crate::core::sql::{Block, WEIGHT, each, union};

/// Common table expression of the partitions with changes.
const TOUCHED: &str = "egret_touched";

/// A stage of rows with window functions.
#[derive(Clone, Debug)]
pub struct WindowStage {
    /// The stored rows, with their table.
    pub rows: RowStage,
    /// The PARTITION BY expressions, over the stage's input.
    pub keys: Vec<Expression>,
    by: Key,
    /// Columns and calls of the window functions.
    pub windows: Vec<(ColumnId, Expression)>,
    filter: Option<Expression>,
}

impl WindowStage {
    /// A stage with its table, whose rows are told apart by `key`, if by anything.
    pub fn new(
        name: &str,
        key: Option<Vec<ColumnId>>,
        by: Vec<ColumnId>,
        windows: Vec<(ColumnId, Expression)>,
        filter: Option<Expression>,
        columns: &[ColumnId],
        types: &Types,
    ) -> Self {
        let mut rows = RowStage::new(name, columns, key, types);
        let keys = by.iter().map(|id| Expression::column(*id)).collect();
        let by = Key::new(by, types);
        if !by.columns.is_empty() {
            rows.table.also_indexed = Some(if by.is_hashed {
                format!("({})", by.hash_index())
            } else {
                by.hash_index()
            });
        }
        Self {
            rows,
            keys,
            by,
            windows,
            filter,
        }
    }

    /// Maintains the table. `changes` are those of the input's rows, `now` its current rows.
    pub fn apply(
        &self,
        types: &Types,
        changes: &[Block],
        now: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let table = &self.rows.table;
        let list = names(&self.rows.columns);
        let of = |row: &str| {
            let same = self.by.same_as_hashed(types, row, "t");
            format!(" WHERE EXISTS (SELECT FROM {TOUCHED} AS t WHERE {same})")
        };
        let now = self.computed(now, &of("a"));
        let count = table.count.map_or("1".to_owned(), |_| format!("s.{COUNT}"));
        let kept: Vec<String> = self
            .rows
            .columns
            .iter()
            .map(|id| format!("s.{}", stage_column(*id)))
            .collect();
        let from = format!(
            "SELECT {list}, 1::bigint AS {WEIGHT} FROM ({now}) AS egret_now \
             UNION ALL SELECT {}, -{count} FROM {} AS s{}",
            kept.join(", "),
            table.name,
            of("s"),
        );
        let differing = Delta {
            is_consolidated: false,
            // Those of whole partitions are not known.
            expected: 0,
            ..*delta
        };
        let mut statement = self.rows.apply(types, &from, &differing);
        statement.with.insert(0, self.touched(types, changes));
        statement
    }

    fn touched(&self, types: &Types, changes: &[Block]) -> String {
        let read = self.read();
        let changes = format!("({})", union(changes, &read));
        let changes = consolidated(types, &read, &changes);
        let mut list = self.by.names();
        let group = if list.is_empty() {
            " LIMIT 1".to_owned()
        } else {
            format!(" GROUP BY {}", list.join(", "))
        };
        if self.by.is_hashed {
            list.push(format!("{} AS {HASH}", self.by.hash("d")));
        }
        format!(
            "{TOUCHED} AS MATERIALIZED (SELECT {} FROM ({changes}) AS d{group})",
            list.join(", ")
        )
    }

    /// The input columns that are needed.
    fn read(&self) -> Vec<ColumnId> {
        read(
            &self.by.columns,
            &self.windows,
            self.filter.as_ref(),
            &self.rows.columns,
        )
    }

    /// A SELECT of the rows to store, for input rows that satisfy a condition, or for all.
    fn computed(&self, blocks: &[Block], condition: &str) -> String {
        let computed = computed(blocks, &self.read(), &self.windows, condition);
        match &self.filter {
            None => computed,
            Some(filter) => {
                let inner: Names = self
                    .windows
                    .iter()
                    .map(|(id, _)| *id)
                    .chain(self.read())
                    .map(|id| (id, format!("w.{}", stage_column(id))))
                    .collect();
                format!(
                    "SELECT {} FROM ({computed}) AS w WHERE {}",
                    names(&self.rows.columns),
                    filter.sql(&inner)
                )
            }
        }
    }

    /// Makes the table equal to `now`, whatever it contains.
    pub fn rebuild(&self, types: &Types, now: &[Block], sink: Option<&str>) -> Statement {
        let list = names(&self.rows.columns);
        let now = self.computed(now, "");
        let now = format!("SELECT {list}, 1::bigint AS {WEIGHT} FROM ({now}) AS egret_now");
        self.rows.rebuild(types, &now, sink)
    }
}

fn names(columns: &[ColumnId]) -> String {
    let names: Vec<String> = columns.iter().map(|id| stage_column(*id)).collect();
    names.join(", ")
}

/// The input columns that a stage of partitions needs.
pub fn read(
    by: &[ColumnId],
    windows: &[(ColumnId, Expression)],
    filter: Option<&Expression>,
    columns: &[ColumnId],
) -> Vec<ColumnId> {
    let of_windows = windows.iter().flat_map(|(_, call)| call.columns());
    let of_filter = filter.into_iter().flat_map(Expression::columns);
    let kept = columns.iter().chain(by).copied();
    let all: BTreeSet<ColumnId> = kept.chain(of_windows).chain(of_filter).collect();
    let is_read = |id: &ColumnId| !windows.iter().any(|(window, _)| window == id);
    all.into_iter().filter(is_read).collect()
}

/// A SELECT of rows, repeated by their weights, with the window functions over them.
pub fn computed(
    blocks: &[Block],
    read: &[ColumnId],
    windows: &[(ColumnId, Expression)],
    condition: &str,
) -> String {
    let rows = each(blocks, |block| {
        let columns = read.iter();
        columns
            .map(|id| format!("{} AS {}", block.names()[id], stage_column(*id)))
            .collect()
    });
    let inner: Names = read
        .iter()
        .map(|id| (*id, format!("a.{}", stage_column(*id))))
        .collect();
    let mut list: Vec<String> = inner.values().cloned().collect();
    for (id, call) in windows {
        list.push(format!("{} AS {}", call.sql(&inner), stage_column(*id)));
    }
    format!("SELECT {} FROM ({rows}) AS a{condition}", list.join(", "))
}
