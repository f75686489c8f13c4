//! Rows for which something is true that the clock is in.
//!
//! With `σ_T` for the rows of which it is true at the moment `T`, a refresh at `T1` finds of rows
//! `r` what the one before, at `T0`, left:
//!
//! ```text
//! Δ = σ_T0(Δr) + Σ over r_new of ([true at T1] - [true at T0]) · row
//! ```
//!
//! The rows of the sum are those that a comparison in the condition can have changed for: between
//! what it was compared with at `T0` and what it is at `T1`, where an index finds them. Either may
//! be the later one: clocks are set back.

use super::{Block, Generator};
use crate::core::expression::Expression;
use crate::core::tree::Node;

/// The moment at which a refresh asks, …
pub(super) const NOW: &str = "now()";

/// … and the one at which the refresh before it did.
pub(super) const BEFORE: &str = "(SELECT clock FROM egret_frontier)";

impl Generator<'_> {
    /// What changed: what did of the rows that a node reads, and what time did.
    pub(super) fn changes_of_recent(&mut self, input: &Node, node: &Node) -> Vec<Block> {
        let mut all = asked_at(self.changes(input), node, BEFORE);
        all.extend(passed(self.rows(input), node));
        all
    }
}

/// Those of some rows for which the condition of a node is true at a moment.
pub(super) fn asked_at(rows: Vec<Block>, node: &Node, moment: &str) -> Vec<Block> {
    let Node::Recent {
        clock, condition, ..
    } = node
    else {
        return rows;
    };
    let condition = condition.with(*clock, &Expression::constant(moment));
    let rows = rows.into_iter();
    rows.map(|block| block.filtered(&condition)).collect()
}

/// The rows that came and went by themselves, of those that a node reads now.
fn passed(rows: Vec<Block>, node: &Node) -> Vec<Block> {
    let Node::Recent {
        clock,
        condition,
        moments,
        ..
    } = node
    else {
        return Vec::new();
    };
    let [now, before] = [NOW, BEFORE].map(Expression::constant);
    let each = rows.into_iter().map(|mut block| {
        let [is, was] = [&now, &before].map(|moment| {
            let condition = condition.with(*clock, moment);
            format!("({} IS TRUE)", condition.operand(&block.names))
        });
        let between = moments
            .iter()
            .map(|moment| {
                let value = moment.value.operand(&block.names);
                let [one, other] =
                    [&now, &before].map(|at| moment.clock.with(*clock, at).sql(&block.names));
                format!(
                    "({value} >= least({one}, {other}) AND {value} <= greatest({one}, {other}))"
                )
            })
            .collect::<Vec<_>>()
            .join(" OR ");
        block.filters.push(format!("({between})"));
        block.filters.push(format!("{is} <> {was}"));
        let weight = format!("({is}::integer - {was}::integer)::bigint");
        block.weights.push(weight);
        block
    });
    each.collect()
}
