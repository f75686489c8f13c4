//! How what documents refer to is kept: several edges to a row.
//!
//! A row has a header, and is an entry of the log, whatever is in it; so a document's targets go by four to a row, in the order in which the
//! document notes them. A row is found by its first target and the document. That order is kept where targets come and go, so that few rows change.

/// Edges in a row: as many as `egret.document_edge` has columns for.
pub const WIDTH: usize = 4;

/// The targets of a row, at most [`WIDTH`] and at least one.
pub type EdgeRow = [i64];

/// What a document referred to that it does not refer to any more.
pub fn let_go(before: &[i64], after: &[i64]) -> Vec<i64> {
    let after = Sorted::of(after);
    let gone = before.iter().filter(|target| !after.has(**target));
    gone.copied().collect()
}

/// The order in which these targets are noted of a document that refers to those `before`: what stays does so where it is, what comes takes the
/// places of what goes, and the last ones take those that are left. Each target is there once, on both sides.
pub fn arranged(before: &[i64], after: &[i64]) -> Vec<i64> {
    let (there, wanted) = (Sorted::of(before), Sorted::of(after));
    let mut coming = after.iter().filter(|target| !there.has(**target)).copied();
    let mut all: Vec<Option<i64>> = before
        .iter()
        .map(|target| match wanted.has(*target) {
            true => Some(*target),
            false => coming.next(),
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

/// Targets that are asked for often: a document may have very many.
struct Sorted(Vec<i64>);

impl Sorted {
    fn of(targets: &[i64]) -> Self {
        let mut sorted = targets.to_vec();
        sorted.sort_unstable();
        Self(sorted)
    }

    fn has(&self, target: i64) -> bool {
        self.0.binary_search(&target).is_ok()
    }
}

/// The rows of one order that the other one does not have at the same place: those that go, and those that come.
pub fn changed<'a>(before: &'a [i64], after: &'a [i64]) -> (Vec<&'a EdgeRow>, Vec<&'a EdgeRow>) {
    let not_in = |these: &'a [i64], those: &'a [i64]| {
        let mut others = those.chunks(WIDTH);
        let rows = these.chunks(WIDTH);
        rows.filter(|row| others.next() != Some(*row)).collect()
    };
    (not_in(before, after), not_in(after, before))
}

#[cfg(test)]
mod tests;
