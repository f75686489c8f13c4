//! Catalogue of a database: its collections, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_postgres::tokio_postgres::GenericClient;

use crate::core::collection::Collection;
use crate::core::collection::DeclaredCollection;
use crate::core::definition::{Definitions, LocatedDefinition, parse_stored};
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName};
use crate::store::collections::{self, CollectionRow};
use crate::store::query_values::QueryPathSpec;

#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// Definitions as they were declared.
    pub definitions: Definitions,
    by_name: BTreeMap<CollectionName, Arc<DeclaredCollection>>,
    by_id: BTreeMap<CollectionId, Arc<DeclaredCollection>>,
}

impl Catalogue {
    /// Reads the catalogue from a database.
    pub(crate) async fn read(client: &impl GenericClient) -> Result<Self, DocumentsError> {
        Self::from_rows(collections::read_collections(client).await?)
    }

    /// Builds the catalogue from stored rows.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: a stored definition is invalid, or two contradict
    /// each other.
    pub(crate) fn from_rows(rows: Vec<CollectionRow>) -> Result<Self, DocumentsError> {
        let mut located = Vec::new();
        let mut ids: BTreeMap<CollectionName, CollectionId> = BTreeMap::new();
        for row in rows {
            let definition = parse_stored(row.definition)?;
            ids.insert(definition.collection.clone(), row.id);
            located.push(LocatedDefinition { pointer: String::new(), definition });
        }
        let definitions = Definitions::default().with(located)?;
        let mut declared = BTreeMap::new();
        for definition in definitions.iter() {
            let collection = Collection::compile(&definitions, definition)?;
            let declared_collection =
                DeclaredCollection { id: ids[&definition.collection], collection };
            declared.insert(definition.collection.clone(), Arc::new(declared_collection));
        }
        let by_id = declared.values().map(|one| (one.id, one.clone()));
        Ok(Self { by_id: by_id.collect(), definitions, by_name: declared })
    }

    /// Query paths of all collections.
    pub(crate) fn query_paths(&self) -> Vec<QueryPathSpec> {
        let specs = self.by_id.values().flat_map(|declared| {
            let paths = declared.collection.definition().query.iter();
            paths.map(|path| QueryPathSpec { collection: declared.id, path: path.clone() })
        });
        specs.collect()
    }

    /// All collections, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeclaredCollection> {
        self.by_id.values().map(AsRef::as_ref)
    }

    /// Looks up a collection by its number.
    pub(crate) fn get(&self, id: CollectionId) -> Option<&DeclaredCollection> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    /// Like [`Self::get`], as a shared pointer.
    pub(crate) fn by_id(&self, id: CollectionId) -> Option<Arc<DeclaredCollection>> {
        self.by_id.get(&id).cloned()
    }

    /// Looks up a collection by its name.
    pub(crate) fn by_name(&self, name: &CollectionName) -> Option<Arc<DeclaredCollection>> {
        self.by_name.get(name).cloned()
    }
}
