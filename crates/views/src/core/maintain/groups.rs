//! Stages of groups.
//!
//! Counts, sums and averages are maintained by changes. Besides what users see, a group has the
//! number of its rows, and for each sum the sum and the number of its values, so that it is null
//! without values. Minimum and maximum are maintained as long as no value is removed that may be
//! the extremum. All other aggregates are recomputed, for the groups with changes only.

mod recomputation;

use super::aggregates::{
    AggregateMaintenance, Extremum, RowMultiplicity, came, counted, summed, went,
};
use super::delta::Delta;
use super::key::{HASH, Key};
use super::statement::{ConsistencyCheck, Statement};
use super::table::{COUNT, Table};
use crate::core::column_types::{Types, declared};
use crate::core::expression::{ColumnId, Expression, stage_column};
use crate::core::sql::{Block, WEIGHT, expecting};
use crate::core::tree::Aggregate;

/// Aggregates that return one of their values, or count.
const CHOOSING: [&str; 9] = [
    "min", "max", "count", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor",
];

/// Aggregates that add: over floating-point numbers, the result depends on the order of rows.
const ADDING: [&str; 8] = [
    "sum",
    "avg",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "variance",
    "var_pop",
    "var_samp",
];

/// Which groups are recomputed from their rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecomputeScope {
    Never,
    /// Those from which a value was removed that may have been the extremum.
    AtEnds,
    /// All groups with changes.
    Always,
}

/// A stage that stores groups.
#[derive(Clone, Debug)]
pub struct ReduceStage {
    /// The GROUP BY expressions; without any there is one group.
    pub keys: Vec<(ColumnId, Expression)>,
    /// The aggregates, and how each is maintained.
    pub aggregates: Vec<(Aggregate, AggregateMaintenance)>,
    key: Key,
    /// Whether equal key values may look different: an existing one is shown then.
    is_key_shown: bool,
    /// The table that stores the groups.
    pub table: Table,
}

impl ReduceStage {
    /// A stage with its table.
    pub fn new(
        name: &str,
        keys: Vec<(ColumnId, Expression)>,
        aggregates: Vec<(Aggregate, AggregateMaintenance)>,
        types: &Types,
    ) -> Self {
        let mut columns: Vec<(String, String)> = keys
            .iter()
            .map(|(id, _)| (stage_column(*id), declared(types, *id)))
            .collect();
        for (aggregate, _) in &aggregates {
            let id = aggregate.column;
            columns.push((stage_column(id), declared(types, id)));
        }
        columns.push((COUNT.to_owned(), "bigint NOT NULL".to_owned()));
        for (aggregate, carried) in &aggregates {
            if *carried != AggregateMaintenance::Count {
                let added = carried.columns(aggregate.column).into_iter();
                columns.extend(added.map(|(name, kind)| (name, kind.to_owned())));
            }
        }
        let key = Key::new(keys.iter().map(|(id, _)| *id).collect(), types);
        if key.is_hashed {
            columns.push((HASH.to_owned(), "bigint NOT NULL".to_owned()));
        }
        Self {
            is_key_shown: keys.iter().any(|(id, _)| !types[id].is_exact),
            keys,
            aggregates,
            table: Table {
                name: name.to_owned(),
                columns,
                is_unique: !key.is_hashed,
                indexed: key.indexed(),
                also_indexed: None,
                edge: None,
                count: None,
            },
            key,
        }
    }

    /// The columns that later stages see: keys and aggregates.
    pub fn columns(&self) -> Vec<ColumnId> {
        let keys = self.keys.iter().map(|(id, _)| *id);
        let aggregates = self
            .aggregates
            .iter()
            .map(|(aggregate, _)| aggregate.column);
        keys.chain(aggregates).collect()
    }

    fn seen(&self) -> Vec<String> {
        self.columns().into_iter().map(stage_column).collect()
    }

    /// Whether rows are only counted, or columns summed, without any other computation.
    pub(crate) fn are_plain(&self) -> bool {
        let is_plain = |expression: &Expression| expression.as_column().is_some();
        let mut keys = self.keys.iter();
        let mut aggregates = self.aggregates.iter();
        !self.asks()
            && keys.all(|(_, key)| is_plain(key))
            && aggregates.all(|(aggregate, _)| {
                aggregate.filter.is_none() && aggregate.argument.as_ref().is_none_or(is_plain)
            })
    }

    /// Whether results do not depend on the order of rows.
    pub(crate) fn are_reproducible(&self, types: &Types) -> bool {
        let is_floating = |kind: &str| kind == "real" || kind == "double precision";
        self.aggregates.iter().all(|(aggregate, carried)| {
            let of = aggregate.function.as_deref().unwrap_or_default();
            *carried != AggregateMaintenance::Asked
                || CHOOSING.contains(&of)
                || ADDING.contains(&of) && !is_floating(&types[&aggregate.column].sql)
        })
    }

    /// Whether the refresh may have to read all rows of groups with changes.
    pub fn asks(&self) -> bool {
        let mut all = self.aggregates.iter();
        self.asks_always() || all.any(|(_, carried)| carried.end().is_some())
    }

