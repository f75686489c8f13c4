//! The reply to a write.

use crate::error::DocumentsError;
use crate::model::WriteReceipt;

/// Result of a request for its caller: a receipt for each of its writes.
pub(crate) type WriteResult = Result<Vec<WriteReceipt>, BatchRejection>;

/// Rejection of a request of which nothing was written.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchRejection {
    /// Index of the operation that was rejected; none if the error concerns the whole batch.
    pub operation: Option<usize>,
    /// Error of that operation or of the batch.
    pub error: DocumentsError,
}

impl BatchRejection {
    /// Rejection because of the operation at this index, if the error is about an operation.
    pub(crate) fn at(index: usize, error: DocumentsError) -> Self {
        Self { operation: error.is_caused_by_write().then_some(index), error }
    }
}

impl From<DocumentsError> for BatchRejection {
    fn from(error: DocumentsError) -> Self {
        Self { operation: None, error }
    }
}
