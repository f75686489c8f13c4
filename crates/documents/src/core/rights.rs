//! Who may see and write which documents: by collections, and by claims that documents have the values of.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::definition::{Claim, Definition};
use super::query::{Filter, Test};
use super::schema::Scalar;
use crate::model::CollectionName;

/// What is to be done with documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They are looked at.
    Read,
    /// They are written.
    Write,
}

/// What somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// In which collections documents may be read.
    pub read: Reach,
    /// In which they may be written.
    pub write: Reach,
    /// The values of each claim; none: claims do not matter.
    pub claims: Option<BTreeMap<String, BTreeSet<String>>>,
}

/// In which collections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// In all.
    #[default]
    All,
    /// In these.
    Of(BTreeSet<CollectionName>),
}

impl Reach {
    fn has(&self, collection: &CollectionName) -> bool {
        match self {
            Self::All => true,
            Self::Of(names) => names.contains(collection),
        }
    }
}

impl Rights {
    /// Whether something may be done in a collection, claims aside.
    pub fn may(&self, action: Action, collection: &CollectionName) -> bool {
        match action {
            Action::Read => self.read.has(collection),
            Action::Write => self.write.has(collection),
        }
    }

    /// The claims that decide on the documents of a collection.
    fn deciding<'a>(&self, definition: &'a Definition) -> &'a [Claim] {
        match self.claims {
            Some(_) => &definition.claims,
            None => &[],
        }
    }

    /// Whether every document of a collection is within its claims, whatever it has in it.
    pub fn is_whole(&self, definition: &Definition) -> bool {
        self.deciding(definition).is_empty()
    }

    /// The claim that keeps somebody from a document; none: none does.
    pub fn missing<'a>(&self, definition: &'a Definition, body: &Value) -> Option<&'a str> {
        let has = |claim: &Claim| {
            let found = claim.path.path.get(body).and_then(text);
            found.is_some_and(|value| self.values(claim).is_some_and(|all| all.contains(&value)))
        };
        let claims = self.deciding(definition).iter();
        let missing = claims.clone().find(|claim| !has(claim));
        missing.map(|claim| claim.name.as_str())
    }

    fn values(&self, claim: &Claim) -> Option<&BTreeSet<String>> {
        self.claims.as_ref()?.get(&claim.name)
    }

    /// What documents have to fulfil to be within the claims.
    pub fn filters(&self, definition: &Definition) -> Vec<Filter> {
        let each = self.deciding(definition).iter().map(|claim| {
            let values = self.values(claim).into_iter().flatten();
            Filter {
                path: claim.path.clone(),
                test: Test::In(values.filter_map(|value| typed(claim, value)).collect()),
            }
        });
        each.collect()
    }
}

/// A value as claims have it.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The value of a claim as documents have it; none: none can.
fn typed(claim: &Claim, value: &str) -> Option<Value> {
    let read = match claim.path.scalar {
        Scalar::String => return Some(Value::String(value.to_owned())),
        Scalar::Integer | Scalar::Number | Scalar::Boolean => serde_json::from_str::<Value>(value),
    };
    let is_number = !matches!(claim.path.scalar, Scalar::Boolean);
    read.ok().filter(|read| match is_number {
        true => read.is_number(),
        false => read.is_boolean(),
    })
}

#[cfg(test)]
mod tests;
