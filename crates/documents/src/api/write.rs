//! Writes of single documents.

use uuid::Uuid;

use super::batch::BatchWrite;
use super::caller::Caller;
use super::database::DatabaseHandle;
use super::engine::Documents;
use crate::core::decision::Condition;
use crate::core::identity::{EGRET_NAMESPACE, uuid_v5};
use crate::core::rights::Action;
use crate::core::write::{IdempotentRequest, WriteOp, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, WriteReceipt};
use crate::store::read::{self, StoredReply};
use crate::worker::commit::queued::WriteOptions;

impl Documents {
    /// Replaces the document with the body's identity, or creates it.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was written.
    pub async fn upsert(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        body: &[u8],
        condition: Condition,
    ) -> Result<WriteReceipt, DocumentsError> {
        let op = WriteOp::Put(None, body.to_vec());
        self.write(caller, collection, op, condition).await
    }

    /// Replaces the document with this id.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was written.
    pub async fn replace(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        body: &[u8],
        condition: Condition,
    ) -> Result<WriteReceipt, DocumentsError> {
        let op = WriteOp::Put(Some(id), body.to_vec());
        self.write(caller, collection, op, condition).await
    }

    /// Deletes a document to which no other document refers.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was written.
    pub async fn delete(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        condition: Condition,
    ) -> Result<WriteReceipt, DocumentsError> {
        self.write(caller, collection, WriteOp::Delete(id), condition).await
    }

    async fn write(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        op: WriteOp<Vec<u8>>,
        condition: Condition,
    ) -> Result<WriteReceipt, DocumentsError> {
        let handle = self.handle(caller).await?;
        let write = BatchWrite { collection: collection.clone(), op, condition };
        let options = caller.write_options(std::iter::once(&write));
        let request = self.prepare(&handle, caller, write).await?;
        handle.ownership.writer.write(request, options).await
    }

    /// Validates the body of a write, which makes it a request for the writer.
    pub(super) async fn prepare(
        &self,
        handle: &DatabaseHandle,
        caller: &Caller,
        write: BatchWrite,
    ) -> Result<WriteRequest, DocumentsError> {
        let declared = handle.authorized_collection(caller, Action::Write, &write.collection)?;
        let bytes_max = match write.op {
            // Its size was checked when it was written first.
            WriteOp::Restore { .. } => usize::MAX,
            _ => self.inner.options.config.document_bytes_max.bytes() as usize,
        };
        let op = write.op.try_map(|body| {
            let collection = &declared.collection;
            let draft = collection.parse(&body, bytes_max)?;
            let rights = &caller.rights;
            rights.check_claims(collection.definition(), &draft.body)?;
            Ok::<_, DocumentsError>(Box::new(draft))
        })?;
        Ok(WriteRequest {
            tenant: self.resolve_tenant(handle, &caller.tenant).await?,
            declared,
            op,
            condition: write.condition,
            author: caller.author.clone(),
            trace: caller.trace.clone(),
            rights: caller.rights.clone(),
        })
    }

    /// Stored reply to an earlier request with this idempotency key and the same content.
    pub(super) async fn stored_reply(
        &self,
        handle: &DatabaseHandle,
        caller: &Caller,
        request: IdempotentRequest,
    ) -> Result<Option<WriteReceipt>, DocumentsError> {
        let tenant = self.resolve_tenant(handle, &caller.tenant).await?;
        let (tenants, keys) = (vec![tenant], vec![request.key]);
        let rows = handle
            .queries
            .query(&caller.tenant, read::STORED_REPLIES_SQL, &[&tenants, &keys])
            .await?;
        match rows.first().map(StoredReply::from_row) {
            Some(reply) if reply.fingerprint != request.fingerprint => {
                Err(DocumentsError::KeyReused)
            }
            reply => Ok(reply.and_then(|reply| reply.receipts.first().copied())),
        }
    }
}

impl Caller {
    /// Write options of a request with these writes.
    pub(super) fn write_options<'a>(
        &self,
        writes: impl Iterator<Item = &'a BatchWrite>,
    ) -> WriteOptions {
        if self.idempotency_key.is_none() {
            return self.write_options_for([]);
        }
        let mut parts = Vec::new();
        for write in writes {
            let kind = match &write.op {
                WriteOp::Put(..) => "put",
                WriteOp::Delete(_) => "delete",
                WriteOp::Restore { .. } => "restore",
            };
            let id = write.op.document_id().map(|id| id.to_string());
            let id = id.unwrap_or_default();
            let body: &[u8] = write.op.body().map_or(&[], Vec::as_slice);
            let (collection, condition) = (&write.collection, &write.condition);
            let length = body.len();
            parts.push(format!("{kind} {collection} {id} {condition} {length} ").into_bytes());
            parts.push(body.to_vec());
        }
        self.write_options_for(parts.iter().map(Vec::as_slice))
    }

    /// Write options of a request whose content these bytes identify.
    pub(super) fn write_options_for<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> WriteOptions {
        let idempotency = self.idempotency_key.as_ref().map(|key| {
            let author = self.author.as_deref().unwrap_or_default();
            let parts: Vec<&[u8]> = parts.into_iter().collect();
            IdempotentRequest {
                key: uuid_v5(namespace(), format!("{author} {key}")),
                fingerprint: uuid_v5(namespace(), parts.concat()),
            }
        });
        WriteOptions { idempotency, is_relaxed: self.is_relaxed }
    }
}

/// Namespace of the UUIDs of idempotency keys and request fingerprints.
fn namespace() -> Uuid {
    uuid_v5(EGRET_NAMESPACE, "Idempotency-Key")
}
