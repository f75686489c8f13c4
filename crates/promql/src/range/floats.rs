//! Functions of ranges over series that are numbers alone, which most are: whole rows at once,
//! without a call or an allocation for each step.

use std::ops::Range;

use egret_metrics_model::TimeMs;

use super::super::kahan;
use super::super::row::Row;
use super::super::source::{SampleColumns, overlaps};
use super::RangeCall;
use super::over_time::{quantile_of, variance_of};
use super::rates::{Change, WindowBounds, extension};
use super::window::advance;
use super::workspace::Workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatRangeFn {
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

pub(super) fn lookup(name: &str) -> Option<FloatRangeFn> {
    Some(match name {
        "rate" => FloatRangeFn::Change(Change::Rate),
        "increase" => FloatRangeFn::Change(Change::Increase),
        "delta" => FloatRangeFn::Change(Change::Delta),
        "irate" => FloatRangeFn::Irate,
        "idelta" => FloatRangeFn::Idelta,
        "resets" => FloatRangeFn::Resets,
        "changes" => FloatRangeFn::Changes,
        "sum_over_time" => FloatRangeFn::Sum,
        "avg_over_time" => FloatRangeFn::Average,
        "count_over_time" => FloatRangeFn::Count,
        "min_over_time" => FloatRangeFn::Least,
        "max_over_time" => FloatRangeFn::Greatest,
        "last_over_time" => FloatRangeFn::Last,
        "first_over_time" => FloatRangeFn::First,
        "present_over_time" | "absent_over_time" => FloatRangeFn::One,
        "stddev_over_time" => FloatRangeFn::Deviation,
        "stdvar_over_time" => FloatRangeFn::Variance,
        "quantile_over_time" => FloatRangeFn::Quantile,
        _ => return None,
    })
}

/// Indices between those of a window, while windows advance.
struct WindowIndices<'a> {
    indices: &'a [usize],
    from: usize,
    to: usize,
}

impl<'a> WindowIndices<'a> {
    fn new(indices: &'a [usize]) -> Self {
        let (from, to) = (0, 0);
        Self { indices, from, to }
    }

    /// The indices in the window whose predecessor is in it, too.
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

impl RangeCall<'_> {
    /// Does something with each window that is not empty: step, window, start and end. True when
    /// there is one.
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
        function: FloatRangeFn,
        columns: &SampleColumns,
        row: &mut Row,
        work: &mut Workspace,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let rows = &mut row.values[..];
        match function {
            FloatRangeFn::Change(change) => self.changes_of(change, columns, row, work),
            FloatRangeFn::Irate => self.instant_changes(columns, row, true),
            FloatRangeFn::Idelta => self.instant_changes(columns, row, false),
            FloatRangeFn::Resets => {
                indices_of(&mut work.indices, values, |at| columns.begins_anew(at));
                self.counted(times, rows, &work.indices)
            }
            FloatRangeFn::Changes => {
                indices_of(&mut work.indices, values, |at| {
                    let (before, now) = (values[at - 1], values[at]);
                    now != before && !(now.is_nan() && before.is_nan())
                });
                self.counted(times, rows, &work.indices)
            }
            FloatRangeFn::Sum => {
                let sums = work.blocks.sums(values, self.overlap(times));
                self.each_window(times, |step, window, _| {
                    rows[step] = sums.sum(window).value();
                })
            }
            FloatRangeFn::Average => {
                let sums = work.blocks.sums(values, self.overlap(times));
                self.each_window(times, |step, window, _| {
                    let sum = sums.sum(window.clone());
                    rows[step] = if sum.sum.is_finite() {
                        sum.mean(window.len() as f64)
                    } else {
                        kahan::mean(&values[window])
                    };
                })
            }
            FloatRangeFn::Count => {
                self.each_window(times, |step, window, _| rows[step] = window.len() as f64)
            }
            FloatRangeFn::Least => self.extremes(columns, rows, work, f64::INFINITY, |a, b| a < b),
            FloatRangeFn::Greatest => {
                self.extremes(columns, rows, work, f64::NEG_INFINITY, |a, b| a > b)
            }
            FloatRangeFn::Last => {
                self.each_window(times, |step, window, _| rows[step] = values[window.end - 1])
            }
            FloatRangeFn::First => {
                self.each_window(times, |step, window, _| rows[step] = values[window.start])
            }
            FloatRangeFn::One => self.each_window(times, |step, _, _| rows[step] = 1.0),
            FloatRangeFn::Variance => self.each_window(times, |step, window, _| {
                rows[step] = variance_of(&values[window]);
            }),
            FloatRangeFn::Deviation => self.each_window(times, |step, window, _| {
                rows[step] = variance_of(&values[window]).sqrt();
            }),
            FloatRangeFn::Quantile => self.quantiles(columns, rows, work),
        }
    }

    /// The quantile of the values in each window, by the share that the first argument has there.
    fn quantiles(&self, columns: &SampleColumns, rows: &mut [f64], work: &mut Workspace) -> bool {
        let shares = &self.arguments[0];
        self.each_window(&columns.times, |step, window, _| {
            work.values.clear();
            work.values.extend_from_slice(&columns.values[window]);
            rows[step] = quantile_of(shares[step], &mut work.values);
        })
    }

    /// The extreme values of windows: what there is to begin with, and whether a value is better
    /// than another.
    fn extremes(
        &self,
        columns: &SampleColumns,
        rows: &mut [f64],
        work: &mut Workspace,
        worst: f64,
        is_better: impl Fn(f64, f64) -> bool + Copy,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let overlap = self.overlap(times);
        let best = work.blocks.extremes(values, overlap, worst, is_better);
        self.each_window(times, |step, window, _| rows[step] = best.of(window))
    }

    /// How many samples the windows have, roughly, when each of them is in several: what is known
    /// of parts of windows is then worth keeping.
    fn overlap(&self, times: &[TimeMs]) -> usize {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return 0;
        };
        let is_shared = self.grid.count > 4 && self.grid.step_ms * 4 <= self.range_ms;
        let covered = (last - first).max(1) as f64;
        if is_shared {
            (times.len() as f64 * (self.range_ms as f64 / covered).min(1.0)) as usize
        } else {
            0
        }
    }

    fn counted(&self, times: &[TimeMs], rows: &mut [f64], indices: &[usize]) -> bool {
        let mut inside = WindowIndices::new(indices);
        self.each_window(times, |step, window, _| {
            rows[step] = inside.of(&window).len() as f64;
        })
    }

    /// Computes `rate`, `increase` or `delta` of a series' numbers.
    fn changes_of(
        &self,
        change: Change,
        columns: &SampleColumns,
        row: &mut Row,
        work: &mut Workspace,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        work.indices.clear();
        if change != Change::Delta {
            indices_of(&mut work.indices, values, |at| columns.begins_anew(at));
        }
        let mut inside = WindowIndices::new(&work.indices);
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
            let bounds = WindowBounds {
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

    /// Whether some window has a sample towards which counting is said to have begun before the one
    /// before it.
    pub(super) fn overlaps(&self, columns: &SampleColumns, work: &mut Workspace) -> bool {
        let times = &columns.times[..];
        indices_of(&mut work.indices, &columns.values, |at| {
            overlaps(times, &columns.starts, at)
        });
        let mut inside = WindowIndices::new(&work.indices);
        let mut found = false;
        self.each_window(times, |_, window, _| {
            found |= !inside.of(&window).is_empty();
        });
        found
    }

    /// Computes `irate` or `idelta` of a series' numbers.
    fn instant_changes(&self, columns: &SampleColumns, row: &mut Row, is_rate: bool) -> bool {
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
