//! Sessions of workers, which receive tasks for their credits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::QueueError;
use crate::worker::sinks::WorkSink;

/// The shortest and the longest lease, in milliseconds.
pub const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

/// Maximum number of credits of a worker.
pub const CREDITS_MAX: u32 = 100_000;

/// Description of a worker.
#[derive(Clone, Debug)]
pub struct WorkSpec {
    /// Names of the queues to work on.
    pub queues: Vec<String>,
    /// Name of the worker, for people to read.
    pub worker: String,
    /// How long a lease lasts without a heartbeat, in milliseconds; `None`: the queue's setting.
    pub lease_ms: Option<u64>,
}

/// A worker as the partitions use it.
pub(crate) struct WorkSession {
    pub worker: Box<str>,
    /// Ids of queues, with the lease time of each in milliseconds.
    pub queues: Vec<(u32, u64)>,
    pub sink: Arc<dyn WorkSink>,
    /// Its credits; in the upper bits the number of drains.
    credit_word: AtomicU64,
    /// Partitions that know of its credits; the others must be notified of new ones.
    registered: Box<[AtomicBool]>,
    /// Whether it belongs to a claim, which only one partition serves.
    pub is_claim: bool,
    closed: AtomicBool,
}

/// Unit of the number of drains in the word that also holds the credits.
const DRAIN_UNIT: u64 = 1 << 32;

/// Credits that a partition has taken. Unused ones must be returned.
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
            credit_word: AtomicU64::new(0),
            registered: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            is_claim: false,
            closed: AtomicBool::new(false),
        }
    }

    /// Another session for the same worker without credits, for a claim from one partition.
    pub(crate) fn clone_for_claim(&self, partitions: usize) -> Self {
        Self {
            is_claim: true,
            ..Self::new(&self.worker, self.queues.clone(), self.sink.clone(), partitions)
        }
    }

    /// Adds `count` credits. Returns false, without a change, if the sum exceeds the maximum.
    pub(crate) fn add_credits(&self, count: u32) -> bool {
        let fits = |word: u64| {
            let sum = (word as u32).checked_add(count)?;
            (sum <= CREDITS_MAX).then_some(word & !(DRAIN_UNIT - 1) | u64::from(sum))
        };
        let previous = self.update_credits(|room| fits(room).unwrap_or(room));
        fits(previous).is_some()
    }

    /// Takes up to `max` credits.
    pub(crate) fn take_credits(&self, max: u32) -> CreditGrant {
        let most = if self.is_closed() || self.sink.is_full() { 0 } else { max };
        let previous = self.update_credits(|room| room - u64::from((room as u32).min(most)));
        CreditGrant { credits: (previous as u32).min(most), drains: previous / DRAIN_UNIT }
    }

    /// Drops all credits. Those that partitions have taken before are not returned either.
    pub(crate) fn drain(&self) {
        self.update_credits(|word| (word / DRAIN_UNIT + 1).wrapping_mul(DRAIN_UNIT));
    }

    /// Returns unused credits. The result is the partitions that must be notified now: they may
    /// have found no credits meanwhile.
    pub(crate) fn return_credits(&self, grant: &CreditGrant, unused: u32) -> Vec<usize> {
        if unused == 0 {
            return Vec::new();
        }
        let previous = self.update_credits(|word| {
            if word / DRAIN_UNIT == grant.drains {
                word & !(DRAIN_UNIT - 1) | u64::from((word as u32).saturating_add(unused))
            } else {
                word
            }
        });
        if previous / DRAIN_UNIT == grant.drains { self.register_with_all() } else { Vec::new() }
    }

    /// Registers with all partitions that found no credits. Returns those that must be notified
    /// now.
    pub(crate) fn register_with_all(&self) -> Vec<usize> {
        if self.is_claim {
            return Vec::new();
        }
        let partitions = 0..self.registered.len();
        partitions.filter(|partition| self.register_with(*partition)).collect()
    }

    fn update_credits(&self, update: impl Fn(u64) -> u64) -> u64 {
        let mut current = self.credit_word.load(Ordering::SeqCst);
        loop {
            let swapped = self.credit_word.compare_exchange_weak(
                current,
                update(current),
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match swapped {
                Ok(before) => return before,
                Err(now) => current = now,
            }
        }
    }

    /// Registers with a partition. Returns whether it was not registered.
    pub(crate) fn register_with(&self, partition: usize) -> bool {
        !self.registered[partition].swap(true, Ordering::SeqCst)
    }

    /// Unregisters from a partition that found no credits.
    pub(crate) fn unregister_from(&self, partition: usize) {
        self.registered[partition].store(false, Ordering::SeqCst);
    }

    /// Whether it has credits and can take a task.
    pub(crate) fn has_credits(&self) -> bool {
        self.credit_word.load(Ordering::SeqCst) as u32 > 0
            && !self.is_closed()
            && !self.sink.is_full()
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
