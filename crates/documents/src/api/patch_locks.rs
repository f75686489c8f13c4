//! Locks that serialize patches of the same document.

use tokio::sync::{Mutex, MutexGuard};

use crate::model::DocumentId;

/// Number of patch locks, shared by all documents.
const LOCKS: usize = 256;

/// Locks that serialize patches of the same document, chosen by a hash of its id.
pub(super) struct PatchLocks(Vec<Mutex<()>>);

impl PatchLocks {
    pub(super) fn new() -> Self {
        Self((0..LOCKS).map(|_| Mutex::new(())).collect())
    }

    pub(super) async fn lock(&self, id: DocumentId) -> MutexGuard<'_, ()> {
        // Numbers start with a timestamp, so neighbours share their high bits: mix them.
        let hash = id.number().0.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0[(hash >> 32) as usize % LOCKS].lock().await
    }
}
