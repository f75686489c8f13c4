//! Declares collections.
//!
//! What documents are already is what a changed definition says, or it is refused with those that are not. That is looked at while others write;
//! what they write meanwhile is looked at again when nobody does, and only then the definition holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_postgres::DatabasesError;
use egret_postgres::tokio_postgres::{GenericClient, Transaction};

use super::{Caller, Documents};
use crate::core::collection::Collection;
use crate::core::compatibility::Changes;
use crate::core::definition::{self, Definitions, Given};
use crate::core::group::Declared;
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName, DocumentId};
use crate::store::query::Portions;
use crate::store::rebuild::{self, Row};
use crate::store::{collections, feed, install, owner};
use crate::worker::catalogue::Catalogue;
use crate::worker::indexes;
use crate::worker::rebuild::{Offending, PAGE, Rebuild, Redefined, refuse};
use crate::worker::session::SETTINGS;

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
        given: Vec<Given>,
    ) -> Result<Vec<Applied>, DocumentsError> {
        let options = &self.inner.options;
        let mut client = options.databases.client(database).await?;
        let config = &options.config;
        install::install(&mut client, config.partitions, config.strict_foreign_keys).await?;
        client.batch_execute(SETTINGS).await?;
        let kept = self.keep(database).await?;
        let before = Catalogue::read(&client).await?;
        let ahead = Ahead::look(&client, &before, &before.definitions.with(given.clone())?).await?;
        // What is there stays as it was seen, and what comes later is what the new definition says.
        let alone = kept.keeper.writer.alone().await?;
        let transaction = client.transaction().await?;
        collections::lock(&transaction).await?;
        if !owner::stays(&transaction, alone.epoch).await? {
            return Err(DocumentsError::Unreachable);
        }
        let before = Catalogue::read(&transaction).await?;
        let collections_max = config.collections_max as usize;
        let applied = redefine(&transaction, &before, (given, collections_max), &ahead).await?;
        let catalogue = Arc::new(Catalogue::read(&transaction).await?);
        if let Err(error) = transaction.commit().await {
            // The answer may be lost, and the definition hold nevertheless.
            kept.keeper.writer.distrust();
            return Err(error.into());
        }
        kept.keeper.writer.set_catalogue(catalogue);
        // Documents may be called differently.
        kept.keeper.writer.forget_names();
        drop(alone);
        indexes::reconcile(&client).await?;
        Ok(applied)
    }
}

/// Has collections be what is given, if documents can be.
async fn redefine(
    transaction: &Transaction<'_>,
    before: &Catalogue,
    (given, collections_max): (Vec<Given>, usize),
    ahead: &Ahead,
) -> Result<Vec<Applied>, DocumentsError> {
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
    let mut look = Look::new(transaction);
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
            None => Outcome::Created,
            Some(old) if old.collection.definition().source == definition.source => {
                Outcome::Unchanged
            }
            Some(_) => Outcome::Changed,
        };
        if outcome != Outcome::Unchanged {
            collections::remember(transaction, name, &definition.source).await?;
        }
        applied.push(Applied {
            collection: name.clone(),
            outcome,
        });
    }
    Ok(applied)
}

/// The collections that are not what they were.
fn redefined(before: &Catalogue, all: &Definitions) -> Result<Vec<Redefined>, DocumentsError> {
    let mut redefined = Vec::new();
    for definition in all.iter() {
        let Some(old) = before.declared(&definition.collection) else {
            continue;
        };
        let collection = Collection::of(all, definition)?;
        let changes = Changes::between(&old.collection, &collection);
        if !changes.is_nothing() {
            let id = old.id;
            let new = Declared { id, collection };
            redefined.push(Redefined { old, new, changes });
        }
    }
    Ok(redefined)
}

/// What was looked at while others wrote: the documents of these collections, with what they were and are to be, are in order as they were at this
/// position of the feed.
struct Ahead {
    seen: BTreeMap<CollectionName, (serde_json::Value, serde_json::Value)>,
    position: i64,
}

