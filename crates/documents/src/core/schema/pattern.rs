//! Patterns: their cost, the number of positions at which a match can be at the same time; and
//! those with look-around that only mean white space, as patterns without it.

use regex_syntax::hir::{Hir, HirKind};

/// Cost of a pattern that only the validator can parse.
const UNPARSED_COST: u64 = 10_000;

/// Positions of a pattern with repetitions unrolled: the maximum cost of each character of a
/// string.
pub(super) fn positions(pattern: &str) -> u64 {
    match regex_syntax::parse(pattern) {
        Ok(parsed) => hir_positions(&parsed),
        Err(_) => UNPARSED_COST,
    }
}

fn hir_positions(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        // A character beyond ASCII is matched byte by byte.
        HirKind::Class(_) => 4,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            hir_positions(&repetition.sub).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => hir_positions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(hir_positions).fold(0, u64::saturating_add)
        }
    }
}

/// The pattern without look-around, where that only says that a text does not begin or end with
/// white space, or is not blank; any other pattern as it is.
pub(super) fn without_look_around(pattern: &str) -> &str {
    trimming(pattern).unwrap_or(pattern)
}

/// The equivalent of a pattern that asks for text without white space around it.
fn trimming(pattern: &str) -> Option<&'static str> {
    match pattern {
        // Not blank, and begins with a character that is no line break.
        r"^(?!\s*$).+" => return Some(r"^(?:\S|.[\s\S]*\S)"),
        r"^(?!\s*$).+$" => return Some(r"^.*\S.*$"),
        _ => {}
    }
    let rest = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let (begins, is_filled, rest) = if let Some(rest) = rest.strip_prefix(r"(?!\s)") {
        (true, false, rest)
    } else if let Some(rest) = rest.strip_prefix(r"(?=\S)") {
        (true, true, rest)
    } else {
        (false, false, rest)
    };
    let (ends, is_filled, rest) = if let Some(rest) = rest.strip_suffix(r"(?<!\s)") {
        (true, is_filled, rest)
    } else if let Some(rest) = rest.strip_suffix(r"(?<=\S)") {
        (true, true, rest)
    } else {
        (false, is_filled, rest)
    };
    if !begins && !ends {
        return None;
    }
    let group = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let (ends, is_filled) = match group.unwrap_or(rest) {
        ".*" => (ends, is_filled),
        ".+" => (ends, true),
        r".*\S" => (true, true),
        _ => return None,
    };
    Some(match (begins, ends, is_filled) {
        (true, true, true) => r"^\S(?:.*\S)?$",
        (true, true, false) => r"^(?:\S(?:.*\S)?)?$",
        (true, false, true) => r"^\S.*$",
        (true, false, false) => r"^(?:\S.*)?$",
        (false, _, true) => r"^.*\S$",
        (false, _, false) => r"^(?:.*\S)?$",
    })
}

#[cfg(test)]
mod tests;
