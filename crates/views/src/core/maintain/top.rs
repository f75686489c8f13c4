//! Stages that keep the first rows of an order.
//!
//! What is kept are all rows up to an *edge*, if there are more: the last of those that were kept when they were last filled up, by an order in which no two
//! different rows are the same: what the user sorts by, and then the key, or else what rows look like. What changed beyond the edge does not
//! matter, what changed before it is applied. When too few are left, the first are asked of all rows again; when there are too many, of
//! those that are kept.

use super::rows::Rows;
use super::{COUNT, Delta, Statement, Types, consolidated, identity};
use crate::core::analyse::stage_column;
use crate::core::expression::ColumnId;
use crate::core::sql::{Block, WEIGHT, union};

/// So many rows more than wanted are kept at least when they are filled up; for many wanted, as many more.
const RESERVE_MIN: u64 = 200;

/// A stage of the first rows.
#[derive(Clone, Debug)]
pub struct Top {
    /// Where they are kept.
    pub rows: Rows,
    /// So many there are at least.
    pub wanted: u64,
    order: Vec<String>,
    edge: String,
}

impl Top {
    /// A stage with its table, whose rows are told apart by `key`, if by anything.
    pub fn new(
        (name, key): (&str, Option<Vec<ColumnId>>),
        (order, wanted): (Vec<(ColumnId, String)>, u64),
        (columns, types): (&[ColumnId], &Types),
    ) -> Self {
        let order = order.iter();
        let mut order: Vec<String> = order
            .map(|(id, how)| format!("{}{how}", stage_column(*id)))
            .collect();
        match &key {
            Some(key) => order.extend(key.iter().map(|id| stage_column(*id))),
            None => order.extend(columns.iter().map(|id| match types[id].is_exact {
                true => format!("({})::text COLLATE \"C\"", stage_column(*id)),
                false => identity(types, *id, &stage_column(*id)),
            })),
        }
        let mut rows = Rows::new(name, columns, key, types);
        let edge = name.replacen(".view_", ".edge_", 1);
        rows.table.edge = Some(edge.clone());
        Self {
            rows,
            wanted,
            order,
            edge,
        }
    }

    /// So many are kept when they are filled up.
    pub fn filled(&self) -> u64 {
        self.wanted.saturating_add(self.wanted.max(RESERVE_MIN))
    }

    fn list(&self) -> String {
        let names = self.rows.columns.iter().map(|id| stage_column(*id));
        names.collect::<Vec<_>>().join(", ")
    }

    fn order(&self) -> String {
        match self.order.is_empty() {
            // There is one row at most.
            true => "(SELECT 1)".to_owned(),
            false => self.order.join(", "),
        }
    }

    /// The rows that are kept, with how often each is there.
    fn kept(&self, sign: &str) -> String {
        let count = self.rows.table.count.map_or("1::bigint", |_| COUNT);
        let (list, table) = (self.list(), &self.rows.table.name);
        format!("SELECT {list}, {sign}{count} AS {WEIGHT} FROM {table}")
    }

    /// Brings the table up to date. `changes` are those of the rows that are read, `now` these as they are.
    pub fn apply(
        &self,
        types: &Types,
        (changes, now): (&[Block], &[Block]),
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

    /// The SELECT of all rows, each once. With an index on what is sorted by only the first of them are read, if they have a key.
    fn every(&self, types: &Types, now: &[Block]) -> String {
        let columns = &self.rows.columns;
        let every = union(now, columns);
        match self.rows.key.is_some() && !now.iter().any(Block::is_weighted) {
            true => every,
            false => consolidated(types, columns, &format!("({every})")),
        }
    }

    /// Takes the first of some rows, and remembers the last of these, under a condition.
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
            // Most of what changed is beyond the edge.
            expected: 0,
            ..*delta
        };
        let mut statement = self.rows.apply(types, from, &differing);
        statement.with.splice(0..0, with);
        statement
    }

    /// Makes the table what `now` says, whatever it was.
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
