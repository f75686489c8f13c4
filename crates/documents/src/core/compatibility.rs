//! What a changed definition asks for, as data: what is refused, what is looked at, what is built and what is dropped.

use std::collections::BTreeMap;

use crate::core::collection::{Collection, Family};
use crate::core::path::Path;
use crate::core::schema;
use crate::model::{CollectionName, Violation};

/// The differences between two states of a collection.
///
/// What is named both as added and as removed is not what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The schema allows something else, as far as can be seen: every document is checked first.
    pub schema: bool,
    /// Documents are told apart by something else: they are named anew.
    pub identity: bool,
    /// It is abstract and was not, or the other way round: refused.
    pub is_abstract: bool,
    /// Whether the identity of documents may change, where that is not what it was: free.
    pub identity_mutable: Option<bool>,
    /// References that were not there: what documents refer to is found anew.
    pub references_added: Vec<CollectionName>,
    /// References that are not there any more: the same.
    pub references_removed: Vec<CollectionName>,
    /// Paths that get an index.
    pub query_added: Vec<Path>,
    /// Paths whose index goes.
    pub query_removed: Vec<Path>,
    /// Abstract collections in which documents get an alias: they are named anew.
    pub extends_added: Vec<CollectionName>,
    /// Abstract collections in which documents lose their alias: the same, and those that refer to them by it are looked at.
    pub extends_removed: Vec<CollectionName>,
}

impl Changes {
    /// The differences between a collection as it is and as it is to be.
    pub fn between(old: &Collection, new: &Collection) -> Self {
        let (before, after) = (old.definition(), new.definition());
        let bare = |collection: &Collection| {
            collection
                .schema()
                .map(|schema| schema::assertions(schema.source()))
        };
        let is_same = |a: Option<serde_json::Value>, b: Option<serde_json::Value>| match (a, b) {
            (Some(a), Some(b)) => crate::core::identity::is_same(&a, &b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let identity = |collection: &Collection| {
            let parts = collection.definition().identity.iter();
            parts.map(|part| part.path.clone()).collect::<Vec<Path>>()
        };
        let mutable = after.identity_mutable;
        let references = (by_name(old), by_name(new));
        let query = |collection: &Collection| {
            let paths = collection.definition().query.iter();
            paths
                .map(|one| (one.path.clone(), one.scalar))
                .collect::<BTreeMap<_, _>>()
        };
        let query = (query(old), query(new));
        // The first is the collection itself: that is its identity.
        let extends = (supers(old), supers(new));
        Self {
            schema: !is_same(bare(old), bare(new)),
            identity: identity(old) != identity(new),
            is_abstract: before.is_abstract != after.is_abstract,
            identity_mutable: (mutable != before.identity_mutable).then_some(mutable),
            references_added: only_in(&references.1, &references.0),
            references_removed: only_in(&references.0, &references.1),
            query_added: only_in(&query.1, &query.0),
            query_removed: only_in(&query.0, &query.1),
            extends_added: only_in(&extends.1, &extends.0),
            extends_removed: only_in(&extends.0, &extends.1),
        }
    }

    /// Whether nothing changes for documents or what is kept of them; what is declared may still read differently.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What is refused whatever the documents are.
    pub fn refused(&self) -> Vec<Violation> {
        let what = "whether a collection is abstract does not change: declare one of another name";
        let refused = self.is_abstract.then(|| Violation::new("/abstract", what));
        refused.into_iter().collect()
    }

    /// Whether each document is to be looked at, if it is what the collection allows.
    pub fn is_of_bodies(&self) -> bool {
        self.schema || !self.query_added.is_empty()
    }

    /// The families in which documents of the collection are called differently from now on, or not at all.
    pub fn families(&self, own: &CollectionName) -> Vec<CollectionName> {
        let own = self.identity.then(|| own.clone());
        let extends = self.extends_added.iter().chain(&self.extends_removed);
        own.into_iter().chain(extends.cloned()).collect()
    }

    /// Whether documents refer to something else, or by other paths.
    pub fn is_of_references(&self) -> bool {
        !(self.references_added.is_empty() && self.references_removed.is_empty())
    }
}

/// What each reference is: to what, by which paths. In another order these make other aliases.
type Meanings = BTreeMap<CollectionName, (CollectionName, Vec<(Path, Path)>)>;

fn by_name(collection: &Collection) -> Meanings {
    let references = collection.references();
    references
        .map(|(name, to, paths)| (name.clone(), (to.clone(), paths.to_vec())))
        .collect()
}

fn supers(collection: &Collection) -> BTreeMap<CollectionName, Vec<Path>> {
    let families = collection.families().iter().skip(1);
    let paths = |family: &Family| (family.collection.clone(), family.paths.clone());
    families.map(paths).collect()
}

/// What one has, and the other not, or not like that.
fn only_in<K: Ord + Clone, V: PartialEq>(one: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> Vec<K> {
    let only = one
        .iter()
        .filter(|(key, value)| other.get(*key) != Some(*value));
    only.map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests;
