//! Definitions of collections, each checked by itself; `set` checks them against each other.
//!
//! A definition is read as a whole or rejected. Everything that follows from it alone is derived
//! here, such as the types of identities, references and query paths.

use serde::Deserialize;
use serde_json::Value;

use crate::core::path::Path;
use crate::core::schema::{Scalar, Schema, Types};
use crate::error::DocumentsError;
use crate::model::{CollectionName, Violation};

mod check;
mod constraints;
mod declared;
pub(crate) mod limits;
mod pairs;
mod set;

pub use declared::parse;
pub(crate) use declared::parse_stored;
pub use set::Definitions;

/// Paths of an identity, at most, whatever `documents.identity_paths_max` says; of a reference's
/// and an extension's as well, since they name one.
pub const IDENTITY_PATHS_MAX: usize = 64;
/// References of a collection, at most.
pub const REFERENCES_MAX: usize = 64;
/// Queryable paths of a collection, at most, whatever `documents.query_paths_max` says.
pub const QUERY_PATHS_MAX: usize = 256;
/// Groups of equal paths of a collection, at most.
pub const EQUAL_GROUPS_MAX: usize = 64;
/// Paths of a group of equal paths, at most.
pub const EQUAL_PATHS_MAX: usize = 32;
/// Constraints on array elements of a collection, at most.
pub const UNIQUE_MAX: usize = 64;
/// Paths of a constraint on array elements, at most.
pub const UNIQUE_PATHS_MAX: usize = 32;
/// Earlier versions of a document that are kept, at most.
pub const HISTORY_VERSIONS_MAX: u32 = 1_000;
/// Days for which documents or their history are kept, at most: a hundred years.
pub const DAYS_MAX: u32 = 36_525;
/// Claims of a collection, at most.
pub const CLAIMS_MAX: usize = 8;
/// Abstract collections that a collection extends, at most, including those it extends through
/// another.
pub const EXTENDS_MAX: usize = 8;

/// A checked definition of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Name of the collection.
    pub collection: CollectionName,
    /// Whether it has no documents of its own, only those of the collections that extend it.
    pub is_abstract: bool,
    /// Parts of its documents' identity, in order.
    pub identity: Vec<IdentityPart>,
    /// Whether the identity of a document may change.
    pub identity_mutable: bool,
    /// References of its documents to others.
    pub references: Vec<Reference>,
    /// Groups of paths whose values must be equal within a document.
    pub equal: Vec<Vec<Path>>,
    /// Groups of paths into array elements: no two elements of an array have the same values there.
    pub unique: Vec<Vec<Path>>,
    /// Paths by which its documents can be queried.
    pub query: Vec<QueryPath>,
    /// Abstract collections that it extends directly.
    pub extends: Vec<Extension>,
    /// Which earlier versions of its documents are kept.
    pub history: History,
    /// Days after creation after which a document is deleted; none: it is kept forever.
    pub retention_days: Option<u32>,
    /// Claims that a caller needs for a document: the claim must have the value that the document
    /// has at the path.
    pub claims: Vec<Claim>,
    /// Schema of its documents; none: it is abstract.
    pub schema: Option<std::sync::Arc<Schema>>,
    /// The definition as it was declared, as JSON.
    pub source: Value,
}

/// A part of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityPart {
    /// Path of the value in documents.
    pub path: Path,
    /// Type of its values; none: the collection is abstract, and each collection that extends it
    /// has its own.
    pub scalar: Option<Scalar>,
}

/// A path by which documents can be queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPath {
    /// Path of the value in documents.
    pub path: Path,
    /// Type of its values other than null.
    pub scalar: Scalar,
}

/// Which earlier versions of documents are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Earlier versions of a document, at most.
    pub versions: u32,
    /// Whether deleted documents are kept and can be restored.
    pub deleted: bool,
    /// Days for which earlier versions are kept; none: forever.
    pub days: Option<u32>,
}

/// A claim that a caller needs, and the path of the value in documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the claim in tokens.
    pub name: String,
    /// Query path of the value.
    pub path: QueryPath,
}

/// A reference: documents carry the identity of another document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Name of the reference, unique within the collection.
    pub name: CollectionName,
    /// Collection of the target.
    pub to: CollectionName,
    /// Where documents have each part of the target's identity. One own path may name several.
    pub pairs: Vec<PathPair>,
    /// What a document refers to that has some of the paths only.
    pub match_mode: MatchMode,
}

/// What a document refers to that has some of a reference's paths only; the modes are those of
/// foreign keys in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchMode {
    /// It refers to nothing.
    Simple,
    /// It is rejected: it must have all paths, or none.
    Full,
}

/// Extension of an abstract collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Name of the abstract collection.
    pub collection: CollectionName,
    /// Where documents have each part of its identity.
    pub pairs: Vec<PathPair>,
}

/// A part of another collection's identity, and its path in documents of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPair {
    /// Path in documents of this collection.
    pub own: Path,
    /// Path of the part in the other collection.
    pub target: Path,
    /// Types that the schema allows at `own`.
    pub types: Types,
}

impl LocatedDefinition {
    /// What in its schema is probably not meant as it is written, with pointers into the file.
    pub(crate) fn warnings(&self) -> Vec<Violation> {
        let warnings = self.definition.schema.as_ref().map(|schema| schema.warnings());
        let pointer = format!("{}/schema", self.pointer);
        let warnings = warnings.into_iter().flatten();
        warnings.map(|warning| warning.with_pointer_prefix(&pointer)).collect()
    }
}

/// A definition with its position in the file it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct LocatedDefinition {
    /// Position of the definition as a JSON pointer.
    pub pointer: String,
    /// The definition read there.
    pub definition: Definition,
}

/// Error for these violations.
pub(crate) fn invalid(mut violations: Vec<Violation>) -> DocumentsError {
    violations.truncate(crate::core::schema::VIOLATIONS_MAX);
    DocumentsError::DefinitionInvalid { violations }
}

#[cfg(test)]
pub(crate) mod tests;
