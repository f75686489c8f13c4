//! Stages of single rows.

use super::delta::{Delta, are_same, consolidated, counted};
use super::key::{HASH, Key};
use super::statement::{ConsistencyCheck, Statement};
use super::table::{COUNT, Table};
use crate::core::column_types::{Types, declared, identity};
use crate::core::expression::{ColumnId, stage_column};
use crate::core::sql::{WEIGHT, expecting};

/// For each key there is at most one added and one removed row, and a removed or changed row was
/// there.
const BY_KEY: ConsistencyCheck = ConsistencyCheck::Counted {
    list: "count(*) FILTER (WHERE is_odd) AS odd, count(*) FILTER (WHERE egret_kind = 2) AS went, \
           count(*) FILTER (WHERE egret_kind = 3) AS stayed",
    of: "egret_sided",
    wrong: "odd + abs(went - removed) + abs(stayed - changed)",
};

/// Column with the number of changes, before opposite ones are merged.
const ROWS: &str = "egret_rows";

/// A stage that stores single rows.
#[derive(Clone, Debug)]
pub struct RowStage {
    /// The columns that are stored.
    pub columns: Vec<ColumnId>,
    /// The key among these columns, if the rows have one.
    pub key: Option<Key>,
    /// The table that stores the rows.
    pub table: Table,
    /// Whether readers of the stage see each row once, whatever its count.
    pub is_once: bool,
}

impl RowStage {
    /// A stage with its table.
    pub fn new(
        name: &str,
        columns: &[ColumnId],
        key: Option<Vec<ColumnId>>,
        types: &Types,
    ) -> Self {
        let mut all: Vec<(String, String)> = columns
            .iter()
            .map(|id| (stage_column(*id), declared(types, *id)))
            .collect();
        let is_found = |id: &ColumnId| types[id].equality.is_some();
        let key = key.filter(|key| key.iter().all(is_found));
        let key = key.map(|key| Key::new(key, types));
        let (indexed, count) = match &key {
            Some(key) => {
                if key.is_hashed {
                    all.push((HASH.to_owned(), "bigint NOT NULL".to_owned()));
                }
                (key.indexed(), None)
            }
            None => {
                all.push((COUNT.to_owned(), "bigint NOT NULL".to_owned()));
                all.push((HASH.to_owned(), "bigint NOT NULL".to_owned()));
                (vec![HASH.to_owned()], Some(COUNT))
            }
        };
        Self {
            columns: columns.to_vec(),
            table: Table {
                name: name.to_owned(),
                columns: all,
                is_unique: key.as_ref().is_some_and(|key| !key.is_hashed),
                indexed,
                also_indexed: None,
                edge: None,
                count,
            },
            key,
            is_once: false,
        }
    }

