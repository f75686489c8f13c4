//! Looks at collections.

use std::time::SystemTime;

use serde_json::Value;

use super::{Caller, Documents};
use crate::core::openapi::{Described, describe};
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
        let client = self
            .inner
            .options
            .databases
            .client(&kept.keeper.database)
            .await?;
        let mut all = Vec::new();
        for remembered in collections::collections(&client).await? {
            let name = remembered.definition["collection"]
                .as_str()
                .unwrap_or_default();
            let collection: CollectionName = name
                .parse()
                .map_err(|reason| DocumentsError::Database { reason })?;
            let may = |action| caller.rights.may(action, &collection);
            if !may(Action::Read) && !may(Action::Write) {
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

    /// What OpenAPI says of the collections.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn described(&self, caller: &Caller) -> Result<Described, DocumentsError> {
        let kept = self.kept(caller).await?;
        let catalogue = kept.keeper.writer.catalogue();
        Ok(describe(
            catalogue.iter().map(|declared| &declared.collection),
        ))
    }
}
