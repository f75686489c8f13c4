//! Outer joins: the rows that match nothing.

use super::{Block, Generator, NamedSubquery, WEIGHT, union};
use crate::core::analyse::equal_part;
use crate::core::expression::{ColumnId, Expression, Names, stage_column};
use crate::core::tree::{JoinKind, Node};

/// Column with the number of a row.
const ROW: &str = "egret_row";

/// Column with the number of copies of a row.
const ROWS: &str = "egret_rows";

/// Column with the number of current matches of a row.
const NOW: &str = "egret_now";

/// Column with the number of matches of a row among the changes.
const MORE: &str = "egret_more";

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

    /// The changes of the rows of `left` without a match in `right`, extended by nulls for the
    /// columns of `right`.
    pub(super) fn changes_of_unmatched(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        let mut all = Vec::new();
        for changes in self.changes(left) {
            let (block, none) = if self.is_changed(right) {
                let (block, matches) = self.with_matches_before(changes, right, condition);
                (block, format!("{matches} = 0"))
            } else {
                let others = self.rows(right);
                let exists = self.exists(&others, changes.names(), condition);
                (changes, format!("NOT {exists}"))
            };
            let rows = self.named(&[block.only(none)]);
            all.push(self.with_nulls(&rows, right));
        }
        if self.is_changed(right) {
            let block = self.turned(left, right, condition);
            all.push(self.with_nulls(&block, right).only_weighty());
        }
        all
    }

    /// The rows of `left` that match something that changed in `right`, with a weight that says
    /// whether they came to match nothing (1) or to match something (-1).
    pub(super) fn turned(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> NamedSubquery {
        let changes = self.changes(right);
        let rows = self.rows(left);
        let rows = self.named(&rows);
        let mut touched = self.exists(&changes, &rows.names, condition);
        // The server can look rows up by the changes if the condition consists of equalities only.
        if let Some(equal) = equal_part(condition, &rows.names.keys().copied().collect()) {
            let equal = self.exists(&changes, &rows.names, &equal);
            touched = format!("{equal} AND {touched}");
        }
        let counted = self.counted(&rows, &format!(" WHERE {touched}"), right, condition);
        let alias = self.alias();
        let columns: Vec<String> = rows.names.keys().map(|id| stage_column(*id)).collect();
        let item = format!(
            "(SELECT {}{ROWS} * (({NOW} = 0)::integer - ({NOW} - {MORE} = 0)::integer) AS {WEIGHT} FROM {}) AS {alias}",
            listed(&columns),
            counted.item
        );
        let name = |id: &_| (*id, format!("{alias}.{}", stage_column(*id)));
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
        let rows = self.named(&[changes]);
        let counted = self.counted(&rows, "", right, condition);
        let alias = counted.weight;
        let block = Block::of(counted.item, counted.names, Some(format!("{alias}.{ROWS}")));
        (block, format!("{alias}.{NOW} - {alias}.{MORE}"))
    }

    /// Rows that satisfy `only`, with the number of copies, of matches in `right`, and of matches
    /// in the changes of `right`. The latter are counted by one join, as any row may match any
    /// change. The `weight` of the result is the alias of these three columns.
    fn counted(
        &mut self,
        rows: &NamedSubquery,
        only: &str,
        right: &Node,
        condition: &Expression,
    ) -> NamedSubquery {
        let changes = self.changes(right);
        let more = self.named(&changes);
        let (numbered, grouped, alias) = (self.alias(), self.alias(), self.alias());
        let of = |alias: &str| {
            let name = |id: &_| (*id, format!("{alias}.{}", stage_column(*id)));
            rows.names.keys().map(name).collect::<Names>()
        };
        let list = |each: &dyn Fn(&ColumnId, &String) -> String| {
            let list: Vec<String> = rows.names.iter().map(|(id, name)| each(id, name)).collect();
            listed(&list)
        };
        let inner = list(&|id, name| format!("{name} AS {}", stage_column(*id)));
        let any = list(&|id, _| {
            let name = stage_column(*id);
            format!("any_value({numbered}.{name}) AS {name}")
        });
        let matches = condition.operand(&both(&of(&numbered), &more.names));
        let now = self.rows(right);
        let now = self.weight_of_matches(&now, &of(&grouped), condition);
        let item = format!(
            "(SELECT {grouped}.*, {now} AS {NOW} FROM (SELECT {any}any_value({numbered}.{ROWS}) AS {ROWS}, coalesce(sum({}), 0) AS {MORE} \
             FROM (SELECT {inner}{} AS {ROWS}, row_number() OVER () AS {ROW} FROM {}{only}) AS {numbered} LEFT JOIN {} ON {matches} \
             GROUP BY {numbered}.{ROW}) AS {grouped} OFFSET 0) AS {alias}",
            more.weight, rows.weight, rows.item, more.item,
        );
        NamedSubquery {
            item,
            names: of(&alias),
            weight: alias,
        }
    }

    /// Rows extended by nulls, with the types of the other side's columns.
    fn with_nulls(&mut self, rows: &NamedSubquery, other: &Node) -> Block {
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

/// Joins items with commas, with one after the last.
fn listed(list: &[String]) -> String {
    list.iter().map(|one| format!("{one}, ")).collect()
}

fn both(one: &Names, other: &Names) -> Names {
    let mut names = one.clone();
    names.extend(other.iter().map(|(id, name)| (*id, name.clone())));
    names
}
