//! Commits batches: a whole group by one statement, or part by part if the server rejects it; then
//! replies to the callers.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::batch::{SessionEnd, UncertainBatch, UncertainResolution, WriteBatch, update_cache};
use super::decide::check_single_removals;
use super::in_flight::InFlightWrite;
use super::result::WriteResult;
use super::writer::Writer;
use crate::error::DocumentsError;
use crate::model::{DocumentNumber, Epoch, FeedPosition};
use crate::store::write::CommitOutcome;
use crate::worker::session::WriterSession;

/// How often a batch is retried after a serialization failure or deadlock.
const RETRIES_MAX: u32 = 5;

/// What is left to commit of a group.
struct PendingBatches {
    batches: Vec<WriteBatch>,
    /// Number of retries so far.
    retries: u32,
}

impl Writer {
    /// Commits all writes. If the server rejects a batch, it is split into halves, so that in the
    /// end only writes that are rejected by themselves fail.
    pub(super) async fn commit(
        &self,
        session: &WriterSession,
        epoch: Epoch,
        batch: WriteBatch,
    ) -> Result<(), SessionEnd> {
        let mut pending = PendingBatches { batches: vec![batch], retries: 0 };
        while let Some(batch) = pending.batches.pop() {
            if batch.writes.is_empty() {
                continue;
            }
            let rows = batch.rows();
            let number = self.last_batch.fetch_add(1, Ordering::Relaxed) + 1;
            let previous_position = *self.position.borrow();
            let started = Instant::now();
            let outcome = session.write(&rows, epoch, number).await;
            self.metrics.write.observe(started.elapsed().as_secs_f64());
            match outcome {
                Ok(CommitOutcome::Written(position)) => {
                    self.durability.record_commit(position, rows.requires_durability());
                    self.finish(batch.writes);
                    self.advance_position(position);
                }
                Ok(CommitOutcome::StillReferenced(referenced)) => {
                    let (rest, check_result) =
                        self.reject_removals(session, batch, &referenced).await;
                    if let Err(error) = check_result {
                        self.put_back_pending(pending);
                        return Err(self.end_session(rest.writes, error));
                    }
                    pending.batches.push(rest);
                }
                Err(error) if error.is_fenced() => {
                    // A trigger of a user may raise this code too, each time.
                    self.put_back_pending(pending);
                    return Err(self.end_session(batch.writes, error));
                }
                Err(error) if error.is_session_lost() => {
                    self.put_back_pending(pending);
                    return Err(SessionEnd::Uncertain(UncertainBatch {
                        epoch,
                        number,
                        previous_position,
                        batch,
                        error,
                    }));
                }
                Err(error) => self.retry_or_split(&mut pending, batch, &error),
            }
        }
        Ok(())
    }

    fn advance_position(&self, position: FeedPosition) {
        self.position.send_if_modified(|last| {
            let is_further = position > *last;
            *last = position.max(*last);
            is_further
        });
    }

    /// Rejects deletions of documents that are still referenced. Returns the writes still to be
    /// committed.
    async fn reject_removals(
        &self,
        session: &WriterSession,
        mut batch: WriteBatch,
        referenced: &[DocumentNumber],
    ) -> (WriteBatch, Result<(), DocumentsError>) {
        let catalogue = self.catalogue();
        let check_result =
            check_single_removals(session, &catalogue, &mut batch.writes, referenced).await;
        let (no_ops, writes) = batch.writes.into_iter().partition(InFlightWrite::is_no_op);
        self.finish(no_ops);
        (WriteBatch { writes }, check_result)
    }

    /// Retries, splits or rejects a batch that the server did not write.
    fn retry_or_split(
        &self,
        pending: &mut PendingBatches,
        mut batch: WriteBatch,
        error: &DocumentsError,
    ) {
        if error.is_transaction_conflict() && pending.retries < RETRIES_MAX {
            pending.retries += 1;
            pending.batches.push(batch);
        } else if batch.writes.len() > 1 {
            self.metrics.halved.inc();
            let [first, second] = batch.split();
            pending.batches.extend([second, first]);
        } else {
            for write in &mut batch.writes {
                write.reject_by_server(error);
            }
            self.finish(batch.writes);
        }
    }

    /// Puts the remaining writes back into the queue after the session failed.
    fn put_back_pending(&self, pending: PendingBatches) {
        let writes = pending.batches.into_iter().flat_map(|batch| batch.writes);
        self.admission.put_back(writes.collect());
    }

    /// Puts back or rejects writes whose session has ended.
    pub(super) fn end_session(
        &self,
        group: Vec<InFlightWrite>,
        error: DocumentsError,
    ) -> SessionEnd {
        if error.is_session_lost() {
            self.put_back_after_loss(group, &error);
        } else {
            self.admission.put_back(group);
        }
        SessionEnd::Lost(error)
    }

    /// Puts back writes that were in flight in a session that was lost, and rejects those that have
    /// lost too many.
    pub(super) fn put_back_after_loss(&self, group: Vec<InFlightWrite>, error: &DocumentsError) {
        let rejected = self.admission.put_back_after_loss(group, error);
        // These are not counted in `reply_count`: waiting writes are rejected after `owner_timeout`
        // if every write ends its session.
        self.reply(rejected);
    }

    /// Completes the writes of a batch whose unknown outcome was resolved.
    pub(crate) fn resolve_uncertain(
        &self,
        uncertain: UncertainBatch,
        resolution: UncertainResolution,
    ) {
        let UncertainBatch { mut batch, error, .. } = uncertain;
        match resolution {
            UncertainResolution::Written => self.finish(batch.writes),
            UncertainResolution::NotWritten => self.put_back_after_loss(batch.writes, &error),
            UncertainResolution::Superseded => {
                // Another owner has written meanwhile, and the caller may no longer want the write.
                for write in &mut batch.writes {
                    write.reject(0, DocumentsError::Unreachable);
                }
                self.finish(batch.writes);
            }
        }
        self.admission.notify();
    }

    /// Replies to the callers of writes that a session has executed or rejected.
    pub(super) fn finish(&self, writes: Vec<InFlightWrite>) {
        self.reply_count.fetch_add(writes.len() as u64, Ordering::AcqRel);
        self.reply(writes);
    }

    /// Replies to the callers and releases the locks.
    pub(super) fn reply(&self, mut writes: Vec<InFlightWrite>) {
        let results: Vec<WriteResult> = writes
            .iter_mut()
            .map(|write| {
                // Before the locks are released: see the cache's invariant.
                update_cache(write, &self.aliases);
                write.take_result()
            })
            .collect();
        self.admission.finish(writes, results);
    }
}
