//! Recomputes groups with changes, and joins stored groups with their changes.

use super::{RecomputeScope, ReduceStage};
use crate::core::column_types::Types;
use crate::core::expression::{Names, stage_column};
use crate::core::maintain::aggregates::{AggregateMaintenance, came, went};
use crate::core::maintain::delta::are_same;
use crate::core::maintain::key::HASH;
use crate::core::maintain::table::COUNT;
use crate::core::sql::{Block, each};

/// Column that is true if a group was recomputed.
const ASKED: &str = "egret_is_asked";

impl ReduceStage {
    /// The groups from which a value was removed that may have been the extremum.
    pub(super) fn at_end(&self, types: &Types) -> String {
        let mut list: Vec<String> = self.key.names();
        list.extend(self.key.is_hashed.then(|| HASH.to_owned()));
        let list: Vec<String> = list.iter().map(|name| format!("d.{name}")).collect();
        let may_be: Vec<String> = self
            .ends()
            .map(|(id, end)| {
                let (went, name) = (went(id), stage_column(id));
                let is_at_end = end.is_at_end(&format!("d.{went}"), &format!("s.{name}"));
                format!("d.{went} IS NOT NULL AND coalesce({is_at_end}, true)")
            })
            .collect();
        format!(
            "SELECT {} FROM egret_delta AS d LEFT JOIN {} AS s ON {} WHERE {}",
            list.join(", "),
            self.table.name,
            self.key.same(types, "s", "d"),
            may_be.join(" OR "),
        )
    }

    /// The groups that are recomputed, from `now`, the current rows.
    pub(super) fn asked(&self, types: &Types, now: &[Block], asking: RecomputeScope) -> String {
        let of = match asking {
            RecomputeScope::AtEnds => "egret_at_end",
            RecomputeScope::Never | RecomputeScope::Always => "egret_delta",
        };
        let touched = self.key.same(types, "t", "a");
        let mut rows = each(now, |block| {
            let names = block.names();
            let keys = self
                .keys
                .iter()
                .map(|(id, key)| format!("{} AS {}", key.sql(names), stage_column(*id)));
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
        let group = if list.is_empty() {
            format!(" WHERE EXISTS (SELECT FROM {of})")
        } else {
            format!(
                " WHERE EXISTS (SELECT FROM {of} AS t WHERE {touched}) GROUP BY {}",
                list.join(", ")
            )
        };
        // Without keys the aggregate query returns a row in any case.
        list.push(format!("(SELECT count(*) FROM {of}) > 0 AS {ASKED}"));
        for (aggregate, carried) in &self.aggregates {
            if *carried == AggregateMaintenance::Asked || carried.end().is_some() {
                let call = aggregate.call.sql(&inner);
                list.push(format!("{call} AS {}", stage_column(aggregate.column)));
            }
        }
        if self.key.is_hashed {
            list.push(format!("{} AS {HASH}", self.key.hash("a")));
        }
        format!("SELECT {} FROM ({rows}) AS a{group}", list.join(", "))
    }

    /// Groups with changes: their stored values next to their new ones.
    pub(super) fn joined(&self, sources: &str, asking: RecomputeScope) -> String {
        let names = self.key.names().into_iter();
        let mut list: Vec<String> = names
            .map(|name| {
                if self.is_key_shown {
                    format!("coalesce(a.{name}, d.{name}) AS {name}")
                } else {
                    format!("d.{name} AS {name}")
                }
            })
            .collect();
        if self.key.is_hashed {
            list.push(format!("d.{HASH} AS {HASH}"));
        }
        list.push("s.ctid AS egret_place".to_owned());
        list.push(format!("coalesce(s.{COUNT}, 0) + d.{COUNT} AS {COUNT}"));
        let mut moves = vec![format!("d.{COUNT} <> 0")];
        for (aggregate, carried) in &self.aggregates {
            let id = aggregate.column;
            let name = stage_column(id);
            for (column, _) in carried.columns(id) {
                list.push(format!("coalesce(s.{column}, 0) + d.{column} AS {column}"));
                moves.push(format!("d.{column} <> 0"));
            }
            match (carried, carried.end(), asking) {
                (AggregateMaintenance::Asked, ..) | (_, Some(_), RecomputeScope::Always) => {
                    list.push(format!("a.{name} AS {name}"));
                }
                (_, Some(end), _) => {
                    let further = end.further(&format!("s.{name}"), &format!("d.{}", came(id)));
                    list.push(format!(
                        "CASE WHEN a.{ASKED} THEN a.{name} ELSE {further} END AS {name}"
                    ));
                }
                _ => {}
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
            if let Some(value) = carried.shown(aggregate.column, "c") {
                shown.push(format!("{value} AS {name}"));
            }
        }
        let shown = format!("SELECT {} FROM ({carried}) AS c", shown.join(", "));
        let seen = self.seen();
        let pairs = seen.iter().map(|name| {
            // Compare as text: values that a collation takes for equal may look different.
            let text = |name: &str| format!("egret_shown.{name}::text COLLATE \"C\"");
            (text(name), text(&format!("egret_old_{name}")))
        });
        let same = are_same(&pairs.collect::<Vec<_>>());
        format!(
            "SELECT egret_shown.*, NOT (egret_place IS NOT NULL AND {} AND {same}) AS egret_differs FROM ({shown}) AS egret_shown",
            self.lives(),
        )
    }
}
