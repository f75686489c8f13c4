//! Names of types: nouns that are defined once in a crate.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::code::Occurrence;
use crate::Finding;

type WordSet = BTreeSet<&'static str>;

fn words(list: &'static str) -> WordSet {
    list.split_whitespace().collect()
}

static ODD_NAMES: LazyLock<WordSet> = LazyLock::new(|| words(include_str!("odd_names.txt")));
static MORE_ODD_NAMES: LazyLock<WordSet> =
    LazyLock::new(|| words(include_str!("more_odd_names.txt")));
static NOUN_NAMES: LazyLock<WordSet> = LazyLock::new(|| words(include_str!("nouns.txt")));

/// The rule that a type's name breaks.
fn rule_for_name(name: &str) -> Option<&'static str> {
    let is_single_word = !name[1..].contains(|character: char| !character.is_ascii_lowercase());
    let is_participle = is_single_word && (name.ends_with("ed") || name.ends_with("ing"));
    if ODD_NAMES.contains(name) {
        Some("odd-type")
    } else if MORE_ODD_NAMES.contains(name) || (is_participle && !NOUN_NAMES.contains(name)) {
        Some("participle-type")
    } else {
        None
    }
}

/// Odd names among the types that a file defines.
pub(super) fn check(path: &str, types: &[Occurrence]) -> Vec<Finding> {
    types
        .iter()
        .filter_map(|definition| {
            let rule = rule_for_name(&definition.text)?;
            Some(Finding::new(rule, path, definition.line, &definition.text))
        })
        .collect()
}

/// Type names by the crate that defines them. What lies beside `src` (tests, benches, examples) is
/// a crate of its own.
#[derive(Debug, Default)]
pub(super) struct TypeNames {
    definitions: BTreeMap<(String, String), Vec<Finding>>,
}

impl TypeNames {
    pub(super) fn add(&mut self, path: &str, types: &[Occurrence]) {
        let directory: Vec<&str> = path.split('/').take(3).collect();
        for definition in types {
            let key = (directory.join("/"), definition.text.clone());
            let finding = Finding::new("twin-type", path, definition.line, &definition.text);
            self.definitions.entry(key).or_default().push(finding);
        }
    }

    /// Every definition of a name that its crate defines more than once.
    pub(super) fn twins(self) -> impl Iterator<Item = Finding> {
        self.definitions.into_values().filter(|definitions| definitions.len() > 1).flatten()
    }
}

#[cfg(test)]
mod tests;
