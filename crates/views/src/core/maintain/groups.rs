//! Stages of groups.
//!
//! Counts, sums and averages are maintained by changes. Besides what users see, a group has the
//! number of its rows, and for each sum the sum and the number of its values, so that it is null
//! without values. Minimum and maximum are maintained as long as no value is removed that may be
//! the extremum. All other aggregates are recomputed, for the groups with changes only.

mod recomputation;

use super::aggregates::{
    AggregateMaintenance, Extremum, RowMultiplicity, added_extremum_column, counted_value,
    removed_extremum_column, summed_value,
};
use super::delta::Delta;
use super::key::{HASH_COLUMN, Key};
use super::statement::{ConsistencyCheck, Statement};
use super::table::{COUNT_COLUMN, Table};
use crate::core::column_types::{Types, declared_type};
use crate::core::expression::{ColumnId, Expression, stage_column_name};
use crate::core::sql::{Block, WEIGHT, planner_padding};
use crate::core::tree::Aggregate;

/// Aggregates that return one of their values, or count.
const CHOOSING_AGGREGATES: [&str; 9] =
    ["min", "max", "count", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor"];

/// Aggregates that add: over floating-point numbers, the result depends on the order of rows.
const ADDING_AGGREGATES: [&str; 8] =
    ["sum", "avg", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"];

/// Which groups are recomputed from their rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecomputeScope {
    Never,
    /// Those from which a value was removed that may have been the extremum.
    RemovedExtrema,
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
    is_key_inexact: bool,
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
            .map(|(id, _)| (stage_column_name(*id), declared_type(types, *id)))
            .collect();
        for (aggregate, _) in &aggregates {
            let id = aggregate.column;
            columns.push((stage_column_name(id), declared_type(types, id)));
        }
        columns.push((COUNT_COLUMN.to_owned(), "bigint NOT NULL".to_owned()));
        for (aggregate, maintenance) in &aggregates {
            if *maintenance != AggregateMaintenance::Count {
                let maintained = maintenance.columns(aggregate.column).into_iter();
                columns.extend(maintained.map(|(name, kind)| (name, kind.to_owned())));
            }
        }
        let key = Key::new(keys.iter().map(|(id, _)| *id).collect(), types);
        if key.is_hashed {
            columns.push((HASH_COLUMN.to_owned(), "bigint NOT NULL".to_owned()));
        }
        Self {
            is_key_inexact: keys.iter().any(|(id, _)| !types[id].is_exact),
            keys,
            aggregates,
            table: Table {
                name: name.to_owned(),
                columns,
                is_unique: !key.is_hashed,
                index_columns: key.index_columns(),
                second_index: None,
                edge_table: None,
                count_column: None,
            },
            key,
        }
    }

    /// The columns that later stages see: keys and aggregates.
    pub fn columns(&self) -> Vec<ColumnId> {
        let keys = self.keys.iter().map(|(id, _)| *id);
        let aggregates = self.aggregates.iter().map(|(aggregate, _)| aggregate.column);
        keys.chain(aggregates).collect()
    }

    fn visible_columns(&self) -> Vec<String> {
        self.columns().into_iter().map(stage_column_name).collect()
    }

    /// Whether rows are only counted, or columns summed, without any other computation.
    pub(crate) fn has_plain_terms(&self) -> bool {
        let is_plain = |expression: &Expression| expression.as_column().is_some();
        let mut keys = self.keys.iter();
        let mut aggregates = self.aggregates.iter();
        !self.may_recompute()
            && keys.all(|(_, key)| is_plain(key))
            && aggregates.all(|(aggregate, _)| {
                aggregate.filter.is_none() && aggregate.argument.as_ref().is_none_or(is_plain)
            })
    }

    /// Whether results do not depend on the order of rows.
    pub(crate) fn are_reproducible(&self, types: &Types) -> bool {
        let is_floating = |kind: &str| kind == "real" || kind == "double precision";
        self.aggregates.iter().all(|(aggregate, maintenance)| {
            let function = aggregate.function.as_deref().unwrap_or_default();
            *maintenance != AggregateMaintenance::Recomputed
                || CHOOSING_AGGREGATES.contains(&function)
                || ADDING_AGGREGATES.contains(&function)
                    && !is_floating(&types[&aggregate.column].sql)
        })
    }

    /// Whether the refresh may have to read all rows of groups with changes.
    pub(crate) fn may_recompute(&self) -> bool {
        let mut aggregates = self.aggregates.iter();
        self.always_recomputes()
            || aggregates.any(|(_, maintenance)| maintenance.extremum().is_some())
    }

    /// Whether all groups with changes are recomputed.
    fn always_recomputes(&self) -> bool {
        let mut aggregates = self.aggregates.iter();
        self.is_key_inexact
            || aggregates.any(|(_, maintenance)| *maintenance == AggregateMaintenance::Recomputed)
    }

    /// The aggregates that are recomputed when the extremum may have been removed.
    fn extrema(&self) -> impl Iterator<Item = (ColumnId, Extremum)> {
        let aggregates = self.aggregates.iter();
        aggregates.filter_map(|(aggregate, maintenance)| {
            Some((aggregate.column, maintenance.extremum()?))
        })
    }

    /// The columns that are needed of each row: keys, and the arguments of maintained aggregates,
    /// null where a row does not count.
    fn select_terms(&self, blocks: &[Block]) -> String {
        let selects = blocks.iter().map(|block| {
            let names = block.names();
            let keys = self.keys.iter();
            let mut list: Vec<String> = keys
                .map(|(id, key)| format!("{} AS {}", key.to_sql(names), stage_column_name(*id)))
                .collect();
            for (aggregate, maintenance) in &self.aggregates {
                let value = match maintenance {
                    AggregateMaintenance::Recomputed => continue,
                    AggregateMaintenance::Count => counted_value(aggregate, names),
                    _ => summed_value(aggregate, names),
                };
                list.push(format!("{value} AS {}", stage_column_name(aggregate.column)));
            }
            // Values are multiplied by the weight: no integer may overflow.
            list.push(format!("({})::bigint AS {WEIGHT}", block.weight()));
            block.select(&list)
        });
        selects.collect::<Vec<_>>().join(" UNION ALL ")
    }

    /// The changes by group; groups without changes are left out. With `includes_extrema`, the
    /// extrema of added and of removed values are included.
    fn select_group_changes(
        &self,
        changes: &[Block],
        delta: &Delta<'_>,
        includes_extrema: bool,
        ctes: &mut Vec<String>,
    ) -> String {
        let key_names = self.key.column_names();
        // A value, its name, and the column of the table whose type it has.
        let key_entry = |name: &String| (name.clone(), name.clone(), name.clone());
        let mut list: Vec<_> = key_names.iter().map(key_entry).collect();
        let mut add = |value: String, name: String| list.push((value, name.clone(), name));
        if self.key.is_hashed {
            add(self.key.hash_sql("egret_all"), HASH_COLUMN.to_owned());
        }
        let multiplicity = if changes.iter().any(Block::is_weighted) {
            RowMultiplicity::Weighted
        } else {
            RowMultiplicity::Once
        };
        add(multiplicity.count_rows(), COUNT_COLUMN.to_owned());
        let mut change_conditions = vec![format!("{} <> 0", multiplicity.count_rows())];
        for (aggregate, maintenance) in &self.aggregates {
            let name = stage_column_name(aggregate.column);
            let columns = maintenance.columns(aggregate.column).into_iter();
            let values = maintenance.row_aggregates(aggregate.column, &name, multiplicity);
            for ((column, _), value) in columns.zip(values) {
                change_conditions.push(format!("{value} <> 0"));
                add(value, column);
            }
        }
        for (id, extremum) in self.extrema().filter(|_| includes_extrema) {
            let name = stage_column_name(id);
            for (moved, sign) in
                [(added_extremum_column(id), ">"), (removed_extremum_column(id), "<")]
            {
                let value =
                    format!("{}({name}) FILTER (WHERE {WEIGHT} {sign} 0)", extremum.function());
                list.push((value, moved, name.clone()));
            }
        }
        let mut rows = self.select_terms(changes);
        if !self.has_plain_terms() {
            // OFFSET 0 has each expression evaluated once, however often it is used.
            rows.push_str(" OFFSET 0");
        }
        let rows = delta.raw_changes(&rows, ctes);
        let group = if key_names.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {}", key_names.join(", "))
        };
        let nulls = list.iter().map(|(.., like)| self.table.typed_null(like));
        let nulls: Vec<String> = nulls.collect();
        let having = if self.may_recompute() || key_names.is_empty() {
            String::new()
        } else {
            format!(" HAVING {}", change_conditions.join(" OR "))
        };
        format!(
            "SELECT {} FROM {rows} AS egret_all{group}{having}{}",
            list.iter()
                .map(|(value, name, _)| format!("{value} AS {name}"))
                .collect::<Vec<_>>()
                .join(", "),
            planner_padding(delta.expected, &nulls)
        )
    }

    /// Maintains the table. `changes` are those of the rows, `current_rows` the current rows.
    pub fn apply(
        &self,
        types: &Types,
        changes: &[Block],
        current_rows: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let mut ctes = Vec::new();
        let scope = match (self.always_recomputes(), self.may_recompute()) {
            (true, _) => RecomputeScope::Always,
            (false, true) => RecomputeScope::RemovedExtrema,
            (false, false) => RecomputeScope::Never,
        };
        let includes_extrema = scope == RecomputeScope::RemovedExtrema;
        let group_changes = self.select_group_changes(changes, delta, includes_extrema, &mut ctes);
        ctes.push(format!("egret_delta AS MATERIALIZED ({group_changes})"));
        Statement {
            ctes: self.write_ctes(types, ctes, current_rows, delta.sink, scope),
            too_many_condition: delta.too_many_condition(),
            consistency_check: ConsistencyCheck::Rows,
        }
    }

    /// The common table expressions that write the table, after those of the changes.
    fn write_ctes(
        &self,
        types: &Types,
        mut ctes: Vec<String>,
        current_rows: &[Block],
        sink: Option<&str>,
        scope: RecomputeScope,
    ) -> Vec<String> {
        let table = &self.table.name;
        let mut sources = format!(
            "egret_delta AS d LEFT JOIN {table} AS s ON {}",
            self.key.same_key_condition(types, "s", "d")
        );
        if scope == RecomputeScope::RemovedExtrema {
            ctes.push(format!(
                "egret_at_end AS MATERIALIZED ({})",
                self.select_groups_without_extremum(types)
            ));
        }
        if scope != RecomputeScope::Never {
            ctes.push(format!(
                "egret_asked AS MATERIALIZED ({})",
                self.select_recomputed_groups(types, current_rows, scope)
            ));
            sources.push_str(&format!(
                " LEFT JOIN egret_asked AS a ON {}",
                self.key.same_key_condition(types, "a", "d")
            ));
        }
        ctes.push(format!(
            "egret_joined AS MATERIALIZED ({})",
            self.select_joined(&sources, scope)
        ));
        ctes.extend(self.table_writes());
        let visible = self.visible_columns().join(", ");
        if let Some(sink) = sink {
            let old_columns: Vec<String> =
                self.visible_columns().iter().map(|name| format!("egret_old_{name}")).collect();
            let before = old_columns.join(", ");
            ctes.push(format!(
                "egret_told AS (INSERT INTO {sink} ({visible}, {WEIGHT}) \
                 SELECT {before}, -1 FROM egret_joined WHERE egret_place IS NOT NULL AND egret_differs \
                 UNION ALL SELECT {visible}, 1 FROM egret_joined WHERE {} AND egret_differs)",
                self.remains_condition()
            ));
        }
        ctes
    }

    /// Which groups are recomputed in a rebuild.
    fn rebuild_scope(&self) -> RecomputeScope {
        if self.may_recompute() { RecomputeScope::Always } else { RecomputeScope::Never }
    }

    /// Condition that a group remains; the only group without keys always does.
    fn remains_condition(&self) -> String {
        if self.keys.is_empty() { "true".to_owned() } else { format!("{COUNT_COLUMN} > 0") }
    }

    fn table_writes(&self) -> Vec<String> {
        let table = &self.table.name;
        let names: Vec<&String> = self.table.columns.iter().map(|(name, _)| name).collect();
        let keys = if self.is_key_inexact { 0 } else { self.keys.len() };
        let assignments: Vec<String> =
            names[keys..].iter().map(|name| format!("{name} = j.{name}")).collect();
        let columns: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let (all, remains) = (columns.join(", "), self.remains_condition());
        let removed = if self.keys.is_empty() {
            "SELECT WHERE false".to_owned()
        } else {
            format!(
                "DELETE FROM {table} AS s USING egret_joined AS j WHERE s.ctid = j.egret_place AND j.{COUNT_COLUMN} <= 0 RETURNING 1"
            )
        };
        vec![
            format!("egret_removed AS ({removed})"),
            format!(
                "egret_changed AS (UPDATE {table} AS s SET {} FROM egret_joined AS j WHERE s.ctid = j.egret_place AND (j.egret_differs OR j.egret_moves) AND {} RETURNING 1)",
                assignments.join(", "),
                remains.replace(COUNT_COLUMN, &format!("j.{COUNT_COLUMN}")),
            ),
            format!(
                "egret_added AS (INSERT INTO {table} ({all}) SELECT {all} FROM egret_joined WHERE egret_place IS NULL AND {remains} RETURNING 1)"
            ),
            format!("egret_wrong AS (SELECT FROM egret_joined WHERE {COUNT_COLUMN} < 0)"),
        ]
    }

    /// Makes the table equal to the groups of `current_rows`, whatever it contains: recomputes
    /// every group.
    pub fn rebuild(&self, types: &Types, current_rows: &[Block], sink: Option<&str>) -> Statement {
        let mut ctes = Vec::new();
        let new_rows = self.select_group_changes(current_rows, &Delta::default(), false, &mut ctes);
        let difference = self.select_difference(&new_rows);
        ctes.push(format!("egret_delta AS MATERIALIZED ({difference})"));
        Statement {
            ctes: self.write_ctes(types, ctes, current_rows, sink, self.rebuild_scope()),
            too_many_condition: None,
            consistency_check: ConsistencyCheck::Rows,
        }
    }

    /// The new groups less the stored ones, group by group. They are matched by GROUP BY, which
    /// handles nulls and values without a hash.
    fn select_difference(&self, new_rows: &str) -> String {
        let mut keys = self.key.column_names();
        keys.extend(self.key.is_hashed.then(|| HASH_COLUMN.to_owned()));
        let mut maintained_columns = vec![(COUNT_COLUMN.to_owned(), "bigint")];
        for (aggregate, maintenance) in &self.aggregates {
            maintained_columns.extend(maintenance.columns(aggregate.column));
        }
        let list = |column_sql: &dyn Fn(&str, &str) -> String| {
            let maintained = maintained_columns.iter().map(|(name, kind)| column_sql(name, kind));
            keys.iter().cloned().chain(maintained).collect::<Vec<_>>().join(", ")
        };
        let group =
            if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
        format!(
            "SELECT {} FROM (SELECT {} FROM ({new_rows}) AS n UNION ALL SELECT {} FROM {}) AS egret_all{group}",
            list(&|name, kind| format!("sum({name})::{kind} AS {name}")),
            list(&|name, _| name.to_owned()),
            list(&|name, _| format!("-{name}")),
            self.table.name,
        )
    }
}
