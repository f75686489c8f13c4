//! `and`, `or`, `unless`.

use super::super::keys::Keys;
use super::super::row::{Grid, LabeledRow, Row, absent};
use super::super::syntax::Grouping;

/// For each group of series, at which steps one of them has a sample.
struct Presence<'a> {
    keys: Keys<'a>,
    steps: Vec<Vec<bool>>,
}

impl<'a> Presence<'a> {
    fn of(series: &[LabeledRow], matching: &'a Grouping, grid: Grid) -> Self {
        let mut keys = Keys::new(matching);
        let mut steps: Vec<Vec<bool>> = Vec::new();
        for one in series {
            let group = keys.group_of(&one.labels);
            if group == steps.len() {
                steps.push(vec![false; grid.count]);
            }
            for (step, present) in steps[group].iter_mut().enumerate() {
                *present |= one.row.has(step);
            }
        }
        Self { keys, steps }
    }
}

/// Takes samples out of a row.
fn keep(row: &mut Row, keeps: impl Fn(usize) -> bool) {
    for (step, value) in row.values.iter_mut().enumerate() {
        *value = if keeps(step) { *value } else { absent() };
    }
    for (step, histogram) in row.histograms.iter_mut().enumerate() {
        if !keeps(step) {
            *histogram = None;
        }
    }
}

/// Keeps the samples of the left that the right has a match for, or those it has none for.
pub(super) fn and(
    mut left: Vec<LabeledRow>,
    right: &[LabeledRow],
    matching: &Grouping,
    grid: Grid,
    wants_match: bool,
) -> Vec<LabeledRow> {
    let mut presence = Presence::of(right, matching, grid);
    for one in &mut left {
        let group = presence.keys.group_of(&one.labels);
        match presence.steps.get(group) {
            Some(present) => keep(&mut one.row, |step| present[step] == wants_match),
            None => keep(&mut one.row, |_| !wants_match),
        }
    }
    left.retain(|one| !one.row.is_empty());
    left
}

/// All samples of the left, and those of the right that the left has no match for.
pub(super) fn or(
    left: Vec<LabeledRow>,
    right: Vec<LabeledRow>,
    matching: &Grouping,
    grid: Grid,
) -> Vec<LabeledRow> {
    let rest = and(right, &left, matching, grid, false);
    let mut all = left;
    all.extend(rest);
    all
}
