//! Cost of a pattern: the number of positions at which a match can be at the same time.

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
