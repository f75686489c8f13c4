//! Changes parts of documents.

use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::{Act, Caller, Documents, Operation};
use crate::core::decide::{Condition, Etag};
use crate::core::json::{self, Bounds, DEPTH_MAX};
use crate::core::patch::{JsonPatch, merge};
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, Written};

/// How often a change is tried anew when others come between.
const ATTEMPTS: u32 = 10;

/// Turns of patches: documents share them.
const TURNS: usize = 256;

/// Whose turn it is to patch a document.
pub(super) struct Turns(Vec<Mutex<()>>);

impl Turns {
    pub(super) fn new() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }

    async fn turn(&self, id: DocumentId) -> MutexGuard<'_, ()> {
        // Numbers are moments: their last bits are alike.
        let mixed = id
            .number()
            .unsigned_abs()
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0[(mixed >> 32) as usize % TURNS].lock().await
    }
}

/// What kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
}

impl Documents {
    /// Changes parts of a document. Where another write comes between, it is applied to what that one wrote.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then. Pointers of violations are into the patch where that is at fault.
    pub async fn patch(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        (kind, bytes): (Patch, &[u8]),
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let bounds = Bounds {
            bytes_max: self.inner.options.config.document_bytes_max.bytes() as usize,
            depth_max: DEPTH_MAX,
        };
        let patch = json::read(bytes, bounds)?;
        let kept = self.kept(caller).await?;
        let how = match kind {
            Patch::Merge => "merge",
            Patch::Json => "json",
        };
        let place = format!("{how} {collection} {id} {condition:?} ");
        let manner = caller.manner_of([place.as_bytes(), bytes]);
        if let Some(request) = manner.request
            && let Some(written) = self.answered(&kept, caller, request).await?
        {
            return Ok(written);
        }
        // Patches of one document take turns: else all but one would be done in vain, again and again.
        let _turn = kept.patches.turn(id).await;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let stored = self.get(caller, (collection, id)).await?;
            let at = Etag::new(stored.id, stored.version);
            if !condition.holds(Some(at)) {
                return Err(DocumentsError::VersionMismatch { at: Some(at) });
            }
            let body = patched(stored.value()?, kind, patch.clone())?;
            let is_still = Condition::IfAt(vec![at]);
            let operation = Operation {
                collection: collection.clone(),
                what: Act::Put(Some(id), body.to_string().into_bytes()),
                condition: is_still,
            };
            let asked = self.asked(&kept, caller, operation).await?;
            let written = kept.keeper.writer.write(asked, manner).await;
            match written {
                Err(DocumentsError::VersionMismatch { at: Some(_) }) if attempts < ATTEMPTS => {}
                written => return written,
            }
        }
    }
}

fn patched(mut body: Value, kind: Patch, patch: Value) -> Result<Value, DocumentsError> {
    match kind {
        Patch::Merge => merge(&mut body, patch),
        Patch::Json => {
            let patch = JsonPatch::read(patch).map_err(DocumentsError::violation)?;
            patch.apply(&mut body).map_err(DocumentsError::violation)?;
        }
    }
    Ok(body)
}
