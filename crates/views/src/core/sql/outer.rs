//! Outer joins: the rows that match nothing.

use super::{Block, Generator, Named, WEIGHT, union};
use crate::core::analyse::stage_column;
use crate::core::expression::{Expression, Names};
use crate::core::tree::{JoinKind, Node};

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
        let weighs = is_counted(&left) || is_counted(&right);
        let (left, right) = (self.named(&left), self.named(&right));
        let names = both(&left.names, &right.names);
        let word = match kind {
            JoinKind::Full => "FULL JOIN",
            _ => "LEFT JOIN",
        };
        let condition = condition.operand(&names);
        let item = format!("{} {word} {} ON {condition}", left.item, right.item);
        // A side that is not there counts once.
        let weight = format!(
            "coalesce({}, 1) * coalesce({}, 1)",
            left.weight, right.weight
        );
        Block::of(item, names, weighs.then_some(weight))
    }

    /// What changed among the rows of `left` that match nothing in `right`, whose columns are null then.
    pub(super) fn changes_of_unmatched(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        let mut all = Vec::new();
        if self.is_changed(left) {
            let before = self.rows_before(right);
            for changes in self.changes(left) {
                let changes = self.named(&[changes]);
                let matches = self.weight_of_matches(&before, &changes.names, condition);
                let block = self.with_nulls(&changes, right);
                all.push(block.only(format!("{matches} = 0")));
            }
        }
        if self.is_changed(right) {
            let block = self.turned(left, right, condition);
            all.push(self.with_nulls(&block, right).only_weighty());
        }
        all
    }

    /// The rows of `left` that match something that changed in `right`, with a weight that says whether they came to match nothing (1) or
    /// to match something (-1).
    pub(super) fn turned(&mut self, left: &Node, right: &Node, condition: &Expression) -> Named {
        let (now, changes) = (self.rows(right), self.changes(right));
        let rows = self.rows(left);
        let rows = self.named(&rows);
        let matches_now = self.weight_of_matches(&now, &rows.names, condition);
        let matches_more = self.weight_of_matches(&changes, &rows.names, condition);
        let touched = self.exists(&changes, &rows.names, condition);
        self.with_counts(&rows, &matches_now, &matches_more, &touched)
    }

    fn with_counts(&mut self, rows: &Named, now: &str, more: &str, touched: &str) -> Named {
        let (counted, alias) = (self.alias(), self.alias());
        let columns = rows.names.iter();
        let list: Vec<String> = columns
            .map(|(id, name)| format!("{name} AS {}", stage_column(*id)))
            .collect();
        let list = list.join(", ");
        let separator = if list.is_empty() { "" } else { ", " };
        let item = format!(
            "(SELECT {counted}.*, {counted}.egret_rows * ((egret_now = 0)::integer - (egret_now - egret_more = 0)::integer) AS {WEIGHT} \
             FROM (SELECT {list}{separator}{} AS egret_rows, {now} AS egret_now, {more} AS egret_more FROM {} WHERE {touched}) AS {counted}) AS {alias}",
            rows.weight, rows.item
        );
        let name = |id: &_| (*id, format!("{alias}.{}", stage_column(*id)));
        Named {
            item,
            names: rows.names.keys().map(name).collect(),
            weight: format!("{alias}.{WEIGHT}"),
        }
    }

    /// Rows beside nulls of the types that the other side has.
    fn with_nulls(&mut self, rows: &Named, other: &Node) -> Block {
        let others = self.rows(other);
        let nothing = self.named(&others);
        let item = format!("{} LEFT JOIN {} ON false", rows.item, nothing.item);
        let names = both(&rows.names, &nothing.names);
        Block::of(item, names, Some(rows.weight.clone()))
    }

    /// The weight of all rows of blocks that match the row with these names.
    pub(super) fn weight_of_matches(
        &mut self,
        blocks: &[Block],
        row: &Names,
        condition: &Expression,
    ) -> String {
        let named = self.named(blocks);
        let condition = condition.operand(&both(row, &named.names));
        format!(
            "(SELECT coalesce(sum({}), 0) FROM {} WHERE {condition})",
            named.weight, named.item
        )
    }

    /// Whether a row of blocks matches the row with these names.
    pub(super) fn exists(
        &mut self,
        blocks: &[Block],
        row: &Names,
        condition: &Expression,
    ) -> String {
        let alias = self.alias();
        let ids: Vec<_> = blocks[0].names.keys().copied().collect();
        let names: Names = ids
            .iter()
            .map(|id| (*id, format!("{alias}.{}", stage_column(*id))))
            .collect();
        let condition = condition.operand(&both(row, &names));
        format!(
            "EXISTS (SELECT FROM ({}) AS {alias} WHERE {condition})",
            union(blocks, &ids)
        )
    }
}

impl Block {
    pub(super) fn only(mut self, condition: String) -> Self {
        self.filters.push(condition);
        self
    }

    pub(super) fn only_weighty(self) -> Self {
        let condition = format!("{} <> 0", self.weight());
        self.only(condition)
    }
}

fn both(one: &Names, other: &Names) -> Names {
    let mut names = one.clone();
    names.extend(other.iter().map(|(id, name)| (*id, name.clone())));
    names
}
