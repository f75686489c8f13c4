//! Storage of references: several edges to a row.
//!
//! Each row costs a header and a log record, whatever its size; so a document's targets are stored
//! by four to a row, in the order stored with the document. The key of a row is its first target
//! and the document. The order is kept as far as possible when targets change, so that few rows
//! change.

use crate::model::DocumentNumber;

/// Edges of a row: as many as `egret.document_edge` has columns for.
pub const WIDTH: usize = 4;

/// The targets of a row, at most [`EDGE_ROW_WIDTH`] and at least one.
pub type EdgeRow = [DocumentNumber];

/// Targets of `before` that are not in `after`.
pub(crate) fn removed_targets(
    before: &[DocumentNumber],
    after: &[DocumentNumber],
) -> Vec<DocumentNumber> {
    let after = SortedTargets::of(after);
    let gone = before.iter().filter(|target| !after.has(**target));
    gone.copied().collect()
}

/// Orders the targets `after` so that few rows change: those that stay keep their positions, new
/// ones fill the positions of removed ones, and positions left over are filled from the end. Both
/// lists have each target once.
pub(crate) fn assign_slots(
    before: &[DocumentNumber],
    after: &[DocumentNumber],
) -> Vec<DocumentNumber> {
    let (there, wanted) = (SortedTargets::of(before), SortedTargets::of(after));
    let mut coming = after.iter().filter(|target| !there.has(**target)).copied();
    let mut all: Vec<Option<DocumentNumber>> = before
        .iter()
        .map(|target| {
            if wanted.has(*target) {
                Some(*target)
            } else {
                coming.next()
            }
        })
        .collect();
    all.extend(coming.map(Some));
    let mut place = 0;
    while place < all.len() {
        match all[place] {
            Some(_) => place += 1,
            None => {
                all.swap_remove(place);
            }
        }
    }
    all.into_iter().flatten().collect()
}

/// A sorted set of targets for fast lookups: a document may have very many.
struct SortedTargets(Vec<DocumentNumber>);

impl SortedTargets {
    fn of(targets: &[DocumentNumber]) -> Self {
        let mut sorted = targets.to_vec();
        sorted.sort_unstable();
        Self(sorted)
    }

    fn has(&self, target: DocumentNumber) -> bool {
        self.0.binary_search(&target).is_ok()
    }
}

/// Rows that differ between two orders at the same position: those to delete, and those to insert.
pub fn changed<'a>(
    before: &'a [DocumentNumber],
    after: &'a [DocumentNumber],
) -> (Vec<&'a EdgeRow>, Vec<&'a EdgeRow>) {
    let not_in = |these: &'a [DocumentNumber], those: &'a [DocumentNumber]| {
        let mut others = those.chunks(WIDTH);
        let rows = these.chunks(WIDTH);
        rows.filter(|row| others.next() != Some(*row)).collect()
    };
    (not_in(before, after), not_in(after, before))
}

#[cfg(test)]
mod tests;
