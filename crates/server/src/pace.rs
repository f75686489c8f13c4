//! How long a peer may keep the server waiting for bytes, in either direction.
//!
//! Waiting uses up a time limit and every transferred byte gives a part of it back. So one rule
//! ends both a peer that stops and a peer that transfers less than the minimum rate, and a fast
//! peer is never ended.

use std::time::{Duration, Instant};

/// The time that a peer may keep the server waiting, and the rate that gives it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaceLimit {
    pub(crate) timeout: Duration,
    pub(crate) bytes_per_second: u64,
}

/// The waiting time that one transfer has used up.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: PaceLimit,
    waited: Duration,
    waiting_since: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(limit: PaceLimit) -> Self {
        Self { limit, waited: Duration::ZERO, waiting_since: None }
    }

    /// Whether the server is waiting for the peer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// Begins or continues to wait; returns when the waiting time is used up.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + self.limit.timeout.saturating_sub(self.waited)
    }

    /// Ends the waiting, with so many bytes transferred.
    pub(crate) fn record_progress(&mut self, now: Instant, bytes: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += now.saturating_duration_since(since);
        }
        if !self.waited.is_zero() {
            let micros = bytes.saturating_mul(1_000_000) / self.limit.bytes_per_second.max(1);
            self.waited = self.waited.saturating_sub(Duration::from_micros(micros));
        }
    }
}

#[cfg(test)]
mod tests;
