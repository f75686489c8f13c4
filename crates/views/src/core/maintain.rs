//! The statements that bring the table of a stage from what it was to what it is.
//!
//! A stage of rows with a key has one row for each; without a key each different row is kept once, with a count. A
//! stage of groups has one row for each group, with the aggregates and what is needed to carry them on. A stage of partitions
//! has rows as one of rows has them, and finds those of a partition. A recursion has rows without a key, with how often each comes of others.

mod carried;
mod groups;
mod key;
mod partitions;
mod recursion;
mod rows;
mod top;

use std::collections::BTreeMap;

pub use self::carried::{Carried, Terms, carried};
pub use self::groups::Groups;
pub use self::key::{HASH, Key};
pub use self::partitions::{Partitions, computed, read};
pub use self::recursion::{Recursion, side};
pub use self::rows::Rows;
pub use self::top::Top;
use super::analyse::stage_column;
use super::expression::{ColumnId, quoted};
use super::sql::WEIGHT;

/// How full pages are made, in percent: a row that changes finds room on its own page, and no index has to know.
const FILLFACTOR: u32 = 85;

/// How often a row of a stage without a key is there, or how many rows a group has.
pub const COUNT: &str = "egret_count";

/// What is known of the type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// As it is written in SQL, with schema and modifiers.
    pub sql: String,
    /// Its collation, where it is not that of the type.
    pub collation: Option<String>,
    /// The operator for which two values are one group, if the type has one.
    pub equality: Option<String>,
    /// Whether values of the type can be hashed.
    pub has_hash: bool,
    /// Whether values that are equal look the same: `1.0` and `1.00` do not.
    pub is_exact: bool,
    /// Whether it is never null.
    pub is_not_null: bool,
}

/// The types of columns.
pub type Types = BTreeMap<ColumnId, ColumnType>;

/// The table of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, with schema and in quotes.
    pub name: String,
    /// Its columns in their order: names, and types as they are written.
    pub columns: Vec<(String, String)>,
    /// The columns of its index.
    pub indexed: Vec<String>,
    /// Whether these tell rows apart.
    pub is_unique: bool,
    /// What another index is made of.
    pub also_indexed: Option<String>,
    /// A table of the last row that this one has, where it does not have all.
    pub edge: Option<String>,
    /// The column that says how often a row is there, if that is not once.
    pub count: Option<&'static str>,
}

/// How what changed is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delta<'a> {
    /// So many rows the planner expects.
    pub expected: u64,
    /// With more rows than this, before those that take each other away are brought together, nothing is to be applied.
    pub rows_max: Option<u64>,
    /// Whether there are none that take each other away.
    pub is_consolidated: bool,
    /// A table that takes what changed in the one of the stage.
    pub sink: Option<&'a str>,
}

/// What a statement says that it did: one row with these columns.
///
/// | column | |
/// |---|---|
/// | `added`, `changed`, `removed` | rows of the table |
/// | `wrong` | rows for which what was there does not fit with what changed: always 0, or the view is rebuilt; -1 where there are more rows than may be |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its common table expressions.
    pub with: Vec<String>,
    /// A condition: more rows changed than may be, and nothing is applied.
    pub is_over: Option<String>,
    /// How many rows do not fit.
    pub wrong: Wrong,
}

/// How it is told for how many rows what was there does not fit with what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// As many as `egret_wrong` has.
    Rows,
    /// By an expression of what was counted, `removed` and `changed` among it, and of these aggregates of the rows of a common table
    /// expression.
    Counted {
        /// The aggregates with their names.
        list: &'static str,
        /// The common table expression.
        of: &'static str,
        /// The expression.
        wrong: &'static str,
    },
}

/// What changed, before rows that take each other away are brought together.
const RAW: &str = "egret_raw";

impl Delta<'_> {
    /// What changed, as an item of FROM; a common table expression is added where that is looked at twice.
    fn raw(&self, from: &str, with: &mut Vec<String>) -> String {
        match self.rows_max {
            None => format!("({from})"),
            Some(rows_max) => {
                with.push(format!("{RAW} AS MATERIALIZED {}", self.limited(from)));
                // Of too many nothing is applied: without the others they fit with nothing.
                format!("(SELECT * FROM {RAW} WHERE (SELECT count(*) FROM {RAW}) <= {rows_max})")
            }
        }
    }

    /// What changed, as a subquery: no more rows than show that there are too many.
    fn limited(&self, from: &str) -> String {
        match self.rows_max {
            None => format!("({from})"),
            Some(rows_max) => {
                let most = rows_max + 1;
                format!("(SELECT * FROM ({from}) AS egret_every LIMIT {most})")
            }
        }
    }

    /// Whether [`Delta::raw`] came to more rows than may be.
    fn is_raw_over(&self) -> Option<String> {
        let rows_max = self.rows_max?;
        Some(format!("(SELECT count(*) FROM {RAW}) > {rows_max}"))
    }
}

