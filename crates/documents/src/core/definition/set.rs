//! All definitions of a database, checked against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::path::Path;
use crate::core::schema::Types;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Violation};

use super::pairs::pointer_to_pair;
use super::{Definition, EXTENDS_MAX, Extension, LocatedDefinition, PathPair, invalid};

/// A consistent set of definitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definitions(BTreeMap<CollectionName, Arc<Definition>>);

/// An abstract collection that a collection extends, and the paths of its identity's parts in that
/// collection's documents, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbstractScope {
    pub(crate) collection: CollectionName,
    pub(crate) paths: Vec<Path>,
}

/// Location of a violation: in a definition of the file, or in an existing one.
struct DefinitionLocation<'a> {
    file_pointer: Option<&'a str>,
    collection: &'a CollectionName,
}

impl DefinitionLocation<'_> {
    fn violation(&self, pointer: &str, what: &str) -> Violation {
        match self.file_pointer {
            Some(base) => Violation::new(format!("{base}{pointer}"), what),
            None => {
                let what =
                    format!("existing collection `{}`, at `{pointer}`: {what}", self.collection);
                Violation::new("", what)
            }
        }
    }
}

impl Definitions {
    /// Looks up a definition by the name of its collection.
    pub fn get(&self, collection: &CollectionName) -> Option<&Arc<Definition>> {
        self.0.get(collection)
    }

    /// All definitions, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.0.values()
    }

    /// This set with further definitions, which replace those of the same names.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] with all inconsistencies.
    pub fn with(&self, new_definitions: Vec<LocatedDefinition>) -> Result<Self, DocumentsError> {
        let mut definitions = self.0.clone();
        let mut pointers = BTreeMap::new();
        let mut violations = Vec::new();
        for LocatedDefinition { pointer, definition } in new_definitions {
            let collection = definition.collection.clone();
            if pointers.insert(collection.clone(), pointer.clone()).is_some() {
                let what = format!("collection `{collection}` occurs twice");
                violations.push(Violation::new(format!("{pointer}/collection"), what));
            }
            definitions.insert(collection, Arc::new(definition));
        }
        let all = Self(definitions);
        all.check(&pointers, &mut violations);
        if violations.is_empty() { Ok(all) } else { Err(invalid(violations)) }
    }

    /// This set without one definition.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: others refer to it or extend it.
    pub fn without(&self, collection: &CollectionName) -> Result<Self, DocumentsError> {
        let mut definitions = self.0.clone();
        definitions.remove(collection);
        let all = Self(definitions);
        let mut violations = Vec::new();
        all.check(&BTreeMap::new(), &mut violations);
        if violations.is_empty() { Ok(all) } else { Err(invalid(violations)) }
    }

    fn check(&self, pointers: &BTreeMap<CollectionName, String>, violations: &mut Vec<Violation>) {
        for definition in self.0.values() {
            let location = DefinitionLocation {
                file_pointer: pointers.get(&definition.collection).map(String::as_str),
                collection: &definition.collection,
            };
            for index in 0..definition.references.len() {
                self.check_reference(definition, index, &location, violations);
            }
            for (index, extension) in definition.extends.iter().enumerate() {
                self.check_extension(extension, index, &location, violations);
            }
            if let Err(what) = self.abstract_scopes(definition) {
                violations.push(location.violation("/extends", &what));
            }
        }
    }

    fn check_reference(
        &self,
        definition: &Definition,
        index: usize,
        location: &DefinitionLocation<'_>,
        violations: &mut Vec<Violation>,
    ) {
        let reference = &definition.references[index];
        let pointer = format!("/references/{index}");
        let Some(target) = self.0.get(&reference.to) else {
            let what = format!("there is no collection `{}`", reference.to);
            return violations.push(location.violation(&format!("{pointer}/to"), &what));
        };
        let pointer = format!("{pointer}/paths");
        check_mapping(&reference.pairs, target, &pointer, location, violations);
        for pair in &reference.pairs {
            let part = target.identity.iter().find(|part| part.path == pair.target);
            let Some(scalar) = part.and_then(|part| part.scalar) else {
                continue;
            };
            if !pair.types.without(Types::NULL).is_within(scalar.types()) {
                let declared = definition.source.pointer(&pointer);
                let pair_pointer = pointer_to_pair(declared, &pair.own, &pair.target);
                let what = format!(
                    "`{}` is {}, but `{}` of `{}` is {}",
                    pair.own,
                    pair.types.without(Types::NULL),
                    pair.target,
                    reference.to,
                    scalar.types()
                );
                violations.push(location.violation(&format!("{pointer}{pair_pointer}"), &what));
            }
        }
    }

    fn check_extension(
        &self,
        extension: &Extension,
        index: usize,
        location: &DefinitionLocation<'_>,
        violations: &mut Vec<Violation>,
    ) {
        let pointer = format!("/extends/{index}");
        let invalid_extension =
            |what: String| location.violation(&format!("{pointer}/collection"), &what);
        match self.0.get(&extension.collection) {
            None => violations.push(invalid_extension(format!(
                "there is no collection `{}`",
                extension.collection
            ))),
            Some(target) if !target.is_abstract => violations.push(invalid_extension(format!(
                "collection `{}` is not abstract: only abstract collections can be extended",
                extension.collection
            ))),
            Some(target) => {
                check_mapping(
                    &extension.pairs,
                    target,
                    &format!("{pointer}/identity"),
                    location,
                    violations,
                );
            }
        }
    }

    /// The abstract collections that a definition extends, in the order of declaration, each
    /// followed by those that it extends itself.
    ///
    /// # Errors
    /// It extends itself, one collection in two ways, or too many.
    pub(crate) fn abstract_scopes(
        &self,
        definition: &Definition,
    ) -> Result<Vec<AbstractScope>, String> {
        let mut found = Vec::new();
        self.add_abstract_scopes(definition, definition, None, &mut found)?;
        Ok(found)
    }

    /// Adds the collections that `definition` extends. It is `descendant` or extended by it;
    /// then `paths` are those of its identity in documents of `descendant`.
    fn add_abstract_scopes(
        &self,
        descendant: &Definition,
        definition: &Definition,
        paths: Option<&[Path]>,
        found: &mut Vec<AbstractScope>,
    ) -> Result<(), String> {
        for extension in &definition.extends {
            let Some(target) = self.0.get(&extension.collection) else {
                continue;
            };
            // Missing and unknown parts are reported where the extension is checked.
            let Some(paths) = paths_in_descendant(target, extension, definition, paths) else {
                continue;
            };
            let collection = &target.collection;
            if *collection == descendant.collection {
                return Err(format!("`{collection}` would extend itself"));
            }
            match found.iter().find(|scope| scope.collection == *collection) {
                Some(known) if known.paths == paths => continue,
                Some(_) => {
                    return Err(format!(
                        "it would extend `{collection}` with two different identities"
                    ));
                }
                None => {}
            }
            if found.len() == EXTENDS_MAX {
                return Err(format!(
                    "it would extend more than {EXTENDS_MAX} abstract collections (`extends_max`)"
                ));
            }
            found.push(AbstractScope { collection: collection.clone(), paths: paths.clone() });
            self.add_abstract_scopes(descendant, target, Some(&paths), found)?;
        }
        Ok(())
    }
}

