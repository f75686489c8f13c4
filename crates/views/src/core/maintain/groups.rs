//! Stages that keep groups.
//!
//! Counts, sums and averages are carried on by what changed: beside what the user sees a group has the number of its rows,
//! and for each sum what it comes to and how many values are in it, so that it is null when there is none. All other
//! aggregates are asked again, of the groups that something changed in and of no others.

use super::carried::{Carried, Carrier, counted, summed};
use super::key::{HASH, Key};
use super::{COUNT, Delta, Statement, Table, Types, Wrong, are_same, declared};
use crate::core::analyse::stage_column;
use crate::core::expression::{ColumnId, Expression, Names};
use crate::core::sql::{Block, WEIGHT, each, expecting};
use crate::core::tree::Aggregate;

/// Aggregates that take one of their values, or count.
const CHOOSING: [&str; 9] = [
    "min", "max", "count", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor",
];

/// Aggregates that add up: with floating numbers each order gives another result.
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

/// A stage of groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// What rows of a group have in common; one group where there is nothing.
    pub keys: Vec<(ColumnId, Expression)>,
    /// What is said of them, and how it is carried on.
    pub aggregates: Vec<(Aggregate, Carried)>,
    key: Key,
    /// Whether values of a key that are equal may look different: one that is there is shown then.
    is_key_shown: bool,
    /// Where they are kept.
    pub table: Table,
}

