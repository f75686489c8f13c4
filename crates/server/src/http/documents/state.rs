//! State of the handlers of documents.

use axum::extract::FromRef;
use egret_documents::Documents;
use tokio_util::sync::CancellationToken;

/// State of the handlers.
#[derive(Clone)]
pub(crate) struct DocumentsState {
    pub(super) documents: Documents,
    pub(super) stopping: CancellationToken,
}

impl FromRef<DocumentsState> for Documents {
    fn from_ref(state: &DocumentsState) -> Self {
        state.documents.clone()
    }
}
