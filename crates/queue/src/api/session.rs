//! A worker that takes tasks as they come ready, as many as it has room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::api::sink::WorkSink;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkSpec {
    /// Names of queues.
    pub queues: Vec<String>,
    /// Who works, for people to read.
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
    /// Tasks it has room for.
    credits: AtomicI64,
    /// Which partitions count on it; the others must be told when it has room.
    known: Box<[AtomicBool]>,
    closed: AtomicBool,
}

impl WorkSession {
    pub fn new(
        worker: &str,
        queues: Vec<(u32, u64)>,
        sink: Arc<dyn WorkSink>,
        partitions: usize,
    ) -> Self {
        Self {
            worker: worker.into(),
            queues,
            sink,
            credits: AtomicI64::new(0),
            known: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            closed: AtomicBool::new(false),
        }
    }

    /// Another place for the same worker, without room yet.
    pub fn alike(&self, partitions: usize) -> Self {
        Self::new(
            &self.worker,
            self.queues.clone(),
            self.sink.clone(),
            partitions,
        )
    }

    /// Room for `count` more tasks.
    pub fn add_credits(&self, count: u32) {
        self.credits.fetch_add(i64::from(count), Ordering::SeqCst);
    }

    /// Takes up to `most` credits.
    pub fn take_credits(&self, most: u32) -> u32 {
        if self.closed.load(Ordering::Acquire) {
            return 0;
        }
        let mut known = self.credits.load(Ordering::SeqCst);
        loop {
            let taken = known.clamp(0, i64::from(most));
            if taken == 0 {
                return 0;
            }
            let left = known - taken;
            let swapped =
                self.credits
                    .compare_exchange_weak(known, left, Ordering::SeqCst, Ordering::SeqCst);
            match swapped {
                Ok(_) => return taken as u32,
                Err(now) => known = now,
            }
        }
    }

    /// Whether a partition did not count on it; it does from here on.
    pub fn become_known(&self, partition: usize) -> bool {
        !self.known[partition].swap(true, Ordering::SeqCst)
    }

    /// A partition found no room and does not count on it any more.
    pub fn become_unknown(&self, partition: usize) {
        self.known[partition].store(false, Ordering::SeqCst);
    }

    /// Whether it has room for a task.
    pub fn has_credits(&self) -> bool {
        self.credits.load(Ordering::SeqCst) > 0 && !self.is_closed()
    }

    /// Gets nothing more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How long a lease of a queue lasts, in milliseconds.
    pub fn lease_ms(&self, queue: u32) -> u64 {
        let found = self.queues.iter().find(|(id, _)| *id == queue);
        found.map_or(0, |(_, lease_ms)| *lease_ms)
    }
}
