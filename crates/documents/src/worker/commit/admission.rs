//! Admission: which queued writes may run. Writes that conflict run in the order of their arrival.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use egret_base::sync::lock;
use egret_postgres::slots::TenantSlots;
use tokio::sync::{Notify, oneshot};

use super::in_flight::InFlightWrite;
use super::queued::{ExclusiveGuard, QueuedWrite, WriteOptions};
use super::result::{BatchRejection, WriteResult};
use crate::core::schedule::{ConflictScheduler, LockSet, Ticket};
use crate::core::write::WriteRequest;
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::TenantId;
use crate::worker::batched_reader::WAITING_MAX_SETTING;

/// Sessions that a write may lose: the last of them while no other write runs.
const SESSION_LOSSES_MAX: u32 = 3;

/// Requests to be queued together, each with its options.
pub(super) type NewWrites = Vec<(Vec<WriteRequest>, WriteOptions)>;

/// The queue of a database's writes, and the locks of those that run.
pub(super) struct Admission {
    scheduler: Mutex<ConflictScheduler<QueuedWrite>>,
    /// Slots of queued writes, by tenant.
    slots: TenantSlots<TenantId>,
    /// Notified when a write is queued or finished.
    changed: Notify,
    is_closed: AtomicBool,
    metrics: Metrics,
}

impl Admission {
    pub(super) fn new(waiting_max: u32, metrics: Metrics) -> Self {
        Self {
            scheduler: Mutex::default(),
            slots: TenantSlots::new(WAITING_MAX_SETTING, waiting_max),
            changed: Notify::new(),
            is_closed: AtomicBool::new(false),
            metrics,
        }
    }

