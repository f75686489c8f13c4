//! Stages of single rows.

use super::delta::{Delta, same_values_condition, select_consolidated, select_counted};
use super::key::{HASH_COLUMN, Key};
use super::statement::{ConsistencyCheck, Statement};
use super::table::{COUNT_COLUMN, Table};
use crate::core::column_types::{Types, declared_type, identity_sql};
use crate::core::expression::{ColumnId, stage_column_name};
use crate::core::sql::{WEIGHT, planner_padding};

/// For each key there is at most one added and one removed row, and a removed or changed row was
/// there.
const KEYED_CHECK: ConsistencyCheck = ConsistencyCheck::Counted {
    aggregates: "count(*) FILTER (WHERE is_odd) AS odd, count(*) FILTER (WHERE egret_kind = 2) AS went, \
           count(*) FILTER (WHERE egret_kind = 3) AS stayed",
    cte: "egret_sided",
    expression: "odd + abs(went - removed) + abs(stayed - changed)",
};

/// Column with the number of changes, before opposite ones are merged.
const ROWS_COLUMN: &str = "egret_rows";

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
    pub shows_rows_once: bool,
}

impl RowStage {
    /// A stage with its table.
    pub fn new(
        name: &str,
        columns: &[ColumnId],
        key: Option<Vec<ColumnId>>,
        types: &Types,
    ) -> Self {
        let mut table_columns: Vec<(String, String)> =
            columns.iter().map(|id| (stage_column_name(*id), declared_type(types, *id))).collect();
        let has_equality = |id: &ColumnId| types[id].equality.is_some();
        let key = key.filter(|key| key.iter().all(has_equality));
        let key = key.map(|key| Key::new(key, types));
        let (indexed, count) = match &key {
            Some(key) => {
                if key.is_hashed {
                    table_columns.push((HASH_COLUMN.to_owned(), "bigint NOT NULL".to_owned()));
                }
                (key.index_columns(), None)
            }
            None => {
                table_columns.push((COUNT_COLUMN.to_owned(), "bigint NOT NULL".to_owned()));
                table_columns.push((HASH_COLUMN.to_owned(), "bigint NOT NULL".to_owned()));
                (vec![HASH_COLUMN.to_owned()], Some(COUNT_COLUMN))
            }
        };
        Self {
            columns: columns.to_vec(),
            table: Table {
                name: name.to_owned(),
                columns: table_columns,
                is_unique: key.as_ref().is_some_and(|key| !key.is_hashed),
                index_columns: indexed,
                second_index: None,
                edge_table: None,
                count_column: count,
            },
            key,
            shows_rows_once: false,
        }
    }

    pub(super) fn column_list(&self, prefix: &str) -> String {
        let names = self.columns.iter();
        names.map(|id| format!("{prefix}{}", stage_column_name(*id))).collect::<Vec<_>>().join(", ")
    }

    /// Maintains the table. `from` is a SELECT of the changes.
    pub fn apply(&self, types: &Types, from: &str, delta: &Delta<'_>) -> Statement {
        match &self.key {
            Some(key) => self.apply_by_key(types, key, from, delta),
            None => self.apply_by_content(types, from, delta),
        }
    }

    /// The common table expression of the changes. `consolidated` has the columns of the stage, the
    /// weight and the columns that `extra_values` has values for.
    fn delta_cte(&self, consolidated: &str, extra_values: &[&str], expected: u64) -> String {
        let columns = self.columns.iter().map(|id| stage_column_name(*id));
        let nulls = columns.map(|name| self.table.typed_null(&name));
        let extra_nulls = std::iter::once("0").chain(extra_values.iter().copied());
        let nulls: Vec<String> = nulls.chain(extra_nulls.map(str::to_owned)).collect();
        format!("egret_delta AS ({consolidated}{})", planner_padding(expected, &nulls))
    }

    fn write_sink(&self, sink: &str, condition: &str) -> String {
        let list = self.column_list("");
        format!(
            "egret_told AS (INSERT INTO {sink} ({list}, {WEIGHT}) SELECT {list}, {WEIGHT} FROM egret_delta{condition})"
        )
    }

