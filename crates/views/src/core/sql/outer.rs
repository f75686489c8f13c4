//! Outer joins: the rows that match nothing.

use super::{Block, Generator, NamedSubquery, WEIGHT, union_all};
use crate::core::analyse::equality_conjuncts;
use crate::core::expression::{ColumnId, Expression, Names, stage_column_name};
use crate::core::tree::{JoinKind, Node};

/// Column with the number of a row.
const ROW_NUMBER: &str = "egret_row";

/// Column with the number of copies of a row.
const ROW_COUNT: &str = "egret_rows";

/// Column with the number of current matches of a row.
const MATCH_COUNT: &str = "egret_now";

/// Column with the number of matches of a row among the changes.
const CHANGED_MATCH_COUNT: &str = "egret_more";

impl Generator<'_> {
    /// The rows of an outer join as they are now.
    pub(super) fn outer_rows(
        &mut self,
        kind: JoinKind,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Block {
        let (left, right) = (self.rows(left), self.rows(right));
        let is_counted = |blocks: &[Block]| blocks.iter().any(|block| !block.weights.is_empty());
        let is_weighted = is_counted(&left) || is_counted(&right);
        let (left, right) = (self.add_subquery(&left), self.add_subquery(&right));
        let names = merge_names(&left.names, &right.names);
        let join_keyword = match kind {
            JoinKind::Full => "FULL JOIN",
            _ => "LEFT JOIN",
        };
        let condition = condition.to_operand(&names);
        let item = format!("{} {join_keyword} {} ON {condition}", left.item, right.item);
        // A side that is not there counts once.
        let weight = format!("coalesce({}, 1) * coalesce({}, 1)", left.weight, right.weight);
        Block::new(item, names, is_weighted.then_some(weight))
    }

    /// The changes of the rows of `left` without a match in `right`, extended by nulls for the
    /// columns of `right`.
    pub(super) fn changes_of_unmatched(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        let mut blocks = Vec::new();
        for changes in self.changes(left) {
            let (block, unmatched_condition) = if self.has_changes(right) {
                let (block, matches) = self.with_matches_before(changes, right, condition);
                (block, format!("{matches} = 0"))
            } else {
                let others = self.rows(right);
                let exists = self.exists_condition(&others, changes.names(), condition);
                (changes, format!("NOT {exists}"))
            };
            let rows = self.add_subquery(&[block.with_condition(unmatched_condition)]);
            blocks.push(self.with_nulls(&rows, right));
        }
        if self.has_changes(right) {
            let block = self.select_turned_rows(left, right, condition);
            blocks.push(self.with_nulls(&block, right).with_nonzero_weight());
        }
        blocks
    }

    /// The rows of `left` that match something that changed in `right`, with a weight that says
    /// whether they came to match nothing (1) or to match something (-1).
    pub(super) fn select_turned_rows(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> NamedSubquery {
        let changes = self.changes(right);
        let rows = self.rows(left);
        let rows = self.add_subquery(&rows);
        let mut touched_condition = self.exists_condition(&changes, &rows.names, condition);
        // The server can look rows up by the changes if the condition consists of equalities only.
        if let Some(equalities) =
            equality_conjuncts(condition, &rows.names.keys().copied().collect())
        {
            let equal_exists = self.exists_condition(&changes, &rows.names, &equalities);
            touched_condition = format!("{equal_exists} AND {touched_condition}");
        }
        let counted =
            self.count_matches(&rows, &format!(" WHERE {touched_condition}"), right, condition);
        let alias = self.new_alias();
        let columns: Vec<String> = rows.names.keys().map(|id| stage_column_name(*id)).collect();
        let item = format!(
            "(SELECT {}{ROW_COUNT} * (({MATCH_COUNT} = 0)::integer - ({MATCH_COUNT} - {CHANGED_MATCH_COUNT} = 0)::integer) AS {WEIGHT} FROM {}) AS {alias}",
            join_with_trailing_comma(&columns),
            counted.item
        );
        let name = |id: &_| (*id, format!("{alias}.{}", stage_column_name(*id)));
        NamedSubquery {
            item,
            names: rows.names.keys().map(name).collect(),
            weight: format!("{alias}.{WEIGHT}"),
        }
    }

    /// Changes, and SQL for the number of rows of `right` that each matched before its changes.
    pub(super) fn with_matches_before(
        &mut self,
        changes: Block,
        right: &Node,
        condition: &Expression,
    ) -> (Block, String) {
        let rows = self.add_subquery(&[changes]);
        let counted = self.count_matches(&rows, "", right, condition);
        let alias = counted.weight;
        let block = Block::new(counted.item, counted.names, Some(format!("{alias}.{ROW_COUNT}")));
        (block, format!("{alias}.{MATCH_COUNT} - {alias}.{CHANGED_MATCH_COUNT}"))
    }

    /// Rows that satisfy `only`, with the number of copies, of matches in `right`, and of matches
    /// in the changes of `right`. The latter are counted by one join, as any row may match any
    /// change. The `weight` of the result is the alias of these three columns.
    fn count_matches(
        &mut self,
        rows: &NamedSubquery,
        filter: &str,
        right: &Node,
        condition: &Expression,
    ) -> NamedSubquery {
        let changes = self.changes(right);
        let changed_rows = self.add_subquery(&changes);
        let (numbered, grouped, alias) = (self.new_alias(), self.new_alias(), self.new_alias());
        let names_in = |alias: &str| {
            let name = |id: &_| (*id, format!("{alias}.{}", stage_column_name(*id)));
            rows.names.keys().map(name).collect::<Names>()
        };
        let list = |column_sql: &dyn Fn(&ColumnId, &String) -> String| {
            let list: Vec<String> =
                rows.names.iter().map(|(id, name)| column_sql(id, name)).collect();
            join_with_trailing_comma(&list)
        };
        let inner = list(&|id, name| format!("{name} AS {}", stage_column_name(*id)));
        let any_values = list(&|id, _| {
            let name = stage_column_name(*id);
            format!("any_value({numbered}.{name}) AS {name}")
        });
        let matches = condition.to_operand(&merge_names(&names_in(&numbered), &changed_rows.names));
        let current_rows = self.rows(right);
        let match_weight = self.weight_of_matches(&current_rows, &names_in(&grouped), condition);
        let item = format!(
            "(SELECT {grouped}.*, {match_weight} AS {MATCH_COUNT} FROM (SELECT {any_values}any_value({numbered}.{ROW_COUNT}) AS {ROW_COUNT}, coalesce(sum({}), 0) AS {CHANGED_MATCH_COUNT} \
             FROM (SELECT {inner}{} AS {ROW_COUNT}, row_number() OVER () AS {ROW_NUMBER} FROM {}{filter}) AS {numbered} LEFT JOIN {} ON {matches} \
             GROUP BY {numbered}.{ROW_NUMBER}) AS {grouped} OFFSET 0) AS {alias}",
            changed_rows.weight, rows.weight, rows.item, changed_rows.item,
        );
        NamedSubquery { item, names: names_in(&alias), weight: alias }
    }

    /// Rows extended by nulls, with the types of the other side's columns.
    fn with_nulls(&mut self, rows: &NamedSubquery, other: &Node) -> Block {
        let others = self.rows(other);
        let null_side = self.add_subquery(&others);
        let item = format!("{} LEFT JOIN {} ON false", rows.item, null_side.item);
        let names = merge_names(&rows.names, &null_side.names);
        Block::new(item, names, Some(rows.weight.clone()))
    }

    /// The weight of all rows of blocks that match the row with these names.
    pub(super) fn weight_of_matches(
        &mut self,
        blocks: &[Block],
        row: &Names,
        condition: &Expression,
    ) -> String {
        let named = self.add_subquery(blocks);
        let condition = condition.to_operand(&merge_names(row, &named.names));
        format!("(SELECT coalesce(sum({}), 0) FROM {} WHERE {condition})", named.weight, named.item)
    }

    /// Whether a row of blocks matches the row with these names.
    pub(super) fn exists_condition(
        &mut self,
        blocks: &[Block],
        row: &Names,
        condition: &Expression,
    ) -> String {
        let alias = self.new_alias();
        let ids: Vec<_> = blocks[0].names.keys().copied().collect();
        let names: Names =
            ids.iter().map(|id| (*id, format!("{alias}.{}", stage_column_name(*id)))).collect();
        let condition = condition.to_operand(&merge_names(row, &names));
        format!("EXISTS (SELECT FROM ({}) AS {alias} WHERE {condition})", union_all(blocks, &ids))
    }
}

impl Block {
    pub(super) fn with_condition(mut self, condition: String) -> Self {
        self.filters.push(condition);
        self
    }

    pub(super) fn with_nonzero_weight(self) -> Self {
        let condition = format!("{} <> 0", self.weight());
        self.with_condition(condition)
    }
}

/// Joins items with commas, with one after the last.
fn join_with_trailing_comma(list: &[String]) -> String {
    list.iter().map(|item| format!("{item}, ")).collect()
}

fn merge_names(left: &Names, right: &Names) -> Names {
    let mut names = left.clone();
    names.extend(right.iter().map(|(id, name)| (*id, name.clone())));
    names
}
