//! Declares collections.
//!
//! A changed definition takes effect only if all stored documents are valid under it; else it is
//! rejected with the invalid documents. Documents are validated first while writes go on; documents
//! written meanwhile are validated under the exclusive lock, before the definition takes effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_postgres::DatabasesError;
use egret_postgres::tokio_postgres::{GenericClient, Transaction};

use super::caller::Caller;
use super::engine::Documents;
use crate::config::DocumentsConfig;
use crate::core::collection::Collection;
use crate::core::collection::DeclaredCollection;
use crate::core::compatibility::DefinitionDiff;
use crate::core::definition::{self, Definitions, LocatedDefinition};
use crate::error::DocumentsError;
use crate::model::{
    CollectionKey, CollectionName, DocumentId, DocumentNumber, FeedPosition, TenantId, Violation,
};
use crate::store::query::BoundedChunks;
use crate::store::query_values::sync_paths;
use crate::store::rebuild::{self, RebuildRow};
use crate::store::{collections, feed, install, owner};
use crate::worker::catalogue::Catalogue;
use crate::worker::query_values;
use crate::worker::rebuild::{
    CollectionRedefinition, InvalidDocuments, PAGE_DOCUMENTS_MAX, Rebuild, ensure_no_violations,
};
use crate::worker::session::SESSION_SETTINGS;

/// Result of applying one definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationResult {
    /// Name of the declared collection.
    pub collection: CollectionName,
    /// Whether the definition was created, changed or found unchanged.
    pub outcome: DeclarationOutcome,
    /// What in the schema is probably not meant as it is written, such as misspelt keywords.
    pub warnings: Vec<Violation>,
}

/// What applying a definition did to its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclarationOutcome {
    /// The collection did not exist before.
    Created,
    /// The collection existed with another definition.
    Changed,
    /// The collection existed with the same definition.
    Unchanged,
}

impl Documents {
    /// Applies the definitions of a file in one transaction: creates collections, and replaces the
    /// definitions of existing ones.
    ///
    /// # Errors
    /// [`DocumentsError`]: no definition was applied.
    pub async fn apply(
        &self,
        caller: &Caller,
        file: &[u8],
    ) -> Result<Vec<DeclarationResult>, DocumentsError> {
        let new_definitions = definition::parse(file)?;
        let options = &self.inner.options;
        definition::limits::check_limits(&new_definitions, &options.config)?;
        let _permit = options.databases.admit(&caller.tenant).await?;
        let chosen = options.databases.choose(caller.database.as_deref()).await;
        let database = chosen.map_err(|error| match error {
            // Collections may be declared in any database that exists.
            DatabasesError::Unknown { asked, .. } => {
                DocumentsError::DatabaseNotFound { database: asked }
            }
            error => error.into(),
        })?;
        match self.apply_to_database(&database, new_definitions).await {
            Ok(results) => Ok(results),
            Err(error) => Err(install::check_removal(error, &options.databases, &database).await),
        }
    }

    async fn apply_to_database(
        &self,
        database: &str,
        new_definitions: Vec<LocatedDefinition>,
    ) -> Result<Vec<DeclarationResult>, DocumentsError> {
        let options = &self.inner.options;
        let mut client = options.databases.client(database).await?;
        let config = &options.config;
        install::install(&mut client, config.partitions, config.strict_foreign_keys).await?;
        client.batch_execute(SESSION_SETTINGS).await?;
        let handle = self.open_handle(database).await?;
        let before = Catalogue::read(&client).await?;
        let prevalidation = PreValidation::run(
            &client,
            &before,
            &before.definitions.with(new_definitions.clone())?,
        )
        .await?;
        // Validated documents stay as they are, and from here on writes are validated by the new
        // definition, which is in effect when the lock is released.
        let guard = handle.ownership.writer.lock_exclusive().await?;
        let transaction = client.transaction().await?;
        collections::lock_collections(&transaction).await?;
        if !owner::lock_epoch(&transaction, guard.epoch).await? {
            return Err(DocumentsError::Unreachable);
        }
        let before = Catalogue::read(&transaction).await?;
        let results =
            redefine(&transaction, &before, new_definitions, config, &prevalidation).await?;
        let catalogue = Arc::new(Catalogue::read(&transaction).await?);
        sync_paths(&transaction, &catalogue.query_paths()).await?;
        if let Err(error) = transaction.commit().await {
            // The commit may have succeeded although its answer was lost.
            handle.ownership.writer.invalidate();
            return Err(error.into());
        }
        handle.ownership.writer.set_catalogue(catalogue);
        // Documents may have other aliases.
        handle.ownership.writer.clear_aliases();
        drop(guard);
        query_values::complete(&client).await?;
        Ok(results)
    }
}

