//! Elements of arrays that must differ in the values at chosen paths.

use std::collections::HashMap;

use serde_json::Value;

use crate::core::identity::Identity;
use crate::core::path::{self, Path, Segment};
use crate::model::Violation;

/// A compiled constraint: no two elements of one array have the same values at all of its paths.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UniqueElements {
    /// Path to the elements.
    elements: Vec<Segment>,
    /// The paths from an element, and from the document.
    paths: Vec<(Vec<Segment>, Path)>,
}

impl UniqueElements {
    pub(super) fn compile(paths: &[Path]) -> Self {
        let elements = paths.first().map_or(&[][..], |path| path.split_at_last_each().0);
        let rest = |path: &Path| (path.split_at_last_each().1.to_vec(), path.clone());
        Self { elements: elements.to_vec(), paths: paths.iter().map(rest).collect() }
    }

    /// A violation for each element that repeats an earlier one of its array. An element without a
    /// value at one of the paths is not compared.
    pub(super) fn violations(&self, body: &Value) -> Vec<Violation> {
        // The first element of an array that has these values, by array and values.
        let mut first_elements: HashMap<(Vec<u32>, Identity), Vec<u32>> = HashMap::new();
        let mut violations = Vec::new();
        for element in path::select(&self.elements, body) {
            let values = self.paths.iter().filter_map(|(rest, _)| {
                path::get(rest, element.value).filter(|value| !value.is_null())
            });
            let values: Vec<&Value> = values.collect();
            if values.len() < self.paths.len() {
                continue;
            }
            let array = element.elements.split_last().map_or(&[][..], |(_, array)| array).to_vec();
            let values = match Identity::from_values(values) {
                Ok(values) => values,
                Err(what) => {
                    let what = format!("it must be unique, but {what}");
                    violations
                        .push(Violation::new(self.paths[0].1.pointer(&element.elements), what));
                    continue;
                }
            };
            match first_elements.get(&(array.clone(), values.clone())) {
                Some(first) => violations.push(self.violation(first, &element.elements)),
                None => {
                    first_elements.insert((array, values), element.elements);
                }
            }
        }
        violations
    }

    fn violation(&self, first: &[u32], repeated: &[u32]) -> Violation {
        let places = |elements: &[u32]| {
            let pointers =
                self.paths.iter().map(|(_, path)| format!("`{}`", path.pointer(elements)));
            pointers.collect::<Vec<String>>().join(", ")
        };
        let what = format!(
            "the element has the same values as an earlier one: {} must differ from {}",
            places(repeated),
            places(first)
        );
        Violation::new(self.paths[0].1.pointer(repeated), what)
    }
}

#[cfg(test)]
mod tests;
