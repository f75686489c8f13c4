//! A compiled definition: everything that is prepared once for all documents of a collection.

mod equality;
mod rename;
mod uniqueness;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::definition::{Definition, Definitions, MatchMode, Reference};
use crate::core::identity::{Identity, Namespace};
use crate::core::json;
use crate::core::path::{self, Path, Segment};
use crate::core::query;
use crate::core::schema::Schema;
use crate::error::DocumentsError;
use crate::model::{AliasId, CollectionId, CollectionName, UnresolvedReference, Violation};

use equality::EqualGroup;
pub(crate) use rename::RenamedIdentities;
use uniqueness::UniqueElements;

/// References of one document, at most: each becomes an edge.
pub(crate) const DOCUMENT_REFERENCES_MAX: usize = 10_000;

/// A compiled collection, ready to read documents.
#[derive(Clone, Debug)]
pub struct Collection {
    definition: Arc<Definition>,
    identity_scopes: Vec<IdentityScope>,
    references: Vec<CompiledReference>,
    equal: Vec<EqualGroup>,
    unique: Vec<UniqueElements>,
}

/// A collection that is declared in a database.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredCollection {
    /// Number of the collection in the database.
    pub id: CollectionId,
    /// The collection, compiled from its definition.
    pub collection: Collection,
}

impl DeclaredCollection {
    /// Aliases of a stored document, its own first.
    ///
    /// # Errors
    /// The body lacks a valid identity.
    pub(crate) fn aliases(&self, body: &Value) -> Result<Vec<AliasId>, Violation> {
        let scopes = self.collection.identity_scopes().iter();
        let aliases = scopes.map(|family| Ok(family.alias(&family.identity(body)?)));
        aliases.collect()
    }
}

/// A collection in which documents have an alias: their own one first, then the abstract ones that
/// it extends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IdentityScope {
    /// Name of the collection in which the alias is unique.
    pub collection: CollectionName,
    /// Paths of the identity's parts in the documents, in the order of that collection's identity.
    pub paths: Vec<Path>,
    namespace: Namespace,
}

/// A compiled reference, with its paths in the order of the target's identity.
#[derive(Clone, Debug, PartialEq)]
struct CompiledReference {
    reference: Reference,
    namespace: Namespace,
    /// Path to the elements that may each have a target; empty: the document has at most one.
    elements: Vec<Segment>,
    /// Path from such an element to each part of the identity.
    parts: Vec<Vec<Segment>>,
    /// Whole path of each part, and its path in the target's identity.
    paths: Vec<(Path, Path)>,
}

/// A validated document, ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The body as sent, with normalized numbers.
    pub body: Value,
    /// The body as JSON without white space, properties in the order in which they were sent.
    pub text: String,
    /// Its identity in its own collection.
    pub identity: Identity,
    /// Its aliases, one for each of [`Collection::identity_scopes`].
    pub aliases: Vec<AliasId>,
    /// Targets of its references; those that a reference names twice are listed once.
    pub references: Vec<Target>,
}

/// A document that a body refers to, by its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of the reference in the definition's current order; only its name is stable.
    pub reference: usize,
    /// Identity that the body names.
    pub identity: Identity,
    /// Alias of that identity in the target's collection.
    pub alias: AliasId,
    /// Index of the element at each `*` of the reference's paths; of the first one, if several name
    /// it.
    pub elements: Vec<u32>,
}

impl Collection {
    /// Compiles one of these definitions.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: it does not fit together with the others. Definitions
    /// that were checked together do.
    pub fn compile(
        definitions: &Definitions,
        definition: &Arc<Definition>,
    ) -> Result<Self, DocumentsError> {
        let invalid = |what: String| {
            let violations = vec![Violation::new("", what)];
            DocumentsError::DefinitionInvalid { violations }
        };
        let own_scope = IdentityScope {
            collection: definition.collection.clone(),
            paths: definition.identity.iter().map(|part| part.path.clone()).collect(),
            namespace: Namespace::for_collection(&definition.collection),
        };
        let abstract_scopes =
            definitions.abstract_scopes(definition).map_err(invalid)?.into_iter().map(|scope| {
                IdentityScope {
                    namespace: Namespace::for_collection(&scope.collection),
                    collection: scope.collection,
                    paths: scope.paths,
                }
            });
        let references: Result<Vec<CompiledReference>, String> = definition
            .references
            .iter()
            .map(|reference| {
                let target = definitions.get(&reference.to);
                let target =
                    target.ok_or_else(|| format!("there is no collection `{}`", reference.to))?;
                CompiledReference::compile(reference, target)
            })
            .collect();
        Ok(Self {
            definition: Arc::clone(definition),
            identity_scopes: std::iter::once(own_scope).chain(abstract_scopes).collect(),
            references: references.map_err(invalid)?,
            equal: definition.equal.iter().map(|group| EqualGroup::compile(group)).collect(),
            unique: definition.unique.iter().map(|group| UniqueElements::compile(group)).collect(),
        })
    }

