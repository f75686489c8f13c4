//! Bulk import of newline-delimited JSON.

use super::batch::BatchWrite;
use super::caller::Caller;
use super::engine::Documents;
use crate::core::decision::Condition;
use crate::core::rights::Action;
use crate::core::write::WriteOp;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Epoch, IMPORT_LINES_MAX, WriteOutcome};
use crate::worker::commit::queued::WriteOptions;

/// Result of an import request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportResult {
    /// Number of documents created.
    pub created: u64,
    /// Number of documents whose body was replaced.
    pub changed: u64,
    /// Number of documents that already had this body.
    pub unchanged: u64,
    /// Rejected lines, by zero-based line number, with their errors.
    pub rejected: Vec<(usize, DocumentsError)>,
    /// Epoch of the owner that wrote the lines.
    pub epoch: Epoch,
}

impl Documents {
    /// Upserts each non-empty line as a document of a collection, by its identity. Lines succeed or
    /// fail independently; repeating an import changes nothing.
    ///
    /// # Errors
    /// [`DocumentsError`]: no line was attempted.
    pub async fn import(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        text: &[u8],
    ) -> Result<ImportResult, DocumentsError> {
        let handle = self.handle(caller).await?;
        handle.authorized_collection(caller, Action::Write, collection)?;
        let lines: Vec<(usize, &[u8])> = text
            .split(|byte| *byte == b'\n')
            .enumerate()
            .map(|(number, line)| (number, line.trim_ascii()))
            .filter(|(_, line)| !line.is_empty())
            .collect();
        if lines.len() > IMPORT_LINES_MAX {
            return Err(DocumentsError::ImportTooLarge { lines: lines.len() });
        }
        let options = WriteOptions { idempotency: None, is_relaxed: caller.is_relaxed };
        let mut import_result = ImportResult::default();
        let (mut line_numbers, mut requests) = (Vec::new(), Vec::new());
        for (number, line) in lines {
            let write = BatchWrite {
                collection: collection.clone(),
                op: WriteOp::Put(None, line.to_vec()),
                condition: Condition::Always,
            };
            match self.prepare(&handle, caller, write).await {
                Ok(request) => {
                    line_numbers.push(number);
                    requests.push((request, options));
                }
                Err(error) => import_result.rejected.push((number, error)),
            }
        }
        let results = handle.ownership.writer.write_each(requests).await;
        for (number, result) in line_numbers.into_iter().zip(results) {
            match result.map(|receipt| receipt.outcome) {
                Ok(WriteOutcome::Created) => import_result.created += 1,
                Ok(WriteOutcome::Changed) => import_result.changed += 1,
                Ok(_) => import_result.unchanged += 1,
                Err(error) => import_result.rejected.push((number, error)),
            }
        }
        import_result.epoch = handle.ownership.writer.epoch();
        import_result.rejected.sort_by_key(|(number, _)| *number);
        Ok(import_result)
    }
}