/// Paths of an identity's parts in documents of the descendant collection.
fn paths_in_descendant(
    target: &Definition,
    extension: &Extension,
    definition: &Definition,
    paths: Option<&[Path]>,
) -> Option<Vec<Path>> {
    let parts = target.identity.iter().map(|part| {
        let pair = extension.pairs.iter().find(|pair| pair.target == part.path)?;
        let Some(paths) = paths else {
            return Some(pair.own.clone());
        };
        let index = definition.identity.iter().position(|part| part.path == pair.own)?;
        paths.get(index).cloned()
    });
    parts.collect()
}

/// Checks that pairs name each part of another collection's identity, and nothing else.
fn check_mapping(
    pairs: &[PathPair],
    target: &Definition,
    pointer: &str,
    location: &DefinitionLocation<'_>,
    violations: &mut Vec<Violation>,
) {
    let identity: BTreeSet<&Path> = target.identity.iter().map(|part| &part.path).collect();
    let mapped: BTreeSet<&Path> = pairs.iter().map(|pair| &pair.target).collect();
    if identity == mapped {
        return;
    }
    let listed: Vec<String> =
        target.identity.iter().map(|part| format!("`{}`", part.path)).collect();
    let what = format!(
        "the identity of `{}` is {}: map exactly these paths",
        target.collection,
        listed.join(", ")
    );
    violations.push(location.violation(pointer, &what));
}
