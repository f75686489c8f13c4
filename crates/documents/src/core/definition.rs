//! What a user declares of a collection, checked by itself; `set` checks definitions against each other.
//!
//! A definition is read as a whole or not at all. Everything that follows from it alone is worked out here: of which types identities, references
//! and queryable paths are.

use serde_json::Value;

use crate::core::path::Path;
use crate::core::schema::{Scalar, Schema, Types};
use crate::error::DocumentsError;
use crate::model::CollectionName;

mod check;
mod declared;
mod set;

pub use declared::{DEFINITIONS_BYTES_MAX, read, reread};
pub use set::Definitions;

/// Paths of an identity, at most; of a reference's and an extension's as well, since they name one.
pub const IDENTITY_PATHS_MAX: usize = 16;
/// References of a collection, at most.
pub const REFERENCES_MAX: usize = 64;
/// Queryable paths of a collection, at most.
pub const QUERY_PATHS_MAX: usize = 16;
/// Earlier versions of a document that are kept, at most.
pub const HISTORY_VERSIONS_MAX: u32 = 1_000;
/// Days for which documents or what they were are kept, at most: a hundred years.
pub const DAYS_MAX: u32 = 36_525;
/// Claims of a collection, at most.
pub const CLAIMS_MAX: usize = 8;
/// Abstract collections that a collection belongs to, at most, those of which it does so through another included.
pub const EXTENDS_MAX: usize = 8;

/// A collection as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub collection: CollectionName,
    /// Whether it has no documents of its own, but those of the collections that extend it.
    pub is_abstract: bool,
    /// What tells its documents apart.
    pub identity: Vec<IdentityPart>,
    /// Whether a document may get another identity.
    pub identity_mutable: bool,
    /// What its documents refer to.
    pub references: Vec<Reference>,
    /// By what its documents are found.
    pub query: Vec<QueryPath>,
    /// The abstract collections that it says it belongs to.
    pub extends: Vec<Extension>,
    /// What is kept of what its documents were.
    pub history: History,
    /// For how many days a document is kept after it was made; none: for good.
    pub retention_days: Option<u32>,
    /// Who may see and write a document: those whose claim has the value that the document has at the path.
    pub claims: Vec<Claim>,
    /// What its documents may be; none: it is abstract.
    pub schema: Option<std::sync::Arc<Schema>>,
    /// All of it, as it was given.
    pub source: Value,
}

/// A path of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityPart {
    /// The path.
    pub path: Path,
    /// Of which type its values are; none: the collection is abstract, and each that extends it has its own.
    pub scalar: Option<Scalar>,
}

/// A path by which documents are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPath {
    /// The path.
    pub path: Path,
    /// Of which type its values are, where there is one that is not null.
    pub scalar: Scalar,
}

/// What is kept of what documents were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Earlier versions of a document, at most.
    pub versions: u32,
    /// Whether a document that was deleted can be restored.
    pub deleted: bool,
    /// For how many days that is kept; none: for good.
    pub days: Option<u32>,
}

/// A claim, and where a document has the value that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name in tokens.
    pub name: String,
    /// A path by which documents are found.
    pub path: QueryPath,
}

/// That documents carry the identity of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its name, among those of the collection.
    pub name: CollectionName,
    /// The collection of what is referred to.
    pub to: CollectionName,
    /// Where each part of that identity is.
    pub pairs: Vec<Pair>,
}

/// That a collection belongs to an abstract one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The abstract collection.
    pub collection: CollectionName,
    /// Where each part of the identity in it is.
    pub pairs: Vec<Pair>,
}

/// Where a part of another collection's identity is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The path in documents of this collection.
    pub own: Path,
    /// The path of the other's identity.
    pub target: Path,
    /// Of which types what is at the own path may be.
    pub types: Types,
}

/// A definition, and where it stands in what was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// The definition.
    pub definition: Definition,
}

/// What is wrong with definitions.
pub(crate) fn invalid(mut violations: Vec<crate::model::Violation>) -> DocumentsError {
    violations.truncate(crate::core::schema::VIOLATIONS_MAX);
    DocumentsError::DefinitionInvalid { violations }
}

#[cfg(test)]
pub(crate) mod tests;