    fn scheduler(&self) -> MutexGuard<'_, ConflictScheduler<QueuedWrite>> {
        lock(&self.scheduler)
    }

    /// Writes that a tenant may have in the queue, at most.
    pub(super) fn tenant_writes_max(&self) -> usize {
        self.slots.share()
    }

    /// Queues writes of one tenant. Returns the channels for their results.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`] and [`DocumentsError::Unreachable`]: none was queued.
    pub(super) fn push(
        &self,
        writes: NewWrites,
    ) -> Result<Vec<oneshot::Receiver<WriteResult>>, DocumentsError> {
        let count: usize = writes.iter().map(|(requests, _)| requests.len()).sum();
        let first = writes.iter().find_map(|(requests, _)| requests.first());
        let tenant = first.map(|request| request.tenant);
        let mut results = Vec::with_capacity(writes.len());
        let mut queued = Vec::with_capacity(writes.len());
        for (requests, options) in writes {
            let (write, result) = QueuedWrite::new(requests, options);
            queued.push((write.lock_set(), write));
            results.push(result);
        }
        {
            let mut scheduler = self.scheduler();
            if self.is_closed.load(Ordering::Acquire) {
                return Err(DocumentsError::Unreachable);
            }
            let slot = tenant
                .map(|tenant| self.slots.try_take_many(tenant, count as u64))
                .transpose()?
                .map(Arc::new);
            for (locks, mut write) in queued {
                write.slot = slot.clone();
                scheduler.push(locks, write.requests.len(), write);
            }
        }
        self.changed.notify_one();
        Ok(results)
    }

    /// Acquires the exclusive lock: waits for running writes to finish. No write is admitted until
    /// the guard is dropped.
    ///
    /// # Errors
    /// [`DocumentsError::OwnedElsewhere`] or [`DocumentsError::Unreachable`]: this Egret does not
    /// write here.
    pub(super) async fn lock_exclusive(&self) -> Result<ExclusiveGuard, DocumentsError> {
        let (mut write, result) = QueuedWrite::new(Vec::new(), WriteOptions::default());
        let (guard_sender, guard_receiver) = oneshot::channel();
        write.exclusive = Some(guard_sender);
        {
            let mut scheduler = self.scheduler();
            if self.is_closed.load(Ordering::Acquire) {
                return Err(DocumentsError::Unreachable);
            }
            scheduler.push(LockSet::whole_database(), write.weight(), write);
        }
        self.changed.notify_one();
        match guard_receiver.await {
            Ok(guard) => Ok(guard),
            Err(_) => Err(match result.await {
                Ok(Err(rejection)) => rejection.error,
                _ => DocumentsError::Stopping,
            }),
        }
    }

    /// Waits until a write is queued or finished.
    pub(super) async fn await_change(&self) {
        self.changed.notified().await;
    }

    /// Wakes a session that waits for writes.
    pub(super) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Admits the next group of writes without conflicts; empty if none can run now.
    pub(super) fn admit(&self, weight_max: usize) -> Vec<InFlightWrite> {
        let admitted = self.scheduler().admit(weight_max);
        if admitted.is_empty() {
            return Vec::new();
        }
        let mut weight = 0;
        let mut group = Vec::with_capacity(admitted.len());
        for (ticket, mut write) in admitted {
            // A started write frees its slot in the queue.
            write.slot = None;
            weight += write.weight();
            let waited = write.queued_at.elapsed();
            self.metrics.wait.observe(waited.as_secs_f64());
            group.push(InFlightWrite::new(ticket, write));
        }
        self.metrics.group_writes.observe(weight as f64);
        group
    }

    /// Extends the lock sets by the documents found. Puts back writes that conflict with others
    /// now, and returns those that do not.
    pub(super) fn extend_locks(&self, group: Vec<InFlightWrite>) -> Vec<InFlightWrite> {
        let found_locks: Vec<(Ticket, LockSet)> =
            group.iter().map(|write| (write.ticket, write.found_locks())).collect();
        let mut scheduler = self.scheduler();
        let granted = scheduler.extend_locks(&found_locks);
        let mut admitted = Vec::with_capacity(group.len());
        for ((write, (_, locks)), is_granted) in group.into_iter().zip(found_locks).zip(granted) {
            if is_granted {
                admitted.push(write);
            } else {
                self.metrics.deferred.inc();
                scheduler.put_back(write.ticket, write.queued, locks);
            }
        }
        admitted
    }

    /// Puts writes back into their positions of the queue; they are looked up again.
    pub(super) fn put_back(&self, group: Vec<InFlightWrite>) {
        let mut scheduler = self.scheduler();
        for write in group {
            scheduler.put_back(write.ticket, write.queued, LockSet::default());
        }
    }

    /// Like [`Self::put_back`], for a write that needs further locks.
    pub(super) fn put_back_with_locks(&self, write: InFlightWrite, locks: LockSet) {
        self.scheduler().put_back(write.ticket, write.queued, locks);
    }

    /// Requeues writes whose session was lost before anything was written. Any of them may have
    /// caused the loss: after its second loss a write runs alone, so that no other write is lost
    /// with it; after its third it is rejected. Returns the rejected writes.
    pub(super) fn put_back_after_loss(
        &self,
        group: Vec<InFlightWrite>,
        error: &DocumentsError,
    ) -> Vec<InFlightWrite> {
        let mut rejected = Vec::new();
        let mut scheduler = self.scheduler();
        for mut write in group {
            write.queued.sessions_lost += 1;
            if write.queued.sessions_lost >= SESSION_LOSSES_MAX {
                write.reject(0, error.clone());
                rejected.push(write);
            } else if write.queued.sessions_lost + 1 == SESSION_LOSSES_MAX {
                scheduler.put_back(write.ticket, write.queued, LockSet::whole_database());
            } else {
                scheduler.put_back(write.ticket, write.queued, LockSet::default());
            }
        }
        rejected
    }

    /// Whether a running write holds the exclusive lock on the database.
    pub(super) fn holds_database(&self, ticket: Ticket) -> bool {
        self.scheduler().holds_database(ticket)
    }

    /// Replies to the callers of writes and releases their locks.
    pub(super) fn finish(&self, writes: Vec<InFlightWrite>, results: Vec<WriteResult>) {
        let mut scheduler = self.scheduler();
        for (write, result) in writes.into_iter().zip(results) {
            scheduler.release(write.ticket);
            match &result {
                Ok(receipts) => {
                    receipts.iter().for_each(|receipt| self.metrics.count_write(Ok(receipt)))
                }
                Err(rejection) => self.metrics.count_write(Err(&rejection.error)),
            }
            _ = write.queued.reply.send(result);
        }
    }

    /// Ends an admitted request for the exclusive lock.
    pub(super) fn release(&self, ticket: Ticket) {
        self.scheduler().release(ticket);
    }

    /// Rejects all queued writes with this error.
    pub(super) fn reject_queued(&self, error: &DocumentsError) {
        for write in self.scheduler().drain() {
            let rejection = BatchRejection::at(0, error.clone());
            _ = write.reply.send(Err(rejection));
        }
    }

    /// Rejects all queued and all later writes.
    pub(super) fn close(&self, error: &DocumentsError) {
        {
            let _scheduler = self.scheduler();
            self.is_closed.store(true, Ordering::Release);
        }
        self.reject_queued(error);
    }
}