impl Statement {
    /// Its text, behind other common table expressions.
    pub fn sql(&self, before: &[String]) -> String {
        let with: Vec<&str> = before
            .iter()
            .chain(&self.with)
            .map(String::as_str)
            .collect();
        let counts = ["added", "changed", "removed"];
        let counts = counts.map(|name| format!("(SELECT count(*) FROM egret_{name}) AS {name}"));
        let with = with.join(", ");
        let counts = counts.join(", ");
        let wrong = |wrong: &str| match &self.is_over {
            None => wrong.to_owned(),
            Some(is_over) => format!("CASE WHEN {is_over} THEN -1::bigint ELSE {wrong} END"),
        };
        match self.wrong {
            Wrong::Rows => {
                let wrong = wrong("(SELECT count(*) FROM egret_wrong)");
                format!("WITH {with} SELECT {counts}, {wrong} AS wrong")
            }
            // Each is counted once.
            Wrong::Counted {
                list,
                of,
                wrong: told,
            } => {
                let wrong = wrong(told);
                format!(
                    "WITH {with} SELECT added, changed, removed, {wrong} AS wrong FROM (SELECT {counts}, {list} FROM {of}) AS egret_seen"
                )
            }
        }
    }
}

impl Table {
    /// The statements that make it.
    pub fn create(&self) -> Vec<String> {
        let columns = self.columns.iter();
        let list: Vec<String> = columns
            .map(|(name, kind)| format!("{} {kind}", quoted(name)))
            .collect();
        let mut all = vec![format!(
            "CREATE TABLE {} ({}) WITH (fillfactor = {FILLFACTOR})",
            self.name,
            list.join(", ")
        )];
        if !self.indexed.is_empty() {
            let names: Vec<String> = self.indexed.iter().map(|name| quoted(name)).collect();
            let (unique, nulls) = match self.is_unique {
                true => ("UNIQUE ", " NULLS NOT DISTINCT"),
                false => ("", ""),
            };
            let (name, names) = (&self.name, names.join(", "));
            all.push(format!("CREATE {unique}INDEX ON {name} ({names}){nulls}"));
        }
        if let Some(also) = &self.also_indexed {
            all.push(format!("CREATE INDEX ON {} ({also})", self.name));
        }
        if let Some(edge) = &self.edge {
            let list = columns_of_rows(&self.columns);
            let list = list.map(|(name, kind)| format!("{} {kind}", quoted(name)));
            let list: Vec<String> = list.collect();
            all.push(format!("CREATE TABLE {edge} ({})", list.join(", ")));
        }
        all
    }
}

impl Table {
    /// Null, of the type that a column of it has: one of a domain would not be had by a cast.
    fn null_of(&self, column: &str) -> String {
        format!("(NULL::{}).{column}", self.name)
    }
}

/// Those of a stage's columns that are of what it keeps.
fn columns_of_rows(all: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    all.iter().filter(|(name, _)| name != COUNT && name != HASH)
}

/// A column's type as a table is made with it.
pub fn declared(types: &Types, column: ColumnId) -> String {
    let found = &types[&column];
    match &found.collation {
        Some(collation) => format!("{} COLLATE {collation}", found.sql),
        None => found.sql.clone(),
    }
}

/// What makes two values of a column look different.
fn identity(types: &Types, column: ColumnId, name: &str) -> String {
    match types[&column].is_exact {
        true => name.to_owned(),
        false => format!("({name})::text COLLATE \"C\""),
    }
}

/// Pairs of values beyond which they are compared as rows: every condition has to be planned and begun.
const CONDITIONS_MAX: usize = 50;

/// Whether the values of all pairs are the same, two nulls among them.
fn are_same(pairs: &[(String, String)]) -> String {
    if pairs.len() > CONDITIONS_MAX {
        let row = |of: fn(&(String, String)) -> &str| {
            let values: Vec<&str> = pairs.iter().map(of).collect();
            format!("ROW({})::record", values.join(", "))
        };
        return format!("{} = {}", row(|pair| &pair.0), row(|pair| &pair.1));
    }
    let each = pairs
        .iter()
        .map(|(one, other)| format!("{one} IS NOT DISTINCT FROM {other}"));
    match pairs.is_empty() {
        true => "true".to_owned(),
        false => each.collect::<Vec<_>>().join(" AND "),
    }
}

/// Rows with their weights, each once: `from` is an item of FROM with the columns called as in a stage, and [`WEIGHT`].
fn consolidated(types: &Types, columns: &[ColumnId], from: &str) -> String {
    let once = once(types, columns, from, "");
    format!("{once} HAVING sum({WEIGHT}) <> 0")
}

/// Rows with their weights, each once, and in a column `rows` how many it was: those that took each other away are among them.
fn counted(types: &Types, columns: &[ColumnId], from: &str, rows: &str) -> String {
    let once = once(types, columns, from, &format!(", count(*) AS {rows}"));
    // Without a row there is no group.
    format!("{once} HAVING count(*) > 0")
}

fn once(types: &Types, columns: &[ColumnId], from: &str, others: &str) -> String {
    let mut list = Vec::new();
    let mut keys = Vec::new();
    for column in columns {
        let name = stage_column(*column);
        let identity = identity(types, *column, &name);
        match types[column].is_exact {
            true => list.push(name),
            false => list.push(format!("any_value({name}) AS {name}")),
        }
        keys.push(identity);
    }
    list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
    let group = match keys.is_empty() {
        true => String::new(),
        false => format!(" GROUP BY {}", keys.join(", ")),
    };
    format!(
        "SELECT {}{others} FROM {from} AS egret_all{group}",
        list.join(", ")
    )
}
