//! All definitions of a tenant, checked against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::path::{Path, push_escaped};
use crate::core::schema::Types;
use crate::error::DocumentsError;
use crate::model::{CollectionName, Violation};

use super::{Definition, EXTENDS_MAX, Extension, Given, Pair, invalid};

/// Definitions that fit together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definitions(BTreeMap<CollectionName, Arc<Definition>>);

/// An abstract collection that a collection belongs to, and where the parts of the identity in it are, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Super {
    pub(crate) collection: CollectionName,
    pub(crate) paths: Vec<Path>,
}

/// Where something is said: by a definition that is given, or by one that was there.
struct Place<'a> {
    given: Option<&'a str>,
    collection: &'a CollectionName,
}

impl Place<'_> {
    fn wrong(&self, pointer: &str, what: &str) -> Violation {
        match self.given {
            Some(base) => Violation::new(format!("{base}{pointer}"), what),
            None => {
                let what = format!(
                    "collection `{}`, which is there, at `{pointer}`: {what}",
                    self.collection
                );
                Violation::new("", what)
            }
        }
    }
}

impl Definitions {
    /// One of them.
    pub fn get(&self, collection: &CollectionName) -> Option<&Arc<Definition>> {
        self.0.get(collection)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.0.values()
    }

    /// These with others, which are added or stand for those of the same names.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: all that does not fit together.
    pub fn with(&self, given: Vec<Given>) -> Result<Self, DocumentsError> {
        let mut all = self.0.clone();
        let mut places = BTreeMap::new();
        let mut violations = Vec::new();
        for Given {
            pointer,
            definition,
        } in given
        {
            let collection = definition.collection.clone();
            if places.insert(collection.clone(), pointer.clone()).is_some() {
                let what = format!("collection `{collection}` is there twice");
                violations.push(Violation::new(format!("{pointer}/collection"), what));
            }
            all.insert(collection, Arc::new(definition));
        }
        let all = Self(all);
        all.check(&places, &mut violations);
        match violations.is_empty() {
            true => Ok(all),
            false => Err(invalid(violations)),
        }
    }

    /// These without one.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: others refer to it or extend it.
    pub fn without(&self, collection: &CollectionName) -> Result<Self, DocumentsError> {
        let mut all = self.0.clone();
        all.remove(collection);
        let all = Self(all);
        let mut violations = Vec::new();
        all.check(&BTreeMap::new(), &mut violations);
        match violations.is_empty() {
            true => Ok(all),
            false => Err(invalid(violations)),
        }
    }

    fn check(&self, places: &BTreeMap<CollectionName, String>, wrong: &mut Vec<Violation>) {
        for definition in self.0.values() {
            let place = Place {
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
        place: &Place<'_>,
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
                    "`{}` is {}, and `{}` of `{}` is {}",
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
        place: &Place<'_>,
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
                "collection `{}` is not abstract: only what is abstract is extended",
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

    /// The abstract collections that a definition belongs to, in the order in which it says so, each followed by those that it belongs to itself.
    ///
    /// # Errors
    /// It belongs to itself, to one in two ways, or to too many.
    pub(crate) fn supers(&self, definition: &Definition) -> Result<Vec<Super>, String> {
        let mut found = Vec::new();
        self.add_supers(definition, definition, None, &mut found)?;
        Ok(found)
    }

    /// Adds those of `definition`, which is `bottom` or belongs to what it belongs to: then `paths` are those of its identity in `bottom`.
    fn add_supers(
        &self,
        bottom: &Definition,
        definition: &Definition,
        paths: Option<&[Path]>,
        found: &mut Vec<Super>,
    ) -> Result<(), String> {
        for extension in &definition.extends {
            let Some(target) = self.0.get(&extension.collection) else {
                continue;
            };
            // What is not named, or names nothing, is told where the extension is checked.
            let Some(paths) = paths_in(target, extension, definition, paths) else {
                continue;
            };
            let collection = &target.collection;
            if *collection == bottom.collection {
                return Err(format!("`{collection}` would belong to itself"));
            }
            match found.iter().find(|one| one.collection == *collection) {
                Some(known) if known.paths == paths => continue,
                Some(_) => {
                    return Err(format!(
                        "it would belong to `{collection}` by two identities"
                    ));
                }
                None => {}
            }
            if found.len() == EXTENDS_MAX {
                return Err(format!(
                    "it would belong to more than {EXTENDS_MAX} abstract collections, `extends_max`"
                ));
            }
            found.push(Super {
                collection: collection.clone(),
                paths: paths.clone(),
            });
            self.add_supers(bottom, target, Some(&paths), found)?;
        }
        Ok(())
    }
}

/// Where the parts of an identity are in documents of the collection at the bottom.
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

/// That the parts of another collection's identity are all there, and nothing else.
fn names_all(
    pairs: &[Pair],
    target: &Definition,
    pointer: &str,
    place: &Place<'_>,
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
        "the identity of `{}` is {}: all of that is named, and nothing else",
        target.collection,
        listed.join(", ")
    );
    wrong.push(place.wrong(pointer, &what));
}