impl Groups {
    /// A stage with its table.
    pub fn new(
        name: &str,
        keys: Vec<(ColumnId, Expression)>,
        aggregates: Vec<(Aggregate, Carried)>,
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
            if let Carried::Sum(terms) | Carried::Average(terms) = carried {
                let carrier = Carrier::new(aggregate.column, *terms).columns();
                columns.extend(
                    carrier
                        .into_iter()
                        .map(|(name, kind)| (name, kind.to_owned())),
                );
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

    /// What others see of a group: keys and aggregates.
    pub fn columns(&self) -> Vec<ColumnId> {
        let keys = self.keys.iter().map(|(id, _)| *id);
        let aggregates = self.aggregates.iter().map(|(one, _)| one.column);
        keys.chain(aggregates).collect()
    }

    fn seen(&self) -> Vec<String> {
        self.columns().into_iter().map(stage_column).collect()
    }

    /// Whether nothing is computed of rows but counts and sums of columns.
    pub fn are_plain(&self) -> bool {
        let is_plain = |expression: &Expression| expression.as_column().is_some();
        let mut keys = self.keys.iter();
        let mut aggregates = self.aggregates.iter();
        !self.asks()
            && keys.all(|(_, key)| is_plain(key))
            && aggregates.all(|(aggregate, _)| {
                aggregate.filter.is_none() && aggregate.argument.as_ref().is_none_or(is_plain)
            })
    }

    /// Whether values do not depend on the order of rows.
    pub fn are_reproducible(&self, types: &Types) -> bool {
        let is_floating = |kind: &str| kind == "real" || kind == "double precision";
        self.aggregates.iter().all(|(aggregate, carried)| {
            let of = aggregate.function.as_deref().unwrap_or_default();
            *carried != Carried::Asked
                || CHOOSING.contains(&of)
                || ADDING.contains(&of) && !is_floating(&types[&aggregate.column].sql)
        })
    }

    /// Whether something is asked of all rows of groups of which some have changed.
    pub fn asks(&self) -> bool {
        let mut all = self.aggregates.iter();
        self.is_key_shown || all.any(|(_, carried)| *carried == Carried::Asked)
    }

    /// What is needed of each row: keys, and for what is carried on arguments that are null where a row does not count.
    fn of_rows(&self, blocks: &[Block]) -> String {
        let selects = blocks.iter().map(|block| {
            let names = block.names();
            let keys = self.keys.iter();
            let mut list: Vec<String> = keys
                .map(|(id, key)| format!("{} AS {}", key.sql(names), stage_column(*id)))
                .collect();
            for (aggregate, carried) in &self.aggregates {
                let value = match carried {
                    Carried::Asked => continue,
                    Carried::Count => counted(aggregate, names),
                    Carried::Sum(_) | Carried::Average(_) => summed(aggregate, names),
                };
                list.push(format!("{value} AS {}", stage_column(aggregate.column)));
            }
            // Values are multiplied by it: no integer of theirs may overflow.
            list.push(format!("({})::bigint AS {WEIGHT}", block.weight()));
            block.select(&list)
        });
        selects.collect::<Vec<_>>().join(" UNION ALL ")
    }

    /// What changes of rows come to, group by group. No group is in it in which nothing changed.
    fn delta(&self, changes: &[Block], delta: &Delta<'_>, with: &mut Vec<String>) -> String {
        let key_names = self.key.names();
        let mut list: Vec<(String, String)> = key_names
            .iter()
            .map(|name| (name.clone(), name.clone()))
            .collect();
        if self.key.is_hashed {
            list.push((self.key.hash("egret_all"), HASH.to_owned()));
        }
        let rows = format!("coalesce(sum({WEIGHT}), 0)::bigint");
        list.push((rows, COUNT.to_owned()));
        let mut moved = vec![format!("sum({WEIGHT}) <> 0")];
        for (aggregate, carried) in &self.aggregates {
            let name = stage_column(aggregate.column);
            match carried {
                Carried::Asked => {}
                Carried::Count => {
                    moved.push(format!("sum({name} * {WEIGHT}) <> 0"));
                    let count = format!("coalesce(sum({name} * {WEIGHT}), 0)::bigint");
                    list.push((count, name));
                }
                Carried::Sum(terms) | Carried::Average(terms) => {
                    let carrier = Carrier::new(aggregate.column, *terms);
                    let columns = carrier.columns().into_iter();
                    for ((column, _), value) in columns.zip(carrier.of_rows(&name)) {
                        moved.push(format!("{value} <> 0"));
                        list.push((value, column));
                    }
                }
            }
        }
        let rows = delta.raw(&self.of_rows(changes), with);
        let group = match key_names.is_empty() {
            true => String::new(),
            false => format!(" GROUP BY {}", key_names.join(", ")),
        };
        let nulls = list.iter().map(|(_, name)| self.table.null_of(name));
        let nulls: Vec<String> = nulls.collect();
        let moved = match self.asks() || key_names.is_empty() {
            // Anything may have moved what is asked again, and the only group is there even if there are no rows.
            true => String::new(),
            false => format!(" HAVING {}", moved.join(" OR ")),
        };
        format!(
            "SELECT {} FROM {rows} AS egret_all{group}{moved}{}",
            list.iter()
                .map(|(value, name)| format!("{value} AS {name}"))
                .collect::<Vec<_>>()
                .join(", "),
            expecting(delta.expected, &nulls)
        )
    }

    /// The groups that were touched as they are now: every aggregate asked again. `now` are all rows.
    fn asked(&self, types: &Types, now: &[Block]) -> String {
        let touched = self.key.same(types, "t", "a");
        let mut rows = each(now, |block| {
            let names = block.names();
            let keys = self.keys.iter();
            let keys = keys.map(|(id, key)| format!("{} AS {}", key.sql(names), stage_column(*id)));
            let others = names
                .iter()
                .map(|(id, name)| format!("{name} AS i{}", id.0));
            keys.chain(others).collect()
        });
        if self.key.is_hashed {
            rows = format!(
                "SELECT k.*, {} AS {HASH} FROM ({rows}) AS k",
                self.key.hash("k")
            );
        }
        let inner: Names = now
            .iter()
            .flat_map(|block| block.names().keys())
            .map(|id| (*id, format!("a.i{}", id.0)))
            .collect();
        let mut list: Vec<String> = self
            .key
            .names()
            .iter()
            .map(|name| format!("a.{name}"))
            .collect();
        let group = match list.is_empty() {
            true => String::new(),
            false => format!(
                " WHERE EXISTS (SELECT FROM egret_delta AS t WHERE {touched}) GROUP BY {}",
                list.join(", ")
            ),
        };
        for (aggregate, carried) in &self.aggregates {
            if *carried == Carried::Asked {
                let call = aggregate.call.sql(&inner);
                list.push(format!("{call} AS {}", stage_column(aggregate.column)));
            }
        }
        if self.key.is_hashed {
            list.push(format!("{} AS {HASH}", self.key.hash("a")));
        }
        format!("SELECT {} FROM ({rows}) AS a{group}", list.join(", "))
    }

    /// Brings the table up to date. `changes` are those of the rows, `now` the rows as they are.
    pub fn apply(
        &self,
        types: &Types,
        changes: &[Block],
        now: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let mut with = Vec::new();
        let of_groups = self.delta(changes, delta, &mut with);
        with.push(format!("egret_delta AS MATERIALIZED ({of_groups})"));
        Statement {
            with: self.write(types, with, now, delta.sink),
            is_over: delta.is_raw_over(),
            wrong: Wrong::Rows,
        }
    }

    /// What brings the table up to date, behind what changed.
    fn write(
        &self,
        types: &Types,
        mut with: Vec<String>,
        now: &[Block],
        sink: Option<&str>,
    ) -> Vec<String> {
        let table = &self.table.name;
        let mut sources = format!(
            "egret_delta AS d LEFT JOIN {table} AS s ON {}",
            self.key.same(types, "s", "d")
        );
        if self.asks() {
            with.push(format!(
                "egret_asked AS MATERIALIZED ({})",
                self.asked(types, now)
            ));
            sources.push_str(&format!(
                " LEFT JOIN egret_asked AS a ON {}",
                self.key.same(types, "a", "d")
            ));
        }
        with.push(format!(
            "egret_joined AS MATERIALIZED ({})",
            self.joined(&sources)
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

    /// Whether a group is there afterwards: the only one always is.
    fn lives(&self) -> String {
        match self.keys.is_empty() {
            true => "true".to_owned(),
            false => format!("{COUNT} > 0"),
        }
    }

    /// What was there beside what is to be there.
    fn joined(&self, sources: &str) -> String {
        let names = self.key.names().into_iter();
        let mut list: Vec<String> = names
            .map(|name| match self.is_key_shown {
                true => format!("coalesce(a.{name}, d.{name}) AS {name}"),
                false => format!("d.{name} AS {name}"),
            })
            .collect();
        if self.key.is_hashed {
            list.push(format!("d.{HASH} AS {HASH}"));
        }
        list.push("s.ctid AS egret_place".to_owned());
        list.push(format!("coalesce(s.{COUNT}, 0) + d.{COUNT} AS {COUNT}"));
        let mut moves = vec![format!("d.{COUNT} <> 0")];
        for (aggregate, carried) in &self.aggregates {
            let name = stage_column(aggregate.column);
            let mut more = |name: &str| {
                list.push(format!("coalesce(s.{name}, 0) + d.{name} AS {name}"));
                moves.push(format!("d.{name} <> 0"));
            };
            match carried {
                Carried::Asked => list.push(format!("a.{name} AS {name}")),
                Carried::Count => more(&name),
                Carried::Sum(terms) | Carried::Average(terms) => {
                    let carrier = Carrier::new(aggregate.column, *terms);
                    carrier
                        .columns()
                        .iter()
                        .for_each(|(column, _)| more(column));
                }
            }
        }
        list.push(format!("({}) AS egret_moves", moves.join(" OR ")));
        list.extend(
            self.seen()
                .iter()
                .map(|name| format!("s.{name} AS egret_old_{name}")),
        );
        let carried = format!("SELECT {} FROM {sources}", list.join(", "));
        let mut shown = vec!["c.*".to_owned()];
        for (aggregate, carried) in &self.aggregates {
            let name = stage_column(aggregate.column);
            let (Carried::Sum(terms) | Carried::Average(terms)) = carried else {
                continue;
            };
            let carrier = Carrier::new(aggregate.column, *terms);
            let sum = carrier.total("c");
            let value = match carried {
                Carried::Average(_) => format!("{sum} / c.{}", carrier.of),
                _ => sum,
            };
            shown.push(format!("{} AS {name}", carrier.shown("c", &value)));
        }
        let shown = format!("SELECT {} FROM ({carried}) AS c", shown.join(", "));
        let seen = self.seen();
        let pairs = seen.iter().map(|name| {
            let text = |name: &str| format!("egret_shown.{name}::text");
            (text(name), text(&format!("egret_old_{name}")))
        });
        let same = are_same(&pairs.collect::<Vec<_>>());
        format!(
            "SELECT egret_shown.*, NOT (egret_place IS NOT NULL AND {} AND {same}) AS egret_differs FROM ({shown}) AS egret_shown",
            self.lives(),
        )
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
        let removed = match self.keys.is_empty() {
            true => "SELECT WHERE false".to_owned(),
            false => format!(
                "DELETE FROM {table} AS s USING egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT} <= 0 RETURNING 1"
            ),
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

    /// Makes the table what `now` says, whatever it was: every group is asked again.
    pub fn rebuild(&self, types: &Types, now: &[Block], sink: Option<&str>) -> Statement {
        let mut with = Vec::new();
        let wanted = self.delta(now, &Delta::default(), &mut with);
        let difference = self.difference(&wanted);
        with.push(format!("egret_delta AS MATERIALIZED ({difference})"));
        Statement {
            with: self.write(types, with, now, sink),
            is_over: None,
            wrong: Wrong::Rows,
        }
    }

    /// What is to be there less what is there, group by group. They are brought together by GROUP BY, which finds nulls and
    /// values that have no hash.
    fn difference(&self, wanted: &str) -> String {
        let mut keys = self.key.names();
        keys.extend(self.key.is_hashed.then(|| HASH.to_owned()));
        let mut carried = vec![(COUNT.to_owned(), "bigint")];
        for (aggregate, how) in &self.aggregates {
            match how {
                Carried::Asked => {}
                Carried::Count => carried.push((stage_column(aggregate.column), "bigint")),
                Carried::Sum(terms) | Carried::Average(terms) => {
                    carried.extend(Carrier::new(aggregate.column, *terms).columns());
                }
            }
        }
        let list = |of_carried: &dyn Fn(&str, &str) -> String| {
            let carried = carried.iter().map(|(name, kind)| of_carried(name, kind));
            keys.iter()
                .cloned()
                .chain(carried)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let group = match keys.is_empty() {
            true => String::new(),
            false => format!(" GROUP BY {}", keys.join(", ")),
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
