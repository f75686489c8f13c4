//! Storage of references: several edges to a row.
//!
//! Each row costs a header and a log record, whatever its size; so a document's targets are stored
//! by four to a row, in the order stored with the document. The key of a row is its first target
//! and the document. The order is kept as far as possible when targets change, so that few rows
//! change.

use crate::model::DocumentNumber;

/// Edges of a row: as many as `egret.document_edge` has columns for.
pub(crate) const EDGE_ROW_WIDTH: usize = 4;

/// The targets of a row, at most [`EDGE_ROW_WIDTH`] and at least one.
pub type EdgeRow = [DocumentNumber];

/// Targets of `before` that are not in `after`.
pub(crate) fn removed_targets(
    before: &[DocumentNumber],
    after: &[DocumentNumber],
) -> Vec<DocumentNumber> {
    let after = SortedTargets::new(after);
    let removed = before.iter().filter(|target| !after.contains(**target));
    removed.copied().collect()
}

/// Orders the targets `after` so that few rows change: those that stay keep their positions, new
/// ones fill the positions of removed ones, and positions left over are filled from the end. Both
/// lists have each target once.
pub(crate) fn assign_slots(
    before: &[DocumentNumber],
    after: &[DocumentNumber],
) -> Vec<DocumentNumber> {
    let (old_targets, new_targets) = (SortedTargets::new(before), SortedTargets::new(after));
    let mut added = after.iter().filter(|target| !old_targets.contains(**target)).copied();
    let mut slots: Vec<Option<DocumentNumber>> = before
        .iter()
        .map(|target| if new_targets.contains(*target) { Some(*target) } else { added.next() })
        .collect();
    slots.extend(added.map(Some));
    let mut index = 0;
    while index < slots.len() {
        match slots[index] {
            Some(_) => index += 1,
            None => {
                slots.swap_remove(index);
            }
        }
    }
    slots.into_iter().flatten().collect()
}

/// A sorted set of targets for fast lookups: a document may have very many.
struct SortedTargets(Vec<DocumentNumber>);

impl SortedTargets {
    fn new(targets: &[DocumentNumber]) -> Self {
        let mut sorted = targets.to_vec();
        sorted.sort_unstable();
        Self(sorted)
    }

    fn contains(&self, target: DocumentNumber) -> bool {
        self.0.binary_search(&target).is_ok()
    }
}

/// Rows that differ between two orders at the same position: those to delete, and those to insert.
pub fn changed_rows<'a>(
    before: &'a [DocumentNumber],
    after: &'a [DocumentNumber],
) -> (Vec<&'a EdgeRow>, Vec<&'a EdgeRow>) {
    let rows_not_in = |these: &'a [DocumentNumber], those: &'a [DocumentNumber]| {
        let mut others = those.chunks(EDGE_ROW_WIDTH);
        let rows = these.chunks(EDGE_ROW_WIDTH);
        rows.filter(|row| others.next() != Some(*row)).collect()
    };
    (rows_not_in(before, after), rows_not_in(after, before))
}

#[cfg(test)]
mod tests;
