//! Where a task comes among those that are ready.

/// Where a task goes among those that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadyPosition {
    /// Claimed before: ahead of all of its priority and key, the last returned one first.
    First,
    /// New, or after an attempt that failed: behind all that are ready.
    Last,
}
