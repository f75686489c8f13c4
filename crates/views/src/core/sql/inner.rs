//! Joins: the rows of both sides that match.

use super::{Block, Generator};
use crate::core::expression::Expression;
use crate::core::tree::Node;

/// Maximum number of pairs of change blocks of both sides that are subtracted one by one.
pub const APART_MAX: usize = 4;

impl Generator<'_> {
    /// The changes of an inner join.
    pub(super) fn changes_of_matches(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Expression,
    ) -> Vec<Block> {
        let mut all = Vec::new();
        let (of_left, of_right) = (self.changes(left), self.changes(right));
        if of_left.len() * of_right.len() > APART_MAX {
            let before = self.rows_before(right);
            let before = self.once(before);
            for changes in of_left {
                all.push(changes.and(before.clone()).filtered(condition));
            }
        } else if !of_left.is_empty() {
            // The rows before have no index: use the rows now, and subtract the changes.
            let now = self.rows_once(right);
            for changes in of_left {
                all.push(changes.clone().and(now.clone()).filtered(condition));
                for more in &of_right {
                    let both = changes.clone().and(more.clone());
                    all.push(both.filtered(condition).negated());
                }
            }
        }
        if self.is_changed(right) {
            let now = self.rows_once(left);
            for changes in self.changes(right) {
                all.push(now.clone().and(changes).filtered(condition));
            }
        }
        all
    }
}
