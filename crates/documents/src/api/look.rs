//! Looks at collections.

use std::time::SystemTime;

use serde_json::Value;

use super::{Caller, Documents, PAGE_USUAL};
use crate::core::openapi::{Described, Served, describe};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::CollectionName;
use crate::store::collections;

/// A collection.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Its name.
    pub collection: CollectionName,
    /// As it was declared.
    pub definition: Value,
    /// How often it was changed, from 1.
    pub version: i32,
    /// When it was declared first.
    pub created_at: SystemTime,
    /// When it was changed last.
    pub changed_at: SystemTime,
}

impl Documents {
    /// The collections of a database, by name.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn collections(&self, caller: &Caller) -> Result<Vec<Summary>, DocumentsError> {
        let kept = self.kept(caller).await?;
        let lent = kept.asker.lend(&caller.tenant).await?;
        let remembered = collections::collections(lent.client()).await;
        let mut all = Vec::new();
        for remembered in lent.end(remembered).await? {
            let name = remembered.definition["collection"]
                .as_str()
                .unwrap_or_default();
            let collection: CollectionName = name
                .parse()
                .map_err(|reason| DocumentsError::Database { reason })?;
            if !is_known(caller, &collection) {
                continue;
            }
            all.push(Summary {
                collection,
                definition: remembered.definition,
                version: remembered.version,
                created_at: remembered.created_at,
                changed_at: remembered.changed_at,
            });
        }
        all.sort_by(|a, b| a.collection.cmp(&b.collection));
        Ok(all)
    }

    /// A collection.
    ///
    /// # Errors
    /// [`DocumentsError::NoCollection`], and what the server says.
    pub async fn collection(
        &self,
        caller: &Caller,
        name: &CollectionName,
    ) -> Result<Summary, DocumentsError> {
        let all = self.collections(caller).await?;
        let found = all.into_iter().find(|one| one.collection == *name);
        found.ok_or_else(|| DocumentsError::NoCollection {
            collection: name.clone(),
        })
    }

    /// What OpenAPI says of the collections that are anything to whoever asks.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn described(&self, caller: &Caller) -> Result<Described, DocumentsError> {
        let kept = self.kept(caller).await?;
        let catalogue = kept.keeper.writer.catalogue();
        let all = catalogue.iter().map(|declared| &declared.collection);
        let known = all.filter(|collection| is_known(caller, collection.name()));
        let config = &self.inner.options.config;
        let served = Served {
            database: &kept.keeper.database,
            page_max: config.page_max,
            page_usual: PAGE_USUAL.min(config.page_max),
            batch_max: config.batch_max,
        };
        Ok(describe(&served, known))
    }
}

/// Whether somebody may do anything with documents of a collection: else he does not learn that there is one.
fn is_known(caller: &Caller, collection: &CollectionName) -> bool {
    let may = |action| caller.rights.may(action, collection);
    may(Action::Read) || may(Action::Write)
}
