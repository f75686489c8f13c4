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
use crate::core::collection::Collection;
use crate::core::collection::DeclaredCollection;
use crate::core::compatibility::DefinitionDiff;
use crate::core::definition::{self, Definitions, LocatedDefinition};
use crate::error::DocumentsError;
use crate::model::{
    CollectionKey, CollectionName, DocumentId, DocumentNumber, FeedPosition, TenantId,
};
use crate::store::query::BoundedChunks;
use crate::store::rebuild::{self, RebuildRow};
use crate::store::{collections, feed, install, owner};
use crate::worker::catalogue::Catalogue;
use crate::worker::indexes;
use crate::worker::rebuild::{CollectionRedefinition, InvalidDocuments, PAGE, Rebuild, refuse};
use crate::worker::session::SETTINGS;

/// Result of applying one definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationResult {
    /// Name of the declared collection.
    pub collection: CollectionName,
    /// Whether the definition was created, changed or found unchanged.
    pub outcome: DeclarationOutcome,
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
        let given = definition::read(file)?;
        let options = &self.inner.options;
        let _permit = options.databases.admit(&caller.tenant).await?;
        let chosen = options.databases.choose(caller.database.as_deref()).await;
        let database = chosen.map_err(|error| match error {
            // Collections may be declared in any database that exists.
            DatabasesError::Unknown { asked, .. } => {
                DocumentsError::DatabaseNotFound { database: asked }
            }
            error => error.into(),
        })?;
        match self.apply_in(&database, given).await {
            Ok(applied) => Ok(applied),
            Err(error) => Err(install::check_removal(error, &options.databases, &database).await),
        }
    }

    async fn apply_in(
        &self,
        database: &str,
        given: Vec<LocatedDefinition>,
    ) -> Result<Vec<DeclarationResult>, DocumentsError> {
        let options = &self.inner.options;
        let mut client = options.databases.client(database).await?;
        let config = &options.config;
        install::install(&mut client, config.partitions, config.strict_foreign_keys).await?;
        client.batch_execute(SETTINGS).await?;
        let handle = self.open_handle(database).await?;
        let before = Catalogue::read(&client).await?;
        let ahead =
            PreValidation::look(&client, &before, &before.definitions.with(given.clone())?).await?;
        // Validated documents stay as they are, and from here on writes are validated by the new
        // definition, which is in effect when the lock is released.
        let alone = handle.ownership.writer.lock_exclusive().await?;
        let transaction = client.transaction().await?;
        collections::lock(&transaction).await?;
        if !owner::stays(&transaction, alone.epoch).await? {
            return Err(DocumentsError::Unreachable);
        }
        let before = Catalogue::read(&transaction).await?;
        let collections_max = config.collections_max as usize;
        let applied = redefine(&transaction, &before, given, collections_max, &ahead).await?;
        let catalogue = Arc::new(Catalogue::read(&transaction).await?);
        if let Err(error) = transaction.commit().await {
            // The commit may have succeeded although its answer was lost.
            handle.ownership.writer.invalidate();
            return Err(error.into());
        }
        handle.ownership.writer.set_catalogue(catalogue);
        // Documents may have other aliases.
        handle.ownership.writer.clear_aliases();
        drop(alone);
        indexes::reconcile(&client).await?;
        Ok(applied)
    }
}

/// Replaces the definitions of collections, if all documents are valid under the new ones.
async fn redefine(
    transaction: &Transaction<'_>,
    before: &Catalogue,
    given: Vec<LocatedDefinition>,
    collections_max: usize,
    ahead: &PreValidation,
) -> Result<Vec<DeclarationResult>, DocumentsError> {
    let names: Vec<CollectionName> = given
        .iter()
        .map(|one| one.definition.collection.clone())
        .collect();
    let all = before.definitions.with(given)?;
    if all.iter().count() > collections_max {
        return Err(DocumentsError::TooManyCollections { collections_max });
    }
    let redefined = redefined(before, &all)?;
    refuse(redefined.iter().flat_map(|one| one.changes.refused()))?;
    let mut look = DefinitionValidator::new(transaction);
    for one in redefined.iter().filter(|one| one.changes.is_of_bodies()) {
        look.redefined(one, ahead.up_to(one)).await?;
    }
    look.outcome()?;
    Rebuild::new(transaction, &all, before, &redefined)?
        .run()
        .await?;
    let mut applied = Vec::new();
    for definition in names.iter().filter_map(|name| all.get(name)) {
        let name = &definition.collection;
        let outcome = match before.declared(name) {
            None => DeclarationOutcome::Created,
            Some(old) if old.collection.definition().source == definition.source => {
                DeclarationOutcome::Unchanged
            }
            Some(_) => DeclarationOutcome::Changed,
        };
        if outcome != DeclarationOutcome::Unchanged {
            collections::remember(transaction, name, &definition.source).await?;
        }
        applied.push(DeclarationResult {
            collection: name.clone(),
            outcome,
        });
    }
    Ok(applied)
}

