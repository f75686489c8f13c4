//! Updates of references whose targets' identities change.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::equality::{EqualGroup, shown};
use super::{Collection, CompiledReference};
use crate::core::identity::Identity;
use crate::core::path;
use crate::model::{AliasId, Violation};

/// New identities by previous alias.
pub(crate) type RenamedIdentities = HashMap<AliasId, Identity>;

/// Values to write into a body, by JSON pointer.
#[derive(Default)]
struct Replacements(BTreeMap<String, Replacement>);

/// A new value of a place, and why it gets it.
#[derive(Clone)]
struct Replacement {
    value: Value,
    origin: String,
}

impl Collection {
    /// The body with its references to renamed documents updated, and with them what must equal
    /// their values; none if it has no such references.
    ///
    /// # Errors
    /// A place would have to get two different values.
    pub(crate) fn update_references(
        &self,
        body: &Value,
        renamed: &RenamedIdentities,
    ) -> Result<Option<Value>, Violation> {
        let mut replacements = Replacements::default();
        for reference in &self.references {
            reference.add_replacements(body, renamed, &mut replacements)?;
        }
        if replacements.0.is_empty() {
            return Ok(None);
        }
        replacements.add_equal(body, &self.equal)?;
        let mut body = body.clone();
        for (pointer, replacement) in replacements.0 {
            if let Some(place) = body.pointer_mut(&pointer) {
                *place = replacement.value;
            }
        }
        Ok(Some(body))
    }
}

impl CompiledReference {
    fn add_replacements(
        &self,
        body: &Value,
        renamed: &RenamedIdentities,
        replacements: &mut Replacements,
    ) -> Result<(), Violation> {
        for element in path::select(&self.elements, body) {
            // Incomplete references name no target.
            let Ok(Some(identity)) = self.identity(element.value) else {
                continue;
            };
            let Some(new_identity) = renamed.get(&self.namespace.alias(&identity)) else {
                continue;
            };
            for ((own, target), value) in self.paths.iter().zip(new_identity.values()) {
                let origin = format!("`{target}` of reference `{}`", self.reference.name);
                let replacement = Replacement { value, origin };
                replacements.add(own.pointer(&element.elements), replacement)?;
            }
        }
        Ok(())
    }
}

impl Replacements {
    /// Adds the new value of a place.
    ///
    /// # Errors
    /// The place has got another one.
    fn add(&mut self, pointer: String, replacement: Replacement) -> Result<(), Violation> {
        match self.0.get(&pointer) {
            Some(other) if other.value != replacement.value => {
                let what = format!(
                    "it would have to be {} by {}, and {} by {}",
                    shown(&other.value),
                    other.origin,
                    shown(&replacement.value),
                    replacement.origin
                );
                Err(Violation::new(pointer, what))
            }
            Some(_) => Ok(()),
            None => {
                self.0.insert(pointer, replacement);
                Ok(())
            }
        }
    }

    /// Adds the places whose values must equal one that is written.
    fn add_equal(&mut self, body: &Value, groups: &[EqualGroup]) -> Result<(), Violation> {
        let sets: Vec<_> = groups.iter().flat_map(|group| group.sets(body)).collect();
        // A group may have a place in common with another one.
        loop {
            let count = self.0.len();
            for set in &sets {
                let mut written = set.iter().filter_map(|place| self.0.get(&place.pointer));
                let Some(replacement) = written.next().cloned() else {
                    continue;
                };
                for place in set {
                    self.add(place.pointer.clone(), replacement.clone())?;
                }
            }
            if self.0.len() == count {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
