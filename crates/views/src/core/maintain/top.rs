//! Stages that store the first rows of an order.
//!
//! All rows up to an *edge* are stored, if there are more: the edge is the last row that was stored
//! when the stage was filled, in a total order by the user's ORDER BY and then the key, or else how
//! rows look. Changes beyond the edge are ignored, those before it are applied. If too few rows are
//! left, the stage is filled again from all rows; if there are too many, from the stored ones.

use super::delta::{Delta, select_consolidated};
use super::rows::RowStage;
use super::statement::Statement;
use super::table::COUNT_COLUMN;
use crate::core::column_types::{Types, identity_sql};
use crate::core::expression::{ColumnId, stage_column_name};
use crate::core::sql::{Block, WEIGHT, union_all};

/// Least number of spare rows when the stage is filled; for a large limit, as many as the limit.
const RESERVE_MIN: u64 = 200;

/// A stage of the first rows.
#[derive(Clone, Debug)]
pub struct TopKStage {
    /// The stored rows, with their table.
    pub rows: RowStage,
    /// Least number of rows that must be stored.
    pub rows_min: u64,
    order: Vec<String>,
    edge_table: String,
}

impl TopKStage {
    /// A stage with its table, whose rows are told apart by `key`, if by anything.
    pub fn new(
        name: &str,
        key: Option<Vec<ColumnId>>,
        order: Vec<(ColumnId, String)>,
        rows_min: u64,
        columns: &[ColumnId],
        types: &Types,
    ) -> Self {
        let mut order: Vec<String> = order
            .iter()
            .map(|(id, direction)| format!("{}{direction}", stage_column_name(*id)))
            .collect();
        match &key {
            Some(key) => order.extend(key.iter().map(|id| stage_column_name(*id))),
            None => order.extend(columns.iter().map(|id| {
                if types[id].is_exact {
                    format!("({})::text COLLATE \"C\"", stage_column_name(*id))
                } else {
                    identity_sql(types, *id, &stage_column_name(*id))
                }
            })),
        }
        let mut rows = RowStage::new(name, columns, key, types);
        let edge_table = name.replacen(".view_", ".edge_", 1);
        rows.table.edge_table = Some(edge_table.clone());
        Self { rows, rows_min, order, edge_table }
    }

    /// Number of rows that are stored when the stage is filled.
    pub(crate) fn fill_rows(&self) -> u64 {
        self.rows_min.saturating_add(self.rows_min.max(RESERVE_MIN))
    }

    fn column_list(&self) -> String {
        let names = self.rows.columns.iter().map(|id| stage_column_name(*id));
        names.collect::<Vec<_>>().join(", ")
    }

    fn order_by(&self) -> String {
        if self.order.is_empty() { "(SELECT 1)".to_owned() } else { self.order.join(", ") }
    }

