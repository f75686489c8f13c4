//! Partial updates of documents.

use serde_json::Value;

use super::batch::BatchWrite;
use super::caller::Caller;
use super::engine::Documents;
use crate::core::decision::Condition;
use crate::core::json::{self, Bounds};
use crate::core::patch::{JsonPatch, apply_merge_patch};
use crate::core::write::WriteOp;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DEPTH_MAX, DocumentId, Etag, WriteReceipt};

/// Attempts of a patch when other writes change the document in between.
const ATTEMPTS_MAX: u32 = 10;

/// Format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFormat {
    /// JSON Merge Patch (RFC 7386).
    Merge,
    /// JSON Patch (RFC 6902).
    Json,
}

impl Documents {
    /// Applies a patch to a document. If another write changes the document meanwhile, the patch is
    /// applied again to the new version.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was written. Pointers of violations refer to the patch if the
    /// patch itself is at fault.
    pub async fn patch(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        kind: PatchFormat,
        bytes: &[u8],
        condition: Condition,
    ) -> Result<WriteReceipt, DocumentsError> {
        let bounds = Bounds {
            bytes_max: self.inner.options.config.document_bytes_max.bytes() as usize,
            depth_max: DEPTH_MAX,
        };
        let patch = json::parse(bytes, bounds)?;
        let handle = self.handle(caller).await?;
        let format = match kind {
            PatchFormat::Merge => "merge",
            PatchFormat::Json => "json",
        };
        let target = format!("{format} {collection} {id} {condition} ");
        let options = caller.write_options_for([target.as_bytes(), bytes]);
        if let Some(request) = options.idempotency
            && let Some(receipt) = self.stored_reply(&handle, caller, request).await?
        {
            return Ok(receipt);
        }
        // Patches of one document are serialized: concurrent ones would fail and retry each other.
        let _guard = handle.patch_locks.lock(id).await;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let stored = self.get(caller, collection, id).await?;
            let etag = Etag::new(stored.id, stored.version);
            if !condition.holds(Some(etag)) {
                return Err(DocumentsError::VersionMismatch { at: Some(etag) });
            }
            let body = apply_patch(stored.parse_body()?, kind, patch.clone())?;
            let write = BatchWrite {
                collection: collection.clone(),
                op: WriteOp::Put(Some(id), body.to_string().into_bytes()),
                condition: Condition::IfAt(vec![etag]),
            };
            let request = self.prepare(&handle, caller, write).await?;
            let result = handle.ownership.writer.write(request, options).await;
            match result {
                Err(DocumentsError::VersionMismatch { at: Some(_) }) if attempts < ATTEMPTS_MAX => {
                }
                result => return result,
            }
        }
    }
}

fn apply_patch(mut body: Value, kind: PatchFormat, patch: Value) -> Result<Value, DocumentsError> {
    match kind {
        PatchFormat::Merge => apply_merge_patch(&mut body, patch),
        PatchFormat::Json => {
            let patch = JsonPatch::parse(patch).map_err(DocumentsError::violation)?;
            patch.apply(&mut body).map_err(DocumentsError::violation)?;
        }
    }
    Ok(body)
}
