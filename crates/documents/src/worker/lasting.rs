//! Which writes have reached the disk.

use std::sync::atomic::{AtomicI64, Ordering};

/// How far was written without waiting for the disk, and how far with that, by positions in the feed. What is waited for lasts with all that was
/// written before it.
#[derive(Debug, Default)]
pub struct Lasting {
    relaxed: AtomicI64,
    lasting: AtomicI64,
}

impl Lasting {
    /// All that there is lasts.
    pub fn begin(&self) {
        self.relaxed.store(0, Ordering::Release);
        self.lasting.store(0, Ordering::Release);
    }

    /// A group was written, up to this position.
    pub fn note(&self, position: i64, has_lasted: bool) {
        let furthest = match has_lasted {
            true => &self.lasting,
            false => &self.relaxed,
        };
        furthest.fetch_max(position, Ordering::AcqRel);
    }

    /// Whether the last group may not have reached the disk.
    pub fn is_behind(&self) -> bool {
        self.relaxed.load(Ordering::Acquire) > self.lasting.load(Ordering::Acquire)
    }
}
