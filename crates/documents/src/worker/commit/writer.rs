//! Group commit: writes that arrive while a group is in flight form the next one.
//!
//! As many groups run concurrently as there are sessions. Each looks up the current state, decides,
//! and writes all differences by one statement, which is its own transaction. Callers get their
//! results only after the commit, and locks are held until then.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use tokio::sync::{Mutex as Turns, MutexGuard as Turn, oneshot, watch};

use super::admission::{Admission, NewWrites};
use super::alias_cache::AliasCache;
use super::batch::{SessionEnd, WriteBatch};
use super::durability::DurabilityTracker;
use super::in_flight::InFlightWrite;
use super::queued::{ExclusiveGuard, WriteOptions};
use super::result::{BatchRejection, WriteResult};
use crate::config::DocumentsConfig;
use crate::core::write::WriteRequest;
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::{DocumentNumber, Epoch, FeedPosition, WriteReceipt};
use crate::worker::catalogue::Catalogue;
use crate::worker::ids::IdGenerator;
use crate::worker::session::WriterSession;

pub(crate) struct Writer {
    pub(super) config: DocumentsConfig,
    pub(super) metrics: Metrics,
    pub(super) admission: Admission,
    pub(super) aliases: AliasCache,
    pub(super) ids: IdGenerator,
    catalogue: Mutex<Arc<Catalogue>>,
    /// Serializes look-ups: one group at a time, so that all writes arriving meanwhile join the
    /// next one.
    look_up_lock: Turns<()>,
    /// Serializes the commits of small groups. A group acquires it before it lets the next group
    /// look up.
    commit_lock: Turns<()>,
    /// Number of the last batch.
    pub(super) last_batch: AtomicI64,
    /// Feed position of the last change.
    pub(super) position: watch::Sender<FeedPosition>,
    /// Set when the cached state of the database may be wrong.
    is_invalid: AtomicBool,
    pub(super) durability: DurabilityTracker,
    epoch: AtomicI64,
    pub(super) reply_count: AtomicU64,
}

impl Writer {
    /// Creates a writer with an empty queue.
    pub(crate) fn new(
        config: DocumentsConfig,
        metrics: Metrics,
        ids: IdGenerator,
        catalogue: Arc<Catalogue>,
    ) -> Self {
        Self {
            aliases: AliasCache::new(config.names_max),
            admission: Admission::new(config.waiting_max, metrics.clone()),
            config,
            metrics,
            ids,
            catalogue: Mutex::new(catalogue),
            look_up_lock: Turns::default(),
            commit_lock: Turns::default(),
            last_batch: AtomicI64::new(0),
            position: watch::Sender::new(FeedPosition::default()),
            is_invalid: AtomicBool::new(false),
            durability: DurabilityTracker::default(),
            epoch: AtomicI64::new(0),
            reply_count: AtomicU64::new(0),
        }
    }

    /// Executes one write.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was written.
    pub(crate) async fn write(
        &self,
        request: WriteRequest,
        options: WriteOptions,
    ) -> Result<WriteReceipt, DocumentsError> {
        let result = self.write_all(vec![request], options).await;
        let mut receipts = result.map_err(|rejection| rejection.error)?;
        Ok(receipts.pop().expect("a write has a receipt"))
    }

    /// Executes several writes, all or none.
    ///
    /// # Errors
    /// [`BatchRejection`]: nothing was written.
    pub(crate) async fn write_all(
        &self,
        requests: Vec<WriteRequest>,
        options: WriteOptions,
    ) -> WriteResult {
        let results = self.admission.push(vec![(requests, options)]);
        let result =
            results.map_err(|error| BatchRejection::at(0, error))?.pop().expect("one was queued");
        await_result(result).await
    }

    /// Executes several independent writes; those that conflict keep their order. They are queued
    /// in chunks of half a tenant's share of the queue, one chunk after the other. If a chunk finds
    /// no room, it and all later ones are rejected.
    pub(crate) async fn write_each(
        &self,
        requests: Vec<(WriteRequest, WriteOptions)>,
    ) -> Vec<Result<WriteReceipt, DocumentsError>> {
        let chunk_max = (self.admission.tenant_writes_max() / 2).max(1);
        let mut results = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        while requests.len() > 0 {
            let chunk: NewWrites = requests
                .by_ref()
                .take(chunk_max)
                .map(|(request, options)| (vec![request], options))
                .collect();
            let count = chunk.len();
            match self.admission.push(chunk) {
                Ok(pending) => {
                    for result in pending {
                        let result = await_result(result).await;
                        let receipts = result.map_err(|rejection| rejection.error);
                        results.push(receipts.map(|receipts| receipts[0]));
                    }
                }
                // Later writes may refer to documents that these would have created.
                Err(error) => {
                    let rejected = count + std::mem::take(&mut requests).len();
                    results.extend(std::iter::repeat_n(Err(error), rejected));
                }
            }
        }
        results
    }

    /// Acquires the exclusive lock: waits for running writes to finish. No write is admitted until
    /// the guard is dropped.
    ///
    /// # Errors
    /// [`DocumentsError::OwnedElsewhere`] or [`DocumentsError::Unreachable`]: this Egret does not
    /// write here.
    pub(crate) async fn lock_exclusive(&self) -> Result<ExclusiveGuard, DocumentsError> {
        self.admission.lock_exclusive().await
    }

