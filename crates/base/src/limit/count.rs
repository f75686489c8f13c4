//! Counts of what is shared, such as slots in use: one that would fall below zero was counted wrongly.

use crate::condition;

/// What is left of a count, by its `checked_sub`. One that had less than is given back was counted wrongly: it becomes
/// zero, for to wrap would lock everybody out, and the condition `counts_wrong` names what is `counted`.
pub fn count_left<N: Default>(left: Option<N>, counted: &'static str) -> N {
    left.unwrap_or_else(|| {
        let reason = "less was counted than was given back";
        let message = "a count of what is in use is wrong";
        condition::occur("counts_wrong", counted, reason, message);
        N::default()
    })
}
