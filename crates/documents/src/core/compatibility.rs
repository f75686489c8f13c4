//! Differences between two states of a definition, as data: what is rejected, validated, built and
//! dropped.

use std::collections::BTreeMap;

use crate::core::collection::{Collection, IdentityScope};
use crate::core::definition::MatchMode;
use crate::core::path::Path;
use crate::core::schema;
use crate::model::{CollectionName, Violation};

/// Differences between two states of a collection.
///
/// A name both added and removed stands for something that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DefinitionDiff {
    /// The schema may accept other documents: all documents are validated first.
    pub schema: bool,
    /// The groups of equal paths change: all documents are validated first.
    pub equal: bool,
    /// The groups of unique paths change: all documents are validated first.
    pub unique: bool,
    /// The identity paths change: all aliases are rebuilt.
    pub identity: bool,
    /// The collection becomes abstract or ceases to be: rejected.
    pub is_abstract: bool,
    /// New value of `identity_mutable`, if it changes; needs no other work.
    pub identity_mutable: Option<bool>,
    /// Added references: the targets of all documents are rebuilt.
    pub references_added: Vec<CollectionName>,
    /// Removed references: the targets of all documents are rebuilt.
    pub references_removed: Vec<CollectionName>,
    /// Query paths that get an index.
    pub query_added: Vec<Path>,
    /// Query paths whose index is dropped.
    pub query_removed: Vec<Path>,
    /// Abstract collections in which documents get an alias: all aliases are rebuilt.
    pub extends_added: Vec<CollectionName>,
    /// Abstract collections in which documents lose their alias: all aliases are rebuilt, and
    /// documents that refer to them by it are checked.
    pub extends_removed: Vec<CollectionName>,
}

impl DefinitionDiff {
    /// Differences between a collection before and after a change.
    pub(crate) fn between(old: &Collection, new: &Collection) -> Self {
        let (before, after) = (old.definition(), new.definition());
        let assertions = |collection: &Collection| {
            collection.schema().map(|schema| schema::strip_annotations(schema.source()))
        };
        let is_same = |a: Option<serde_json::Value>, b: Option<serde_json::Value>| match (a, b) {
            (Some(a), Some(b)) => crate::core::identity::is_equivalent(&a, &b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let identity = |collection: &Collection| {
            let parts = collection.definition().identity.iter();
            parts.map(|part| part.path.clone()).collect::<Vec<Path>>()
        };
        let mutable = after.identity_mutable;
        let references = (reference_mappings(old), reference_mappings(new));
        let query = |collection: &Collection| {
            let paths = collection.definition().query.iter();
            paths.map(|one| (one.path.clone(), one.scalar)).collect::<BTreeMap<_, _>>()
        };
        let query = (query(old), query(new));
        // Skip the first, the collection itself: its paths are the identity.
        let extends = (abstract_paths(old), abstract_paths(new));
        Self {
            schema: !is_same(assertions(old), assertions(new)),
            equal: before.equal != after.equal,
            unique: before.unique != after.unique,
            identity: identity(old) != identity(new),
            is_abstract: before.is_abstract != after.is_abstract,
            identity_mutable: (mutable != before.identity_mutable).then_some(mutable),
            references_added: changed_keys(&references.1, &references.0),
            references_removed: changed_keys(&references.0, &references.1),
            query_added: changed_keys(&query.1, &query.0),
            query_removed: changed_keys(&query.0, &query.1),
            extends_added: changed_keys(&extends.1, &extends.0),
            extends_removed: changed_keys(&extends.0, &extends.1),
        }
    }

    /// Whether nothing changes for documents and their stored data; the text of the definition may
    /// still differ.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Changes that are rejected regardless of the documents.
    pub(crate) fn rejections(&self) -> Vec<Violation> {
        let what =
            "whether a collection is abstract cannot be changed: declare one with another name";
        let rejection = self.is_abstract.then(|| Violation::new("/abstract", what));
        rejection.into_iter().collect()
    }

    /// Whether each document must be validated again.
    pub(crate) fn needs_validation(&self) -> bool {
        self.schema || self.equal || self.unique || !self.query_added.is_empty()
    }

    /// Collections in which aliases of the documents are added, changed or removed.
    pub(crate) fn changed_scopes(&self, own: &CollectionName) -> Vec<CollectionName> {
        let own = self.identity.then(|| own.clone());
        let extends = self.extends_added.iter().chain(&self.extends_removed);
        own.into_iter().chain(extends.cloned()).collect()
    }

    /// Whether documents refer to other targets, or by other paths.
    pub(crate) fn has_changed_references(&self) -> bool {
        !(self.references_added.is_empty() && self.references_removed.is_empty())
    }
}

/// Collection, match mode and paths of each reference. The order of the paths matters: it
/// determines aliases.
type ReferenceMappings = BTreeMap<CollectionName, (CollectionName, MatchMode, Vec<(Path, Path)>)>;

fn reference_mappings(collection: &Collection) -> ReferenceMappings {
    let modes = collection.definition().references.iter().map(|reference| reference.match_mode);
    let references = collection.references().zip(modes);
    references
        .map(|((name, to, paths), mode)| (name.clone(), (to.clone(), mode, paths.to_vec())))
        .collect()
}

fn abstract_paths(collection: &Collection) -> BTreeMap<CollectionName, Vec<Path>> {
    let families = collection.identity_scopes().iter().skip(1);
    let paths = |family: &IdentityScope| (family.collection.clone(), family.paths.clone());
    families.map(paths).collect()
}

/// Keys of one map that the other lacks or has with another value.
fn changed_keys<K: Ord + Clone, V: PartialEq>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
) -> Vec<K> {
    let only = one.iter().filter(|(key, value)| other.get(*key) != Some(*value));
    only.map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests;
