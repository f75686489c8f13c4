//! A collection with everything prepared that is needed for each of its documents.

mod rename;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::core::definition::{Definition, Definitions, Reference};
use crate::core::identity::{Identity, Namespace};
use crate::core::json;
use crate::core::path::{self, Path, Segment};
use crate::core::query;
use crate::core::schema::Schema;
use crate::error::DocumentsError;
use crate::model::{AliasId, CollectionName, Violation};

pub use rename::Renamed;

/// References of one document, at most: each is an edge to be written and looked after.
pub const DOCUMENT_REFERENCES_MAX: usize = 10_000;

/// A collection.
#[derive(Clone, Debug)]
pub struct Collection {
    definition: Arc<Definition>,
    families: Vec<Family>,
    references: Vec<Prepared>,
}

/// A collection in which documents have an alias: their own first, then the abstract ones that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name.
    pub collection: CollectionName,
    /// Where the parts of the identity in it are, in its order.
    pub paths: Vec<Path>,
    namespace: Namespace,
}

/// A reference, with its paths in the order of the target's identity.
#[derive(Clone, Debug, PartialEq)]
struct Prepared {
    reference: Reference,
    namespace: Namespace,
    /// What leads to each element that may have the reference; nothing: the document has it.
    elements: Vec<Segment>,
    /// What leads on to each part of the identity.
    parts: Vec<Vec<Segment>>,
    /// The whole path of each part, and what the part is called in the target.
    paths: Vec<(Path, Path)>,
}

/// A document as it is to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// What was sent, numbers in their normal form.
    pub body: Value,
    /// The same as JSON without white space, properties in the order in which they were sent.
    pub text: String,
    /// Its identity in its collection.
    pub identity: Identity,
    /// Its aliases, one for each of [`Collection::families`].
    pub aliases: Vec<AliasId>,
    /// What it refers to. What a reference names twice is there once.
    pub references: Vec<Target>,
}

/// A document that is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which of the definition's references it is, as they are ordered there; what stays the same is its name.
    pub reference: usize,
    /// Its identity.
    pub identity: Identity,
    /// Its alias.
    pub alias: AliasId,
    /// Which element has it, at each `*` of the reference's paths; the first, where several do.
    pub elements: Vec<u32>,
}

/// A reference as it is told to people.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The reference's name.
    pub reference: CollectionName,
    /// The collection that it refers to.
    pub to: CollectionName,
    /// Where in the document it is, part by part.
    pub pointers: Vec<String>,
    /// The identity that it names: values by path.
    pub identity: BTreeMap<String, Value>,
}

impl Collection {
    /// One of these collections.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] where it does not fit with the others. Definitions that were checked together do.
    pub fn of(
        definitions: &Definitions,
        definition: &Arc<Definition>,
    ) -> Result<Self, DocumentsError> {
        let refuse = |what: String| {
            let violations = vec![Violation::new("", what)];
            DocumentsError::DefinitionInvalid { violations }
        };
        let own = Family {
            collection: definition.collection.clone(),
            paths: definition
                .identity
                .iter()
                .map(|part| part.path.clone())
                .collect(),
            namespace: Namespace::of(&definition.collection),
        };
        let supers = definitions.supers(definition).map_err(refuse)?;
        let supers = supers.into_iter().map(|one| Family {
            namespace: Namespace::of(&one.collection),
            collection: one.collection,
            paths: one.paths,
        });
        let references: Result<Vec<Prepared>, String> = definition
            .references
            .iter()
            .map(|reference| {
                let target = definitions.get(&reference.to);
                let target =
                    target.ok_or_else(|| format!("there is no collection `{}`", reference.to))?;
                Prepared::of(reference, target)
            })
            .collect();
        Ok(Self {
            definition: Arc::clone(definition),
            families: std::iter::once(own).chain(supers).collect(),
            references: references.map_err(refuse)?,
        })
    }

    /// Its name.
    pub fn name(&self) -> &CollectionName {
        &self.definition.collection
    }

