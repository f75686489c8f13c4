//! Joins: the rows of both sides that match.

use super::{Block, Generator};
use crate::core::expression::Expression;
use crate::core::tree::Node;

/// Maximum number of pairs of change blocks of both sides that are subtracted one by one.
pub const SEPARATE_PAIRS_MAX: usize = 4;

impl Generator<'_> {
    /// The changes of an inner join.
    pub(super) fn changes_of_matches(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        let mut blocks = Vec::new();
        let (left_changes, right_changes) = (self.changes(left), self.changes(right));
        if left_changes.len() * right_changes.len() > SEPARATE_PAIRS_MAX {
            let old_right = self.rows_before(right);
            let before = self.merge_blocks(old_right);
            for changes in left_changes {
                blocks.push(changes.cross_join(before.clone()).with_filter(condition));
            }
        } else if !left_changes.is_empty() {
            // The rows before have no index: use the rows now, and subtract the changes.
            let current_right = self.rows_as_block(right);
            for changes in left_changes {
                blocks
                    .push(changes.clone().cross_join(current_right.clone()).with_filter(condition));
                for right_change in &right_changes {
                    let pair = changes.clone().cross_join(right_change.clone());
                    blocks.push(pair.with_filter(condition).negate());
                }
            }
        }
        if self.has_changes(right) {
            let current_left = self.rows_as_block(left);
            for changes in self.changes(right) {
                blocks.push(current_left.clone().cross_join(changes).with_filter(condition));
            }
        }
        blocks
    }
}
