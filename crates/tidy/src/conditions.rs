//! Conditions: each name that a fault is given in the code has a row in the reference, and the
//! other way round.

use std::collections::BTreeMap;

use crate::Finding;
use crate::tree::File;

/// The page that lists them.
pub const PAGE: &str = "docs/reference/conditions.md";

/// Code that precedes the name of a condition.
const CONSTRUCTORS: [&str; 4] =
    ["Condition::new(", "ConditionSet::new(", "condition::occur(", "condition::occurs("];

/// Prefix of names that only tests of the list itself use.
const TEST_PREFIX: &str = "test_";

/// Names in `sources` without a row in `page`, rows of which no source has the name, and names that
/// are no literals of lower-case letters, digits and underscores.
pub fn check(page: &File, sources: &[&File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = listed_names(&page.text);
    let mut used = BTreeMap::new();
    for source in sources {
        for (line, name) in constructed_names(&source.text) {
            match name {
                Some(name) if name.starts_with(TEST_PREFIX) => {}
                Some(name) if is_name(name) => {
                    used.entry(name).or_insert((source.path.as_str(), line));
                }
                other => {
                    let subject = other.unwrap_or("not a literal");
                    findings.push(Finding::new("condition-name", &source.path, line, subject));
                }
            }
        }
    }
    let unlisted = used.iter().filter(|(name, _)| !rows.contains_key(*name));
    findings.extend(
        unlisted.map(|(name, (path, line))| Finding::new("unlisted-condition", path, *line, *name)),
    );
    let unused = rows.iter().filter(|(name, _)| !used.contains_key(*name));
    findings.extend(
        unused.map(|(name, line)| Finding::new("no-such-condition", &page.path, *line, *name)),
    );
    findings
}

/// The names that conditions are made with, with their lines; `None` is one that is no literal.
fn constructed_names(text: &str) -> impl Iterator<Item = (usize, Option<&str>)> {
    let occurrences = CONSTRUCTORS.iter().flat_map(|maker| text.match_indices(maker));
    occurrences
        .filter(|(offset, _)| {
            // `egret_x::Condition::new` is one, `PreCondition::new` and `SeccompCondition::new` are
            // none.
            let before = text[..*offset].chars().next_back();
            !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
        })
        .map(|(at, maker)| {
            let line = text[..at].matches('\n').count() + 1;
            let argument = text[at + maker.len()..].trim_start();
            let literal = argument.strip_prefix('"');
            (line, literal.and_then(|rest| rest.split('"').next()))
        })
}

fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_valid)
}

/// The names in the first column of the page's tables, with their lines.
fn listed_names(text: &str) -> BTreeMap<&str, usize> {
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let name = line.strip_prefix("| `")?.split('`').next()?;
            Some((name, index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests;