    /// Whether all groups with changes are recomputed.
    fn asks_always(&self) -> bool {
        let mut all = self.aggregates.iter();
        self.is_key_shown || all.any(|(_, carried)| *carried == AggregateMaintenance::Asked)
    }

    /// The aggregates that are recomputed when the extremum may have been removed.
    fn ends(&self) -> impl Iterator<Item = (ColumnId, Extremum)> {
        let all = self.aggregates.iter();
        all.filter_map(|(aggregate, carried)| Some((aggregate.column, carried.end()?)))
    }

    /// The columns that are needed of each row: keys, and the arguments of maintained aggregates,
    /// null where a row does not count.
    fn of_rows(&self, blocks: &[Block]) -> String {
        let selects = blocks.iter().map(|block| {
            let names = block.names();
            let keys = self.keys.iter();
            let mut list: Vec<String> = keys
                .map(|(id, key)| format!("{} AS {}", key.sql(names), stage_column(*id)))
                .collect();
            for (aggregate, carried) in &self.aggregates {
                let value = match carried {
                    AggregateMaintenance::Asked => continue,
                    AggregateMaintenance::Count => counted(aggregate, names),
                    _ => summed(aggregate, names),
                };
                list.push(format!("{value} AS {}", stage_column(aggregate.column)));
            }
            // Values are multiplied by the weight: no integer may overflow.
            list.push(format!("({})::bigint AS {WEIGHT}", block.weight()));
            block.select(&list)
        });
        selects.collect::<Vec<_>>().join(" UNION ALL ")
    }

