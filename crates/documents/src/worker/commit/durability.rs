//! Tracks which writes are flushed to disk.

use crate::model::FeedPosition;
use std::sync::atomic::{AtomicI64, Ordering};

/// The last feed positions committed with relaxed and with full durability. A commit with full
/// durability flushes all earlier ones.
#[derive(Debug, Default)]
pub(crate) struct DurabilityTracker {
    relaxed: AtomicI64,
    durable: AtomicI64,
}

impl DurabilityTracker {
    /// Starts with everything flushed.
    pub(crate) fn reset(&self) {
        self.relaxed.store(0, Ordering::Release);
        self.durable.store(0, Ordering::Release);
    }

    /// Records that a group was committed, up to this position.
    pub(crate) fn record_commit(&self, position: FeedPosition, is_durable: bool) {
        let last_position = if is_durable { &self.durable } else { &self.relaxed };
        last_position.fetch_max(position.0, Ordering::AcqRel);
    }

    /// Whether the last group may not be flushed yet.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.relaxed.load(Ordering::Acquire) > self.durable.load(Ordering::Acquire)
    }
}