/// Replaces the definitions of collections, if all documents are valid under the new ones.
async fn redefine(
    transaction: &Transaction<'_>,
    before: &Catalogue,
    new_definitions: Vec<LocatedDefinition>,
    config: &DocumentsConfig,
    prevalidation: &PreValidation,
) -> Result<Vec<DeclarationResult>, DocumentsError> {
    let names: Vec<(CollectionName, Vec<Violation>)> = new_definitions
        .iter()
        .map(|located| (located.definition.collection.clone(), located.warnings()))
        .collect();
    let definitions = before.definitions.with(new_definitions)?;
    check_total_paths(before, &definitions, config)?;
    let collections_max = config.collections_max as usize;
    if definitions.iter().count() > collections_max {
        return Err(DocumentsError::TooManyCollections { collections_max });
    }
    let redefined = redefined_collections(before, &definitions)?;
    ensure_no_violations(redefined.iter().flat_map(|one| one.changes.rejections()))?;
    let mut validator = DefinitionValidator::new(transaction);
    for redefinition in redefined.iter().filter(|one| one.changes.needs_validation()) {
        validator
            .validate_collection(redefinition, prevalidation.validated_position(redefinition))
            .await?;
    }
    validator.ensure_valid()?;
    Rebuild::new(transaction, &definitions, before, &redefined)?.run().await?;
    let mut results = Vec::new();
    for (name, warnings) in names {
        let Some(definition) = definitions.get(&name) else {
            continue;
        };
        let outcome = match before.by_name(&name) {
            None => DeclarationOutcome::Created,
            Some(old) if old.collection.definition().source == definition.source => {
                DeclarationOutcome::Unchanged
            }
            Some(_) => DeclarationOutcome::Changed,
        };
        if outcome != DeclarationOutcome::Unchanged {
            collections::put_collection(transaction, &name, &definition.source).await?;
        }
        results.push(DeclarationResult { collection: name, outcome, warnings });
    }
    Ok(results)
}

/// Fails if the collections would have more query paths than the settings allow, and more than now.
fn check_total_paths(
    before: &Catalogue,
    definitions: &Definitions,
    config: &DocumentsConfig,
) -> Result<(), DocumentsError> {
    let total = |definitions: &Definitions| -> usize {
        definitions.iter().map(|definition| definition.query.len()).sum()
    };
    let (count, max) = (total(definitions), config.query_paths_total_max);
    let is_exceeded = count > max as usize && count > total(&before.definitions);
    let message = format!(
        "the collections of the database would have {count} query paths, more than the maximum of {max} (`documents.query_paths_total_max`)"
    );
    ensure_no_violations(is_exceeded.then(|| Violation::new("", message)).into_iter())
}

/// Collections whose compiled definition changes, by their own definition or by those of others.
fn redefined_collections(
    before: &Catalogue,
    definitions: &Definitions,
) -> Result<Vec<CollectionRedefinition>, DocumentsError> {
    let mut redefined = Vec::new();
    for definition in definitions.iter() {
        let Some(old) = before.by_name(&definition.collection) else {
            continue;
        };
        let collection = Collection::compile(definitions, definition)?;
        let changes = DefinitionDiff::between(&old.collection, &collection);
        if !changes.is_empty() {
            let id = old.id;
            let new = DeclaredCollection { id, collection };
            redefined.push(CollectionRedefinition { old, new, changes });
        }
    }
    Ok(redefined)
}

/// Documents validated while writes went on: those of the keys of `validated`, for the change
/// from the first to the second definition, up to this position of the feed.
struct PreValidation {
    validated: BTreeMap<CollectionName, (serde_json::Value, serde_json::Value)>,
    position: FeedPosition,
}