    /// The changes by group; groups without changes are left out. With `has_ends`, the extrema of
    /// added and of removed values are included.
    fn delta(
        &self,
        changes: &[Block],
        delta: &Delta<'_>,
        has_ends: bool,
        with: &mut Vec<String>,
    ) -> String {
        let key_names = self.key.names();
        // A value, its name, and the column of the table whose type it has.
        let key = |name: &String| (name.clone(), name.clone(), name.clone());
        let mut list: Vec<_> = key_names.iter().map(key).collect();
        let mut add = |value: String, name: String| list.push((value, name.clone(), name));
        if self.key.is_hashed {
            add(self.key.hash("egret_all"), HASH.to_owned());
        }
        let counting = if changes.iter().any(Block::is_weighted) {
            RowMultiplicity::Weighted
        } else {
            RowMultiplicity::Once
        };
        add(counting.rows(), COUNT.to_owned());
        let mut moved = vec![format!("{} <> 0", counting.rows())];
        for (aggregate, carried) in &self.aggregates {
            let name = stage_column(aggregate.column);
            let columns = carried.columns(aggregate.column).into_iter();
            let values = carried.of_rows(aggregate.column, &name, counting);
            for ((column, _), value) in columns.zip(values) {
                moved.push(format!("{value} <> 0"));
                add(value, column);
            }
        }
        for (id, end) in self.ends().filter(|_| has_ends) {
            let name = stage_column(id);
            for (moved, sign) in [(came(id), ">"), (went(id), "<")] {
                let value = format!(
                    "{}({name}) FILTER (WHERE {WEIGHT} {sign} 0)",
                    end.function()
                );
                list.push((value, moved, name.clone()));
            }
        }
        let mut rows = self.of_rows(changes);
        if !self.are_plain() {
            // OFFSET 0 has each expression evaluated once, however often it is used.
            rows.push_str(" OFFSET 0");
        }
        let rows = delta.raw(&rows, with);
        let group = if key_names.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {}", key_names.join(", "))
        };
        let nulls = list.iter().map(|(.., like)| self.table.null_of(like));
        let nulls: Vec<String> = nulls.collect();
        let moved = if self.asks() || key_names.is_empty() {
            String::new()
        } else {
            format!(" HAVING {}", moved.join(" OR "))
        };
        format!(
            "SELECT {} FROM {rows} AS egret_all{group}{moved}{}",
            list.iter()
                .map(|(value, name, _)| format!("{value} AS {name}"))
                .collect::<Vec<_>>()
                .join(", "),
            expecting(delta.expected, &nulls)
        )
    }

    /// Maintains the table. `changes` are those of the rows, `now` the current rows.
    pub fn apply(
        &self,
        types: &Types,
        changes: &[Block],
        now: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let mut with = Vec::new();
        let asking = match (self.asks_always(), self.asks()) {
            (true, _) => RecomputeScope::Always,
            (false, true) => RecomputeScope::AtEnds,
            (false, false) => RecomputeScope::Never,
        };
        let has_ends = asking == RecomputeScope::AtEnds;
        let of_groups = self.delta(changes, delta, has_ends, &mut with);
        with.push(format!("egret_delta AS MATERIALIZED ({of_groups})"));
        Statement {
            with: self.write(types, with, now, delta.sink, asking),
            is_over: delta.is_raw_over(),
            wrong: ConsistencyCheck::Rows,
        }
    }

    /// The common table expressions that write the table, after those of the changes.
    fn write(
        &self,
        types: &Types,
        mut with: Vec<String>,
        now: &[Block],
        sink: Option<&str>,
        asking: RecomputeScope,
    ) -> Vec<String> {
        let table = &self.table.name;
        let mut sources = format!(
            "egret_delta AS d LEFT JOIN {table} AS s ON {}",
            self.key.same(types, "s", "d")
        );
        if asking == RecomputeScope::AtEnds {
            with.push(format!(
                "egret_at_end AS MATERIALIZED ({})",
                self.at_end(types)
            ));
        }
        if asking != RecomputeScope::Never {
            with.push(format!(
                "egret_asked AS MATERIALIZED ({})",
                self.asked(types, now, asking)
            ));
            sources.push_str(&format!(
                " LEFT JOIN egret_asked AS a ON {}",
                self.key.same(types, "a", "d")
            ));
        }
        with.push(format!(
            "egret_joined AS MATERIALIZED ({})",
            self.joined(&sources, asking)
        ));
        with.extend(self.writes());
        let seen = self.seen().join(", ");
        if let Some(sink) = sink {
            let before: Vec<String> = self
                .seen()
                .iter()
                .map(|name| format!("egret_old_{name}"))
                .collect();
            let before = before.join(", ");
            with.push(format!(
                "egret_told AS (INSERT INTO {sink} ({seen}, {WEIGHT}) \
                 SELECT {before}, -1 FROM egret_joined WHERE egret_place IS NOT NULL AND egret_differs \
                 UNION ALL SELECT {seen}, 1 FROM egret_joined WHERE {} AND egret_differs)",
                self.lives()
            ));
        }
        with
    }

    /// Which groups are recomputed in a rebuild.
    fn asking_whole(&self) -> RecomputeScope {
        if self.asks() {
            RecomputeScope::Always
        } else {
            RecomputeScope::Never
        }
    }

    /// Condition that a group remains; the only group without keys always does.
    fn lives(&self) -> String {
        if self.keys.is_empty() {
            "true".to_owned()
        } else {
            format!("{COUNT} > 0")
        }
    }

    fn writes(&self) -> Vec<String> {
        let table = &self.table.name;
        let names: Vec<&String> = self.table.columns.iter().map(|(name, _)| name).collect();
        let keys = if self.is_key_shown {
            0
        } else {
            self.keys.len()
        };
        let set: Vec<String> = names[keys..]
            .iter()
            .map(|name| format!("{name} = j.{name}"))
            .collect();
        let all: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let (all, lives) = (all.join(", "), self.lives());
        let removed = if self.keys.is_empty() {
            "SELECT WHERE false".to_owned()
        } else {
            format!(
                "DELETE FROM {table} AS s USING egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT} <= 0 RETURNING 1"
            )
        };
        vec![
            format!("egret_removed AS ({removed})"),
            format!(
                "egret_changed AS (UPDATE {table} AS s SET {} FROM egret_joined AS j WHERE s.ctid = j.egret_place AND (j.egret_differs OR j.egret_moves) AND {} RETURNING 1)",
                set.join(", "),
                lives.replace(COUNT, &format!("j.{COUNT}")),
            ),
            format!(
                "egret_added AS (INSERT INTO {table} ({all}) SELECT {all} FROM egret_joined WHERE egret_place IS NULL AND {lives} RETURNING 1)"
            ),
            format!("egret_wrong AS (SELECT FROM egret_joined WHERE {COUNT} < 0)"),
        ]
    }

    /// Makes the table equal to the groups of `now`, whatever it contains: recomputes every group.
    pub fn rebuild(&self, types: &Types, now: &[Block], sink: Option<&str>) -> Statement {
        let mut with = Vec::new();
        let wanted = self.delta(now, &Delta::default(), false, &mut with);
        let difference = self.difference(&wanted);
        with.push(format!("egret_delta AS MATERIALIZED ({difference})"));
        Statement {
            with: self.write(types, with, now, sink, self.asking_whole()),
            is_over: None,
            wrong: ConsistencyCheck::Rows,
        }
    }

    /// The new groups less the stored ones, group by group. They are matched by GROUP BY, which
    /// handles nulls and values without a hash.
    fn difference(&self, wanted: &str) -> String {
        let mut keys = self.key.names();
        keys.extend(self.key.is_hashed.then(|| HASH.to_owned()));
        let mut carried = vec![(COUNT.to_owned(), "bigint")];
        for (aggregate, how) in &self.aggregates {
            carried.extend(how.columns(aggregate.column));
        }
        let list = |of_carried: &dyn Fn(&str, &str) -> String| {
            let carried = carried.iter().map(|(name, kind)| of_carried(name, kind));
            keys.iter()
                .cloned()
                .chain(carried)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let group = if keys.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {}", keys.join(", "))
        };
        format!(
            "SELECT {} FROM (SELECT {} FROM ({wanted}) AS n UNION ALL SELECT {} FROM {}) AS egret_all{group}",
            list(&|name, kind| format!("sum({name})::{kind} AS {name}")),
            list(&|name, _| name.to_owned()),
            list(&|name, _| format!("-{name}")),
            self.table.name,
        )
    }
}