    /// Name of the collection.
    pub fn name(&self) -> &CollectionName {
        &self.definition.collection
    }

    /// The definition from which it was compiled.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Schema of its documents; none: the collection is abstract and has no documents of its own.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.definition.schema.as_ref()
    }

    /// The collections in which its documents have an alias: itself, then the abstract ones that it
    /// extends, directly or through another.
    pub(crate) fn identity_scopes(&self) -> &[IdentityScope] {
        &self.identity_scopes
    }

    /// For each reference: its name, the collection that it refers to, and its paths with those of
    /// the target's identity, in the order of that identity.
    pub(crate) fn references(
        &self,
    ) -> impl Iterator<Item = (&CollectionName, &CollectionName, &[(Path, Path)])> {
        self.references.iter().map(|compiled| {
            let reference = &compiled.reference;
            (&reference.name, &reference.to, compiled.paths.as_slice())
        })
    }

    /// Parses and validates a document.
    ///
    /// # Errors
    /// [`DocumentsError::ValidationFailed`] with all violations found,
    /// [`DocumentsError::PayloadTooLarge`].
    pub fn parse(&self, bytes: &[u8], bytes_max: usize) -> Result<Draft, DocumentsError> {
        let body = json::parse_document(bytes, bytes_max)?;
        let schema = self.schema().ok_or_else(|| {
            let what = format!(
                "collection `{}` is abstract: write to a collection that extends it",
                self.name()
            );
            DocumentsError::violation(Violation::new("", what))
        })?;
        schema
            .validate(&body)
            .map_err(|violations| DocumentsError::ValidationFailed { violations })?;
        self.derive_draft(body)
    }

    /// Validates a body that was produced here, for example by a patch, like one that was sent.
    ///
    /// # Errors
    /// Those of [`Collection::parse`].
    pub fn parse_value(&self, body: &Value, bytes_max: usize) -> Result<Draft, DocumentsError> {
        self.parse(body.to_string().as_bytes(), bytes_max)
    }

    /// Derives identity, aliases and targets of a body that matches the schema.
    fn derive_draft(&self, body: Value) -> Result<Draft, DocumentsError> {
        let mut violations = Vec::new();
        let mut own_identity = None;
        let mut aliases = Vec::with_capacity(self.identity_scopes.len());
        for scope in &self.identity_scopes {
            match scope.identity(&body) {
                Ok(identity) => {
                    aliases.push(scope.namespace.alias(&identity));
                    own_identity.get_or_insert(identity);
                }
                Err(violation) => violations.push(violation),
            }
        }
        let references = self.collect_targets(&body, &mut violations);
        violations.extend(self.equal.iter().flat_map(|group| group.violations(&body)));
        violations.extend(self.unique.iter().flat_map(|unique| unique.violations(&body)));
        if let Some(path) = query::find_oversized(&self.definition.query, &body) {
            let what = format!(
                "this value is indexed for queries and may have at most {} bytes \
                 (`query_value_bytes_max`)",
                query::QUERY_VALUE_BYTES_MAX
            );
            violations.push(Violation::new(path.to_string(), what));
        }
        match own_identity {
            Some(identity) if violations.is_empty() => {
                Ok(Draft { text: body.to_string(), body, identity, aliases, references })
            }
            _ => {
                violations.truncate(super::schema::VIOLATIONS_MAX);
                Err(DocumentsError::ValidationFailed { violations })
            }
        }
    }

    fn collect_targets(&self, body: &Value, violations: &mut Vec<Violation>) -> Vec<Target> {
        let mut targets = Vec::new();
        for (index, compiled) in self.references.iter().enumerate() {
            let mut add = |element: &Value, elements: Vec<u32>| match compiled.identity(element) {
                Ok(None) => {}
                Ok(Some(identity)) => targets.push(Target {
                    reference: index,
                    alias: compiled.namespace.alias(&identity),
                    identity,
                    elements,
                }),
                Err(what) => {
                    let (path, _) = &compiled.paths[0];
                    let what = format!("reference `{}`: {what}", compiled.reference.name);
                    violations.push(Violation::new(path.pointer(&elements), what));
                }
            };
            if compiled.elements.is_empty() {
                add(body, Vec::new());
                continue;
            }
            for element in path::select(&compiled.elements, body) {
                add(element.value, element.elements);
            }
            let mut seen = HashSet::new();
            targets.retain(|target| target.reference != index || seen.insert(target.alias));
        }
        if targets.len() > DOCUMENT_REFERENCES_MAX {
            let what = format!(
                "the document has {} references, more than the maximum of \
                 {DOCUMENT_REFERENCES_MAX} (`document_references_max`)",
                targets.len()
            );
            violations.push(Violation::new("", what));
        }
        targets
    }

    /// Whether a document may have several targets by this reference.
    pub fn is_plural(&self, reference: usize) -> bool {
        !self.references[reference].elements.is_empty()
    }

    /// Describes a target for an error message: where the document names it, and its identity.
    pub(crate) fn describe_unresolved(&self, target: &Target) -> UnresolvedReference {
        let compiled = &self.references[target.reference];
        let parts = compiled.paths.iter().zip(target.identity.values());
        let mut pointers: Vec<String> = Vec::with_capacity(compiled.paths.len());
        for (own, _) in &compiled.paths {
            let pointer = own.pointer(&target.elements);
            if !pointers.contains(&pointer) {
                pointers.push(pointer);
            }
        }
        UnresolvedReference {
            reference: compiled.reference.name.clone(),
            target_collection: compiled.reference.to.clone(),
            pointers,
            identity: parts.map(|((_, path), value)| (path.to_string(), value)).collect(),
        }
    }
}

