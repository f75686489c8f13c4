//! The planned writes of one commit, and their rows.

use super::alias_cache::AliasCache;
use super::in_flight::{InFlightWrite, first_version};
use crate::core::decision::{PlannedWrite, RewrittenDocument};
use crate::core::definition::History;
use crate::core::write::{WriteContext, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{ChangeKind, CollectionKey, DocumentNumber, Epoch, FeedPosition};
use crate::store::write::{Content, WriteRows};

/// Writes that are committed together.
pub(crate) struct WriteBatch {
    pub writes: Vec<InFlightWrite>,
}

/// A batch whose commit has an unknown outcome.
pub(crate) struct UncertainBatch {
    /// Epoch of the owner that sent it.
    pub epoch: Epoch,
    /// Number of the batch within the epoch.
    pub number: i64,
    /// If it was committed, its feed positions are greater than this one.
    pub previous_position: FeedPosition,
    pub batch: WriteBatch,
    /// Error by which its session was lost.
    pub error: DocumentsError,
}

/// Resolution of a batch with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UncertainResolution {
    Written,
    /// It was not committed, and no other owner has written since: its writes are repeated, unless
    /// they have lost too many sessions.
    NotWritten,
    /// It was not committed or that cannot be determined, and another owner may have written since.
    Superseded,
}

/// Why a writer session stopped.
pub(crate) enum SessionEnd {
    /// The connection failed and its transaction was rolled back.
    Lost(DocumentsError),
    /// The connection failed during the commit: its outcome is unknown.
    Uncertain(UncertainBatch),
}

impl WriteBatch {
    /// The rows of all writes.
    pub(super) fn rows(&self) -> WriteRows {
        let mut rows = WriteRows::default();
        for write in &self.writes {
            add_write(write, &mut rows);
        }
        rows
    }

    /// Splits it into two halves.
    pub(super) fn split(mut self) -> [Self; 2] {
        let second = self.writes.split_off(self.writes.len() / 2);
        [self, Self { writes: second }]
    }
}

fn add_write(write: &InFlightWrite, rows: &mut WriteRows) {
    rows.begin_write();
    let options = write.queued.options;
    if !options.is_relaxed {
        rows.require_durability();
    }
    let tenant = write.queued.requests[0].tenant;
    if let Some(idempotency) = options.idempotency {
        rows.add_reply(tenant, idempotency, &write.receipts());
    }
    for (request, context, planned) in write.steps() {
        add_planned(request, context, planned, rows);
        if let (PlannedWrite::Remove, Some(current)) = (planned, &context.current)
            && write.is_single()
        {
            rows.check_unreferenced(tenant, current.id.number());
        }
    }
}

fn add_planned(
    request: &WriteRequest,
    context: &WriteContext,
    planned: &PlannedWrite,
    rows: &mut WriteRows,
) {
    let key = CollectionKey::new(request.tenant, request.declared.id);
    let author = request.author.as_ref();
    match (planned, &context.current, request.draft()) {
        (PlannedWrite::Create { id, targets }, _, Some(draft)) => {
            for alias in &draft.aliases {
                rows.add_alias(key, *alias, id.number());
            }
            let version = first_version(request);
            if version > 1 {
                rows.restore_version(key, id.number(), history(request));
            }
            let mut content = content(request, &draft.text, targets);
            let deleted = context.deleted.as_ref();
            content.creator = deleted.and_then(|deleted| deleted.creator.clone());
            rows.create(key, *id, version, content);
            rows.add_change(ChangeKind::Create, key, *id, version);
        }
        (PlannedWrite::Change { targets }, Some(current), Some(draft)) => {
            let number = current.id.number();
            rows.keep_version(key, number, history(request), author);
            let content = content(request, &draft.text, targets);
            rows.change(key, number, &current.targets, content);
            rows.add_change(ChangeKind::Update, key, current.id, current.version + 1);
        }
        (PlannedWrite::Remove, Some(current), _) => {
            for alias in &current.aliases {
                rows.delete_alias(request.tenant, *alias);
            }
            let number = current.id.number();
            rows.keep_deleted(key, number, history(request), author);
            rows.remove(key, number, &current.targets);
            rows.add_change(ChangeKind::Delete, key, current.id, current.version);
        }
        (PlannedWrite::Rename(documents), ..) => {
            for document in documents {
                add_rewritten(request, document, rows);
            }
        }
        _ => {}
    }
}

fn add_rewritten(request: &WriteRequest, document: &RewrittenDocument, rows: &mut WriteRows) {
    let before = &document.before;
    let key = CollectionKey::new(request.tenant, before.collection);
    let number = before.id.number();
    let is_deleted = |alias: &&_| !document.aliases.contains(*alias);
    for alias in before.aliases.iter().filter(is_deleted) {
        rows.delete_alias(request.tenant, *alias);
    }
    let is_new = |alias: &&_| !before.aliases.contains(*alias);
    for alias in document.aliases.iter().filter(is_new) {
        rows.add_alias(key, *alias, number);
    }
    rows.keep_version(key, number, document.history, request.author.as_ref());
    let content = content(request, &document.text, &document.targets);
    rows.change(key, number, &before.targets, content);
    let kind =
        if document.aliases == before.aliases { ChangeKind::Update } else { ChangeKind::Identity };
    rows.add_change(kind, key, before.id, before.version + 1);
}

fn history(request: &WriteRequest) -> History {
    request.declared.collection.definition().history
}

/// Content of a document's row; `creator` is left to the caller.
fn content(request: &WriteRequest, body: &str, targets: &[DocumentNumber]) -> Content {
    Content {
        body: body.to_owned(),
        creator: None,
        author: request.author.clone(),
        trace: request.trace.clone(),
        targets: targets.to_vec(),
    }
}

/// Updates the alias cache after the commit of a write.
pub(super) fn update_cache(write: &InFlightWrite, aliases: &AliasCache) {
    for (request, context, planned) in write.steps() {
        let tenant = request.tenant;
        match (planned, &context.current) {
            (PlannedWrite::Create { id, .. }, _) => {
                for alias in request.draft().iter().flat_map(|draft| &draft.aliases) {
                    aliases.insert(tenant, *alias, id.number());
                }
            }
            (PlannedWrite::Remove, Some(current)) => {
                for alias in &current.aliases {
                    aliases.remove(tenant, *alias);
                }
            }
            (PlannedWrite::Rename(documents), _) => {
                for document in documents {
                    for alias in &document.before.aliases {
                        aliases.remove(tenant, *alias);
                    }
                    for alias in &document.aliases {
                        aliases.insert(tenant, *alias, document.before.id.number());
                    }
                }
            }
            _ => {}
        }
    }
}
