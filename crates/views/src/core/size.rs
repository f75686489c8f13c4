//! Estimated length of the statement that computes the changes of a node, before it is generated.
//!
//! The changes of an outer or a semi join name each side several times: its rows now, its rows
//! before, and its changes. Where such joins are nested the lengths multiply. A side that would
//! make a statement too long becomes a stage of its own, which is read by name.

use super::sql::SEPARATE_PAIRS_MAX;
use super::tree::{JoinKind, Node};

/// Maximum number of references to sources in a statement.
pub(crate) const NAMED_SOURCES_MAX: u64 = 600;

/// Number of references to sources in the SQL of a node, saturating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// References in the SQL of the rows now.
    rows: u64,
    /// References in the SQL of the rows before.
    old_rows: u64,
    /// References in the SQL of the changes.
    pub changes: u64,
    /// Number of blocks of the changes.
    change_blocks: u64,
    /// Number of blocks of the rows.
    row_blocks: u64,
}

/// The size of a node when all of its sources have changed. It follows the formulas of
/// [`Generator`](super::sql::Generator).
pub(crate) fn node_size(node: &Node) -> Size {
    match node {
        Node::Unit => Size { rows: 1, old_rows: 1, row_blocks: 1, ..Size::default() },
        Node::Scan { .. } => {
            Size { rows: 1, old_rows: 2, changes: 1, change_blocks: 1, row_blocks: 1 }
        }
        Node::Filter { input, .. } | Node::Project { input, .. } | Node::FlatMap { input, .. } => {
            node_size(input)
        }
        Node::TemporalFilter { input, .. } => {
            let input = node_size(input);
            Size {
                changes: saturating_sum(&[input.changes, input.rows]),
                change_blocks: saturating_sum(&[input.change_blocks, input.row_blocks]),
                ..input
            }
        }
        Node::UnionAll { inputs, .. } => {
            let sizes = inputs.iter().map(|(input, _)| node_size(input));
            sizes.fold(Size::default(), |total, one| Size {
                rows: saturating_sum(&[total.rows, one.rows]),
                old_rows: saturating_sum(&[total.old_rows, one.old_rows]),
                changes: saturating_sum(&[total.changes, one.changes]),
                change_blocks: saturating_sum(&[total.change_blocks, one.change_blocks]),
                row_blocks: saturating_sum(&[total.row_blocks, one.row_blocks]),
            })
        }
        Node::Join { kind, left, right, .. } => join_size(*kind, node_size(left), node_size(right)),
    }
}

/// Size of a join, from the sizes of its sides.
pub(crate) fn join_size(kind: JoinKind, left: Size, right: Size) -> Size {
    let rows = saturating_sum(&[left.rows, right.rows]);
    let pairs = left.change_blocks.saturating_mul(right.change_blocks);
    let (left_changes, pairs) = if pairs > SEPARATE_PAIRS_MAX as u64 {
        let unmatched_pairs = left.change_blocks.saturating_mul(right.old_rows);
        (saturating_sum(&[left.changes, unmatched_pairs]), 0)
    } else {
        let current_pairs = left.change_blocks.saturating_mul(right.rows);
        let paired_changes = left.changes.saturating_mul(1 + right.change_blocks);
        let both =
            saturating_sum(&[paired_changes, left.change_blocks.saturating_mul(right.changes)]);
        (saturating_sum(&[current_pairs, both]), pairs)
    };
    let matches = saturating_sum(&[
        left_changes,
        right.changes,
        right.change_blocks.saturating_mul(left.rows),
    ]);
    let blocks = saturating_sum(&[left.change_blocks, right.change_blocks, pairs]);
    let (changes, blocks) = match kind {
        JoinKind::Inner => {
            return Size {
                rows,
                old_rows: saturating_sum(&[left.old_rows, right.old_rows]),
                changes: matches,
                change_blocks: blocks,
                row_blocks: 1,
            };
        }
        JoinKind::Semi | JoinKind::Anti => (
            saturating_sum(&[
                left.changes,
                left.change_blocks.saturating_mul(right.old_rows),
                turned_rows(left, right),
            ]),
            saturating_sum(&[left.change_blocks, 1]),
        ),
        JoinKind::Left => (
            saturating_sum(&[matches, unmatched_changes(left, right)]),
            saturating_sum(&[blocks, left.change_blocks, 1]),
        ),
        JoinKind::Full => (
            saturating_sum(&[
                matches,
                unmatched_changes(left, right),
                unmatched_changes(right, left),
            ]),
            saturating_sum(&[blocks, blocks, 2]),
        ),
    };
    let is_semi = matches!(kind, JoinKind::Semi | JoinKind::Anti);
    let rows = if is_semi {
        saturating_sum(&[left.rows, left.row_blocks.saturating_mul(right.rows)])
    } else {
        rows
    };
    Size {
        rows,
        old_rows: saturating_sum(&[rows, changes]),
        changes,
        change_blocks: blocks,
        row_blocks: if is_semi { left.row_blocks } else { 1 },
    }
}

/// References in the changes of the rows of `one` that match nothing in `other`.
fn unmatched_changes(side: Size, other: Size) -> u64 {
    saturating_sum(&[
        side.changes,
        side.change_blocks.saturating_mul(saturating_sum(&[other.old_rows, other.rows])),
        turned_rows(side, other),
        other.rows,
    ])
}

/// References in the rows of `one` whose first match appeared or whose last match went.
fn turned_rows(side: Size, other: Size) -> u64 {
    saturating_sum(&[side.rows, other.rows, other.changes, other.changes])
}

fn saturating_sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.saturating_add(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan() -> Node {
        Node::Scan { source: crate::core::tree::Source::Table(0), columns: Vec::new() }
    }

    #[test]
    fn lengths_add_in_chains_of_inner_joins_and_multiply_in_outer_ones() {
        let scan_size = node_size(&scan());
        let chain = |kind: JoinKind, count: usize| {
            let chain_size = (1..count).fold(scan_size, |left, _| join_size(kind, left, scan_size));
            chain_size.changes
        };
        // What changed on each side with the other as it is, less both.
        assert_eq!(chain(JoinKind::Inner, 2), 3 * 2);
        assert!(chain(JoinKind::Inner, 10) <= NAMED_SOURCES_MAX);
        assert!(chain(JoinKind::Left, 5) <= NAMED_SOURCES_MAX);
        assert!(chain(JoinKind::Left, 8) > NAMED_SOURCES_MAX);
        assert_eq!(chain(JoinKind::Full, 200), u64::MAX);
    }
}