    /// Groups the changes by key, in one pass and without a join: an added and a removed row of one
    /// key are an update. If their number is limited, they are counted in the same pass, which then
    /// keeps rows that cancel out, with kind 0.
    fn apply_by_key(&self, types: &Types, key: &Key, from: &str, delta: &Delta<'_>) -> Statement {
        let list = self.column_list("");
        let limited = delta.limit_rows(from);
        let is_counted = delta.rows_max.is_some();
        let consolidated = match (delta.is_consolidated, is_counted) {
            (true, true) => {
                format!("SELECT {list}, {WEIGHT}, 1 AS {ROWS_COLUMN} FROM {limited} AS egret_all")
            }
            (true, false) => format!("SELECT {list}, {WEIGHT} FROM {limited} AS egret_all"),
            (false, true) => select_counted(types, &self.columns, &limited, ROWS_COLUMN),
            (false, false) => select_consolidated(types, &self.columns, &limited),
        };
        let extra_values: &[&str] = if is_counted { &["0"] } else { &[] };
        let mut ctes = vec![self.delta_cte(&consolidated, extra_values, delta.expected)];
        let key_changes = self.select_key_changes(types, key, delta);
        ctes.push(format!("egret_sided AS MATERIALIZED ({key_changes})"));
        let limit_condition = match delta.rows_max {
            Some(rows_max) => {
                ctes.push(format!(
                    "egret_counted AS (SELECT coalesce(sum({ROWS_COLUMN}), 0) > {rows_max} AS is_over FROM egret_sided)"
                ));
                " AND NOT (SELECT is_over FROM egret_counted)"
            }
            None => "",
        };
        ctes.extend(self.table_writes(types, key, limit_condition));
        if let Some(sink) = delta.sink {
            ctes.push(self.write_sink(sink, &format!(" WHERE {WEIGHT} <> 0{limit_condition}")));
        }
        Statement {
            ctes,
            too_many_condition: is_counted
                .then(|| "(SELECT is_over FROM egret_counted)".to_owned()),
            consistency_check: KEYED_CHECK,
        }
    }

    /// The DELETE, UPDATE and INSERT of the changes by key, under a further condition.
    fn table_writes(&self, types: &Types, key: &Key, limit_condition: &str) -> [String; 3] {
        let table = &self.table.name;
        let list = self.column_list("");
        let same_key = key.same_key_condition(types, "s", "d");
        let is_updated = |id: &&ColumnId| !key.columns.contains(id) || !types[*id].is_exact;
        let updated_columns = self.columns.iter().filter(is_updated);
        let assignments: Vec<String> = updated_columns
            .map(|id| format!("{name} = d.{name}", name = stage_column_name(*id)))
            .collect();
        let changed = if assignments.is_empty() {
            "SELECT WHERE false".to_owned()
        } else {
            format!(
                "UPDATE {table} AS s SET {} FROM egret_sided AS d WHERE d.egret_kind = 3 AND {same_key}{limit_condition} RETURNING 1",
                assignments.join(", "),
            )
        };
        let hash = key
            .is_hashed
            .then_some(HASH_COLUMN)
            .map(|name| format!(", {name}"))
            .unwrap_or_default();
        [
            format!(
                "egret_removed AS (DELETE FROM {table} AS s USING egret_sided AS d WHERE d.egret_kind = 2 AND {same_key}{limit_condition} RETURNING 1)"
            ),
            format!("egret_changed AS ({changed})"),
            format!(
                "egret_added AS (INSERT INTO {table} ({list}{hash}) SELECT {list}{hash} FROM egret_sided WHERE egret_kind = 1{limit_condition} RETURNING 1)"
            ),
        ]
    }

    /// A row for each key with changes, with its new values. Its kind is 1 if a row was added, 2 if
    /// one was removed, and 3 if both: the planner expects few rows of one kind, and looks them up
    /// by their keys.
    fn select_key_changes(&self, types: &Types, key: &Key, delta: &Delta<'_>) -> String {
        let added_filter = format!("FILTER (WHERE d.{WEIGHT} > 0)");
        let removed_filter = format!("FILTER (WHERE d.{WEIGHT} < 0)");
        let mut list: Vec<String> = self
            .columns
            .iter()
            .map(|id| {
                let name = stage_column_name(*id);
                match (key.columns.contains(id), types[id].is_exact) {
                    (true, true) => format!("d.{name}"),
                    (true, false) => {
                        format!("coalesce(any_value(d.{name}) {added_filter}, d.{name}) AS {name}")
                    }
                    (false, _) => format!("any_value(d.{name}) {added_filter} AS {name}"),
                }
            })
            .collect();
        if key.is_hashed {
            list.push(format!("{} AS {HASH_COLUMN}", key.hash_sql("d")));
        }
        let mut nulls: Vec<String> = (self.columns.iter())
            .map(|id| self.table.typed_null(&stage_column_name(*id)))
            .collect();
        nulls.extend(key.is_hashed.then(|| "NULL".to_owned()));
        nulls.extend(["0", "false"].map(str::to_owned));
        let rows = match delta.rows_max {
            Some(_) => {
                nulls.push("0".to_owned());
                format!(", sum(d.{ROWS_COLUMN}) AS {ROWS_COLUMN}")
            }
            None => String::new(),
        };
        let group = if key.columns.is_empty() {
            "HAVING count(*) > 0".to_owned()
        } else {
            let names = key.column_names();
            let names: Vec<String> = names.iter().map(|name| format!("d.{name}")).collect();
            format!("GROUP BY {}", names.join(", "))
        };
        format!(
            "SELECT {}, (count(*) {added_filter} > 0)::integer + 2 * (count(*) {removed_filter} > 0)::integer AS egret_kind, \
             count(*) {added_filter} > 1 OR count(*) {removed_filter} > 1 OR max(abs(d.{WEIGHT})) > 1 AS is_odd{rows} FROM egret_delta AS d {group}{}",
            list.join(", "),
            planner_padding(delta.expected, &nulls),
        )
    }

