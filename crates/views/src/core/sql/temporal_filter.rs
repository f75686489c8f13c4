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
pub(super) const CURRENT_TIME: &str = "now()";

/// SQL of the time of the previous refresh.
pub(super) const PREVIOUS_TIME: &str = "(SELECT clock FROM egret_frontier)";

impl Generator<'_> {
    /// The changes of a temporal filter: by changes of its input, and by the passage of time.
    pub(super) fn changes_of_temporal_filter(&mut self, input: &Node, node: &Node) -> Vec<Block> {
        let mut blocks = filter_at(self.changes(input), node, PREVIOUS_TIME);
        blocks.extend(changes_by_time(self.rows(input), node));
        blocks
    }
}

/// Filters rows by the condition of a node at a point in time.
pub(super) fn filter_at(rows: Vec<Block>, node: &Node, time: &str) -> Vec<Block> {
    let Node::TemporalFilter { clock, condition, .. } = node else {
        return rows;
    };
    let condition = condition.substitute(*clock, &Expression::constant(time));
    let rows = rows.into_iter();
    rows.map(|block| block.with_filter(&condition)).collect()
}

/// Changes by the passage of time among the current rows of a node's input.
fn changes_by_time(rows: Vec<Block>, node: &Node) -> Vec<Block> {
    let Node::TemporalFilter { clock, condition, predicates: moments, .. } = node else {
        return Vec::new();
    };
    let [current_time, previous_time] = [CURRENT_TIME, PREVIOUS_TIME].map(Expression::constant);
    let changed = rows.into_iter().map(|mut block| {
        let [is_true, was_true] = [&current_time, &previous_time].map(|time| {
            let condition = condition.substitute(*clock, time);
            format!("({} IS TRUE)", condition.to_operand(&block.names))
        });
        let range_conditions = moments
            .iter()
            .map(|predicate| {
                let value = predicate.value.to_operand(&block.names);
                let [bound, other_bound] =
                    [&current_time, &previous_time].map(|at| predicate.clock.substitute(*clock, at).to_sql(&block.names));
                format!(
                    "({value} >= least({bound}, {other_bound}) AND {value} <= greatest({bound}, {other_bound}))"
                )
            })
            .collect::<Vec<_>>()
            .join(" OR ");
        block.filters.push(format!("({range_conditions})"));
        block.filters.push(format!("{is_true} <> {was_true}"));
        let weight = format!("({is_true}::integer - {was_true}::integer)::bigint");
        block.weights.push(weight);
        block
    });
    changed.collect()
}