    /// As it is declared.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Its schema; none: it is abstract, and has no documents of its own.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.definition.schema.as_ref()
    }

    /// The collections in which its documents have an alias: itself, then the abstract ones that it belongs to, also through another.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// What each reference comes to: the collection that it refers to, and its paths with those of the target's identity, in the order of that.
    pub(crate) fn references(
        &self,
    ) -> impl Iterator<Item = (&CollectionName, &CollectionName, &[(Path, Path)])> {
        self.references.iter().map(|prepared| {
            let reference = &prepared.reference;
            (&reference.name, &reference.to, prepared.paths.as_slice())
        })
    }

    /// Reads a document from what was sent.
    ///
    /// # Errors
    /// [`DocumentsError::ValidationFailed`] with all that is wrong, [`DocumentsError::PayloadTooLarge`].
    pub fn read(&self, bytes: &[u8], bytes_max: usize) -> Result<Draft, DocumentsError> {
        let body = json::read_document(bytes, bytes_max)?;
        let schema = self.schema().ok_or_else(|| {
            let what = format!(
                "collection `{}` is abstract: documents are in one that extends it",
                self.name()
            );
            DocumentsError::violation(Violation::new("", what))
        })?;
        schema
            .check(&body)
            .map_err(|violations| DocumentsError::ValidationFailed { violations })?;
        self.draft(body)
    }

    /// Takes a document that was made here, such as by a patch. It is read like one that was sent.
    ///
    /// # Errors
    /// As [`Collection::read`].
    pub fn take(&self, body: &Value, bytes_max: usize) -> Result<Draft, DocumentsError> {
        self.read(body.to_string().as_bytes(), bytes_max)
    }

    /// What follows from a document that matches the schema.
    fn draft(&self, body: Value) -> Result<Draft, DocumentsError> {
        let mut violations = Vec::new();
        let mut own = None;
        let mut aliases = Vec::with_capacity(self.families.len());
        for family in &self.families {
            match family.identity(&body) {
                Ok(identity) => {
                    aliases.push(family.namespace.alias(&identity));
                    own.get_or_insert(identity);
                }
                Err(violation) => violations.push(violation),
            }
        }
        let references = self.targets(&body, &mut violations);
        if let Some(path) = query::too_long(&self.definition.query, &body) {
            let what = format!(
                "documents are found by this, so it may take {} bytes, `query_value_bytes_max`",
                query::QUERY_VALUE_BYTES_MAX
            );
            violations.push(Violation::new(path.to_string(), what));
        }
        match own {
            Some(identity) if violations.is_empty() => Ok(Draft {
                text: body.to_string(),
                body,
                identity,
                aliases,
                references,
            }),
            _ => {
                violations.truncate(super::schema::VIOLATIONS_MAX);
                Err(DocumentsError::ValidationFailed { violations })
            }
        }
    }

    fn targets(&self, body: &Value, violations: &mut Vec<Violation>) -> Vec<Target> {
        let mut targets = Vec::new();
        for (index, prepared) in self.references.iter().enumerate() {
            let mut add = |element: &Value, elements: Vec<u32>| match prepared.identity(element) {
                Ok(None) => {}
                Ok(Some(identity)) => targets.push(Target {
                    reference: index,
                    alias: prepared.namespace.alias(&identity),
                    identity,
                    elements,
                }),
                Err(what) => {
                    let (path, _) = &prepared.paths[0];
                    let what = format!("reference `{}`: {what}", prepared.reference.name);
                    violations.push(Violation::new(path.pointer(&elements), what));
                }
            };
            if prepared.elements.is_empty() {
                add(body, Vec::new());
                continue;
            }
            for element in path::select(&prepared.elements, body) {
                add(element.value, element.elements);
            }
            let mut seen = HashSet::new();
            targets.retain(|target| target.reference != index || seen.insert(target.alias));
        }
        if targets.len() > DOCUMENT_REFERENCES_MAX {
            let what = format!(
                "the document refers to {} others, and may to {DOCUMENT_REFERENCES_MAX}, `document_references_max`",
                targets.len()
            );
            violations.push(Violation::new("", what));
        }
        targets
    }

    /// Whether a reference may be to several documents.
    pub fn is_plural(&self, reference: usize) -> bool {
        !self.references[reference].elements.is_empty()
    }

    /// A target as it is told to people: where the document has it, and what it names.
    pub fn tell(&self, target: &Target) -> Told {
        let prepared = &self.references[target.reference];
        let named = prepared.paths.iter().zip(target.identity.values());
        Told {
            reference: prepared.reference.name.clone(),
            to: prepared.reference.to.clone(),
            pointers: prepared
                .paths
                .iter()
                .map(|(own, _)| own.pointer(&target.elements))
                .collect(),
            identity: named
                .map(|((_, path), value)| (path.to_string(), value))
                .collect(),
        }
    }
}

impl Family {
    /// The identity that a document has in it.
    ///
    /// # Errors
    /// A part is not there, or cannot be one.
    pub fn identity(&self, body: &Value) -> Result<Identity, Violation> {
        let absent = |path: &Path| {
            let what = format!(
                "it is part of the identity in `{}`, and is not there",
                self.collection
            );
            Violation::new(path.to_string(), what)
        };
        let parts = self
            .paths
            .iter()
            .map(|path| path.get(body).ok_or_else(|| absent(path)));
        let parts: Vec<&Value> = parts.collect::<Result<_, _>>()?;
        Identity::of(parts).map_err(|what| Violation::new(self.paths[0].to_string(), what))
    }

    /// The alias of an identity in it.
    pub fn alias(&self, identity: &Identity) -> AliasId {
        self.namespace.alias(identity)
    }
}

impl Prepared {
    fn of(reference: &Reference, target: &Definition) -> Result<Self, String> {
        let paths: Option<Vec<(Path, Path)>> = target
            .identity
            .iter()
            .map(|part| {
                let pair = reference
                    .pairs
                    .iter()
                    .find(|pair| pair.target == part.path)?;
                Some((pair.own.clone(), pair.target.clone()))
            })
            .collect();
        let paths = paths.filter(|paths| !paths.is_empty()).ok_or_else(|| {
            format!(
                "reference `{}` does not name all of an identity",
                reference.name
            )
        })?;
        let (elements, _) = paths[0].0.at_last_each();
        Ok(Self {
            reference: reference.clone(),
            namespace: Namespace::of(&target.collection),
            elements: elements.to_vec(),
            parts: paths
                .iter()
                .map(|(own, _)| own.at_last_each().1.to_vec())
                .collect(),
            paths,
        })
    }

    /// The identity that an element names; none: it names nothing.
    fn identity(&self, element: &Value) -> Result<Option<Identity>, String> {
        let part = |way: &Vec<Segment>| path::get(way, element).filter(|part| !part.is_null());
        let there = self.parts.iter().filter_map(part);
        match there.clone().count() {
            0 => Ok(None),
            count if count == self.parts.len() => Identity::of(there).map(Some),
            _ => {
                let all = self.parts.iter().zip(&self.paths);
                let missing = all.filter(|(way, _)| part(way).is_none());
                let missing: Vec<String> =
                    missing.map(|(_, (own, _))| format!("`{own}`")).collect();
                Err(format!(
                    "{} is not there: have all of it, or nothing",
                    missing.join(", ")
                ))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
