//! A write: the operation, its lock set, the state it is decided against, and its decision.

use std::sync::Arc;

use uuid::Uuid;

use super::collection::{DeclaredCollection, Draft};
use super::decision::{
    Condition, CurrentDocument, DesiredDocument, PlannedWrite, WriteRejection, decide_put,
    decide_removal,
};
use super::identity::uuid_v5;
use super::rights::Rights;
use super::schedule::{LockKey, LockSet};
use crate::error::DocumentsError;
use crate::model::{AliasId, DocumentId, DocumentNumber, TenantId};

/// Operation on one document. A body is JSON as it was sent, or a draft once it is validated.
#[derive(Clone, Debug)]
pub enum WriteOp<Body> {
    /// Replace the document with this id by this body; without an id, the document with the body's
    /// identity, which is created if there is none.
    Put(Option<DocumentId>, Body),
    /// Delete the document with this id.
    Delete(DocumentId),
    /// Create a deleted document again.
    Restore {
        /// Id that the document had.
        id: DocumentId,
        /// Body of the restored document.
        body: Body,
        /// Last version before the deletion.
        version: i32,
    },
}

impl<Body> WriteOp<Body> {
    /// The requested body; none for a deletion.
    pub(crate) fn body(&self) -> Option<&Body> {
        match self {
            Self::Put(_, body) | Self::Restore { body, .. } => Some(body),
            Self::Delete(_) => None,
        }
    }

    /// Id of the document, if the operation names one.
    pub(crate) fn document_id(&self) -> Option<DocumentId> {
        match self {
            Self::Put(id, _) => *id,
            Self::Delete(id) | Self::Restore { id, .. } => Some(*id),
        }
    }

    /// The same operation with its body converted.
    ///
    /// # Errors
    /// That of the conversion.
    pub(crate) fn try_map<To, Error>(
        self,
        convert: impl FnOnce(Body) -> Result<To, Error>,
    ) -> Result<WriteOp<To>, Error> {
        Ok(match self {
            Self::Put(id, body) => WriteOp::Put(id, convert(body)?),
            Self::Delete(id) => WriteOp::Delete(id),
            Self::Restore { id, body, version } => {
                WriteOp::Restore { id, body: convert(body)?, version }
            }
        })
    }
}

/// An operation with a validated body, and everything of its caller that it is decided by.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    /// Tenant of the document.
    pub tenant: TenantId,
    /// Collection in which to write.
    pub declared: Arc<DeclaredCollection>,
    /// Operation on the document.
    pub op: WriteOp<Box<Draft>>,
    /// Precondition on the current version.
    pub condition: Condition,
    /// Author to record, if known.
    pub author: Option<String>,
    /// Trace id of the request, recorded with the write.
    pub trace: Option<String>,
    /// Rights of the caller.
    pub rights: Arc<Rights>,
}

/// State looked up for a write, against which it is decided.
#[derive(Debug, Default)]
pub(crate) struct WriteContext {
    /// The document that the write concerns, if it exists.
    pub current: Option<CurrentDocument>,
    /// Whether its body equals the requested one.
    pub has_same_body: bool,
    /// Name of a claim for that document that the caller lacks.
    pub missing_claim: Option<String>,
    /// Id and description of that document, if it is damaged.
    pub damaged: Option<(DocumentId, String)>,
    /// The deleted document to restore, if it is kept.
    pub deleted: Option<DeletedDocument>,
    /// For each alias, the number of the document that has it.
    pub alias_owners: Vec<Option<DocumentNumber>>,
    /// For each reference, the number of its target.
    pub targets: Vec<Option<DocumentNumber>>,
}

/// A deleted document that is kept in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletedDocument {
    /// Its last version number.
    pub version: i32,
    /// Author of the write that created it.
    pub creator: Option<String>,
}

/// An idempotent request: repetitions get the first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdempotentRequest {
    /// Hash of the idempotency key and the author.
    pub key: Uuid,
    /// Fingerprint of the request's content.
    pub fingerprint: Uuid,
}

impl IdempotentRequest {
    /// Key for one operation of a batch whose operations are executed independently.
    pub(crate) fn for_operation(self, index: usize) -> Self {
        Self { key: uuid_v5(self.key, index.to_string()), ..self }
    }
}

impl WriteRequest {
    /// Validates the body again under another definition of its collection.
    ///
    /// # Errors
    /// The body is not valid under it, or the caller lacks a claim.
    pub(crate) fn revalidate(
        &mut self,
        declared: Arc<DeclaredCollection>,
    ) -> Result<(), DocumentsError> {
        if let WriteOp::Put(_, draft) | WriteOp::Restore { body: draft, .. } = &mut self.op {
            // Its size was checked when it was sent.
            **draft = declared.collection.parse_value(&draft.body, usize::MAX)?;
            self.rights.check_claims(declared.collection.definition(), &draft.body)?;
        }
        self.declared = declared;
        Ok(())
    }

