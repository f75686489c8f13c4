//! Several writes by one request.

use super::caller::Caller;
use super::engine::Documents;
use crate::core::decision::Condition;
use crate::core::write::WriteOp;
use crate::error::DocumentsError;
use crate::model::{CollectionName, WriteReceipt};
use crate::worker::commit::queued::WriteOptions;
use crate::worker::commit::result::BatchRejection;

/// One write of a batch.
#[derive(Clone, Debug)]
pub struct BatchWrite {
    /// Collection of the document to write.
    pub collection: CollectionName,
    /// Operation on the document, with its body as JSON.
    pub op: WriteOp<Vec<u8>>,
    /// Precondition on the current version of the document.
    pub condition: Condition,
}

impl Documents {
    /// Executes all writes in one transaction, or none. A write may refer to documents that others
    /// create, before or after it; no two writes may concern the same document.
    ///
    /// # Errors
    /// [`BatchRejection`]: nothing was written.
    pub async fn batch_atomic(
        &self,
        caller: &Caller,
        writes: Vec<BatchWrite>,
    ) -> Result<Vec<WriteReceipt>, BatchRejection> {
        self.check_count(&writes)?;
        let handle = self.handle(caller).await?;
        let options = caller.write_options(writes.iter());
        let mut requests = Vec::with_capacity(writes.len());
        for (index, write) in writes.into_iter().enumerate() {
            let request = self.prepare(&handle, caller, write).await;
            requests
                .push(request.map_err(|error| BatchRejection { operation: Some(index), error })?);
        }
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        handle.ownership.writer.write_all(requests, options).await
    }

    /// Executes the writes independently, each with its own result. Writes that conflict keep their
    /// order, so a write may refer to documents that earlier ones create.
    ///
    /// # Errors
    /// [`DocumentsError`]: no write was attempted.
    pub async fn batch_each(
        &self,
        caller: &Caller,
        writes: Vec<BatchWrite>,
    ) -> Result<Vec<Result<WriteReceipt, DocumentsError>>, DocumentsError> {
        self.check_count(&writes)?;
        let handle = self.handle(caller).await?;
        let options = caller.write_options(writes.iter());
        let mut results = Vec::with_capacity(writes.len());
        let (mut indexes, mut requests) = (Vec::new(), Vec::new());
        for (index, write) in writes.into_iter().enumerate() {
            match self.prepare(&handle, caller, write).await {
                Ok(request) => {
                    let options = WriteOptions {
                        idempotency: options
                            .idempotency
                            .map(|request| request.for_operation(index)),
                        ..options
                    };
                    indexes.push(index);
                    requests.push((request, options));
                    // Replaced by the result below.
                    results.push(Err(DocumentsError::Stopping));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        let write_results = handle.ownership.writer.write_each(requests).await;
        for (index, result) in indexes.into_iter().zip(write_results) {
            results[index] = result;
        }
        Ok(results)
    }

    fn check_count(&self, writes: &[BatchWrite]) -> Result<(), DocumentsError> {
        let batch_max = self.inner.options.config.batch_max;
        if writes.len() > batch_max as usize {
            Err(DocumentsError::BatchTooLarge { operations: writes.len(), batch_max })
        } else {
            Ok(())
        }
    }
}
