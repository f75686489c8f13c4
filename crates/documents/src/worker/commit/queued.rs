//! A write that waits for its locks.

use std::sync::Arc;

use egret_postgres::slots::Slot;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::result::WriteResult;
use crate::core::atomic;
use crate::core::schedule::{LockKey, LockSet};
use crate::core::write::{IdempotentRequest, WriteRequest};
use crate::model::{Epoch, TenantId};

/// A queued write: one request, or several that are executed all or none.
pub(crate) struct QueuedWrite {
    pub requests: Vec<WriteRequest>,
    pub options: WriteOptions,
    pub queued_at: Instant,
    /// Receives the result of the requests.
    pub reply: oneshot::Sender<WriteResult>,
    /// Set on requests for the exclusive lock: receives a guard; no write is admitted until it is
    /// dropped.
    pub exclusive: Option<oneshot::Sender<ExclusiveGuard>>,
    /// Its slot in the queue, shared by all writes that were queued together.
    pub slot: Option<Arc<Slot<TenantId>>>,
    /// How many sessions were lost while it was in flight in them.
    pub sessions_lost: u32,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Idempotency key and fingerprint: repeated requests get the stored reply.
    pub idempotency: Option<IdempotentRequest>,
    /// Relaxed durability: a crash of the server may lose the writes.
    pub is_relaxed: bool,
}

/// Guard of the exclusive lock on a database's documents; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct ExclusiveGuard {
    /// Epoch of the owner that granted the lock: an owner with another epoch does not honour it.
    pub epoch: Epoch,
    /// Closed when the guard is dropped, which releases the lock.
    pub _release_sender: oneshot::Sender<()>,
}

impl QueuedWrite {
    /// Creates it, with the channel on which its result arrives.
    pub(crate) fn new(
        requests: Vec<WriteRequest>,
        options: WriteOptions,
    ) -> (Self, oneshot::Receiver<WriteResult>) {
        let (reply, result) = oneshot::channel();
        let queued = Self {
            requests,
            options,
            queued_at: Instant::now(),
            reply,
            exclusive: None,
            slot: None,
            sessions_lost: 0,
        };
        (queued, result)
    }

    /// Number of writes that it counts as.
    pub(crate) fn weight(&self) -> usize {
        // A request for the exclusive lock has no writes.
        self.requests.len().max(1)
    }

    /// Lock set of its requests, with its idempotency key, as far as it is known before the
    /// look-up.
    pub(crate) fn lock_set(&self) -> LockSet {
        let mut locks = atomic::lock_set(&self.requests);
        if let (Some(idempotency), Some(first)) = (self.options.idempotency, self.requests.first())
        {
            let key = LockKey::IdempotencyKey(first.tenant, idempotency.key);
            locks.exclusive.push(key);
        }
        locks
    }
}
