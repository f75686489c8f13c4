//! Prefixes and values that bound the matches of a regular expression in a sorted list, so that not
//! all of the list is matched.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::Extractor;

/// Alternatives of a pattern, at most: with more, its matches are unbounded.
const ALTERNATIVES_MAX: usize = 4096;

/// Bytes of a pattern, at most: analysing a longer one takes longer than matching values.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// Longer literals are cut.
const LITERAL_BYTES_MAX: usize = 256;

/// Bounds of the values that an anchored regular expression matches. Values within the bounds
/// must still be matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MatchCandidates {
    /// Matches are among these values and those with these prefixes, sorted.
    Only(Vec<PrefixOrValue>),
    /// Matches may be anywhere among the values.
    Unbounded,
    /// Every value matches, but perhaps the empty one.
    All,
}

/// A value, or a prefix of values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PrefixOrValue {
    /// The value, or its first bytes.
    pub bytes: Vec<u8>,
    /// Whether it is all of the value.
    pub is_exact: bool,
}

/// The prefixes and values that bound where matches of a pattern can be.
pub(crate) fn match_candidates(pattern: &str) -> MatchCandidates {
    if matches!(pattern, ".*" | ".+") {
        return MatchCandidates::All;
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return MatchCandidates::Unbounded;
    }
    let parsed = ParserBuilder::new().dot_matches_new_line(true).build().parse(pattern);
    let Ok(parsed) = parsed else {
        // The matcher may accept it nonetheless, as RE2 does.
        return MatchCandidates::Unbounded;
    };
    // The extractor ignores look-around.
    let is_plain = parsed.properties().look_set().is_empty();
    let found = Extractor::new()
        .limit_total(ALTERNATIVES_MAX)
        .limit_literal_len(LITERAL_BYTES_MAX)
        .extract(&parsed);
    let Some(literals) = found.literals() else {
        return MatchCandidates::Unbounded;
    };
    let candidate = |literal: &regex_syntax::hir::literal::Literal| PrefixOrValue {
        bytes: literal.as_bytes().to_vec(),
        is_exact: is_plain && literal.is_exact(),
    };
    let mut candidates: Vec<PrefixOrValue> = literals.iter().map(candidate).collect();
    if candidates.iter().any(|place| place.bytes.is_empty() && !place.is_exact) {
        return MatchCandidates::Unbounded;
    }
    candidates.sort_unstable();
    candidates.dedup();
    MatchCandidates::Only(candidates)
}

#[cfg(test)]
mod tests;
