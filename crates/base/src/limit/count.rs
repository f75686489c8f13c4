//! Counts of shared resources, such as slots in use: one that would fall below zero was counted
//! wrongly.

use crate::condition;

/// The count after a `checked_sub`. `None` means that more was given back than was
/// counted: the count becomes zero, because a wrapped count would refuse all further work, and the
/// condition `counts_wrong` names the `subject`.
pub fn zero_on_underflow<N: Default>(remainder: Option<N>, subject: &'static str) -> N {
    remainder.unwrap_or_else(|| {
        let reason = "more was released than was acquired";
        let message = "a usage counter is wrong";
        condition::occur("counts_wrong", subject, reason, message);
        N::default()
    })
}
