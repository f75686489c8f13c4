//! Warnings about a schema that is valid: JSON Schema ignores keywords and formats that it does not
//! know, so a misspelt one checks nothing.

use super::VIOLATIONS_MAX;
use super::graph::{SCHEMA_KEYWORDS, SCHEMA_LIST_KEYWORDS, SCHEMA_MAP_KEYWORDS, SchemaGraph};
use crate::model::Violation;

/// Keywords that hold no subschemas.
const PLAIN_KEYWORDS: [&str; 38] = [
    "$anchor",
    "$comment",
    "$id",
    "$ref",
    "$schema",
    "$vocabulary",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependentRequired",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
    "$dynamicRef",
    "$dynamicAnchor",
];

/// Formats that are checked.
const CHECKED_FORMATS: [&str; 17] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

/// Changed characters with which a word still counts as misspelt.
const TYPING_ERRORS_MAX: usize = 2;

/// Keywords and formats without effect, at most [`VIOLATIONS_MAX`]. Keywords that begin with `x-`
/// are meant as annotations.
pub(super) fn warnings(graph: &SchemaGraph<'_>) -> Vec<Violation> {
    let mut warnings = Vec::new();
    for (pointer, schema) in graph.located_schemas() {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let what = if !is_known_keyword(keyword) {
                unknown_keyword(keyword)
            } else if keyword == "format" {
                value.as_str().and_then(unchecked_format)
            } else {
                None
            };
            warnings.extend(what.map(|what| {
                let mut pointer = pointer.clone();
                crate::core::path::push_escaped(&mut pointer, keyword);
                Violation::new(pointer, what)
            }));
            if warnings.len() >= VIOLATIONS_MAX {
                return warnings;
            }
        }
    }
    warnings
}

fn known_keywords() -> impl Iterator<Item = &'static str> {
    let single = SCHEMA_KEYWORDS.iter().map(|(keyword, _)| *keyword);
    let lists = SCHEMA_LIST_KEYWORDS.iter().map(|(keyword, _)| *keyword);
    let maps = SCHEMA_MAP_KEYWORDS.iter().map(|(keyword, _)| *keyword);
    PLAIN_KEYWORDS.into_iter().chain(single).chain(lists).chain(maps)
}

fn is_known_keyword(keyword: &str) -> bool {
    known_keywords().any(|known| known == keyword)
}

fn unknown_keyword(keyword: &str) -> Option<String> {
    if keyword.starts_with("x-") {
        return None;
    }
    let shown = crate::model::truncate(keyword, 100);
    Some(match closest(keyword, known_keywords()) {
        Some(known) => {
            format!("`{shown}` is not a keyword and checks nothing: is `{known}` meant?")
        }
        None => format!(
            "`{shown}` is not a keyword and checks nothing: begin the names of annotations with `x-`"
        ),
    })
}

fn unchecked_format(format: &str) -> Option<String> {
    if CHECKED_FORMATS.contains(&format) {
        return None;
    }
    let shown = crate::model::truncate(format, 100);
    let hint = match closest(format, CHECKED_FORMATS.into_iter()) {
        Some(known) => format!("is `{known}` meant?"),
        None => "use `pattern`, `minimum` or `maximum` where it matters".to_owned(),
    };
    Some(format!("`{shown}` is not a known format and checks nothing: {hint}"))
}

/// The word of which another one is a misspelling.
fn closest(word: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let word = word.to_lowercase();
    let distances = known.map(|known| (edit_distance(&word, &known.to_lowercase()), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    // Of a short word, few characters are left that could be right.
    let errors_max = TYPING_ERRORS_MAX.min(known.len() / 3);
    (distance <= errors_max).then_some(known)
}

/// Levenshtein distance, with which a swap of neighbours counts twice. Words of very different
/// lengths are not compared.
fn edit_distance(one: &str, other: &str) -> usize {
    if one.len().abs_diff(other.len()) > 2 * TYPING_ERRORS_MAX {
        return usize::MAX;
    }
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(character != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