    /// The stored rows with their weights.
    fn select_stored(&self, sign: &str) -> String {
        let count = self.rows.table.count_column.map_or("1::bigint", |_| COUNT_COLUMN);
        let (list, table) = (self.column_list(), &self.rows.table.name);
        format!("SELECT {list}, {sign}{count} AS {WEIGHT} FROM {table}")
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
        let columns = &self.rows.columns;
        let changes = format!("({})", union_all(changes, columns));
        let all_rows = self.select_all(types, current_rows);
        let stored_rows =
            format!("({} UNION ALL SELECT * FROM egret_before_edge)", self.select_stored(""));
        let (list, order, edge) = (self.column_list(), self.order_by(), &self.edge_table);
        let (rows_min, rows_max) = (self.rows_min, self.fill_rows());
        let too_many = rows_max.saturating_add(rows_max - rows_min);
        let is_few =
            format!("coalesce(sum({WEIGHT}), 0) < {rows_min} AND EXISTS (SELECT FROM {edge})");
        let stored = self.select_stored("");
        let mut ctes = vec![
            format!(
                "egret_every_change AS MATERIALIZED ({})",
                select_consolidated(types, columns, &changes)
            ),
            // The edge is the last of those that are the same.
            format!(
                "egret_before_edge AS MATERIALIZED (SELECT {list}, {WEIGHT} FROM ( \
                 SELECT {list}, {WEIGHT}, count(*) FILTER (WHERE is_edge) OVER (ORDER BY {order}, is_edge ROWS UNBOUNDED PRECEDING) AS beyond \
                 FROM (SELECT {list}, {WEIGHT}, false AS is_edge FROM egret_every_change \
                 UNION ALL SELECT {list}, 0, true FROM {edge}) AS u) AS s WHERE beyond = 0)"
            ),
            format!(
                "egret_left AS MATERIALIZED (SELECT {is_few} AS is_few, NOT ({is_few}) AND count(*) > {too_many} AS are_many \
                 FROM ({stored} UNION ALL SELECT * FROM egret_before_edge) AS k)"
            ),
        ];
        let is_few = "(SELECT is_few FROM egret_left)";
        let are_many = "(SELECT are_many FROM egret_left)";
        let first = format!(
            "SELECT * FROM ({}) AS n WHERE {is_few} UNION ALL SELECT * FROM ({}) AS k WHERE {are_many}",
            all_rows,
            select_consolidated(types, columns, &stored_rows),
        );
        ctes.extend(self.fill_ctes(&first, &format!("{is_few} OR {are_many}")));
        let from = format!(
            "SELECT * FROM egret_before_edge WHERE NOT {is_few} AND NOT {are_many} \
             UNION ALL SELECT * FROM egret_first \
             UNION ALL SELECT * FROM ({}) AS k WHERE {is_few} OR {are_many}",
            self.select_stored("-"),
        );
        self.write(types, ctes, &from, delta)
    }

    /// The SELECT of all rows, each once. With an index on what is sorted by only the first of them
    /// are read, if they have a key.
    fn select_all(&self, types: &Types, current_rows: &[Block]) -> String {
        let columns = &self.rows.columns;
        let all_rows = union_all(current_rows, columns);
        if self.rows.key.is_some() && !current_rows.iter().any(Block::is_weighted) {
            all_rows
        } else {
            select_consolidated(types, columns, &format!("({all_rows})"))
        }
    }

    /// Selects the first rows, and under a condition stores the last of them as the edge.
    fn fill_ctes(&self, rows: &str, condition: &str) -> [String; 3] {
        let (list, order, edge) = (self.column_list(), self.order_by(), &self.edge_table);
        let fill_rows = self.fill_rows();
        [
            format!(
                "egret_first AS MATERIALIZED (SELECT * FROM ({rows}) AS f ORDER BY {order} LIMIT {fill_rows})"
            ),
            format!("egret_no_edge AS (DELETE FROM {edge} WHERE {condition})"),
            format!(
                "egret_edge AS (INSERT INTO {edge} ({list}) SELECT {list} FROM egret_first ORDER BY {order} OFFSET {} LIMIT 1)",
                fill_rows - 1
            ),
        ]
    }

    fn write(&self, types: &Types, ctes: Vec<String>, from: &str, delta: &Delta<'_>) -> Statement {
        let row_delta = Delta {
            is_consolidated: false,
            // Most changes are beyond the edge.
            expected: 0,
            ..*delta
        };
        let mut statement = self.rows.apply(types, from, &row_delta);
        statement.ctes.splice(0..0, ctes);
        statement
    }

    /// Makes the table equal to `current_rows`, whatever it contains.
    pub fn rebuild(&self, types: &Types, current_rows: &[Block], sink: Option<&str>) -> Statement {
        let ctes = self.fill_ctes(&self.select_all(types, current_rows), "true").to_vec();
        let from = format!("SELECT * FROM egret_first UNION ALL {}", self.select_stored("-"));
        let delta = Delta { sink, ..Delta::default() };
        self.write(types, ctes, &from, &delta)
    }
}
