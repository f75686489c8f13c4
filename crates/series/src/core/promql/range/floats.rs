//! Functions of ranges over series that are numbers alone, which most are: whole rows at once, without a call or an
//! allocation for each step.

use std::ops::Range;

use super::super::kahan;
use super::super::row::Row;
use super::super::source::{Columns, overlaps};
use super::blocks::Blocks;
use super::over_time::{quantile_of, variance_of};
use super::rates::{Bounds, Change, extension};
use super::{Prepared, advance};
use crate::model::TimeMs;

/// Memory that is used again for each series.
#[derive(Default)]
pub(crate) struct Workspace {
    indices: Vec<usize>,
    values: Vec<f64>,
    blocks: Blocks,
}

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfFloats {
    Change(Change),
    Irate,
    Idelta,
    Resets,
    Changes,
    Sum,
    Average,
    Count,
    Least,
    Greatest,
    Last,
    First,
    One,
    Deviation,
    Variance,
    Quantile,
}

pub(super) fn lookup(name: &str) -> Option<OfFloats> {
    Some(match name {
        "rate" => OfFloats::Change(Change::Rate),
        "increase" => OfFloats::Change(Change::Increase),
        "delta" => OfFloats::Change(Change::Delta),
        "irate" => OfFloats::Irate,
        "idelta" => OfFloats::Idelta,
        "resets" => OfFloats::Resets,
        "changes" => OfFloats::Changes,
        "sum_over_time" => OfFloats::Sum,
        "avg_over_time" => OfFloats::Average,
        "count_over_time" => OfFloats::Count,
        "min_over_time" => OfFloats::Least,
        "max_over_time" => OfFloats::Greatest,
        "last_over_time" => OfFloats::Last,
        "first_over_time" => OfFloats::First,
        "present_over_time" | "absent_over_time" => OfFloats::One,
        "stddev_over_time" => OfFloats::Deviation,
        "stdvar_over_time" => OfFloats::Variance,
        "quantile_over_time" => OfFloats::Quantile,
        _ => return None,
    })
}

/// Indices between those of a window, while windows advance.
struct Inside<'a> {
    indices: &'a [usize],
    from: usize,
    to: usize,
}

impl<'a> Inside<'a> {
    fn new(indices: &'a [usize]) -> Self {
        let (from, to) = (0, 0);
        Self { indices, from, to }
    }

    /// Those of the indices that, like the one before them, are in the window.
    fn of(&mut self, window: &Range<usize>) -> &'a [usize] {
        let is = |at: usize, holds: &dyn Fn(usize) -> bool| {
            self.indices.get(at).is_some_and(|index| holds(*index))
        };
        while is(self.from, &|index| index <= window.start) {
            self.from += 1;
        }
        self.to = self.to.max(self.from);
        while is(self.to, &|index| index < window.end) {
            self.to += 1;
        }
        &self.indices[self.from..self.to]
    }
}

/// Collects the indices of values that differ from the one before.
fn indices_of(indices: &mut Vec<usize>, values: &[f64], differs: impl Fn(usize) -> bool) {
    indices.clear();
    indices.extend((1..values.len()).filter(|at| differs(*at)));
}

