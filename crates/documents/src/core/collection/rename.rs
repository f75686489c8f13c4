//! Updates of references whose targets' identities change.

use std::collections::HashMap;

use serde_json::Value;

use super::{Collection, CompiledReference};
use crate::core::identity::Identity;
use crate::core::path::{self, Segment};
use crate::model::AliasId;

/// New identities by previous alias.
pub type RenamedIdentities = HashMap<AliasId, Identity>;

/// A value to write at a place in a body.
struct ValueReplacement {
    elements: Vec<u32>,
    to_element: Vec<Segment>,
    from_element: Vec<Segment>,
    value: Value,
}

impl Collection {
    /// The body with its references to renamed documents updated; none if it has no such
    /// references.
    pub fn renamed(&self, body: &Value, renamed: &RenamedIdentities) -> Option<Value> {
        let puts: Vec<ValueReplacement> = self
            .references
            .iter()
            .flat_map(|one| one.puts(body, renamed))
            .collect();
        if puts.is_empty() {
            return None;
        }
        let mut body = body.clone();
        for put in puts {
            put.apply(&mut body);
        }
        Some(body)
    }
}

impl CompiledReference {
    fn puts(&self, body: &Value, renamed: &RenamedIdentities) -> Vec<ValueReplacement> {
        let mut puts = Vec::new();
        for element in path::select(&self.elements, body) {
            // Incomplete references name no target.
            let Ok(Some(named)) = self.identity(element.value) else {
                continue;
            };
            let Some(now) = renamed.get(&self.namespace.alias(&named)) else {
                continue;
            };
            let values = self.parts.iter().zip(now.values());
            puts.extend(values.map(|(part, value)| ValueReplacement {
                elements: element.elements.clone(),
                to_element: self.elements.clone(),
                from_element: part.clone(),
                value,
            }));
        }
        puts
    }
}

impl ValueReplacement {
    fn apply(self, body: &mut Value) {
        let mut elements = self.elements.iter();
        let way = self.to_element.iter().chain(&self.from_element);
        let place = way
            .into_iter()
            .try_fold(body, |value, segment| match segment {
                Segment::Property(name) => value.get_mut(name),
                Segment::Each => value.get_mut(*elements.next()? as usize),
            });
        if let Some(place) = place {
            *place = self.value;
        }
    }
}

#[cfg(test)]
mod tests;
