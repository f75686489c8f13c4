//! Stages that store the first rows of an order.
//!
//! All rows up to an *edge* are stored, if there are more: the edge is the last row that was stored
//! when the stage was filled, in a total order by the user's ORDER BY and then the key, or else how
//! rows look. Changes beyond the edge are ignored, those before it are applied. If too few rows are
//! left, the stage is filled again from all rows; if there are too many, from the stored ones.

use super::delta::{Delta, consolidated};
use super::rows::RowStage;
use super::statement::Statement;
use super::table::COUNT;
use crate::core::column_types::{Types, identity};
use crate::core::expression::{ColumnId, stage_column};
use crate::core::sql::{Block, WEIGHT, union};

/// Least number of spare rows when the stage is filled; for a large limit, as many as the limit.
const RESERVE_MIN: u64 = 200;

/// A stage of the first rows.
#[derive(Clone, Debug)]
pub struct TopKStage {
    /// The stored rows, with their table.
    pub rows: RowStage,
    /// Least number of rows that must be stored.
    pub wanted: u64,
    order: Vec<String>,
    edge: String,
}

impl TopKStage {
    /// A stage with its table, whose rows are told apart by `key`, if by anything.
    pub fn new(
        name: &str,
        key: Option<Vec<ColumnId>>,
        order: Vec<(ColumnId, String)>,
        wanted: u64,
        columns: &[ColumnId],
        types: &Types,
    ) -> Self {
        let mut order: Vec<String> = order
            .iter()
            .map(|(id, how)| format!("{}{how}", stage_column(*id)))
            .collect();
        match &key {
            Some(key) => order.extend(key.iter().map(|id| stage_column(*id))),
            None => order.extend(columns.iter().map(|id| {
                if types[id].is_exact {
                    format!("({})::text COLLATE \"C\"", stage_column(*id))
                } else {
                    identity(types, *id, &stage_column(*id))
                }
            })),
        }
        let mut rows = RowStage::new(name, columns, key, types);
        let edge = name.replacen(".view_", ".edge_", 1);
        rows.table.edge = Some(edge.clone());
        Self {
            rows,
            wanted,
            order,
            edge,
        }
    }

    /// Number of rows that are stored when the stage is filled.
    pub fn filled(&self) -> u64 {
        self.wanted.saturating_add(self.wanted.max(RESERVE_MIN))
    }

    fn list(&self) -> String {
        let names = self.rows.columns.iter().map(|id| stage_column(*id));
        names.collect::<Vec<_>>().join(", ")
    }

    fn order(&self) -> String {
        if self.order.is_empty() {
            "(SELECT 1)".to_owned()
        } else {
            self.order.join(", ")
        }
    }

    /// The stored rows with their weights.
    fn kept(&self, sign: &str) -> String {
        let count = self.rows.table.count.map_or("1::bigint", |_| COUNT);
        let (list, table) = (self.list(), &self.rows.table.name);
        format!("SELECT {list}, {sign}{count} AS {WEIGHT} FROM {table}")
    }

    /// Maintains the table. `changes` are those of the input's rows, `now` its current rows.
    pub fn apply(
        &self,
        types: &Types,
        changes: &[Block],
        now: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let columns = &self.rows.columns;
        let changes = format!("({})", union(changes, columns));
        let now = self.every(types, now);
        let of_kept = format!(
            "({} UNION ALL SELECT * FROM egret_before_edge)",
            self.kept("")
        );
        let (list, order, edge) = (self.list(), self.order(), &self.edge);
        let (few, most) = (self.wanted, self.filled());
        let too_many = most.saturating_add(most - few);
        let is_few = format!("coalesce(sum({WEIGHT}), 0) < {few} AND EXISTS (SELECT FROM {edge})");
        let count = self.kept("");
        let mut with = vec![
            format!(
                "egret_every_change AS MATERIALIZED ({})",
                consolidated(types, columns, &changes)
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
                 FROM ({count} UNION ALL SELECT * FROM egret_before_edge) AS k)"
            ),
        ];
        let is_few = "(SELECT is_few FROM egret_left)";
        let are_many = "(SELECT are_many FROM egret_left)";
        let first = format!(
            "SELECT * FROM ({}) AS n WHERE {is_few} UNION ALL SELECT * FROM ({}) AS k WHERE {are_many}",
            now,
            consolidated(types, columns, &of_kept),
        );
        with.extend(self.filling(&first, &format!("{is_few} OR {are_many}")));
        let from = format!(
            "SELECT * FROM egret_before_edge WHERE NOT {is_few} AND NOT {are_many} \
             UNION ALL SELECT * FROM egret_first \
             UNION ALL SELECT * FROM ({}) AS k WHERE {is_few} OR {are_many}",
            self.kept("-"),
        );
        self.written(types, with, &from, delta)
    }

    /// The SELECT of all rows, each once. With an index on what is sorted by only the first of them
    /// are read, if they have a key.
    fn every(&self, types: &Types, now: &[Block]) -> String {
        let columns = &self.rows.columns;
        let every = union(now, columns);
        if self.rows.key.is_some() && !now.iter().any(Block::is_weighted) {
            every
        } else {
            consolidated(types, columns, &format!("({every})"))
        }
    }

    /// Selects the first rows, and under a condition stores the last of them as the edge.
    fn filling(&self, rows: &str, condition: &str) -> [String; 3] {
        let (list, order, edge) = (self.list(), self.order(), &self.edge);
        let filled = self.filled();
        [
            format!(
                "egret_first AS MATERIALIZED (SELECT * FROM ({rows}) AS f ORDER BY {order} LIMIT {filled})"
            ),
            format!("egret_no_edge AS (DELETE FROM {edge} WHERE {condition})"),
            format!(
                "egret_edge AS (INSERT INTO {edge} ({list}) SELECT {list} FROM egret_first ORDER BY {order} OFFSET {} LIMIT 1)",
                filled - 1
            ),
        ]
    }

    fn written(
        &self,
        types: &Types,
        with: Vec<String>,
        from: &str,
        delta: &Delta<'_>,
    ) -> Statement {
        let differing = Delta {
            is_consolidated: false,
            // Most changes are beyond the edge.
            expected: 0,
            ..*delta
        };
        let mut statement = self.rows.apply(types, from, &differing);
        statement.with.splice(0..0, with);
        statement
    }

    /// Makes the table equal to `now`, whatever it contains.
    pub fn rebuild(&self, types: &Types, now: &[Block], sink: Option<&str>) -> Statement {
        let with = self.filling(&self.every(types, now), "true").to_vec();
        let from = format!("SELECT * FROM egret_first UNION ALL {}", self.kept("-"));
        let delta = Delta {
            sink,
            ..Delta::default()
        };
        self.written(types, with, &from, &delta)
    }
}
