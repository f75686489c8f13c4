//! Access rights to documents: by collection, and by claims whose values documents must have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::definition::{Claim, Definition};
use super::query::{Filter, Test};
use super::schema::Scalar;
use crate::error::DocumentsError;
use crate::model::CollectionName;

/// A kind of access to documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Documents are read or queried.
    Read,
    /// Documents are created, changed or deleted.
    Write,
}

/// Rights of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Collections whose documents the caller may read.
    pub read: Reach,
    /// Collections whose documents the caller may write.
    pub write: Reach,
    /// Values of the caller's claims by name; none: claims are not checked.
    pub claims: Option<BTreeMap<String, BTreeSet<String>>>,
}

/// A set of collections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All collections, including future ones.
    #[default]
    All,
    /// Only the collections with these names.
    Only(BTreeSet<CollectionName>),
}

impl Reach {
    fn contains(&self, collection: &CollectionName) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(collection),
        }
    }
}

impl Rights {
    /// Whether the caller may access documents of a collection, apart from claims.
    pub fn allows(&self, action: Action, collection: &CollectionName) -> bool {
        match action {
            Action::Read => self.read.contains(collection),
            Action::Write => self.write.contains(collection),
        }
    }

    /// Claims that are checked for documents of a collection.
    fn checked_claims<'a>(&self, definition: &'a Definition) -> &'a [Claim] {
        match self.claims {
            Some(_) => &definition.claims,
            None => &[],
        }
    }

    /// Whether the caller may access all documents of a collection, without a check of claims.
    pub(crate) fn is_unrestricted(&self, definition: &Definition) -> bool {
        self.checked_claims(definition).is_empty()
    }

    /// Name of a claim for a document that the caller lacks, if there is one.
    pub(crate) fn missing_claim<'a>(
        &self,
        definition: &'a Definition,
        body: &Value,
    ) -> Option<&'a str> {
        let has_claim = |claim: &Claim| {
            let found = claim.path.path.get(body).and_then(claim_text);
            found.is_some_and(|value| {
                self.claim_values(claim).is_some_and(|all| all.contains(&value))
            })
        };
        let claims = self.checked_claims(definition).iter();
        let missing = claims.clone().find(|claim| !has_claim(claim));
        missing.map(|claim| claim.name.as_str())
    }

    /// Checks that the caller has all claims for a document.
    ///
    /// # Errors
    /// [`DocumentsError::AccessDenied`], with the first claim that the caller lacks.
    pub(crate) fn check_claims(
        &self,
        definition: &Definition,
        body: &Value,
    ) -> Result<(), DocumentsError> {
        match self.missing_claim(definition, body) {
            Some(claim) => Err(DocumentsError::claim_missing(claim)),
            None => Ok(()),
        }
    }

    fn claim_values(&self, claim: &Claim) -> Option<&BTreeSet<String>> {
        self.claims.as_ref()?.get(&claim.name)
    }

    /// Filters for the documents that the caller's claims allow.
    pub(crate) fn claim_filters(&self, definition: &Definition) -> Vec<Filter> {
        let each = self.checked_claims(definition).iter().map(|claim| {
            let values = self.claim_values(claim).into_iter().flatten();
            Filter {
                path: claim.path.clone(),
                test: Test::In(
                    values.filter_map(|value| parse_claim_value(claim, value)).collect(),
                ),
            }
        });
        each.collect()
    }
}

/// Text of a value, as claims have it.
fn claim_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Value of a claim in the type of its path; none if the text is not of that type.
fn parse_claim_value(claim: &Claim, value: &str) -> Option<Value> {
    let parsed = match claim.path.scalar {
        Scalar::String => return Some(Value::String(value.to_owned())),
        Scalar::Integer | Scalar::Number | Scalar::Boolean => serde_json::from_str::<Value>(value),
    };
    let is_number = !matches!(claim.path.scalar, Scalar::Boolean);
    parsed.ok().filter(|read| if is_number { read.is_number() } else { read.is_boolean() })
}

#[cfg(test)]
mod tests;