    pub(super) fn list(&self, prefix: &str) -> String {
        let names = self.columns.iter();
        names
            .map(|id| format!("{prefix}{}", stage_column(*id)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Maintains the table. `from` is a SELECT of the changes.
    pub fn apply(&self, types: &Types, from: &str, delta: &Delta<'_>) -> Statement {
        match &self.key {
            Some(key) => self.by_key(types, key, from, delta),
            None => self.by_content(types, from, delta),
        }
    }

    /// The common table expression of the changes. `consolidated` has the columns of the stage, the
    /// weight and the columns that `others` has values for.
    fn delta(&self, consolidated: &str, others: &[&str], expected: u64) -> String {
        let columns = self.columns.iter().map(|id| stage_column(*id));
        let nulls = columns.map(|name| self.table.null_of(&name));
        let others = std::iter::once("0").chain(others.iter().copied());
        let nulls: Vec<String> = nulls.chain(others.map(str::to_owned)).collect();
        format!(
            "egret_delta AS ({consolidated}{})",
            expecting(expected, &nulls)
        )
    }

    fn told(&self, sink: &str, condition: &str) -> String {
        let list = self.list("");
        format!(
            "egret_told AS (INSERT INTO {sink} ({list}, {WEIGHT}) SELECT {list}, {WEIGHT} FROM egret_delta{condition})"
        )
    }

    /// Groups the changes by key, in one pass and without a join: an added and a removed row of one
    /// key are an update. If their number is limited, they are counted in the same pass, which then
    /// keeps rows that cancel out, with kind 0.
    fn by_key(&self, types: &Types, key: &Key, from: &str, delta: &Delta<'_>) -> Statement {
        let list = self.list("");
        let limited = delta.limited(from);
        let is_counted = delta.rows_max.is_some();
        let consolidated = match (delta.is_consolidated, is_counted) {
            (true, true) => {
                format!("SELECT {list}, {WEIGHT}, 1 AS {ROWS} FROM {limited} AS egret_all")
            }
            (true, false) => format!("SELECT {list}, {WEIGHT} FROM {limited} AS egret_all"),
            (false, true) => counted(types, &self.columns, &limited, ROWS),
            (false, false) => consolidated(types, &self.columns, &limited),
        };
        let others: &[&str] = if is_counted { &["0"] } else { &[] };
        let mut with = vec![self.delta(&consolidated, others, delta.expected)];
        let sided = self.sided(types, key, delta);
        with.push(format!("egret_sided AS MATERIALIZED ({sided})"));
        let within = match delta.rows_max {
            Some(rows_max) => {
                with.push(format!(
                    "egret_counted AS (SELECT coalesce(sum({ROWS}), 0) > {rows_max} AS is_over FROM egret_sided)"
                ));
                " AND NOT (SELECT is_over FROM egret_counted)"
            }
            None => "",
        };
        with.extend(self.writes(types, key, within));
        if let Some(sink) = delta.sink {
            with.push(self.told(sink, &format!(" WHERE {WEIGHT} <> 0{within}")));
        }
        Statement {
            with,
            is_over: is_counted.then(|| "(SELECT is_over FROM egret_counted)".to_owned()),
            wrong: BY_KEY,
        }
    }

    /// The DELETE, UPDATE and INSERT of the changes by key, under a further condition.
    fn writes(&self, types: &Types, key: &Key, within: &str) -> [String; 3] {
        let table = &self.table.name;
        let list = self.list("");
        let same = key.same(types, "s", "d");
        let is_set = |id: &&ColumnId| !key.columns.contains(id) || !types[*id].is_exact;
        let others = self.columns.iter().filter(is_set);
        let set: Vec<String> = others
            .map(|id| format!("{name} = d.{name}", name = stage_column(*id)))
            .collect();
        let changed = if set.is_empty() {
            "SELECT WHERE false".to_owned()
        } else {
            format!(
                "UPDATE {table} AS s SET {} FROM egret_sided AS d WHERE d.egret_kind = 3 AND {same}{within} RETURNING 1",
                set.join(", "),
            )
        };
        let hash = key
            .is_hashed
            .then_some(HASH)
            .map(|name| format!(", {name}"))
            .unwrap_or_default();
        [
            format!(
                "egret_removed AS (DELETE FROM {table} AS s USING egret_sided AS d WHERE d.egret_kind = 2 AND {same}{within} RETURNING 1)"
            ),
            format!("egret_changed AS ({changed})"),
            format!(
                "egret_added AS (INSERT INTO {table} ({list}{hash}) SELECT {list}{hash} FROM egret_sided WHERE egret_kind = 1{within} RETURNING 1)"
            ),
        ]
    }

    /// A row for each key with changes, with its new values. Its kind is 1 if a row was added, 2 if
    /// one was removed, and 3 if both: the planner expects few rows of one kind, and looks them up
    /// by their keys.
    fn sided(&self, types: &Types, key: &Key, delta: &Delta<'_>) -> String {
        let came = format!("FILTER (WHERE d.{WEIGHT} > 0)");
        let went = format!("FILTER (WHERE d.{WEIGHT} < 0)");
        let mut list: Vec<String> = self
            .columns
            .iter()
            .map(|id| {
                let name = stage_column(*id);
                match (key.columns.contains(id), types[id].is_exact) {
                    (true, true) => format!("d.{name}"),
                    (true, false) => {
                        format!("coalesce(any_value(d.{name}) {came}, d.{name}) AS {name}")
                    }
                    (false, _) => format!("any_value(d.{name}) {came} AS {name}"),
                }
            })
            .collect();
        if key.is_hashed {
            list.push(format!("{} AS {HASH}", key.hash("d")));
        }
        let mut nulls: Vec<String> = (self.columns.iter())
            .map(|id| self.table.null_of(&stage_column(*id)))
            .collect();
        nulls.extend(key.is_hashed.then(|| "NULL".to_owned()));
        nulls.extend(["0", "false"].map(str::to_owned));
        let rows = match delta.rows_max {
            Some(_) => {
                nulls.push("0".to_owned());
                format!(", sum(d.{ROWS}) AS {ROWS}")
            }
            None => String::new(),
        };
        let group = if key.columns.is_empty() {
            "HAVING count(*) > 0".to_owned()
        } else {
            let names = key.names();
            let names: Vec<String> = names.iter().map(|name| format!("d.{name}")).collect();
            format!("GROUP BY {}", names.join(", "))
        };
        format!(
            "SELECT {}, (count(*) {came} > 0)::integer + 2 * (count(*) {went} > 0)::integer AS egret_kind, \
             count(*) {came} > 1 OR count(*) {went} > 1 OR max(abs(d.{WEIGHT})) > 1 AS is_odd{rows} FROM egret_delta AS d {group}{}",
            list.join(", "),
            expecting(delta.expected, &nulls),
        )
    }

    /// Finds each changed row by a hash of all its columns.
    fn by_content(&self, types: &Types, from: &str, delta: &Delta<'_>) -> Statement {
        let mut with = Vec::new();
        let raw = delta.raw(from, &mut with);
        let consolidated = if delta.is_consolidated {
            format!("SELECT {}, {WEIGHT} FROM {raw} AS egret_all", self.list(""))
        } else {
            consolidated(types, &self.columns, &raw)
        };
        with.push(self.delta(&consolidated, &[], delta.expected));
        let table = &self.table.name;
        let hash = self.hash(types, "d.");
        let same = self.same(types);
        with.push(format!(
            "egret_hashed AS MATERIALIZED (SELECT d.*, {hash} AS {HASH} FROM egret_delta AS d), \
             egret_joined AS MATERIALIZED (SELECT d.*, s.ctid AS egret_place, coalesce(s.{COUNT}, 0) + d.{WEIGHT} AS {COUNT} \
             FROM egret_hashed AS d LEFT JOIN {table} AS s ON s.{HASH} = d.{HASH} AND {same}), \
             egret_removed AS (DELETE FROM {table} AS s USING egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT} = 0 RETURNING 1), \
             egret_recounted AS (UPDATE {table} AS s SET {COUNT} = j.{COUNT} FROM egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT} > 0 RETURNING 1), \
             egret_added AS (INSERT INTO {table} ({list}, {COUNT}, {HASH}) SELECT {list}, {COUNT}, {HASH} FROM egret_joined WHERE egret_place IS NULL AND {COUNT} > 0 RETURNING 1), \
             egret_changed AS (SELECT FROM egret_recounted{seen}), \
             egret_wrong AS (SELECT FROM egret_joined WHERE {COUNT} < 0)",
            list = self.list(""),
            seen = if self.is_once { " WHERE false" } else { "" },
        ));
        with.extend(delta.sink.map(|sink| {
            if self.is_once {
                self.told_once(sink)
            } else {
                self.told(sink, "")
            }
        }));
        Statement {
            with,
            is_over: delta.is_raw_over(),
            wrong: ConsistencyCheck::Rows,
        }
    }

    /// Writes rows that appeared and rows that disappeared to the sink, each once.
    fn told_once(&self, sink: &str) -> String {
        let list = self.list("");
        format!(
            "egret_told AS (INSERT INTO {sink} ({list}, {WEIGHT}) \
             SELECT {list}, CASE WHEN egret_place IS NULL THEN 1 ELSE -1 END FROM egret_joined \
             WHERE CASE WHEN egret_place IS NULL THEN {COUNT} > 0 ELSE {COUNT} = 0 END)"
        )
    }

    /// Condition that a row `s` of the table looks like a row `d`.
    pub(super) fn same(&self, types: &Types) -> String {
        let pairs = self.columns.iter().map(|id| {
            let name = stage_column(*id);
            let of = |row: &str| identity(types, *id, &format!("{row}.{name}"));
            (of("s"), of("d"))
        });
        are_same(&pairs.collect::<Vec<_>>())
    }

    pub(super) fn hash(&self, types: &Types, prefix: &str) -> String {
        let each = self.columns.iter().map(|id| {
            let name = format!("{prefix}{}", stage_column(*id));
            identity(types, *id, &name)
        });
        format!(
            "hashtextextended(ROW({})::text, 0)",
            each.collect::<Vec<_>>().join(", ")
        )
    }

    /// Makes the table equal to `now`, a SELECT of all rows, whatever it contains.
    pub fn rebuild(&self, types: &Types, now: &str, sink: Option<&str>) -> Statement {
        let (list, table) = (self.list(""), &self.table.name);
        let count = self.table.count.unwrap_or("1");
        let from = format!("{now} UNION ALL SELECT {list}, -{count} FROM {table}");
        let delta = Delta {
            sink,
            ..Delta::default()
        };
        self.apply(types, &from, &delta)
    }
}
