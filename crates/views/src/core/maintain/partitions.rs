//! Stages that keep rows with window functions over their partitions.
//!
//! One row that changes may change what is said of any other of its partition, and of none outside. So a partition in which something
//! changed is computed anew, from all of its rows, and what differs from what is kept of it is written.

use std::collections::BTreeSet;

use super::key::{HASH, Key};
use super::rows::Rows;
use super::{COUNT, Delta, Statement, Types, consolidated};
use crate::core::analyse::stage_column;
use crate::core::expression::{ColumnId, Expression, Names};
use crate::core::sql::{Block, WEIGHT, each, union};

/// The partitions in which something changed.
const TOUCHED: &str = "egret_touched";

/// A stage of partitions.
#[derive(Clone, Debug)]
pub struct Partitions {
    /// Where its rows are kept.
    pub rows: Rows,
    /// What rows of a partition have in common, as expressions of what is read.
    pub keys: Vec<Expression>,
    by: Key,
    /// What is computed over them.
    pub windows: Vec<(ColumnId, Expression)>,
    filter: Option<Expression>,
}

impl Partitions {
    /// A stage with its table, whose rows are told apart by `key`, if by anything.
    pub fn new(
        (name, key): (&str, Option<Vec<ColumnId>>),
        by: Vec<ColumnId>,
        windows: Vec<(ColumnId, Expression)>,
        filter: Option<Expression>,
        (columns, types): (&[ColumnId], &Types),
    ) -> Self {
        let mut rows = Rows::new(name, columns, key, types);
        let keys = by.iter().map(|id| Expression::column(*id)).collect();
        let by = Key::new(by, types);
        if !by.columns.is_empty() {
            rows.table.also_indexed = Some(match by.is_hashed {
                true => format!("({})", by.hash_index()),
                false => by.hash_index(),
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

    /// Brings the table up to date. `changes` are those of the rows that are read, `now` these as they are.
    pub fn apply(
        &self,
        types: &Types,
        (changes, now): (&[Block], &[Block]),
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
        let kept = self.rows.columns.iter();
        let kept: Vec<String> = kept.map(|id| format!("s.{}", stage_column(*id))).collect();
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
        let group = match list.is_empty() {
            true => " LIMIT 1".to_owned(),
            false => format!(" GROUP BY {}", list.join(", ")),
        };
        if self.by.is_hashed {
            list.push(format!("{} AS {HASH}", self.by.hash("d")));
        }
        format!(
            "{TOUCHED} AS MATERIALIZED (SELECT {} FROM ({changes}) AS d{group})",
            list.join(", ")
        )
    }

    /// The columns that are needed of what is read.
    fn read(&self) -> Vec<ColumnId> {
        read(
            &self.by.columns,
            &self.windows,
            self.filter.as_ref(),
            &self.rows.columns,
        )
    }

    /// The SELECT of what is to be kept of the rows for which a condition is true, or of all.
    fn computed(&self, blocks: &[Block], condition: &str) -> String {
        let computed = computed(blocks, &self.read(), &self.windows, condition);
        match &self.filter {
            None => computed,
            Some(filter) => {
                let inner = self.windows.iter().map(|(id, _)| *id).chain(self.read());
                let inner: Names = inner
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

    /// Makes the table what `now` says, whatever it was.
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

/// The columns that a stage of partitions needs of what it reads.
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

/// The SELECT of rows, each as often as it is there, with what is computed over them.
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
