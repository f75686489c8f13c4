//! `and`, `or`, `unless`.

use super::super::row::{Grid, Series};
use super::super::syntax::Grouping;
use super::{by_signature, signature};

/// For each step, whether one of these series has a sample.
fn presence(series: &[Series], members: &[usize], grid: Grid) -> Vec<bool> {
    let present = |step| members.iter().any(|at| series[*at].row.has(step));
    (0..grid.count).map(present).collect()
}

/// Keeps the samples of the left that the right has a match for, or those it has none for.
pub(super) fn and(
    mut left: Vec<Series>,
    right: &[Series],
    matching: &Grouping,
    grid: Grid,
    wants_match: bool,
) -> Vec<Series> {
    let groups = by_signature(right, matching);
    let presence = groups
        .into_iter()
        .map(|(key, members)| (key, presence(right, &members, grid)));
    let presence: std::collections::HashMap<_, _> = presence.collect();
    let none = vec![false; grid.count];
    for one in &mut left {
        let present = presence
            .get(&signature(&one.labels, matching))
            .unwrap_or(&none);
        one.row
            .map(|step, point| (present[step] == wants_match).then_some(point));
    }
    left.retain(|one| !one.row.is_empty());
    left
}

/// All samples of the left, and those of the right that the left has no match for.
pub(super) fn or(
    left: Vec<Series>,
    right: Vec<Series>,
    matching: &Grouping,
    grid: Grid,
) -> Vec<Series> {
    let rest = and(right, &left, matching, grid, false);
    let mut all = left;
    all.extend(rest);
    all
}
