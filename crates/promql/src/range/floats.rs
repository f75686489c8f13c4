//! Functions of ranges over series that are numbers alone, which most are: whole rows at once,
//! without a call or an allocation for each step.

use std::ops::Range;

use egret_metrics_model::TimeMs;

use super::super::kahan;
use super::super::row::Row;
use super::super::source::{SampleColumns, has_overlapping_start};
use super::RangeCall;
use super::over_time::{compute_quantile, compute_variance};
use super::rates::{Change, WindowBounds, extension_factor};
use super::window::advance_window;
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
    Min,
    Max,
    Last,
    First,
    Present,
    Stddev,
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
        "min_over_time" => FloatRangeFn::Min,
        "max_over_time" => FloatRangeFn::Max,
        "last_over_time" => FloatRangeFn::Last,
        "first_over_time" => FloatRangeFn::First,
        "present_over_time" | "absent_over_time" => FloatRangeFn::Present,
        "stddev_over_time" => FloatRangeFn::Stddev,
        "stdvar_over_time" => FloatRangeFn::Variance,
        "quantile_over_time" => FloatRangeFn::Quantile,
        _ => return None,
    })
}

/// Indices between those of a window, while windows advance.
struct WindowIndices<'a> {
    indices: &'a [usize],
    start: usize,
    end: usize,
}

impl<'a> WindowIndices<'a> {
    fn new(indices: &'a [usize]) -> Self {
        let (from, to) = (0, 0);
        Self { indices, start: from, end: to }
    }

    /// The indices in the window whose predecessor is in it, too.
    fn in_window(&mut self, window: &Range<usize>) -> &'a [usize] {
        let matches_at = |position: usize, condition: &dyn Fn(usize) -> bool| {
            self.indices.get(position).is_some_and(|index| condition(*index))
        };
        while matches_at(self.start, &|index| index <= window.start) {
            self.start += 1;
        }
        self.end = self.end.max(self.start);
        while matches_at(self.end, &|index| index < window.end) {
            self.end += 1;
        }
        &self.indices[self.start..self.end]
    }
}

/// Collects the indices of values that differ from the one before.
fn collect_indices(indices: &mut Vec<usize>, values: &[f64], is_change: impl Fn(usize) -> bool) {
    indices.clear();
    indices.extend((1..values.len()).filter(|at| is_change(*at)));
}

