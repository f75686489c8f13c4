//! Position of a task among the ready ones.

/// Position of a task among the ready ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadyPosition {
    /// For a returned task: ahead of all of its priority and key, the last returned one first.
    First,
    /// For a new task, or after a failed attempt: behind all ready ones.
    Last,
}
