//! How references follow identities that change.

use std::collections::HashMap;

use serde_json::Value;

use super::{Collection, Prepared};
use crate::core::identity::Identity;
use crate::core::path::{self, Segment};
use crate::model::AliasId;

/// What documents are called now, by what they were called.
pub type Renamed = HashMap<AliasId, Identity>;

/// A value to be put in a place.
struct Put {
    elements: Vec<u32>,
    to_element: Vec<Segment>,
    from_element: Vec<Segment>,
    value: Value,
}

impl Collection {
    /// The body of a document with references that name what they named before by what it is called now; none where nothing of that is in it.
    pub fn renamed(&self, body: &Value, renamed: &Renamed) -> Option<Value> {
        let puts: Vec<Put> = self
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

impl Prepared {
    fn puts(&self, body: &Value, renamed: &Renamed) -> Vec<Put> {
        let mut puts = Vec::new();
        for element in path::select(&self.elements, body) {
            // A reference that is not whole is none.
            let Ok(Some(named)) = self.identity(element.value) else {
                continue;
            };
            let Some(now) = renamed.get(&self.namespace.alias(&named)) else {
                continue;
            };
            let values = self.parts.iter().zip(now.values());
            puts.extend(values.map(|(part, value)| Put {
                elements: element.elements.clone(),
                to_element: self.elements.clone(),
                from_element: part.clone(),
                value,
            }));
        }
        puts
    }
}

impl Put {
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