impl RangeCall<'_> {
    /// Does something with each window that is not empty: step, window, start and end. True when
    /// there is one.
    fn for_each_window(
        &self,
        times: &[TimeMs],
        mut visit: impl FnMut(usize, Range<usize>, (TimeMs, TimeMs)),
    ) -> bool {
        let (mut window, mut has_windows) = (0..0, false);
        let first = self.env.target_time(self.time_modifiers, self.grid.time(0));
        let step_ms = match self.time_modifiers.at {
            None => self.grid.step_ms,
            Some(_) => 0,
        };
        for step in 0..self.grid.count {
            let end = first + step_ms * step as i64;
            let start = end - self.range_ms;
            advance_window(times, &mut window, start, end);
            if !window.is_empty() {
                has_windows = true;
                visit(step, window.clone(), (start, end));
            }
        }
        has_windows
    }

    /// Fills a row; false when it stays empty.
    pub(super) fn fill_float_windows(
        &self,
        function: FloatRangeFn,
        columns: &SampleColumns,
        row: &mut Row,
        workspace: &mut Workspace,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let rows = &mut row.values[..];
        match function {
            FloatRangeFn::Change(change) => self.fill_changes(change, columns, row, workspace),
            FloatRangeFn::Irate => self.fill_instant_changes(columns, row, true),
            FloatRangeFn::Idelta => self.fill_instant_changes(columns, row, false),
            FloatRangeFn::Resets => {
                collect_indices(&mut workspace.indices, values, |at| columns.is_reset_at(at));
                self.fill_counts(times, rows, &workspace.indices)
            }
            FloatRangeFn::Changes => {
                collect_indices(&mut workspace.indices, values, |at| {
                    let (before, now) = (values[at - 1], values[at]);
                    now != before && !(now.is_nan() && before.is_nan())
                });
                self.fill_counts(times, rows, &workspace.indices)
            }
            FloatRangeFn::Sum => {
                let sums = workspace.blocks.build_sums(values, self.overlapping_samples(times));
                self.for_each_window(times, |step, window, _| {
                    rows[step] = sums.sum(window).value();
                })
            }
            FloatRangeFn::Average => {
                let sums = workspace.blocks.build_sums(values, self.overlapping_samples(times));
                self.for_each_window(times, |step, window, _| {
                    let sum = sums.sum(window.clone());
                    rows[step] = if sum.sum.is_finite() {
                        sum.mean(window.len() as f64)
                    } else {
                        kahan::mean(&values[window])
                    };
                })
            }
            FloatRangeFn::Count => {
                self.for_each_window(times, |step, window, _| rows[step] = window.len() as f64)
            }
            FloatRangeFn::Min => {
                self.fill_extremes(columns, rows, workspace, f64::INFINITY, |a, b| a < b)
            }
            FloatRangeFn::Max => {
                self.fill_extremes(columns, rows, workspace, f64::NEG_INFINITY, |a, b| a > b)
            }
            FloatRangeFn::Last => {
                self.for_each_window(times, |step, window, _| rows[step] = values[window.end - 1])
            }
            FloatRangeFn::First => {
                self.for_each_window(times, |step, window, _| rows[step] = values[window.start])
            }
            FloatRangeFn::Present => self.for_each_window(times, |step, _, _| rows[step] = 1.0),
            FloatRangeFn::Variance => self.for_each_window(times, |step, window, _| {
                rows[step] = compute_variance(&values[window]);
            }),
            FloatRangeFn::Stddev => self.for_each_window(times, |step, window, _| {
                rows[step] = compute_variance(&values[window]).sqrt();
            }),
            FloatRangeFn::Quantile => self.fill_quantiles(columns, rows, workspace),
        }
    }

    /// The quantile of the values in each window, by the share that the first argument has there.
    fn fill_quantiles(
        &self,
        columns: &SampleColumns,
        rows: &mut [f64],
        workspace: &mut Workspace,
    ) -> bool {
        let shares = &self.arguments[0];
        self.for_each_window(&columns.times, |step, window, _| {
            workspace.values.clear();
            workspace.values.extend_from_slice(&columns.values[window]);
            rows[step] = compute_quantile(shares[step], &mut workspace.values);
        })
    }

    /// The extreme values of windows: what there is to begin with, and whether a value is better
    /// than another.
    fn fill_extremes(
        &self,
        columns: &SampleColumns,
        rows: &mut [f64],
        workspace: &mut Workspace,
        worst: f64,
        is_better: impl Fn(f64, f64) -> bool + Copy,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let overlap = self.overlapping_samples(times);
        let best = workspace.blocks.build_extremes(values, overlap, worst, is_better);
        self.for_each_window(times, |step, window, _| rows[step] = best.find(window))
    }

    /// How many samples the windows have, roughly, when each of them is in several: what is known
    /// of parts of windows is then worth keeping.
    fn overlapping_samples(&self, times: &[TimeMs]) -> usize {
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

    fn fill_counts(&self, times: &[TimeMs], rows: &mut [f64], indices: &[usize]) -> bool {
        let mut window_indices = WindowIndices::new(indices);
        self.for_each_window(times, |step, window, _| {
            rows[step] = window_indices.in_window(&window).len() as f64;
        })
    }

    /// Computes `rate`, `increase` or `delta` of a series' numbers.
    fn fill_changes(
        &self,
        change: Change,
        columns: &SampleColumns,
        row: &mut Row,
        workspace: &mut Workspace,
    ) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        workspace.indices.clear();
        if change != Change::Delta {
            collect_indices(&mut workspace.indices, values, |at| columns.is_reset_at(at));
        }
        let mut window_indices = WindowIndices::new(&workspace.indices);
        let range_seconds = self.range_ms as f64 / 1000.0;
        let mut has_points = false;
        self.for_each_window(times, |step, window, (start, end)| {
            let (first, last) = (window.start, window.end - 1);
            let counting_start = columns.starts.get(first).copied();
            let began = counting_start.filter(|began| {
                change != Change::Delta && *began != 0 && (start + 1..times[first]).contains(began)
            });
            if window.len() < 2 && began.is_none() {
                return;
            }
            let mut difference = values[last] - values[first];
            for index in window_indices.in_window(&window) {
                difference += values[index - 1];
            }
            if began.is_some() {
                // It was zero then.
                difference += values[first];
            }
            let counter = (change != Change::Delta).then_some((difference, values[first]));
            let bounds = WindowBounds {
                start,
                counting_start: began,
                first: times[first],
                last: times[last],
                end,
                samples: window.len(),
            };
            let mut factor = extension_factor(&bounds, counter);
            if change == Change::Rate {
                factor /= range_seconds;
            }
            row.values[step] = difference * factor;
            has_points = true;
        });
        has_points
    }

    /// Whether some window has a sample towards which counting is said to have begun before the one
    /// before it.
    pub(super) fn has_overlapping_starts(
        &self,
        columns: &SampleColumns,
        workspace: &mut Workspace,
    ) -> bool {
        let times = &columns.times[..];
        collect_indices(&mut workspace.indices, &columns.values, |at| {
            has_overlapping_start(times, &columns.starts, at)
        });
        let mut window_indices = WindowIndices::new(&workspace.indices);
        let mut is_found = false;
        self.for_each_window(times, |_, window, _| {
            is_found |= !window_indices.in_window(&window).is_empty();
        });
        is_found
    }

    /// Computes `irate` or `idelta` of a series' numbers.
    fn fill_instant_changes(&self, columns: &SampleColumns, row: &mut Row, is_rate: bool) -> bool {
        let (times, values) = (&columns.times[..], &columns.values[..]);
        let mut has_points = false;
        self.for_each_window(times, |step, window, _| {
            if window.len() < 2 {
                return;
            }
            let last = window.end - 1;
            let (previous, current) = (values[last - 1], values[last]);
            let mut change = current - previous;
            if is_rate {
                let seconds = (times[last] - times[last - 1]) as f64 / 1000.0;
                let is_reset = columns.is_reset_at(last);
                change = if is_reset { current } else { change } / seconds;
            }
            row.values[step] = change;
            has_points = true;
        });
        has_points
    }
}
