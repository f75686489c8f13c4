//! Traits of storage, as the evaluator sees it.

use std::sync::Arc;

use egret_metrics_model::{CounterReset, LabelMatcher, Labels, TimeMs, is_stale};

use super::error::QueryError;
use super::histogram::{self, FloatHistogram};

/// Which series a query wants, and how much of them.
#[derive(Clone, Debug)]
pub struct Selection {
    /// All of them must hold.
    pub matchers: Vec<LabelMatcher>,
    /// No sample before is of interest.
    pub start: TimeMs,
    /// No sample after is of interest; inclusive, like `start`.
    pub end: TimeMs,
    /// What the samples are for.
    pub hints: Hints,
}

/// Optional hints for the source; ignoring them does not change the result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Between two evaluations, in milliseconds; 0 when there is but one.
    pub step_ms: i64,
    /// How far back each evaluation looks, in milliseconds.
    pub range_ms: i64,
    /// The function that the samples go to, or nothing.
    pub function: Option<&'static str>,
}

/// Called repeatedly during a search with the bytes allocated since the last call. An error aborts
/// the search: over budget, timed out or cancelled.
pub type Spend<'a> = &'a dyn Fn(u64) -> Result<(), QueryError>;

/// A store of samples that queries can be evaluated over.
pub trait Source: Sync {
    /// The series that match.
    ///
    /// # Errors
    /// Of the source, and those that `spend` returns.
    fn select(
        &self,
        selection: &Selection,
        spend: Spend<'_>,
    ) -> Result<Box<dyn SeriesSet + '_>, QueryError>;
}

/// Series that were selected. Several threads may read different ones at once.
pub trait SeriesSet: Sync {
    /// Number of selected series.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The labels of one.
    fn labels(&self, index: usize) -> &Labels;

    /// Replaces `into` with the samples of one within the selected time, times ascending and none
    /// twice. Samples outside of it may be there; they are not used.
    ///
    /// # Errors
    /// Of the source.
    fn read(&self, index: usize, into: &mut SampleColumns) -> Result<(), QueryError>;
}

/// The samples of one series, decoded. Reused from series to series, so that it is allocated once.
#[derive(Clone, Debug, Default)]
pub struct SampleColumns {
    /// Times of the numbers, ascending.
    pub times: Vec<TimeMs>,
    /// As many as there are times; staleness markers among them, also those that end histograms.
    pub values: Vec<f64>,
    /// When counting towards each number began, 0 where that is not known; empty where it is known
    /// of none.
    pub starts: Vec<TimeMs>,
    /// Times of the native histograms, ascending.
    pub histogram_times: Vec<TimeMs>,
    /// Histograms, one for each of their times.
    pub histograms: Vec<Arc<FloatHistogram>>,
    /// When counting towards each histogram began, as of the numbers.
    pub histogram_starts: Vec<TimeMs>,
}

impl SampleColumns {
    /// Removes all samples but keeps the memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.starts.clear();
        self.histogram_times.clear();
        self.histograms.clear();
        self.histogram_starts.clear();
    }

    /// Number of samples, histograms included.
    pub fn len(&self) -> usize {
        self.times.len() + self.histogram_times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the samples take in memory, roughly, in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        let numbers = self.len() * size_of::<(TimeMs, f64)>();
        numbers as u64 + histogram::size_bytes(&self.histograms)
    }

    /// Adds a number at the end.
    pub fn push(&mut self, time: TimeMs, value: f64) {
        self.times.push(time);
        self.values.push(value);
        if !self.starts.is_empty() {
            self.starts.push(0);
        }
    }

    /// Whether counting began anew between the number before and this one: either says so when it
    /// began, or the value fell.
    pub(crate) fn is_reset_at(&self, index: usize) -> bool {
        self.values[index] < self.values[index - 1] || self.is_started_after(index)
    }

    /// Whether counting towards a number began after the one before it, as far as is known.
    pub(crate) fn is_started_after(&self, index: usize) -> bool {
        !self.starts.is_empty()
            && is_started_between(
                SampleStart::at_index(&self.times, &self.starts, index - 1),
                SampleStart::at_index(&self.times, &self.starts, index),
            )
    }

    /// Adds a histogram at the end. One that is a staleness marker becomes a marker among the
    /// numbers.
    pub fn push_histogram(&mut self, time: TimeMs, histogram: Arc<FloatHistogram>) {
        if is_stale(histogram.sum) {
            return self.push(time, histogram.sum);
        }
        self.histogram_times.push(time);
        self.histograms.push(histogram);
        if !self.histogram_starts.is_empty() {
            self.histogram_starts.push(0);
        }
    }

    /// Finds out of each histogram that does not say so whether counts began anew since the one
    /// before.
    pub(crate) fn detect_resets(&mut self) {
        for index in 1..self.histograms.len() {
            let (before, now) = self.histograms.split_at_mut(index);
            let (before, now) = (&before[index - 1], &mut now[0]);
            if now.counter_reset == CounterReset::Unknown {
                let is_reset = now.is_reset_since(before);
                Arc::make_mut(now).counter_reset =
                    if is_reset { CounterReset::Reset } else { CounterReset::NotReset };
            }
        }
    }

    /// Takes staleness markers out: ranges do not see them.
    pub(crate) fn drop_stale(&mut self) {
        if !self.values.iter().any(|value| is_stale(*value)) {
            return;
        }
        let mut kept_count = 0;
        for index in 0..self.values.len() {
            if !is_stale(self.values[index]) {
                self.times[kept_count] = self.times[index];
                self.values[kept_count] = self.values[index];
                if let Some(start) = self.starts.get(index).copied() {
                    self.starts[kept_count] = start;
                }
                kept_count += 1;
            }
        }
        self.times.truncate(kept_count);
        self.values.truncate(kept_count);
        self.starts.truncate(kept_count);
    }
}

/// The time of a sample, and when counting towards it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleStart {
    pub time: TimeMs,
    /// 0 where it is not known.
    pub start: TimeMs,
}

impl SampleStart {
    pub(crate) fn at_index(times: &[TimeMs], starts: &[TimeMs], index: usize) -> Self {
        Self { time: times[index], start: starts[index] }
    }
}

/// Whether counting towards a sample began after the one before it.
pub(crate) fn is_started_between(previous: SampleStart, current: SampleStart) -> bool {
    let (previous_time, previous_start) = (previous.time, previous.start);
    let (current_time, current_start) = (current.time, current.start);
    // A start that is not before its sample says nothing.
    let is_known =
        current_start != 0 && current_start < current_time && current_start != previous_start;
    // One at the sample before is a delta's, unless nothing was known of that either.
    let is_delta =
        current_start == previous_time && previous_start != 0 && previous_start < previous_time;
    is_known && (current_start > previous_time || is_delta)
}

/// Whether counting towards a sample is said to have begun before the one before it, which had
/// another beginning: what was counted in between is counted twice. `starts` may be empty.
pub(crate) fn has_overlapping_start(times: &[TimeMs], starts: &[TimeMs], index: usize) -> bool {
    let start_at = |at: usize| starts.get(at).copied().unwrap_or(0);
    start_at(index) != 0
        && start_at(index) < times[index - 1]
        && start_at(index) != start_at(index - 1)
}

#[cfg(test)]
mod tests;
