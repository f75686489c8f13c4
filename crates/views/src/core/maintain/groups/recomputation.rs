//! Recomputes groups with changes, and joins stored groups with their changes.

use super::{RecomputeScope, ReduceStage};
use crate::core::column_types::Types;
use crate::core::expression::{Names, stage_column_name};
use crate::core::maintain::aggregates::{
    AggregateMaintenance, added_extremum_column, removed_extremum_column,
};
use crate::core::maintain::delta::same_values_condition;
use crate::core::maintain::key::HASH_COLUMN;
use crate::core::maintain::table::COUNT_COLUMN;
use crate::core::sql::{Block, select_repeated_rows};

/// Column that is true if a group was recomputed.
const RECOMPUTED_FLAG: &str = "egret_is_asked";

impl ReduceStage {
    /// The groups from which a value was removed that may have been the extremum.
    pub(super) fn select_groups_without_extremum(&self, types: &Types) -> String {
        let mut list: Vec<String> = self.key.column_names();
        list.extend(self.key.is_hashed.then(|| HASH_COLUMN.to_owned()));
        let list: Vec<String> = list.iter().map(|name| format!("d.{name}")).collect();
        let conditions: Vec<String> = self
            .extrema()
            .map(|(id, extremum)| {
                let (removed, name) = (removed_extremum_column(id), stage_column_name(id));
                let is_at_end =
                    extremum.is_at_least_as_extreme(&format!("d.{removed}"), &format!("s.{name}"));
                format!("d.{removed} IS NOT NULL AND coalesce({is_at_end}, true)")
            })
            .collect();
        format!(
            "SELECT {} FROM egret_delta AS d LEFT JOIN {} AS s ON {} WHERE {}",
            list.join(", "),
            self.table.name,
            self.key.same_key_condition(types, "s", "d"),
            conditions.join(" OR "),
        )
    }

    /// The groups that are recomputed, from `current_rows`, the current rows.
    pub(super) fn select_recomputed_groups(
        &self,
        types: &Types,
        current_rows: &[Block],
        scope: RecomputeScope,
    ) -> String {
        let source = match scope {
            RecomputeScope::RemovedExtrema => "egret_at_end",
            RecomputeScope::Never | RecomputeScope::Always => "egret_delta",
        };
        let same_key = self.key.same_key_condition(types, "t", "a");
        let mut rows = select_repeated_rows(current_rows, |block| {
            let names = block.names();
            let keys = self
                .keys
                .iter()
                .map(|(id, key)| format!("{} AS {}", key.to_sql(names), stage_column_name(*id)));
            let others = names.iter().map(|(id, name)| format!("{name} AS i{}", id.0));
            keys.chain(others).collect()
        });
        if self.key.is_hashed {
            rows = format!(
                "SELECT k.*, {} AS {HASH_COLUMN} FROM ({rows}) AS k",
                self.key.hash_sql("k")
            );
        }
        let inner_names: Names = current_rows
            .iter()
            .flat_map(|block| block.names().keys())
            .map(|id| (*id, format!("a.i{}", id.0)))
            .collect();
        let mut list: Vec<String> =
            self.key.column_names().iter().map(|name| format!("a.{name}")).collect();
        let group = if list.is_empty() {
            format!(" WHERE EXISTS (SELECT FROM {source})")
        } else {
            format!(
                " WHERE EXISTS (SELECT FROM {source} AS t WHERE {same_key}) GROUP BY {}",
                list.join(", ")
            )
        };
        // Without keys the aggregate query returns a row in any case.
        list.push(format!("(SELECT count(*) FROM {source}) > 0 AS {RECOMPUTED_FLAG}"));
        for (aggregate, maintenance) in &self.aggregates {
            if *maintenance == AggregateMaintenance::Recomputed || maintenance.extremum().is_some()
            {
                let call = aggregate.call.to_sql(&inner_names);
                list.push(format!("{call} AS {}", stage_column_name(aggregate.column)));
            }
        }
        if self.key.is_hashed {
            list.push(format!("{} AS {HASH_COLUMN}", self.key.hash_sql("a")));
        }
        format!("SELECT {} FROM ({rows}) AS a{group}", list.join(", "))
    }

    /// Groups with changes: their stored values next to their new ones.
    pub(super) fn select_joined(&self, sources: &str, scope: RecomputeScope) -> String {
        let names = self.key.column_names().into_iter();
        let mut list: Vec<String> = names
            .map(|name| {
                if self.is_key_inexact {
                    format!("coalesce(a.{name}, d.{name}) AS {name}")
                } else {
                    format!("d.{name} AS {name}")
                }
            })
            .collect();
        if self.key.is_hashed {
            list.push(format!("d.{HASH_COLUMN} AS {HASH_COLUMN}"));
        }
        list.push("s.ctid AS egret_place".to_owned());
        list.push(format!("coalesce(s.{COUNT_COLUMN}, 0) + d.{COUNT_COLUMN} AS {COUNT_COLUMN}"));
        let mut change_conditions = vec![format!("d.{COUNT_COLUMN} <> 0")];
        for (aggregate, maintenance) in &self.aggregates {
            let id = aggregate.column;
            let name = stage_column_name(id);
            for (column, _) in maintenance.columns(id) {
                list.push(format!("coalesce(s.{column}, 0) + d.{column} AS {column}"));
                change_conditions.push(format!("d.{column} <> 0"));
            }
            match (maintenance, maintenance.extremum(), scope) {
                (AggregateMaintenance::Recomputed, ..) | (_, Some(_), RecomputeScope::Always) => {
                    list.push(format!("a.{name} AS {name}"));
                }
                (_, Some(extremum), _) => {
                    let updated = extremum.more_extreme(
                        &format!("s.{name}"),
                        &format!("d.{}", added_extremum_column(id)),
                    );
                    list.push(format!(
                        "CASE WHEN a.{RECOMPUTED_FLAG} THEN a.{name} ELSE {updated} END AS {name}"
                    ));
                }
                _ => {}
            }
        }
        list.push(format!("({}) AS egret_moves", change_conditions.join(" OR ")));
        list.extend(
            self.visible_columns().iter().map(|name| format!("s.{name} AS egret_old_{name}")),
        );
        let maintained = format!("SELECT {} FROM {sources}", list.join(", "));
        let mut results = vec!["c.*".to_owned()];
        for (aggregate, carried) in &self.aggregates {
            let name = stage_column_name(aggregate.column);
            if let Some(value) = carried.result_sql(aggregate.column, "c") {
                results.push(format!("{value} AS {name}"));
            }
        }
        let with_results = format!("SELECT {} FROM ({maintained}) AS c", results.join(", "));
        let visible_columns = self.visible_columns();
        let pairs = visible_columns.iter().map(|name| {
            // Compare as text: values that a collation takes for equal may look different.
            let as_text = |name: &str| format!("egret_shown.{name}::text COLLATE \"C\"");
            (as_text(name), as_text(&format!("egret_old_{name}")))
        });
        let same_values = same_values_condition(&pairs.collect::<Vec<_>>());
        format!(
            "SELECT egret_shown.*, NOT (egret_place IS NOT NULL AND {} AND {same_values}) AS egret_differs FROM ({with_results}) AS egret_shown",
            self.remains_condition(),
        )
    }
}
