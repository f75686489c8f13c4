//! Tracks which writes are flushed to disk.

use crate::model::FeedPosition;
use std::sync::atomic::{AtomicI64, Ordering};

/// The last feed positions committed with relaxed and with full durability. A commit with full
/// durability flushes all earlier ones.
#[derive(Debug, Default)]
pub(crate) struct DurabilityTracker {
    relaxed: AtomicI64,
    lasting: AtomicI64,
}

impl DurabilityTracker {
    /// Starts with everything flushed.
    pub(crate) fn begin(&self) {
        self.relaxed.store(0, Ordering::Release);
        self.lasting.store(0, Ordering::Release);
    }

    /// Records that a group was committed, up to this position.
    pub(crate) fn note(&self, position: FeedPosition, has_lasted: bool) {
        let furthest = if has_lasted {
            &self.lasting
        } else {
            &self.relaxed
        };
        furthest.fetch_max(position.0, Ordering::AcqRel);
    }

    /// Whether the last group may not be flushed yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.relaxed.load(Ordering::Acquire) > self.lasting.load(Ordering::Acquire)
    }
}
