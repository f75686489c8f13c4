//! Updates of references whose targets' identities change.

use std::collections::HashMap;

use serde_json::Value;

use super::{Collection, CompiledReference};
use crate::core::identity::Identity;
use crate::core::path::{self, Segment};
use crate::model::AliasId;

/// New identities by previous alias.
pub(crate) type RenamedIdentities = HashMap<AliasId, Identity>;

/// A value to write at a place in a body.
struct ValueReplacement {
    elements: Vec<u32>,
    path_to_element: Vec<Segment>,
    path_in_element: Vec<Segment>,
    value: Value,
}

impl Collection {
    /// The body with its references to renamed documents updated; none if it has no such
    /// references.
    pub(crate) fn update_references(
        &self,
        body: &Value,
        renamed: &RenamedIdentities,
    ) -> Option<Value> {
        let replacements: Vec<ValueReplacement> = self
            .references
            .iter()
            .flat_map(|reference| reference.replacements(body, renamed))
            .collect();
        if replacements.is_empty() {
            return None;
        }
        let mut body = body.clone();
        for replacement in replacements {
            replacement.apply(&mut body);
        }
        Some(body)
    }
}

impl CompiledReference {
    fn replacements(&self, body: &Value, renamed: &RenamedIdentities) -> Vec<ValueReplacement> {
        let mut replacements = Vec::new();
        for element in path::select(&self.elements, body) {
            // Incomplete references name no target.
            let Ok(Some(identity)) = self.identity(element.value) else {
                continue;
            };
            let Some(new_identity) = renamed.get(&self.namespace.alias(&identity)) else {
                continue;
            };
            let values = self.parts.iter().zip(new_identity.values());
            replacements.extend(values.map(|(part, value)| ValueReplacement {
                elements: element.elements.clone(),
                path_to_element: self.elements.clone(),
                path_in_element: part.clone(),
                value,
            }));
        }
        replacements
    }
}

impl ValueReplacement {
    fn apply(self, body: &mut Value) {
        let mut elements = self.elements.iter();
        let segments = self.path_to_element.iter().chain(&self.path_in_element);
        let slot = segments.into_iter().try_fold(body, |value, segment| match segment {
            Segment::Property(name) => value.get_mut(name),
            Segment::Each => value.get_mut(*elements.next()? as usize),
        });
        if let Some(place) = slot {
            *place = self.value;
        }
    }
}

#[cfg(test)]
mod tests;