/// Collections whose compiled definition changes, by their own definition or by those of others.
fn redefined(
    before: &Catalogue,
    all: &Definitions,
) -> Result<Vec<CollectionRedefinition>, DocumentsError> {
    let mut redefined = Vec::new();
    for definition in all.iter() {
        let Some(old) = before.declared(&definition.collection) else {
            continue;
        };
        let collection = Collection::of(all, definition)?;
        let changes = DefinitionDiff::between(&old.collection, &collection);
        if !changes.is_nothing() {
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
    seen: BTreeMap<CollectionName, (serde_json::Value, serde_json::Value)>,
    position: FeedPosition,
}

impl PreValidation {
    /// Fails if documents are invalid under the new definitions.
    async fn look(
        client: &impl GenericClient,
        before: &Catalogue,
        all: &Definitions,
    ) -> Result<Self, DocumentsError> {
        let mut position: FeedPosition = client.query_one(feed::POSITION, &[]).await?.get(0);
        let redefined = redefined(before, all)?;
        refuse(redefined.iter().flat_map(|one| one.changes.refused()))?;
        let bodies = redefined.iter().filter(|one| one.changes.is_of_bodies());
        let mut seen = BTreeMap::new();
        let mut look = DefinitionValidator::new(client);
        for one in bodies.clone() {
            look.redefined(one, None).await?;
            seen.insert(one.old.collection.name().clone(), one.sources());
        }
        look.outcome()?;
        // Documents written meanwhile: fewer in each round.
        for _ in 0..CATCH_UP {
            let reached = client.query_one(feed::POSITION, &[]).await?.get(0);
            for one in bodies.clone() {
                look.redefined(one, Some(position)).await?;
            }
            look.outcome()?;
            position = reached;
        }
        Ok(Self { seen, position })
    }

    /// Feed position up to which the documents of a collection have been validated for this change;
    /// none if they have not, or for another change.
    fn up_to(&self, one: &CollectionRedefinition) -> Option<FeedPosition> {
        let seen = self.seen.get(one.old.collection.name());
        seen.filter(|seen| **seen == one.sources())
            .map(|_| self.position)
    }
}

/// Rounds of validating what was written meanwhile before writes are locked out.
const CATCH_UP: usize = 3;

/// Transactions read from the feed in one query.
const GROUPS_TOGETHER: i64 = 100;

/// Checks that documents are valid under the new definition of their collection.
struct DefinitionValidator<'a, C> {
    client: &'a C,
    offending: InvalidDocuments,
}

impl<'a, C: GenericClient> DefinitionValidator<'a, C> {
    fn new(client: &'a C) -> Self {
        Self {
            client,
            offending: InvalidDocuments::default(),
        }
    }

    fn outcome(&self) -> Result<(), DocumentsError> {
        self.offending.outcome()
    }

    /// Validates all documents of a collection, or those that changed after a position of the feed
    /// if the feed reaches back that far.
    async fn redefined(
        &mut self,
        one: &CollectionRedefinition,
        after: Option<FeedPosition>,
    ) -> Result<(), DocumentsError> {
        match after {
            Some(after) if self.is_kept(after).await? => self.changed(&one.new, after).await,
            _ => self.all(&one.new).await,
        }
    }

    /// Whether the feed still has all changes after a position.
    async fn is_kept(&self, after: FeedPosition) -> Result<bool, DocumentsError> {
        let forgotten: FeedPosition = self.client.query_one(feed::FORGOTTEN, &[]).await?.get(0);
        Ok(forgotten <= after)
    }

    async fn all(&mut self, declared: &DeclaredCollection) -> Result<(), DocumentsError> {
        for tenant in collections::tenants(self.client).await?.into_values() {
            let (mut after, mut portions) = (DocumentNumber::MIN, BoundedChunks::new(PAGE));
            loop {
                let of = CollectionKey::new(tenant, declared.id);
                let page = rebuild::page(self.client, of, after, &mut portions).await?;
                let Some(last) = page.last() else { break };
                after = last.id.number();
                self.rows(&declared.collection, &page);
            }
        }
        Ok(())
    }

    async fn changed(
        &mut self,
        declared: &DeclaredCollection,
        after: FeedPosition,
    ) -> Result<(), DocumentsError> {
        let mut after = after;
        loop {
            let rows = self
                .client
                .query(feed::GROUPS, &[&after, &GROUPS_TOGETHER])
                .await?;
            let groups: Vec<feed::FeedGroup> = rows.iter().map(feed::FeedGroup::of).collect();
            let Some(last) = groups.last() else {
                return Ok(());
            };
            after = last.position;
            let changes = groups.iter().flat_map(|group| &group.changes);
            let own = changes.filter(|change| change.collection == declared.id);
            let mut own: Vec<(TenantId, DocumentId)> =
                own.map(|change| (change.tenant, change.id)).collect();
            own.sort_unstable_by_key(|(tenant, id)| (*tenant, id.number()));
            own.dedup();
            let rows = rebuild::these(self.client, declared.id, &own).await?;
            self.rows(&declared.collection, &rows);
        }
    }

    fn rows(&mut self, collection: &Collection, rows: &[RebuildRow]) {
        for one in rows {
            // Stored bodies were size-checked when written; no limit here.
            if let Err(error) = collection.read(one.body.as_bytes(), usize::MAX) {
                self.offending.add(one.id, &error);
            }
        }
    }
}
