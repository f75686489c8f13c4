//! Estimated length of the statement that computes the changes of a node, before it is generated.
//!
//! The changes of an outer or a semi join name each side several times: its rows now, its rows
//! before, and its changes. Where such joins are nested the lengths multiply. A side that would
//! make a statement too long becomes a stage of its own, which is read by name.

use super::sql::APART_MAX;
use super::tree::{JoinKind, Node};

/// Maximum number of references to sources in a statement.
pub const LENGTH_MAX: u64 = 600;

/// Number of references to sources in the SQL of a node, saturating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// References in the SQL of the rows now.
    rows: u64,
    /// References in the SQL of the rows before.
    before: u64,
    /// References in the SQL of the changes.
    pub changes: u64,
    /// Number of blocks of the changes.
    blocks: u64,
    /// Number of blocks of the rows.
    row_blocks: u64,
}

/// The size of a node when all of its sources have changed. It follows the formulas of
/// [`Generator`](super::sql::Generator).
pub fn size(node: &Node) -> Size {
    match node {
        Node::Unit => Size {
            rows: 1,
            before: 1,
            row_blocks: 1,
            ..Size::default()
        },
        Node::Scan { .. } => Size {
            rows: 1,
            before: 2,
            changes: 1,
            blocks: 1,
            row_blocks: 1,
        },
        Node::Filter { input, .. } | Node::Project { input, .. } | Node::Expand { input, .. } => {
            size(input)
        }
        Node::Recent { input, .. } => {
            let input = size(input);
            Size {
                changes: sum(&[input.changes, input.rows]),
                blocks: sum(&[input.blocks, input.row_blocks]),
                ..input
            }
        }
        Node::UnionAll { inputs, .. } => {
            let sizes = inputs.iter().map(|(input, _)| size(input));
            sizes.fold(Size::default(), |all, one| Size {
                rows: sum(&[all.rows, one.rows]),
                before: sum(&[all.before, one.before]),
                changes: sum(&[all.changes, one.changes]),
                blocks: sum(&[all.blocks, one.blocks]),
                row_blocks: sum(&[all.row_blocks, one.row_blocks]),
            })
        }
        Node::Join {
            kind, left, right, ..
        } => of_join(*kind, size(left), size(right)),
    }
}

/// Size of a join, from the sizes of its sides.
pub(crate) fn of_join(kind: JoinKind, left: Size, right: Size) -> Size {
    let rows = sum(&[left.rows, right.rows]);
    let pairs = left.blocks.saturating_mul(right.blocks);
    let (of_left, pairs) = if pairs > APART_MAX as u64 {
        let before = left.blocks.saturating_mul(right.before);
        (sum(&[left.changes, before]), 0)
    } else {
        let now = left.blocks.saturating_mul(right.rows);
        let both = left.changes.saturating_mul(1 + right.blocks);
        let both = sum(&[both, left.blocks.saturating_mul(right.changes)]);
        (sum(&[now, both]), pairs)
    };
    let matches = sum(&[
        of_left,
        right.changes,
        right.blocks.saturating_mul(left.rows),
    ]);
    let blocks = sum(&[left.blocks, right.blocks, pairs]);
    let (changes, blocks) = match kind {
        JoinKind::Inner => {
            return Size {
                rows,
                before: sum(&[left.before, right.before]),
                changes: matches,
                blocks,
                row_blocks: 1,
            };
        }
        JoinKind::Semi | JoinKind::Anti => (
            sum(&[
                left.changes,
                left.blocks.saturating_mul(right.before),
                turned(left, right),
            ]),
            sum(&[left.blocks, 1]),
        ),
        JoinKind::Left => (
            sum(&[matches, unmatched(left, right)]),
            sum(&[blocks, left.blocks, 1]),
        ),
        JoinKind::Full => (
            sum(&[matches, unmatched(left, right), unmatched(right, left)]),
            sum(&[blocks, blocks, 2]),
        ),
    };
    let is_semi = matches!(kind, JoinKind::Semi | JoinKind::Anti);
    let rows = if is_semi {
        sum(&[left.rows, left.row_blocks.saturating_mul(right.rows)])
    } else {
        rows
    };
    Size {
        rows,
        before: sum(&[rows, changes]),
        changes,
        blocks,
        row_blocks: if is_semi { left.row_blocks } else { 1 },
    }
}

/// References in the changes of the rows of `one` that match nothing in `other`.
fn unmatched(one: Size, other: Size) -> u64 {
    sum(&[
        one.changes,
        one.blocks.saturating_mul(sum(&[other.before, other.rows])),
        turned(one, other),
        other.rows,
    ])
}

/// References in the rows of `one` whose first match appeared or whose last match went.
fn turned(one: Size, other: Size) -> u64 {
    sum(&[one.rows, other.rows, other.changes, other.changes])
}

fn sum(all: &[u64]) -> u64 {
    all.iter().fold(0, |sum, one| sum.saturating_add(*one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan() -> Node {
        Node::Scan {
            source: crate::core::tree::Source::Table(0),
            columns: Vec::new(),
        }
    }

    #[test]
    fn lengths_add_in_chains_of_inner_joins_and_multiply_in_outer_ones() {
        let one = size(&scan());
        let chain = |kind: JoinKind, count: usize| {
            let all = (1..count).fold(one, |left, _| of_join(kind, left, one));
            all.changes
        };
        // What changed on each side with the other as it is, less both.
        assert_eq!(chain(JoinKind::Inner, 2), 3 * 2);
        assert!(chain(JoinKind::Inner, 10) <= LENGTH_MAX);
        assert!(chain(JoinKind::Left, 5) <= LENGTH_MAX);
        assert!(chain(JoinKind::Left, 8) > LENGTH_MAX);
        assert_eq!(chain(JoinKind::Full, 200), u64::MAX);
    }
}
