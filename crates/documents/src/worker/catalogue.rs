//! Catalogue of a database: its collections, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_postgres::tokio_postgres::GenericClient;

use crate::core::collection::Collection;
use crate::core::collection::DeclaredCollection;
use crate::core::definition::{Definitions, LocatedDefinition, reread};
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName};
use crate::store::collections::{self, CollectionRow};
use crate::store::indexes::IndexSpec;

#[derive(Debug, Default)]
pub struct Catalogue {
    /// Definitions as they were declared.
    pub definitions: Definitions,
    declared: BTreeMap<CollectionName, Arc<DeclaredCollection>>,
    by_id: BTreeMap<CollectionId, Arc<DeclaredCollection>>,
}

impl Catalogue {
    /// Reads the catalogue from a database.
    pub async fn read(client: &impl GenericClient) -> Result<Self, DocumentsError> {
        Self::of(collections::collections(client).await?)
    }

    /// Builds the catalogue from stored rows.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: a stored definition is invalid, or two contradict
    /// each other.
    pub fn of(remembered: Vec<CollectionRow>) -> Result<Self, DocumentsError> {
        let mut given = Vec::new();
        let mut numbers: BTreeMap<CollectionName, CollectionId> = BTreeMap::new();
        for one in remembered {
            let definition = reread(one.definition)?;
            numbers.insert(definition.collection.clone(), one.id);
            given.push(LocatedDefinition {
                pointer: String::new(),
                definition,
            });
        }
        let definitions = Definitions::default().with(given)?;
        let mut declared = BTreeMap::new();
        for definition in definitions.iter() {
            let collection = Collection::of(&definitions, definition)?;
            let one = DeclaredCollection {
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

    /// Indexes that the collections require, one for each query path.
    pub fn indexes(&self) -> Vec<IndexSpec> {
        let each = self.by_id.values().flat_map(|declared| {
            let paths = declared.collection.definition().query.iter();
            paths.map(|path| IndexSpec {
                collection: declared.id,
                path: path.clone(),
            })
        });
        each.collect()
    }

    /// All collections, by number.
    pub fn iter(&self) -> impl Iterator<Item = &DeclaredCollection> {
        self.by_id.values().map(AsRef::as_ref)
    }

    /// Looks up a collection by its number.
    pub(crate) fn get(&self, id: CollectionId) -> Option<&DeclaredCollection> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    /// Like [`Self::get`], as a shared pointer.
    pub fn by_id(&self, id: CollectionId) -> Option<Arc<DeclaredCollection>> {
        self.by_id.get(&id).cloned()
    }

    /// Looks up a collection by its name.
    pub fn declared(&self, name: &CollectionName) -> Option<Arc<DeclaredCollection>> {
        self.declared.get(name).cloned()
    }
}