impl PreValidation {
    /// Fails if documents are invalid under the new definitions.
    async fn run(
        client: &impl GenericClient,
        before: &Catalogue,
        definitions: &Definitions,
    ) -> Result<Self, DocumentsError> {
        let mut position: FeedPosition =
            client.query_one(feed::LAST_POSITION_SQL, &[]).await?.get(0);
        let redefined = redefined_collections(before, definitions)?;
        ensure_no_violations(redefined.iter().flat_map(|one| one.changes.rejections()))?;
        let body_changes = redefined.iter().filter(|one| one.changes.needs_validation());
        let mut validated = BTreeMap::new();
        let mut validator = DefinitionValidator::new(client);
        for redefinition in body_changes.clone() {
            validator.validate_collection(redefinition, None).await?;
            validated.insert(redefinition.old.collection.name().clone(), redefinition.sources());
        }
        validator.ensure_valid()?;
        // Documents written meanwhile: fewer in each round.
        for _ in 0..CATCH_UP_ROUNDS {
            let feed_end = client.query_one(feed::LAST_POSITION_SQL, &[]).await?.get(0);
            for one in body_changes.clone() {
                validator.validate_collection(one, Some(position)).await?;
            }
            validator.ensure_valid()?;
            position = feed_end;
        }
        Ok(Self { validated, position })
    }

    /// Feed position up to which the documents of a collection have been validated for this change;
    /// none if they have not, or for another change.
    fn validated_position(&self, redefinition: &CollectionRedefinition) -> Option<FeedPosition> {
        let validated = self.validated.get(redefinition.old.collection.name());
        validated.filter(|seen| **seen == redefinition.sources()).map(|_| self.position)
    }
}

/// Rounds of validating what was written meanwhile before writes are locked out.
const CATCH_UP_ROUNDS: usize = 3;

/// Transactions read from the feed in one query.
const READ_GROUPS_MAX: i64 = 100;

/// Checks that documents are valid under the new definition of their collection.
struct DefinitionValidator<'a, C> {
    client: &'a C,
    invalid: InvalidDocuments,
}

impl<'a, C: GenericClient> DefinitionValidator<'a, C> {
    fn new(client: &'a C) -> Self {
        Self { client, invalid: InvalidDocuments::default() }
    }

    fn ensure_valid(&self) -> Result<(), DocumentsError> {
        self.invalid.ensure_empty()
    }

    /// Validates all documents of a collection, or those that changed after a position of the feed
    /// if the feed reaches back that far.
    async fn validate_collection(
        &mut self,
        redefinition: &CollectionRedefinition,
        after: Option<FeedPosition>,
    ) -> Result<(), DocumentsError> {
        match after {
            Some(after) if self.is_retained(after).await? => {
                self.validate_changed(&redefinition.new, after).await
            }
            _ => self.validate_all(&redefinition.new).await,
        }
    }

    /// Whether the feed still has all changes after a position.
    async fn is_retained(&self, after: FeedPosition) -> Result<bool, DocumentsError> {
        let forgotten: FeedPosition = self.client.query_one(feed::FORGOTTEN_SQL, &[]).await?.get(0);
        Ok(forgotten <= after)
    }

    async fn validate_all(&mut self, declared: &DeclaredCollection) -> Result<(), DocumentsError> {
        for tenant in collections::read_tenants(self.client).await?.into_values() {
            let (mut after, mut chunks) =
                (DocumentNumber::MIN, BoundedChunks::new(PAGE_DOCUMENTS_MAX));
            loop {
                let key = CollectionKey::new(tenant, declared.id);
                let page = rebuild::read_page(self.client, key, after, &mut chunks).await?;
                let Some(last) = page.last() else { break };
                after = last.id.number();
                self.validate_rows(&declared.collection, &page);
            }
        }
        Ok(())
    }

    async fn validate_changed(
        &mut self,
        declared: &DeclaredCollection,
        after: FeedPosition,
    ) -> Result<(), DocumentsError> {
        let mut after = after;
        loop {
            let rows = self.client.query(feed::GROUPS_SQL, &[&after, &READ_GROUPS_MAX]).await?;
            let groups: Vec<feed::FeedGroup> = rows.iter().map(feed::FeedGroup::from_row).collect();
            let Some(last) = groups.last() else {
                return Ok(());
            };
            after = last.position;
            let changes = groups.iter().flat_map(|group| &group.changes);
            let collection_changes = changes.filter(|change| change.collection == declared.id);
            let mut documents: Vec<(TenantId, DocumentId)> =
                collection_changes.map(|change| (change.tenant, change.id)).collect();
            documents.sort_unstable_by_key(|(tenant, id)| (*tenant, id.number()));
            documents.dedup();
            let rows = rebuild::read_documents(self.client, declared.id, &documents).await?;
            self.validate_rows(&declared.collection, &rows);
        }
    }

    fn validate_rows(&mut self, collection: &Collection, rows: &[RebuildRow]) {
        for row in rows {
            // Stored bodies were size-checked when written; no limit here.
            if let Err(error) = collection.parse(row.body.as_bytes(), usize::MAX) {
                self.invalid.add(row.id, &error);
            }
        }
    }
}
