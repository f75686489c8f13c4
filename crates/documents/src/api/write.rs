//! Writes one document.

use std::sync::Arc;

use uuid::Uuid;

use super::{Act, Caller, Documents, Kept, Operation};
use crate::core::decide::Condition;
use crate::core::group::{Asked, Declared, Request, What};
use crate::core::identity::{EGRET_NAMESPACE, v5};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, Written};
use crate::store::read::{self, Answered};
use crate::worker::step::Manner;

impl Documents {
    /// Puts a document where one of its identity is, or as a new one.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn upsert(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        body: &[u8],
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let what = Act::Put(None, body.to_vec());
        self.write(caller, collection, what, condition).await
    }

    /// Puts a document in the place of another.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn replace(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        body: &[u8],
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let what = Act::Put(Some(id), body.to_vec());
        self.write(caller, collection, what, condition).await
    }

    /// Deletes a document to which nothing refers.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn delete(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        self.write(caller, collection, Act::Delete(id), condition)
            .await
    }

    async fn write(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        what: Act,
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let kept = self.kept(caller).await?;
        let operation = Operation {
            collection: collection.clone(),
            what,
            condition,
        };
        let manner = caller.manner(std::iter::once(&operation));
        let asked = self.asked(&kept, caller, operation).await?;
        kept.keeper.writer.write(asked, manner).await
    }

    /// An operation as the writer takes it.
    pub(super) async fn asked(
        &self,
        kept: &Kept,
        caller: &Caller,
        operation: Operation,
    ) -> Result<Asked, DocumentsError> {
        let declared = kept.declared(caller, Action::Write, &operation.collection)?;
        let what = match operation.what {
            Act::Put(id, body) => {
                let bytes_max = self.inner.options.config.document_bytes_max.bytes();
                let draft = declared.collection.read(&body, bytes_max as usize)?;
                let definition = declared.collection.definition();
                if let Some(claim) = caller.rights.missing(definition, &draft.body) {
                    return Err(DocumentsError::AccessDenied {
                        what: format!("the token lacks the claim `{claim}` for this document"),
                    });
                }
                What::Put(id, Box::new(draft))
            }
            Act::Delete(id) => What::Remove(id),
        };
        self.asked_for(kept, caller, declared, what, operation.condition)
            .await
    }

    /// What is to be done, as the writer takes it.
    pub(super) async fn asked_for(
        &self,
        kept: &Kept,
        caller: &Caller,
        declared: Arc<Declared>,
        what: What,
        condition: Condition,
    ) -> Result<Asked, DocumentsError> {
        Ok(Asked {
            tenant: self.tenant(kept, &caller.tenant).await?,
            declared,
            what,
            condition,
            author: caller.author.clone(),
            trace: caller.trace.clone(),
            rights: caller.rights.clone(),
        })
    }

    /// What a request for one write was answered when it came before.
    pub(super) async fn answered(
        &self,
        kept: &Kept,
        caller: &Caller,
        request: Request,
    ) -> Result<Option<Written>, DocumentsError> {
        let tenant = self.tenant(kept, &caller.tenant).await?;
        let (tenants, keys) = (vec![tenant.0], vec![request.key]);
        let run = kept
            .asker
            .run(&caller.tenant, read::ANSWERS, &[&tenants, &keys])
            .await;
        let rows = run?;
        match rows.first().map(Answered::of) {
            Some(answered) if answered.print != request.print => Err(DocumentsError::KeyReused),
            answered => Ok(answered.and_then(|answered| answered.written.first().copied())),
        }
    }
}

impl Caller {
    /// How operations are done that are asked for together.
    pub(super) fn manner<'a>(&self, operations: impl Iterator<Item = &'a Operation>) -> Manner {
        if self.idempotency_key.is_none() {
            return self.manner_of([]);
        }
        let mut parts = Vec::new();
        for operation in operations {
            let (how, id, body): (_, _, &[u8]) = match &operation.what {
                Act::Put(id, body) => ("put", *id, body),
                Act::Delete(id) => ("delete", Some(*id), &[]),
            };
            let id = id.map(|id| id.to_string()).unwrap_or_default();
            let (collection, condition) = (&operation.collection, &operation.condition);
            let length = body.len();
            parts.push(format!("{how} {collection} {id} {condition:?} {length} ").into_bytes());
            parts.push(body.to_vec());
        }
        self.manner_of(parts.iter().map(Vec::as_slice))
    }

    /// How is done what these bytes ask for.
    pub(super) fn manner_of<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Manner {
        let request = self.idempotency_key.as_ref().map(|key| {
            let author = self.author.as_deref().unwrap_or_default();
            let parts: Vec<&[u8]> = parts.into_iter().collect();
            Request {
                key: v5(namespace(), format!("{author} {key}")),
                print: v5(namespace(), parts.concat()),
            }
        });
        Manner {
            request,
            is_relaxed: self.is_relaxed,
        }
    }
}

/// The namespace of requests.
fn namespace() -> Uuid {
    v5(EGRET_NAMESPACE, "Idempotency-Key")
}