    /// The requested body; none for a deletion.
    pub(crate) fn draft(&self) -> Option<&Draft> {
        self.op.body().map(AsRef::as_ref)
    }

    /// Lock set, as far as it is known before the look-up.
    pub(crate) fn lock_set(&self) -> LockSet {
        let mut locks = LockSet::default();
        if let Some(draft) = self.draft() {
            let aliases = draft.aliases.iter().map(|alias| self.alias_key(*alias));
            locks.exclusive.extend(aliases);
            let targets = draft.references.iter();
            let targets = targets.map(|target| self.alias_key(target.alias));
            locks.shared.extend(targets);
        }
        let document = self.op.document_id().map(|id| self.document_key(id));
        locks.exclusive.extend(document);
        locks
    }

    /// Further locks, now that the document is known.
    pub(crate) fn found_lock_set(&self, current: &CurrentDocument) -> LockSet {
        let mut exclusive = vec![self.document_key(current.id)];
        if let WriteOp::Delete(_) = self.op {
            let aliases = current.aliases.iter();
            exclusive.extend(aliases.map(|alias| self.alias_key(*alias)));
        }
        LockSet { exclusive, ..LockSet::default() }
    }

    fn alias_key(&self, alias: AliasId) -> LockKey {
        LockKey::Alias(self.tenant, alias)
    }

    fn document_key(&self, id: DocumentId) -> LockKey {
        LockKey::Document(self.tenant, id.number())
    }

    /// Decides on the write. `targets` has the number of each reference's target; `new_id` is the
    /// id for the document if it has to be created.
    pub(crate) fn decide(
        &self,
        context: &WriteContext,
        targets: &[Option<DocumentNumber>],
        new_id: Option<DocumentId>,
    ) -> Result<PlannedWrite, WriteRejection> {
        let current = context.current.as_ref();
        let current = current.filter(|current| current.collection == self.declared.id);
        if let Some((id, what)) = &context.damaged {
            let what = what.clone();
            return Err(WriteRejection::Damaged { id: *id, what });
        }
        if let Some(claim) = &context.missing_claim {
            // A request by id for a document that the caller must not see is answered as if there
            // were none.
            return Err(match self.op.document_id() {
                Some(_) => WriteRejection::NotFound,
                None => WriteRejection::Denied { claim: claim.clone() },
            });
        }
        let is_mutable = self.declared.collection.definition().identity_mutable;
        let desired = |aliases| DesiredDocument {
            new_id,
            aliases,
            alias_owners: &context.alias_owners,
            targets,
            has_same_body: context.has_same_body,
            is_mutable,
        };
        match &self.op {
            WriteOp::Put(_, draft) => {
                decide_put(current, &desired(&draft.aliases), &self.condition)
            }
            WriteOp::Delete(_) => decide_removal(current, &self.condition),
            WriteOp::Restore { body, version, .. } => match (current, &context.deleted) {
                // Another write has restored it meanwhile.
                (Some(current), _) => Err(WriteRejection::Mismatch { at: Some(current.etag()) }),
                (None, Some(deleted)) if deleted.version == *version => {
                    decide_put(None, &desired(&body.aliases), &Condition::Always)
                }
                (None, _) => Err(WriteRejection::NotFound),
            },
        }
    }

    /// The error for a rejection of this write.
    pub(crate) fn rejection_error(&self, rejection: WriteRejection) -> DocumentsError {
        let collection = &self.declared.collection;
        match rejection {
            WriteRejection::Unresolved(indexes) => {
                let targets = self.draft().map_or(&[][..], |draft| &draft.references);
                let unresolved =
                    indexes.iter().map(|index| collection.describe_unresolved(&targets[*index]));
                DocumentsError::UnresolvedReference { references: unresolved.collect() }
            }
            WriteRejection::Mismatch { at } => DocumentsError::VersionMismatch { at },
            WriteRejection::Immutable => {
                DocumentsError::IdentityImmutable { collection: collection.name().clone() }
            }
            WriteRejection::Damaged { id, what } => DocumentsError::Damaged { id, what },
            WriteRejection::Denied { claim } => DocumentsError::claim_missing(&claim),
            WriteRejection::AliasTaken { alias } => DocumentsError::IdentityConflict {
                collection: collection.identity_scopes()[alias].collection.clone(),
            },
            WriteRejection::Duplicate { before } => DocumentsError::DuplicateOperation { before },
            WriteRejection::NotFound => DocumentsError::NotFound {
                collection: collection.name().clone(),
                id: self.op.document_id(),
            },
        }
    }
}
