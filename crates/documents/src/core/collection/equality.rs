//! Groups of paths whose values must be equal within a document.

use serde_json::Value;

use crate::core::identity;
use crate::core::path::{self, Path, Segment};
use crate::model::{Violation, truncate};

/// Bytes of a value in a message, at most.
const SHOWN_BYTES_MAX: usize = 100;

/// A compiled group of equal paths.
///
/// Paths that lead through the same arrays are compared within each element of these.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EqualGroup {
    /// Path to the elements within which values are compared; empty: the document.
    elements: Vec<Segment>,
    /// The paths from such an element, and from the document.
    paths: Vec<(Vec<Segment>, Path)>,
}

/// A value of a group that is neither absent nor null.
pub(super) struct EqualPlace<'a> {
    /// JSON pointer of the value.
    pub(super) pointer: String,
    pub(super) value: &'a Value,
}

impl EqualGroup {
    pub(super) fn compile(paths: &[Path]) -> Self {
        let shared = paths.iter().map(|path| {
            let same = path.segments().iter().zip(paths[0].segments());
            same.take_while(|(one, other)| one == other).count()
        });
        let shared = shared.min().unwrap_or(0);
        let common = paths.first().map_or(&[][..], |path| &path.segments()[..shared]);
        let last_each = common.iter().rposition(|segment| *segment == Segment::Each);
        let (elements, _) = common.split_at(last_each.map_or(0, |each| each + 1));
        let rest = |path: &Path| (path.segments()[elements.len()..].to_vec(), path.clone());
        Self { elements: elements.to_vec(), paths: paths.iter().map(rest).collect() }
    }

    /// The values of a body that must be equal, in sets.
    pub(super) fn sets<'a>(&self, body: &'a Value) -> Vec<Vec<EqualPlace<'a>>> {
        let elements = path::select(&self.elements, body).into_iter();
        elements
            .map(|element| {
                let mut places = Vec::new();
                for (rest, path) in &self.paths {
                    for found in path::select(rest, element.value) {
                        if found.value.is_null() {
                            continue;
                        }
                        let indexes = [element.elements.as_slice(), &found.elements].concat();
                        let pointer = path.pointer(&indexes);
                        places.push(EqualPlace { pointer, value: found.value });
                    }
                }
                places
            })
            .collect()
    }

    /// The first difference in each set of values.
    pub(super) fn violations(&self, body: &Value) -> Vec<Violation> {
        let different = self.sets(body).into_iter().filter_map(|set| {
            let (first, others) = set.split_first()?;
            let other =
                others.iter().find(|other| !identity::is_equivalent(first.value, other.value))?;
            let what = format!(
                "it is {}, but must equal `{}`, which is {}",
                shown(other.value),
                first.pointer,
                shown(first.value)
            );
            Some(Violation::new(&other.pointer, what))
        });
        different.collect()
    }
}

/// A value, shortened for a message.
pub(super) fn shown(value: &Value) -> String {
    truncate(&value.to_string(), SHOWN_BYTES_MAX)
}

#[cfg(test)]
mod tests;
