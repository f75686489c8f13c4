//! Rows under a condition that depends on the clock (a temporal filter).
//!
//! With `σ_T` for the rows whose condition is true at time `T`, a refresh at `T1` after one at `T0`
//! computes the changes of the filtered rows `r` as
//!
//! ```text
//! Δ = σ_T0(Δr) + Σ over r_new of ([true at T1] - [true at T0]) · row
//! ```
//!
//! The sum needs only rows for which a comparison with the clock may have changed: those whose
//! value lies between the clock's side at `T0` and at `T1`, which an index finds. `T1` may be
//! before `T0`, as clocks are set back.

use super::{Block, Generator};
use crate::core::expression::Expression;
use crate::core::tree::Node;

/// SQL of the time of this refresh.
pub(super) const NOW: &str = "now()";

/// SQL of the time of the previous refresh.
pub(super) const BEFORE: &str = "(SELECT clock FROM egret_frontier)";

impl Generator<'_> {
    /// The changes of a temporal filter: by changes of its input, and by the passage of time.
    pub(super) fn changes_of_recent(&mut self, input: &Node, node: &Node) -> Vec<Block> {
        let mut all = asked_at(self.changes(input), node, BEFORE);
        all.extend(passed(self.rows(input), node));
        all
    }
}

/// Filters rows by the condition of a node at a point in time.
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

/// Changes by the passage of time among the current rows of a node's input.
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
