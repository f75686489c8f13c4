//! Semi and anti joins: the rows that match something, or nothing.

use super::{Block, Generator};
use crate::core::expression::Expression;
use crate::core::tree::{JoinKind, Node};

impl Generator<'_> {
    /// The current rows of a semi or anti join.
    pub(super) fn semi_rows(
        &mut self,
        kind: JoinKind,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        let others = self.rows(right);
        let rows = self.rows(left);
        self.filter_by_match(kind, rows, &others, condition)
    }

    fn filter_by_match(
        &mut self,
        kind: JoinKind,
        rows: Vec<Block>,
        others: &[Block],
        condition: &Expression,
    ) -> Vec<Block> {
        let filtered = rows.into_iter().map(|block| {
            let exists = self.exists_condition(others, block.names(), condition);
            block.with_condition(match kind {
                JoinKind::Anti => format!("NOT {exists}"),
                _ => exists,
            })
        });
        filtered.collect()
    }

    /// The changes of a semi or anti join.
    pub(super) fn changes_of_semi(
        &mut self,
        kind: JoinKind,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        if !self.has_changes(right) {
            let others = self.rows(right);
            let changes = self.changes(left);
            return self.filter_by_match(kind, changes, &others, condition);
        }
        let mut blocks = Vec::new();
        for changes in self.changes(left) {
            let (block, matches) = self.with_matches_before(changes, right, condition);
            blocks.push(block.with_condition(match kind {
                JoinKind::Anti => format!("{matches} = 0"),
                _ => format!("{matches} <> 0"),
            }));
        }
        let counted = self.select_turned_rows(left, right, condition);
        let block = Block::new(counted.item, counted.names, Some(counted.weight));
        let block = block.with_nonzero_weight();
        blocks.push(match kind {
            JoinKind::Anti => block,
            _ => block.negate(),
        });
        blocks
    }
}
