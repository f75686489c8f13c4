//! Declares collections.

use std::sync::Arc;

use egret_postgres::tokio_postgres::Transaction;

use super::{Caller, Documents};
use crate::core::collection::Collection;
use crate::core::compatibility::Changes;
use crate::core::definition;
use crate::core::group::Declared;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Violation};
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
        let config = &options.config;
        install::install(&mut client, config.partitions, config.strict_foreign_keys).await?;
        let kept = self.keep(&database).await?;
        // What is there stays as it was seen, and what comes later is what the new definition says.
        let alone = kept.keeper.writer.alone().await?;
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
                    check(&transaction, &old, &new).await?;
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
        let wanted = catalogue.indexes();
        kept.keeper.writer.set_catalogue(catalogue);
        drop(alone);
        indexes::reconcile(&client, &wanted).await?;
        Ok(applied)
    }
}

/// Documents that are read at a time.
const PAGE: i64 = 1_000;

/// Documents that are named where they are not what a definition says.
const NAMED_MAX: usize = 20;

/// Fails where documents that are there are not what a changed definition says.
async fn check(
    transaction: &Transaction<'_>,
    old: &Declared,
    new: &Collection,
) -> Result<(), DocumentsError> {
    let changes = Changes::between(&old.collection, new);
    let has_documents = collections::has_documents(transaction, old.id).await?;
    let mut violations = changes.refused(has_documents);
    if has_documents && violations.is_empty() && (changes.schema || !changes.query_added.is_empty())
    {
        violations = offending(transaction, old, new).await?;
    }
    match violations.is_empty() {
        true => Ok(()),
        false => Err(DocumentsError::DefinitionInvalid { violations }),
    }
}

/// The documents that are not what a definition says, as far as they are named.
async fn offending(
    transaction: &Transaction<'_>,
    old: &Declared,
    new: &Collection,
) -> Result<Vec<Violation>, DocumentsError> {
    let (mut violations, mut offending, mut after) = (Vec::new(), 0_usize, None);
    loop {
        let page = collections::page(transaction, old.id, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.tenant, last.id.number()));
        for one in &page {
            // None is larger for it.
            let Err(error) = new.read(one.body.as_bytes(), usize::MAX) else {
                continue;
            };
            offending += 1;
            if violations.len() < NAMED_MAX {
                violations.push(Violation::new("", format!("document {}: {error}", one.id)));
            }
        }
    }
    if offending > NAMED_MAX {
        let more = offending - NAMED_MAX;
        violations.push(Violation::new("", format!("and {more} more documents")));
    }
    Ok(violations)
}
