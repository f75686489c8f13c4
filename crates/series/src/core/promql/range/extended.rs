//! `anchored` and `smoothed`: changes between a window's bounds rather than between the samples in it.

use super::super::error::QueryError;
use super::super::row::Row;
use super::super::source::Columns;
use super::super::syntax::Extension;
use super::{Prepared, advance};
use crate::model::TimeMs;

/// How far beyond a window's bounds samples are looked for, before it and after it.
///
/// # Errors
/// When the function has no use for them.
pub(super) fn beyond(
    function: &str,
    extension: Extension,
    lookback_ms: i64,
) -> Result<(i64, i64), QueryError> {
    let (word, allowed, beyond): (_, &[&str], _) = match extension {
        Extension::None => return Ok((0, 0)),
        Extension::Anchored => (
            "anchored",
            &["changes", "delta", "increase", "rate", "resets"],
            (lookback_ms, 0),
        ),
        Extension::Smoothed => (
            "smoothed",
            &["delta", "increase", "rate"],
            (lookback_ms, lookback_ms),
        ),
    };
    if allowed.contains(&function) {
        return Ok(beyond);
    }
    let allowed = allowed.join(", ");
    Err(QueryError::execution(format!(
        "{word} modifier can only be used with: {allowed} - not with {function}"
    )))
}

/// Samples in a window and next to it. There is at least one after its start.
struct Around<'a> {
    times: &'a [TimeMs],
    values: &'a [f64],
    start: TimeMs,
    end: TimeMs,
}

impl Prepared<'_> {
    /// Fills a row; false when it stays empty.
    pub(super) fn extended_windows(&self, columns: &Columns, row: &mut Row) -> bool {
        let lookback_ms = self.env.options.lookback_ms;
        let is_smoothed = self.extension == Extension::Smoothed;
        let ahead_ms = if is_smoothed { lookback_ms } else { 0 };
        let (mut floats, mut seen) = (0..0, false);
        for step in 0..self.grid.count {
            let end = self.env.target(self.reach, self.grid.time(step));
            let start = end - self.range_ms;
            advance(
                &columns.times,
                &mut floats,
                start - lookback_ms,
                end + ahead_ms,
            );
            let around = Around::new(columns, floats.clone(), (start, end), is_smoothed);
            if let Some(around) = around {
                row.values[step] = self.extended(&around, is_smoothed);
                seen = true;
            }
        }
        seen
    }

    fn extended(&self, around: &Around<'_>, is_smoothed: bool) -> f64 {
        let pairs = around.values.windows(2);
        match self.name {
            "changes" => pairs
                .filter(|pair| pair[0] != pair[1] && !(pair[0].is_nan() && pair[1].is_nan()))
                .count() as f64,
            "resets" => pairs.filter(|pair| pair[1] < pair[0]).count() as f64,
            "delta" => around.change(is_smoothed, false),
            "increase" => around.change(is_smoothed, true),
            _ => around.change(is_smoothed, true) / (self.range_ms as f64 / 1000.0),
        }
    }
}

impl<'a> Around<'a> {
    /// The newest sample not after the window's start, those in it, and with `is_smoothed` the first one not before
    /// its end. Nothing when none of them is after the start.
    fn new(
        columns: &'a Columns,
        floats: std::ops::Range<usize>,
        (start, end): (TimeMs, TimeMs),
        is_smoothed: bool,
    ) -> Option<Self> {
        let times = &columns.times[floats.clone()];
        let last = times.len().checked_sub(1)?;
        let first = times[..last]
            .partition_point(|time| *time <= start)
            .saturating_sub(1);
        let last = match is_smoothed {
            true => times[..last].partition_point(|time| *time < end),
            false => last,
        };
        if times[last] <= start {
            return None;
        }
        Some(Self {
            times: &times[first..=last],
            values: &columns.values[floats][first..=last],
            start,
            end,
        })
    }

    /// The difference between the window's bounds; of a counter, with what it fell by.
    fn change(&self, is_smoothed: bool, is_counter: bool) -> f64 {
        let last = self.times.len() - 1;
        let between = |at: usize, time: TimeMs| {
            let (mut from, to) = (self.values[at], self.values[at + 1]);
            if is_counter && to < from {
                // It began anew somewhere between the two: from zero.
                from = 0.0;
            }
            let share =
                (time - self.times[at]) as f64 / (self.times[at + 1] - self.times[at]) as f64;
            from + (to - from) * share
        };
        let left = match is_smoothed && self.times[0] < self.start {
            true => between(0, self.start),
            false => self.values[0],
        };
        let right = match is_smoothed && last > 0 && self.times[last] > self.end {
            true => between(last - 1, self.end),
            false => self.values[last],
        };
        let mut change = right - left;
        if is_counter {
            let from = usize::from(self.times[0] <= self.start);
            let to = last + usize::from(self.times[last] < self.end);
            let inside = self.values.get(from..to).unwrap_or_default();
            let mut before = left;
            for value in inside.iter().copied().chain([right]) {
                if value < before {
                    change += before;
                }
                before = value;
            }
        }
        change
    }
}
