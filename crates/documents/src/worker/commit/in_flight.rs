//! An admitted write: it holds its locks until it is replied to or put back into the queue.

use super::queued::QueuedWrite;
use super::result::{BatchRejection, WriteResult};
use crate::core::decision::{CurrentDocument, PlannedWrite};
use crate::core::schedule::{LockSet, Ticket};
use crate::core::write::{WriteContext, WriteOp, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{Referrers, WriteOutcome, WriteReceipt};
use crate::store::read::StoredReply;

pub(crate) struct InFlightWrite {
    /// Its position in the order of arrival, under which it holds its locks.
    pub ticket: Ticket,
    pub queued: QueuedWrite,
    /// For each request, the state that it is decided against; empty before the look-up.
    pub contexts: Vec<WriteContext>,
    /// What to do for each request, or why all are rejected; none before the decision.
    pub plan: Option<Result<Vec<PlannedWrite>, BatchRejection>>,
}

impl InFlightWrite {
    pub(crate) fn new(ticket: Ticket, queued: QueuedWrite) -> Self {
        Self { ticket, queued, contexts: Vec::new(), plan: None }
    }

    /// Whether it has one request only.
    pub(crate) fn is_single(&self) -> bool {
        self.queued.requests.len() == 1
    }

    /// The planned operations; none if it is undecided or rejected.
    pub(crate) fn planned(&self) -> &[PlannedWrite] {
        match &self.plan {
            Some(Ok(plan)) => plan,
            _ => &[],
        }
    }

    /// Each request with its context and its planned operation.
    pub(crate) fn steps(
        &self,
    ) -> impl Iterator<Item = (&WriteRequest, &WriteContext, &PlannedWrite)> {
        let requests = self.queued.requests.iter().zip(&self.contexts);
        let steps = requests.zip(self.planned());
        steps.map(|((request, context), planned)| (request, context, planned))
    }

    /// Further locks, now that its documents are known.
    pub(crate) fn found_locks(&self) -> LockSet {
        let mut locks = LockSet::default();
        for (request, context) in self.queued.requests.iter().zip(&self.contexts) {
            if let Some(current) = &context.current {
                locks.extend(request.found_lock_set(current));
            }
        }
        locks
    }

    /// Plans the stored reply to an earlier request with the same idempotency key.
    pub(crate) fn plan_stored_reply(&mut self, stored: StoredReply) {
        let fingerprint = self.queued.options.idempotency.map(|request| request.fingerprint);
        if Some(stored.fingerprint) == fingerprint {
            let receipts = stored.receipts.into_iter();
            self.plan = Some(Ok(receipts.map(PlannedWrite::Repeat).collect()));
        } else {
            self.reject(0, DocumentsError::KeyReused);
        }
    }

    /// Rejects all its requests because of the one at this index.
    pub(crate) fn reject(&mut self, index: usize, error: DocumentsError) {
        self.plan = Some(Err(BatchRejection::at(index, error)));
    }

    /// Rejects the requests because the server did. With strict foreign keys the server reports
    /// dangling references: 23503, and from PostgreSQL 18 on 23001 where a referenced document was
    /// deleted.
    pub(crate) fn reject_by_server(&mut self, error: &DocumentsError) {
        let requests = &self.queued.requests;
        let deletion_index =
            requests.iter().position(|request| matches!(request.op, WriteOp::Delete(_)));
        let (index, error) = match (error.is_foreign_key_violation(), deletion_index) {
            (false, _) => (0, error.clone()),
            (true, Some(index)) => {
                let referrers = Referrers { count: 1, has_more: false, first: Vec::new() };
                (index, DocumentsError::StillReferenced { referrers })
            }
            (true, None) => {
                let references = requests.iter().flat_map(|request| {
                    let targets = request.draft().map_or(&[][..], |draft| &draft.references);
                    let collection = &request.declared.collection;
                    targets.iter().map(|target| collection.describe_unresolved(target))
                });
                let references = references.collect();
                (0, DocumentsError::UnresolvedReference { references })
            }
        };
        self.reject(index, error);
    }

    /// Whether it writes no rows.
    pub(crate) fn is_no_op(&self) -> bool {
        // An unchanged result of an idempotent request must be stored too, to answer a repeated
        // one.
        let is_stored = self.queued.options.idempotency.is_some();
        self.planned().iter().all(|planned| match planned {
            PlannedWrite::Repeat(_) => true,
            PlannedWrite::Unchanged => !is_stored,
            _ => false,
        })
    }

    /// Whether its reply must wait for a flush: it succeeds with full durability, so the earlier
    /// writes that it depends on must be flushed even if it writes nothing.
    pub(crate) fn depends_on_flush(&self) -> bool {
        matches!(self.plan, Some(Ok(_))) && !self.queued.options.is_relaxed
    }

    /// Receipts for its requests.
    pub(crate) fn receipts(&self) -> Vec<WriteReceipt> {
        let receipts = self
            .steps()
            .map(|(request, context, planned)| receipt(request, context.current.as_ref(), planned));
        receipts.collect()
    }

    /// Its result once it is committed or rejected.
    pub(crate) fn take_result(&mut self) -> WriteResult {
        let receipts = self.receipts();
        match self.plan.take() {
            Some(Err(rejection)) => Err(rejection),
            _ => Ok(receipts),
        }
    }
}

fn receipt(
    request: &WriteRequest,
    current: Option<&CurrentDocument>,
    planned: &PlannedWrite,
) -> WriteReceipt {
    if let PlannedWrite::Repeat(receipt) = planned {
        return *receipt;
    }
    if let PlannedWrite::Create { id, .. } = planned {
        return WriteReceipt {
            id: *id,
            version: first_version(request),
            outcome: WriteOutcome::Created,
        };
    }
    let current = current.expect("a document that is not created exists");
    let (version, outcome) = match planned {
        PlannedWrite::Change { .. } | PlannedWrite::Rename(_) => {
            (current.version + 1, WriteOutcome::Changed)
        }
        PlannedWrite::Remove => (current.version, WriteOutcome::Removed),
        _ => (current.version, WriteOutcome::Unchanged),
    };
    WriteReceipt { id: current.id, version, outcome }
}

/// Version of a created document: a restored one continues its numbering.
pub(crate) fn first_version(request: &WriteRequest) -> i32 {
    match request.op {
        WriteOp::Restore { version, .. } => version + 1,
        _ => 1,
    }
}
