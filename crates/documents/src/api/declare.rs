//! Declares collections.

use std::sync::Arc;

use egret_postgres::tokio_postgres::Transaction;

use super::{Caller, Documents};
use crate::core::collection::Collection;
use crate::core::compatibility::Changes;
use crate::core::definition;
use crate::core::group::Declared;
use crate::error::DocumentsError;
use crate::model::CollectionName;
use crate::store::{collections, indexes, install};
use crate::worker::catalogue::Catalogue;

/// What became of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The collection.
    pub collection: CollectionName,
    /// What was done.
    pub outcome: Outcome,
}

/// What was done with a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collection is new.
    Created,
    /// It has another definition.
    Changed,
    /// It was so already.
    Unchanged,
}

impl Documents {
    /// Declares collections, all of a file or none: those that are there already get this definition.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn apply(
        &self,
        caller: &Caller,
        file: &[u8],
    ) -> Result<Vec<Applied>, DocumentsError> {
        let given = definition::read(file)?;
        let options = &self.inner.options;
        let database = options.databases.choose(caller.database.as_deref()).await?;
        let mut client = options.databases.client(&database).await?;
        install::install(&mut client, options.config.partitions).await?;
        let transaction = client.transaction().await?;
        collections::lock(&transaction).await?;
        let before = Catalogue::read(&transaction).await?;
        let names: Vec<CollectionName> = given
            .iter()
            .map(|one| one.definition.collection.clone())
            .collect();
        let all = before.definitions.with(given)?;
        let collections_max = options.config.collections_max as usize;
        if all.iter().count() > collections_max {
            return Err(DocumentsError::TooManyCollections { collections_max });
        }
        let mut applied = Vec::new();
        for name in names {
            let Some(definition) = all.get(&name) else {
                continue;
            };
            let outcome = match before.declared(&name) {
                None => Outcome::Created,
                Some(old) if old.collection.definition().source == definition.source => {
                    Outcome::Unchanged
                }
                Some(old) => {
                    let new = Collection::of(&all, definition)?;
                    let changes = Changes::between(&old.collection, &new);
                    check(&transaction, &old, &changes).await?;
                    Outcome::Changed
                }
            };
            if outcome != Outcome::Unchanged {
                collections::remember(&transaction, &name, &definition.source).await?;
            }
            applied.push(Applied {
                collection: name,
                outcome,
            });
        }
        let catalogue = Arc::new(Catalogue::read(&transaction).await?);
        transaction.commit().await?;
        indexes::reconcile(&client, &catalogue.indexes()).await?;
        let kept = self.keep(&database).await?;
        kept.keeper.writer.set_catalogue(catalogue);
        Ok(applied)
    }
}

/// Fails where documents that are there may not be what a changed definition says.
async fn check(
    transaction: &Transaction<'_>,
    old: &Declared,
    changes: &Changes,
) -> Result<(), DocumentsError> {
    let has_documents = collections::has_documents(transaction, old.id).await?;
    let violations = changes.refused(has_documents);
    match violations.is_empty() {
        true => Ok(()),
        false => Err(DocumentsError::DefinitionInvalid { violations }),
    }
}
