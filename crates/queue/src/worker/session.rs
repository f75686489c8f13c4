//! A worker that takes tasks as they come ready, as many as it has room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::QueueError;
use crate::worker::sinks::WorkSink;

/// The shortest and the longest lease, in milliseconds.
pub const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

/// Tasks that a worker may say it has room for, all in all.
pub const CREDITS_MAX: u32 = 100_000;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkSpec {
    /// Names of the queues to work on.
    pub queues: Vec<String>,
    /// Name of the worker, for people to read.
    pub worker: String,
    /// How long a lease lasts without a heartbeat, in milliseconds; `None`: as the queue says.
    pub lease_ms: Option<u64>,
}

/// What partitions know of a worker.
pub(crate) struct WorkSession {
    pub worker: Box<str>,
    /// Ids of queues, with the lease time of each in milliseconds.
    pub queues: Vec<(u32, u64)>,
    pub sink: Arc<dyn WorkSink>,
    /// Tasks it has room for; above them how often it has been drained.
    room: AtomicU64,
    /// Which partitions count on it; the others must be told when it has room.
    known: Box<[AtomicBool]>,
    /// Only one partition may count on it.
    pub alone: bool,
    closed: AtomicBool,
}

/// Where the number of drains begins in the word that holds the credits too.
const DRAIN: u64 = 1 << 32;

/// Credits that a partition has taken. What is not used is to be given back.
pub(crate) struct CreditGrant {
    pub credits: u32,
    /// The number of drains when they were taken.
    drains: u64,
}

impl WorkSession {
    pub(crate) fn new(
        worker: &str,
        queues: Vec<(u32, u64)>,
        sink: Arc<dyn WorkSink>,
        partitions: usize,
    ) -> Self {
        Self {
            worker: worker.into(),
            queues,
            sink,
            room: AtomicU64::new(0),
            known: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            alone: false,
            closed: AtomicBool::new(false),
        }
    }

    /// Another place for the same worker, without room yet, that one partition is to count on.
    pub(crate) fn alike(&self, partitions: usize) -> Self {
        Self {
            alone: true,
            ..Self::new(
                &self.worker,
                self.queues.clone(),
                self.sink.clone(),
                partitions,
            )
        }
    }

    /// Adds `count` credits. Returns false, without a change, if the sum exceeds the maximum.
    pub(crate) fn add_credits(&self, count: u32) -> bool {
        let fits = |room: u64| {
            let sum = (room as u32).checked_add(count)?;
            (sum <= CREDITS_MAX).then_some(room & !(DRAIN - 1) | u64::from(sum))
        };
        let before = self.change(|room| fits(room).unwrap_or(room));
        fits(before).is_some()
    }

    /// Takes up to `most` credits.
    pub(crate) fn take_credits(&self, most: u32) -> CreditGrant {
        let most = if self.is_closed() || self.sink.is_full() {
            0
        } else {
            most
        };
        let before = self.change(|room| room - u64::from((room as u32).min(most)));
        CreditGrant {
            credits: (before as u32).min(most),
            drains: before / DRAIN,
        }
    }

    /// No room any more. What partitions have taken before does not come back either.
    pub(crate) fn drain(&self) {
        self.change(|room| (room / DRAIN + 1).wrapping_mul(DRAIN));
    }

    /// Gives back credits that were not used. Returns the partitions that must be told now: they
    /// may have found no room meanwhile. They count on it from here on.
    pub(crate) fn give_back(&self, room: &CreditGrant, unused: u32) -> Vec<usize> {
        if unused == 0 {
            return Vec::new();
        }
        let before = self.change(|now| {
            if now / DRAIN == room.drains {
                now & !(DRAIN - 1) | u64::from((now as u32).saturating_add(unused))
            } else {
                now
            }
        });
        if before / DRAIN == room.drains {
            self.become_known_to_all()
        } else {
            Vec::new()
        }
    }

    /// Has partitions count on it again that found no room. Returns which: they must be told now.
    pub(crate) fn become_known_to_all(&self) -> Vec<usize> {
        if self.alone {
            return Vec::new();
        }
        let partitions = 0..self.known.len();
        partitions.filter(|one| self.register_with(*one)).collect()
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> u64 {
        let mut known = self.room.load(Ordering::SeqCst);
        loop {
            let swapped = self.room.compare_exchange_weak(
                known,
                to(known),
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match swapped {
                Ok(before) => return before,
                Err(now) => known = now,
            }
        }
    }

    /// Whether a partition did not count on it; it does from here on.
    pub(crate) fn register_with(&self, partition: usize) -> bool {
        !self.known[partition].swap(true, Ordering::SeqCst)
    }

    /// A partition found no room and does not count on it any more.
    pub(crate) fn become_unknown(&self, partition: usize) {
        self.known[partition].store(false, Ordering::SeqCst);
    }

    /// Whether it has room for a task.
    pub(crate) fn has_credits(&self) -> bool {
        self.room.load(Ordering::SeqCst) as u32 > 0 && !self.is_closed() && !self.sink.is_full()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How long a lease of a queue lasts, in milliseconds.
    pub(crate) fn lease_ms(&self, queue: u32) -> u64 {
        let found = self.queues.iter().find(|(id, _)| *id == queue);
        found.map_or(0, |(_, lease_ms)| *lease_ms)
    }
}

/// Refuses a lease time that is out of range.
pub(crate) fn check_lease(lease_ms: u64) -> Result<(), QueueError> {
    if LEASE_MS.contains(&lease_ms) {
        return Ok(());
    }
    let (least, most) = LEASE_MS.into_inner();
    Err(QueueError::Invalid {
        what: "lease_ms",
        reason: format!("{lease_ms} is not from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests;
