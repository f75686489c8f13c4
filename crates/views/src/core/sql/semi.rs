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
        self.kept(kind, rows, &others, condition)
    }

    fn kept(
        &mut self,
        kind: JoinKind,
        rows: Vec<Block>,
        others: &[Block],
        condition: &Expression,
    ) -> Vec<Block> {
        let each = rows.into_iter().map(|block| {
            let exists = self.exists(others, block.names(), condition);
            block.only(match kind {
                JoinKind::Anti => format!("NOT {exists}"),
                _ => exists,
            })
        });
        each.collect()
    }

    /// The changes of a semi or anti join.
    pub(super) fn changes_of_semi(
        &mut self,
        kind: JoinKind,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        if !self.is_changed(right) {
            let others = self.rows(right);
            let changes = self.changes(left);
            return self.kept(kind, changes, &others, condition);
        }
        let mut all = Vec::new();
        for changes in self.changes(left) {
            let (block, matches) = self.with_matches_before(changes, right, condition);
            all.push(block.only(match kind {
                JoinKind::Anti => format!("{matches} = 0"),
                _ => format!("{matches} <> 0"),
            }));
        }
        let counted = self.turned(left, right, condition);
        let block = Block::of(counted.item, counted.names, Some(counted.weight));
        let block = block.only_weighty();
        all.push(match kind {
            JoinKind::Anti => block,
            _ => block.negated(),
        });
        all
    }
}
