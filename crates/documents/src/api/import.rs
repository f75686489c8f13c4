//! Takes in many documents by one request, a line for each.

use super::{Act, Caller, Documents, Operation};
use crate::core::decide::Condition;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Done};
use crate::worker::step::Manner;

/// Lines of one request, at most.
pub const IMPORT_LINES_MAX: usize = 2_000;

/// What became of lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// Documents that are new.
    pub created: u64,
    /// That have another body.
    pub changed: u64,
    /// That were so already.
    pub unchanged: u64,
    /// Lines that were refused, by their places from 0 on, and why.
    pub refused: Vec<(usize, DocumentsError)>,
    /// As which owner.
    pub epoch: i64,
}

impl Documents {
    /// Puts each line in as a document of a collection, in place of the one with its identity if there is one. Empty lines are passed over. What
    /// is refused says why; the rest is done. Lines that come again change nothing.
    ///
    /// # Errors
    /// [`DocumentsError`], where none of them was even tried.
    pub async fn import(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        text: &[u8],
    ) -> Result<Imported, DocumentsError> {
        let kept = self.kept(caller).await?;
        kept.declared(caller, Action::Write, collection)?;
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        let lines: Vec<(usize, &[u8])> = lines
            .map(|(place, line)| (place, line.trim_ascii()))
            .filter(|(_, line)| !line.is_empty())
            .collect();
        if lines.len() > IMPORT_LINES_MAX {
            return Err(DocumentsError::ImportTooLarge { lines: lines.len() });
        }
        let manner = Manner {
            request: None,
            is_relaxed: caller.is_relaxed,
        };
        let mut imported = Imported::default();
        let (mut places, mut all) = (Vec::new(), Vec::new());
        for (place, line) in lines {
            let operation = Operation {
                collection: collection.clone(),
                what: Act::Put(None, line.to_vec()),
                condition: Condition::Always,
            };
            match self.asked(&kept, caller, operation).await {
                Ok(asked) => {
                    places.push(place);
                    all.push((asked, manner));
                }
                Err(error) => imported.refused.push((place, error)),
            }
        }
        let told = kept.keeper.writer.write_each(all).await;
        for (place, told) in places.into_iter().zip(told) {
            match told.map(|written| written.done) {
                Ok(Done::Created) => imported.created += 1,
                Ok(Done::Changed) => imported.changed += 1,
                Ok(_) => imported.unchanged += 1,
                Err(error) => imported.refused.push((place, error)),
            }
        }
        imported.epoch = kept.keeper.writer.epoch();
        imported.refused.sort_by_key(|(place, _)| *place);
        Ok(imported)
    }
}