    /// Finds each changed row by a hash of all its columns.
    fn apply_by_content(&self, types: &Types, from: &str, delta: &Delta<'_>) -> Statement {
        let mut ctes = Vec::new();
        let raw = delta.raw_changes(from, &mut ctes);
        let consolidated = if delta.is_consolidated {
            format!("SELECT {}, {WEIGHT} FROM {raw} AS egret_all", self.column_list(""))
        } else {
            select_consolidated(types, &self.columns, &raw)
        };
        ctes.push(self.delta_cte(&consolidated, &[], delta.expected));
        let table = &self.table.name;
        let hash = self.hash_sql(types, "d.");
        let same_row = self.same_row_condition(types);
        ctes.push(format!(
            "egret_hashed AS MATERIALIZED (SELECT d.*, {hash} AS {HASH_COLUMN} FROM egret_delta AS d), \
             egret_joined AS MATERIALIZED (SELECT d.*, s.ctid AS egret_place, coalesce(s.{COUNT_COLUMN}, 0) + d.{WEIGHT} AS {COUNT_COLUMN} \
             FROM egret_hashed AS d LEFT JOIN {table} AS s ON s.{HASH_COLUMN} = d.{HASH_COLUMN} AND {same_row}), \
             egret_removed AS (DELETE FROM {table} AS s USING egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT_COLUMN} = 0 RETURNING 1), \
             egret_recounted AS (UPDATE {table} AS s SET {COUNT_COLUMN} = j.{COUNT_COLUMN} FROM egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT_COLUMN} > 0 RETURNING 1), \
             egret_added AS (INSERT INTO {table} ({list}, {COUNT_COLUMN}, {HASH_COLUMN}) SELECT {list}, {COUNT_COLUMN}, {HASH_COLUMN} FROM egret_joined WHERE egret_place IS NULL AND {COUNT_COLUMN} > 0 RETURNING 1), \
             egret_changed AS (SELECT FROM egret_recounted{seen}), \
             egret_wrong AS (SELECT FROM egret_joined WHERE {COUNT_COLUMN} < 0)",
            list = self.column_list(""),
            seen = if self.shows_rows_once { " WHERE false" } else { "" },
        ));
        ctes.extend(delta.sink.map(|sink| {
            if self.shows_rows_once {
                self.write_sink_once(sink)
            } else {
                self.write_sink(sink, "")
            }
        }));
        Statement {
            ctes,
            too_many_condition: delta.too_many_condition(),
            consistency_check: ConsistencyCheck::Rows,
        }
    }

    /// Writes rows that appeared and rows that disappeared to the sink, each once.
    fn write_sink_once(&self, sink: &str) -> String {
        let list = self.column_list("");
        format!(
            "egret_told AS (INSERT INTO {sink} ({list}, {WEIGHT}) \
             SELECT {list}, CASE WHEN egret_place IS NULL THEN 1 ELSE -1 END FROM egret_joined \
             WHERE CASE WHEN egret_place IS NULL THEN {COUNT_COLUMN} > 0 ELSE {COUNT_COLUMN} = 0 END)"
        )
    }

    /// Condition that a row `s` of the table looks like a row `d`.
    pub(super) fn same_row_condition(&self, types: &Types) -> String {
        let pairs = self.columns.iter().map(|id| {
            let name = stage_column_name(*id);
            let column_identity = |row: &str| identity_sql(types, *id, &format!("{row}.{name}"));
            (column_identity("s"), column_identity("d"))
        });
        same_values_condition(&pairs.collect::<Vec<_>>())
    }

    pub(super) fn hash_sql(&self, types: &Types, prefix: &str) -> String {
        let columns = self.columns.iter().map(|id| {
            let name = format!("{prefix}{}", stage_column_name(*id));
            identity_sql(types, *id, &name)
        });
        format!("hashtextextended(ROW({})::text, 0)", columns.collect::<Vec<_>>().join(", "))
    }

    /// Makes the table equal to `new_rows`, a SELECT of all rows, whatever it contains.
    pub fn rebuild(&self, types: &Types, new_rows: &str, sink: Option<&str>) -> Statement {
        let (list, table) = (self.column_list(""), &self.table.name);
        let count = self.table.count_column.unwrap_or("1");
        let from = format!("{new_rows} UNION ALL SELECT {list}, -{count} FROM {table}");
        let delta = Delta { sink, ..Delta::default() };
        self.apply(types, &from, &delta)
    }
}