impl Ahead {
    /// Fails where documents are not what they are to be.
    async fn look(
        client: &impl GenericClient,
        before: &Catalogue,
        all: &Definitions,
    ) -> Result<Self, DocumentsError> {
        let mut position: i64 = client.query_one(feed::POSITION, &[]).await?.get(0);
        let redefined = redefined(before, all)?;
        refuse(redefined.iter().flat_map(|one| one.changes.refused()))?;
        let bodies = redefined.iter().filter(|one| one.changes.is_of_bodies());
        let mut seen = BTreeMap::new();
        let mut look = Look::new(client);
        for one in bodies.clone() {
            look.redefined(one, None).await?;
            seen.insert(one.old.collection.name().clone(), one.sources());
        }
        look.outcome()?;
        // What was written meanwhile; that is less each time.
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

    /// Up to which position of the feed all documents of a collection have been looked at for what it is to be.
    fn up_to(&self, one: &Redefined) -> Option<i64> {
        let seen = self.seen.get(one.old.collection.name());
        seen.filter(|seen| **seen == one.sources())
            .map(|_| self.position)
    }
}

/// How often what was written meanwhile is looked at before writers have to wait.
const CATCH_UP: usize = 3;

/// Transactions that are read of the feed at a time.
const GROUPS_TOGETHER: i64 = 100;

/// Looks whether documents are what a collection is to allow.
struct Look<'a, C> {
    client: &'a C,
    offending: Offending,
}

impl<'a, C: GenericClient> Look<'a, C> {
    fn new(client: &'a C) -> Self {
        Self {
            client,
            offending: Offending::default(),
        }
    }

    fn outcome(&self) -> Result<(), DocumentsError> {
        self.offending.outcome()
    }

    /// All documents of a collection, or those that changed after a position of the feed.
    async fn redefined(
        &mut self,
        one: &Redefined,
        after: Option<i64>,
    ) -> Result<(), DocumentsError> {
        match after {
            Some(after) if self.is_kept(after).await? => self.changed(&one.new, after).await,
            _ => self.all(&one.new).await,
        }
    }

    /// Whether the feed has all that came after a position.
    async fn is_kept(&self, after: i64) -> Result<bool, DocumentsError> {
        let forgotten: i64 = self.client.query_one(feed::FORGOTTEN, &[]).await?.get(0);
        Ok(forgotten <= after)
    }

    async fn all(&mut self, declared: &Declared) -> Result<(), DocumentsError> {
        for tenant in collections::tenants(self.client).await?.into_values() {
            let (mut after, mut portions) = (i64::MIN, Portions::new(PAGE));
            loop {
                let of = (tenant, declared.id);
                let page = rebuild::page(self.client, of, after, &mut portions).await?;
                let Some(last) = page.last() else { break };
                after = last.id.number();
                self.rows(&declared.collection, &page);
            }
        }
        Ok(())
    }

    async fn changed(&mut self, declared: &Declared, after: i64) -> Result<(), DocumentsError> {
        let mut after = after;
        loop {
            let rows = self
                .client
                .query(feed::GROUPS, &[&after, &GROUPS_TOGETHER])
                .await?;
            let groups: Vec<feed::Group> = rows.iter().map(feed::Group::of).collect();
            let Some(last) = groups.last() else {
                return Ok(());
            };
            after = last.position;
            let changes = groups.iter().flat_map(|group| &group.changes);
            let own =
                changes.filter(|(.., collection, _, _)| CollectionId(*collection) == declared.id);
            let mut own: Vec<(i32, DocumentId)> = own
                .map(|(_, tenant, _, id, _)| (*tenant, DocumentId::stored(*id)))
                .collect();
            own.sort_unstable_by_key(|(tenant, id)| (*tenant, id.number()));
            own.dedup();
            let rows = rebuild::these(self.client, declared.id, &own).await?;
            self.rows(&declared.collection, &rows);
        }
    }

    fn rows(&mut self, collection: &Collection, rows: &[Row]) {
        for one in rows {
            // None is larger for it.
            if let Err(error) = collection.read(one.body.as_bytes(), usize::MAX) {
                self.offending.add(one.id, &error);
            }
        }
    }
}
