//! The collections of a database, with everything prepared.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_postgres::tokio_postgres::GenericClient;

use crate::core::collection::Collection;
use crate::core::definition::{Definitions, Given, reread};
use crate::core::group::Declared;
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName};
use crate::store::collections::{self, Remembered};
use crate::store::indexes::Wanted;

/// See the module.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// As they were declared.
    pub definitions: Definitions,
    declared: BTreeMap<CollectionName, Arc<Declared>>,
    by_id: BTreeMap<CollectionId, Arc<Declared>>,
}

impl Catalogue {
    /// Those that a database has.
    ///
    /// # Errors
    /// What the server says, and that what it has is not what was put there.
    pub async fn read(client: &impl GenericClient) -> Result<Self, DocumentsError> {
        Self::of(collections::collections(client).await?)
    }

    /// These.
    ///
    /// # Errors
    /// They are not what they should be.
    pub fn of(remembered: Vec<Remembered>) -> Result<Self, DocumentsError> {
        let mut given = Vec::new();
        let mut numbers: BTreeMap<CollectionName, CollectionId> = BTreeMap::new();
        for one in remembered {
            let definition = reread(one.definition)?;
            numbers.insert(definition.collection.clone(), one.id);
            given.push(Given {
                pointer: String::new(),
                definition,
            });
        }
        let definitions = Definitions::default().with(given)?;
        let mut declared = BTreeMap::new();
        for definition in definitions.iter() {
            let collection = Collection::of(&definitions, definition)?;
            let one = Declared {
                id: numbers[&definition.collection],
                collection,
            };
            declared.insert(definition.collection.clone(), Arc::new(one));
        }
        let by_id = declared.values().map(|one| (one.id, one.clone()));
        Ok(Self {
            by_id: by_id.collect(),
            definitions,
            declared,
        })
    }

    /// The indexes that there have to be.
    pub fn indexes(&self) -> Vec<Wanted> {
        let each = self.by_id.values().flat_map(|declared| {
            let paths = declared.collection.definition().query.iter();
            paths.map(|path| Wanted {
                collection: declared.id,
                path: path.clone(),
            })
        });
        each.collect()
    }

    /// All collections, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Declared> {
        self.by_id.values().map(AsRef::as_ref)
    }

    /// The same by the bare number.
    pub fn by_number(&self, number: i32) -> Option<&Declared> {
        let found = self.by_id.get(&CollectionId(number));
        found.map(AsRef::as_ref)
    }

    /// A collection by its number.
    pub fn by_id(&self, id: CollectionId) -> Option<Arc<Declared>> {
        self.by_id.get(&id).cloned()
    }

    /// A collection.
    pub fn declared(&self, name: &CollectionName) -> Option<Arc<Declared>> {
        self.declared.get(name).cloned()
    }
}
