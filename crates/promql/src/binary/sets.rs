//! `and`, `or`, `unless`.

use super::super::keys::Keys;
use super::super::row::{Grid, LabeledRow, Row, absent_value};
use super::super::syntax::Grouping;

/// For each group of series, at which steps one of them has a sample.
struct Presence<'a> {
    keys: Keys<'a>,
    steps: Vec<Vec<bool>>,
}

impl<'a> Presence<'a> {
    fn from_rows(series: &[LabeledRow], matching: &'a Grouping, grid: Grid) -> Self {
        let mut keys = Keys::new(matching);
        let mut steps: Vec<Vec<bool>> = Vec::new();
        for series_row in series {
            let group = keys.group_index(&series_row.labels);
            if group == steps.len() {
                steps.push(vec![false; grid.count]);
            }
            for (step, present) in steps[group].iter_mut().enumerate() {
                *present |= series_row.row.has_sample(step);
            }
        }
        Self { keys, steps }
    }
}

/// Takes samples out of a row.
fn retain_steps(row: &mut Row, is_kept: impl Fn(usize) -> bool) {
    for (step, value) in row.values.iter_mut().enumerate() {
        *value = if is_kept(step) { *value } else { absent_value() };
    }
    for (step, histogram) in row.histograms.iter_mut().enumerate() {
        if !is_kept(step) {
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
    let mut presence = Presence::from_rows(right, matching, grid);
    for series_row in &mut left {
        let group = presence.keys.group_index(&series_row.labels);
        match presence.steps.get(group) {
            Some(present) => retain_steps(&mut series_row.row, |step| present[step] == wants_match),
            None => retain_steps(&mut series_row.row, |_| !wants_match),
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
    let unmatched = and(right, &left, matching, grid, false);
    let mut union_rows = left;
    union_rows.extend(unmatched);
    union_rows
}