impl IdentityScope {
    /// Identity that a document has in this collection.
    ///
    /// # Errors
    /// A part is absent or not a valid part of an identity.
    pub(crate) fn identity(&self, body: &Value) -> Result<Identity, Violation> {
        let missing_part = |path: &Path| {
            let what =
                format!("it is part of the identity in `{}`, but is missing", self.collection);
            Violation::new(path.to_string(), what)
        };
        let parts: Vec<&Value> = self
            .paths
            .iter()
            .map(|path| path.get(body).ok_or_else(|| missing_part(path)))
            .collect::<Result<_, _>>()?;
        Identity::from_values(parts).map_err(|what| Violation::new(self.paths[0].to_string(), what))
    }

    /// Alias of an identity in this collection.
    pub(crate) fn alias(&self, identity: &Identity) -> AliasId {
        self.namespace.alias(identity)
    }
}

impl CompiledReference {
    fn compile(reference: &Reference, target: &Definition) -> Result<Self, String> {
        let paths: Option<Vec<(Path, Path)>> = target
            .identity
            .iter()
            .map(|part| {
                let pair = reference.pairs.iter().find(|pair| pair.target == part.path)?;
                Some((pair.own.clone(), pair.target.clone()))
            })
            .collect();
        let paths = paths.filter(|paths| !paths.is_empty()).ok_or_else(|| {
            format!("reference `{}` does not map all paths of an identity", reference.name)
        })?;
        let (elements, _) = paths[0].0.split_at_last_each();
        Ok(Self {
            reference: reference.clone(),
            namespace: Namespace::for_collection(&target.collection),
            elements: elements.to_vec(),
            parts: paths.iter().map(|(own, _)| own.split_at_last_each().1.to_vec()).collect(),
            paths,
        })
    }

    /// Identity that an element names; none: it names none, or not all parts of one.
    fn identity(&self, element: &Value) -> Result<Option<Identity>, String> {
        let part =
            |segments: &Vec<Segment>| path::get(segments, element).filter(|part| !part.is_null());
        let present = self.parts.iter().filter_map(part);
        match present.clone().count() {
            0 => Ok(None),
            count if count == self.parts.len() => Identity::from_values(present).map(Some),
            _ if self.reference.match_mode == MatchMode::Simple => Ok(None),
            _ => {
                let parts = self.parts.iter().zip(&self.paths);
                let missing = parts.filter(|(way, _)| part(way).is_none());
                let mut missing: Vec<String> =
                    missing.map(|(_, (own, _))| format!("`{own}`")).collect();
                missing.dedup();
                Err(format!(
                    "{} is missing: set all paths of the reference, or none",
                    missing.join(", ")
                ))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
