//! All definitions of a database, checked against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::path::{Path, push_escaped};
use crate::core::schema::Types;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Violation};

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
    given: Option<&'a str>,
    collection: &'a CollectionName,
}

impl DefinitionLocation<'_> {
    fn wrong(&self, pointer: &str, what: &str) -> Violation {
        match self.given {
            Some(base) => Violation::new(format!("{base}{pointer}"), what),
            None => {
                let what = format!(
                    "existing collection `{}`, at `{pointer}`: {what}",
                    self.collection
                );
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
    pub fn with(&self, given: Vec<LocatedDefinition>) -> Result<Self, DocumentsError> {
        let mut all = self.0.clone();
        let mut places = BTreeMap::new();
        let mut violations = Vec::new();
        for LocatedDefinition {
            pointer,
            definition,
        } in given
        {
            let collection = definition.collection.clone();
            if places.insert(collection.clone(), pointer.clone()).is_some() {
                let what = format!("collection `{collection}` occurs twice");
                violations.push(Violation::new(format!("{pointer}/collection"), what));
            }
            all.insert(collection, Arc::new(definition));
        }
        let all = Self(all);
        all.check(&places, &mut violations);
        if violations.is_empty() {
            Ok(all)
        } else {
            Err(invalid(violations))
        }
    }

    /// This set without one definition.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: others refer to it or extend it.
    pub fn without(&self, collection: &CollectionName) -> Result<Self, DocumentsError> {
        let mut all = self.0.clone();
        all.remove(collection);
        let all = Self(all);
        let mut violations = Vec::new();
        all.check(&BTreeMap::new(), &mut violations);
        if violations.is_empty() {
            Ok(all)
        } else {
            Err(invalid(violations))
        }
    }

    fn check(&self, places: &BTreeMap<CollectionName, String>, wrong: &mut Vec<Violation>) {
        for definition in self.0.values() {
            let place = DefinitionLocation {
                given: places.get(&definition.collection).map(String::as_str),
                collection: &definition.collection,
            };
            for index in 0..definition.references.len() {
                self.check_reference(definition, index, &place, wrong);
            }
            for (index, extension) in definition.extends.iter().enumerate() {
                self.check_extension(extension, index, &place, wrong);
            }
            if let Err(what) = self.supers(definition) {
                wrong.push(place.wrong("/extends", &what));
            }
        }
    }

    fn check_reference(
        &self,
        definition: &Definition,
        index: usize,
        place: &DefinitionLocation<'_>,
        wrong: &mut Vec<Violation>,
    ) {
        let reference = &definition.references[index];
        let pointer = format!("/references/{index}");
        let Some(target) = self.0.get(&reference.to) else {
            let what = format!("there is no collection `{}`", reference.to);
            return wrong.push(place.wrong(&format!("{pointer}/to"), &what));
        };
        let pointer = format!("{pointer}/paths");
        names_all(&reference.pairs, target, &pointer, place, wrong);
        for pair in &reference.pairs {
            let part = target.identity.iter().find(|part| part.path == pair.target);
            let Some(scalar) = part.and_then(|part| part.scalar) else {
                continue;
            };
            if !pair.types.without(Types::NULL).is_within(scalar.types()) {
                let mut pointer = pointer.clone();
                push_escaped(&mut pointer, &pair.own.to_string());
                let what = format!(
                    "`{}` is {}, but `{}` of `{}` is {}",
                    pair.own,
                    pair.types.without(Types::NULL),
                    pair.target,
                    reference.to,
                    scalar.types()
                );
                wrong.push(place.wrong(&pointer, &what));
            }
        }
    }

    fn check_extension(
        &self,
        extension: &Extension,
        index: usize,
        place: &DefinitionLocation<'_>,
        wrong: &mut Vec<Violation>,
    ) {
        let pointer = format!("/extends/{index}");
        let refuse = |what: String| place.wrong(&format!("{pointer}/collection"), &what);
        match self.0.get(&extension.collection) {
            None => wrong.push(refuse(format!(
                "there is no collection `{}`",
                extension.collection
            ))),
            Some(target) if !target.is_abstract => wrong.push(refuse(format!(
                "collection `{}` is not abstract: only abstract collections can be extended",
                extension.collection
            ))),
            Some(target) => {
                names_all(
                    &extension.pairs,
                    target,
                    &format!("{pointer}/identity"),
                    place,
                    wrong,
                );
            }
        }
    }

    /// The abstract collections that a definition extends, in the order of declaration, each
    /// followed by those that it extends itself.
    ///
    /// # Errors
    /// It extends itself, one collection in two ways, or too many.
    pub(crate) fn supers(&self, definition: &Definition) -> Result<Vec<AbstractScope>, String> {
        let mut found = Vec::new();
        self.add_supers(definition, definition, None, &mut found)?;
        Ok(found)
    }

    /// Adds the collections that `definition` extends. It is `descendant` or extended by it;
    /// then `paths` are those of its identity in documents of `descendant`.
    fn add_supers(
        &self,
        bottom: &Definition,
        definition: &Definition,
        paths: Option<&[Path]>,
        found: &mut Vec<AbstractScope>,
    ) -> Result<(), String> {
        for extension in &definition.extends {
            let Some(target) = self.0.get(&extension.collection) else {
                continue;
            };
            // Missing and unknown parts are reported where the extension is checked.
            let Some(paths) = paths_in(target, extension, definition, paths) else {
                continue;
            };
            let collection = &target.collection;
            if *collection == bottom.collection {
                return Err(format!("`{collection}` would extend itself"));
            }
            match found.iter().find(|one| one.collection == *collection) {
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
            found.push(AbstractScope {
                collection: collection.clone(),
                paths: paths.clone(),
            });
            self.add_supers(bottom, target, Some(&paths), found)?;
        }
        Ok(())
    }
}

/// Paths of an identity's parts in documents of the descendant collection.
fn paths_in(
    target: &Definition,
    extension: &Extension,
    definition: &Definition,
    paths: Option<&[Path]>,
) -> Option<Vec<Path>> {
    let parts = target.identity.iter().map(|part| {
        let pair = extension
            .pairs
            .iter()
            .find(|pair| pair.target == part.path)?;
        let Some(paths) = paths else {
            return Some(pair.own.clone());
        };
        let at = definition
            .identity
            .iter()
            .position(|part| part.path == pair.own)?;
        paths.get(at).cloned()
    });
    parts.collect()
}

/// Checks that pairs name each part of another collection's identity, and nothing else.
fn names_all(
    pairs: &[PathPair],
    target: &Definition,
    pointer: &str,
    place: &DefinitionLocation<'_>,
    wrong: &mut Vec<Violation>,
) {
    let identity: BTreeSet<&Path> = target.identity.iter().map(|part| &part.path).collect();
    let named: BTreeSet<&Path> = pairs.iter().map(|pair| &pair.target).collect();
    if identity == named {
        return;
    }
    let listed: Vec<String> = target
        .identity
        .iter()
        .map(|part| format!("`{}`", part.path))
        .collect();
    let what = format!(
        "the identity of `{}` is {}: map exactly these paths",
        target.collection,
        listed.join(", ")
    );
    wrong.push(place.wrong(pointer, &what));
}