    /// Executes group after group, as the owner with this epoch, until `stop_signal` is set. On an
    /// error, queued writes stay queued.
    pub(crate) async fn run(
        &self,
        session: &WriterSession,
        epoch: Epoch,
        mut stop_signal: watch::Receiver<bool>,
    ) -> Result<(), SessionEnd> {
        while !*stop_signal.borrow() {
            let look_up_guard = match self.config.group_max {
                // Without group commit, writes do not wait for each other's look-ups either.
                0 | 1 => None,
                _ => Some(self.look_up_lock.lock().await),
            };
            if self.is_invalid.load(Ordering::Acquire) {
                return Err(SessionEnd::Lost(DocumentsError::Unreachable));
            }
            let group = self.admission.admit(self.config.group_max as usize);
            if group.is_empty() {
                drop(look_up_guard);
                tokio::select! {
                    () = self.admission.await_change() => {}
                    _ = stop_signal.changed() => {}
                }
                continue;
            }
            self.execute(session, epoch, group, look_up_guard).await?;
            self.admission.notify();
        }
        Ok(())
    }

    /// Executes a group, or puts its writes back.
    async fn execute(
        &self,
        session: &WriterSession,
        epoch: Epoch,
        mut group: Vec<InFlightWrite>,
        look_up_guard: Option<Turn<'_, ()>>,
    ) -> Result<(), SessionEnd> {
        let first = group.first_mut();
        if let Some(exclusive) = first.and_then(|write| write.queued.exclusive.take()) {
            self.grant_exclusive(exclusive, epoch).await;
            group.into_iter().for_each(|write| self.admission.release(write.ticket));
            return Ok(());
        }
        let group = self.revalidate(group);
        let group = self.look_up(session, group).await?;
        let group = self.admission.extend_locks(group);
        let group = self.decide(session, group).await?;
        let (no_ops, writes): (Vec<InFlightWrite>, Vec<InFlightWrite>) =
            group.into_iter().partition(|write| {
                write.is_no_op() && !(self.durability.has_unflushed() && write.depends_on_flush())
            });
        self.finish(no_ops);
        if writes.is_empty() {
            return Ok(());
        }
        // Two large groups keep two server sessions busy; small groups are better merged into one.
        let weight: usize = writes.iter().map(|write| write.queued.weight()).sum();
        let is_large = weight * 2 >= self.config.group_max as usize;
        let commit_guard = match look_up_guard {
            Some(_) if !is_large => Some(self.commit_lock.lock().await),
            _ => None,
        };
        drop(look_up_guard);
        self.admission.notify();
        let result = self.commit(session, epoch, WriteBatch { writes }).await;
        drop(commit_guard);
        result
    }

    /// Grants the exclusive lock, and waits until its guard is dropped.
    async fn grant_exclusive(&self, exclusive: oneshot::Sender<ExclusiveGuard>, epoch: Epoch) {
        let (release_sender, release_receiver) = oneshot::channel();
        let guard = ExclusiveGuard { epoch, _release_sender: release_sender };
        if exclusive.send(guard).is_ok() {
            // Completes when the guard is dropped; nothing is ever sent.
            let _ = release_receiver.await;
        }
    }
}

/// State of the database, as its owner sees it.
impl Writer {
    /// Starts a new epoch, after the last document number and feed position of the database. Cached
    /// aliases are dropped, because another Egret may have written.
    pub(crate) fn begin_epoch(&self, epoch: Epoch, number: DocumentNumber, position: FeedPosition) {
        self.epoch.store(epoch.0, Ordering::Release);
        self.ids.continue_after(number);
        self.aliases.clear();
        self.position.send_replace(position);
        self.durability.reset();
        self.is_invalid.store(false, Ordering::Release);
    }

    /// Current epoch, or the last one.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Feed position of the last change written here, to be watched.
    pub(crate) fn position(&self) -> watch::Receiver<FeedPosition> {
        self.position.subscribe()
    }

    /// Number of writes that sessions have replied to, including rejections.
    pub(crate) fn reply_count(&self) -> u64 {
        self.reply_count.load(Ordering::Acquire)
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        lock(&self.catalogue).clone()
    }

    pub(crate) fn set_catalogue(&self, catalogue: Arc<Catalogue>) {
        *lock(&self.catalogue) = catalogue;
    }

    /// Clears the alias cache.
    pub(crate) fn clear_aliases(&self) {
        self.aliases.clear();
    }

    /// Stops writing until ownership has been acquired again: cached state may be wrong.
    pub(crate) fn invalidate(&self) {
        self.is_invalid.store(true, Ordering::Release);
    }

    /// Rejects all queued writes with this error.
    pub(crate) fn reject_queued(&self, error: &DocumentsError) {
        self.admission.reject_queued(error);
    }

    /// Rejects all queued and all later writes.
    pub(crate) fn close(&self, error: &DocumentsError) {
        self.admission.close(error);
    }
}

async fn await_result(result: oneshot::Receiver<WriteResult>) -> WriteResult {
    let stopping = || BatchRejection::at(0, DocumentsError::Stopping);
    result.await.unwrap_or_else(|_| Err(stopping()))
}