impl Prepared<'_> {
    /// Does something with each window that is not empty: step, window, start and end. True when there is one.
    fn each_window(
        &self,
        times: &[TimeMs],
        mut act: impl FnMut(usize, Range<usize>, (TimeMs, TimeMs)),
    ) -> bool {
        let (mut window, mut seen) = (0..0, false);
        let first = self.env.target(self.reach, self.grid.time(0));
        let every = match self.reach.at {
            None => self.grid.step_ms,
            Some(_) => 0,
        };
        for step in 0..self.grid.count {
            let end = first + every * step as i64;
            let start = end - self.range_ms;
            advance(times, &mut window, start, end);
            if !window.is_empty() {
                seen = true;
                act(step, window.clone(), (start, end));
            }
        }
        seen
    }

    /// Fills a row; false when it stays empty.
    pub(super) fn float_windows(
        &self,
        function: OfFloats,
        columns: &Columns,
        row: &mut Row,
        work: &mut Workspace,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let rows = &mut row.values[..];
        match function {
            OfFloats::Change(change) => self.changes_of(change, columns, row, work),
            OfFloats::Irate => self.instant_changes(columns, row, true),
            OfFloats::Idelta => self.instant_changes(columns, row, false),
            OfFloats::Resets => {
                indices_of(&mut work.indices, values, |at| columns.begins_anew(at));
                self.counted(times, rows, &work.indices)
            }
            OfFloats::Changes => {
                indices_of(&mut work.indices, values, |at| {
                    let (before, now) = (values[at - 1], values[at]);
                    now != before && !(now.is_nan() && before.is_nan())
                });
                self.counted(times, rows, &work.indices)
            }
            OfFloats::Sum => {
                let sums = work.blocks.sums(values, self.overlap(times));
                self.each_window(times, |step, window, _| {
                    rows[step] = sums.sum(window).value();
                })
            }
            OfFloats::Average => {
                let sums = work.blocks.sums(values, self.overlap(times));
                self.each_window(times, |step, window, _| {
                    let sum = sums.sum(window.clone());
                    rows[step] = match sum.sum.is_finite() {
                        true => sum.mean(window.len() as f64),
                        false => kahan::mean(&values[window]),
                    };
                })
            }
            OfFloats::Count => {
                self.each_window(times, |step, window, _| rows[step] = window.len() as f64)
            }
            OfFloats::Least => self.extremes(columns, rows, work, (f64::INFINITY, |a, b| a < b)),
            OfFloats::Greatest => {
                self.extremes(columns, rows, work, (f64::NEG_INFINITY, |a, b| a > b))
            }
            OfFloats::Last => {
                self.each_window(times, |step, window, _| rows[step] = values[window.end - 1])
            }
            OfFloats::First => {
                self.each_window(times, |step, window, _| rows[step] = values[window.start])
            }
            OfFloats::One => self.each_window(times, |step, _, _| rows[step] = 1.0),
            OfFloats::Variance => self.each_window(times, |step, window, _| {
                rows[step] = variance_of(&values[window]);
            }),
            OfFloats::Deviation => self.each_window(times, |step, window, _| {
                rows[step] = variance_of(&values[window]).sqrt();
            }),
            OfFloats::Quantile => {
                let shares = &self.arguments[0];
                self.each_window(times, |step, window, _| {
                    work.values.clear();
                    work.values.extend_from_slice(&values[window]);
                    rows[step] = quantile_of(shares[step], &mut work.values);
                })
            }
        }
    }

    /// The extreme values of windows: what there is to begin with, and whether a value is better than another.
    fn extremes(
        &self,
        columns: &Columns,
        rows: &mut [f64],
        work: &mut Workspace,
        (worst, is_better): (f64, impl Fn(f64, f64) -> bool + Copy),
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let overlap = self.overlap(times);
        let best = work.blocks.extremes(values, overlap, (worst, is_better));
        self.each_window(times, |step, window, _| rows[step] = best.of(window))
    }

    /// How many samples the windows have, roughly, when each of them is in several: what is known of parts of windows is
    /// then worth keeping.
    fn overlap(&self, times: &[TimeMs]) -> usize {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return 0;
        };
        let is_shared = self.grid.count > 4 && self.grid.step_ms * 4 <= self.range_ms;
        let covered = (last - first).max(1) as f64;
        match is_shared {
            true => (times.len() as f64 * (self.range_ms as f64 / covered).min(1.0)) as usize,
            false => 0,
        }
    }

    fn counted(&self, times: &[TimeMs], rows: &mut [f64], indices: &[usize]) -> bool {
        let mut inside = Inside::new(indices);
        self.each_window(times, |step, window, _| {
            rows[step] = inside.of(&window).len() as f64;
        })
    }

    /// `rate`, `increase`, `delta`.
    fn changes_of(
        &self,
        change: Change,
        columns: &Columns,
        row: &mut Row,
        work: &mut Workspace,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        work.indices.clear();
        if change != Change::Delta {
            indices_of(&mut work.indices, values, |at| columns.begins_anew(at));
        }
        let mut inside = Inside::new(&work.indices);
        let range_seconds = self.range_ms as f64 / 1000.0;
        let mut seen = false;
        self.each_window(times, |step, window, (start, end)| {
            let (first, last) = (window.start, window.end - 1);
            let began = columns.starts.get(first).copied();
            let began = began.filter(|began| {
                change != Change::Delta && *began != 0 && (start + 1..times[first]).contains(began)
            });
            if window.len() < 2 && began.is_none() {
                return;
            }
            let mut difference = values[last] - values[first];
            for at in inside.of(&window) {
                difference += values[at - 1];
            }
            if began.is_some() {
                // It was zero then.
                difference += values[first];
            }
            let counter = (change != Change::Delta).then_some((difference, values[first]));
            let bounds = Bounds {
                start,
                began,
                first: times[first],
                last: times[last],
                end,
                samples: window.len(),
            };
            let mut factor = extension(&bounds, counter);
            if change == Change::Rate {
                factor /= range_seconds;
            }
            row.values[step] = difference * factor;
            seen = true;
        });
        seen
    }

    /// Whether some window has a sample towards which counting is said to have begun before the one before it.
    pub(super) fn overlaps(&self, columns: &Columns, work: &mut Workspace) -> bool {
        let times = &columns.times[..];
        indices_of(&mut work.indices, &columns.values, |at| {
            overlaps(times, &columns.starts, at)
        });
        let mut inside = Inside::new(&work.indices);
        let mut found = false;
        self.each_window(times, |_, window, _| {
            found |= !inside.of(&window).is_empty();
        });
        found
    }

    /// `irate`, `idelta`.
    fn instant_changes(&self, columns: &Columns, row: &mut Row, is_rate: bool) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let mut seen = false;
        self.each_window(times, |step, window, _| {
            if window.len() < 2 {
                return;
            }
            let last = window.end - 1;
            let (before, now) = (values[last - 1], values[last]);
            let mut change = now - before;
            if is_rate {
                let seconds = (times[last] - times[last - 1]) as f64 / 1000.0;
                let is_reset = columns.begins_anew(last);
                change = if is_reset { now } else { change } / seconds;
            }
            row.values[step] = change;
            seen = true;
        });
        seen
    }
}
