//! Several writes by one request.

use super::{Caller, Documents};
use crate::core::decide::Condition;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, Written};
use crate::worker::step::Manner;

/// A write of a batch.
#[derive(Clone, Debug)]
pub struct Operation {
    /// In which collection.
    pub collection: CollectionName,
    /// What is to be done.
    pub what: Act,
    /// Under which condition.
    pub condition: Condition,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Act {
    /// This is to be there: in place of a document, or by its identity.
    Put(Option<DocumentId>, Vec<u8>),
    /// A document is to go.
    Delete(DocumentId),
}

/// Why a batch was not done.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The place of the operation that could not be, where it is one.
    pub operation: Option<usize>,
    /// Why.
    pub error: DocumentsError,
}

impl From<DocumentsError> for Refused {
    fn from(error: DocumentsError) -> Self {
        Self {
            operation: None,
            error,
        }
    }
}

impl Documents {
    /// Does all operations, or none. Each may refer to what another one makes, whichever comes first; no two are about one document.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed then.
    pub async fn batch_atomic(
        &self,
        caller: &Caller,
        operations: Vec<Operation>,
    ) -> Result<Vec<Written>, Refused> {
        self.check_count(&operations)?;
        let kept = self.kept(caller).await?;
        let manner = caller.manner(operations.iter());
        let mut all = Vec::with_capacity(operations.len());
        for (place, operation) in operations.into_iter().enumerate() {
            let asked = self.asked(&kept, caller, operation).await;
            all.push(asked.map_err(|error| Refused {
                operation: Some(place),
                error,
            })?);
        }
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let told = kept.keeper.writer.write_all(all, manner).await;
        told.map_err(|refusal| Refused {
            operation: refusal.error.is_of_write().then_some(refusal.place),
            error: refusal.error,
        })
    }

    /// Does each operation for itself, in this order where one needs another: an operation may refer to what an earlier one makes.
    ///
    /// # Errors
    /// [`DocumentsError`], where none of them was even tried.
    pub async fn batch_each(
        &self,
        caller: &Caller,
        operations: Vec<Operation>,
    ) -> Result<Vec<Result<Written, DocumentsError>>, DocumentsError> {
        self.check_count(&operations)?;
        let kept = self.kept(caller).await?;
        let manner = caller.manner(operations.iter());
        let mut each = Vec::with_capacity(operations.len());
        let (mut places, mut all) = (Vec::new(), Vec::new());
        for (place, operation) in operations.into_iter().enumerate() {
            match self.asked(&kept, caller, operation).await {
                Ok(asked) => {
                    places.push(place);
                    let request = manner.request.map(|request| request.at(place));
                    all.push((asked, Manner { request, ..manner }));
                    each.push(Err(DocumentsError::Stopping));
                }
                Err(error) => each.push(Err(error)),
            }
        }
        let told = kept.keeper.writer.write_each(all).await;
        for (place, told) in places.into_iter().zip(told) {
            each[place] = told;
        }
        Ok(each)
    }

    fn check_count(&self, operations: &[Operation]) -> Result<(), DocumentsError> {
        let batch_max = self.inner.options.config.batch_max;
        match operations.len() > batch_max as usize {
            true => Err(DocumentsError::BatchTooLarge {
                operations: operations.len(),
                batch_max,
            }),
            false => Ok(()),
        }
    }
}
