//! Pairs of an own path and a path of another collection's identity, as they are declared.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::core::path::{Path, push_escaped};

/// Pairs of paths: an object, or a list of pairs, in which one own path may occur several times.
#[derive(Debug)]
pub(super) struct DeclaredPairs(pub(super) Vec<(Path, Path)>);

impl<'de> Deserialize<'de> for DeclaredPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeclaredPairsVisitor)
    }
}

struct DeclaredPairsVisitor;

impl<'de> Visitor<'de> for DeclaredPairsVisitor {
    type Value = DeclaredPairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of paths, or a list of pairs of paths")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DeclaredPairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        pairs.sort();
        Ok(DeclaredPairs(pairs))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DeclaredPairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = list.next_element()? {
            pairs.push(pair);
        }
        Ok(DeclaredPairs(pairs))
    }
}

/// JSON pointer to a pair, from the value that declares it and its siblings.
pub(super) fn pointer_to_pair(declared: Option<&Value>, own: &Path, target: &Path) -> String {
    let mut pointer = String::new();
    let listed = declared.and_then(Value::as_array);
    let is_pair = |pair: &Value| *pair == serde_json::json!([own, target]);
    match listed.and_then(|pairs| pairs.iter().position(is_pair)) {
        Some(index) => push_escaped(&mut pointer, &index.to_string()),
        None => push_escaped(&mut pointer, &own.to_string()),
    }
    pointer
}

#[cfg(test)]
mod tests;
