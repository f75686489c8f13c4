//! `anchored` and `smoothed` of native histograms.

use std::sync::Arc;

use egret_metrics_model::{CounterReset, TimeMs};

use super::super::annotations;
use super::super::histogram::FloatHistogram;
use super::super::smooth::{AnnotationSink, TimedValue, interpolate_histograms};

/// The histograms in an extended window: those in it and next to it.
pub(super) struct AroundHistograms<'a> {
    pub times: &'a [TimeMs],
    pub histograms: &'a [Arc<FloatHistogram>],
    pub start: TimeMs,
    pub end: TimeMs,
    pub is_smoothed: bool,
}

impl AroundHistograms<'_> {
    /// The difference between the window's bounds; of a counter, with what it fell by. Nothing, and
    /// a warning, where histograms cannot be put together.
    pub(super) fn compute_change(
        &self,
        is_counter: bool,
        sink: &mut AnnotationSink<'_>,
    ) -> Option<FloatHistogram> {
        let is_gauge = |one: &FloatHistogram| one.counter_reset == CounterReset::Gauge;
        let mut all = self.histograms.iter();
        let last = self.histograms.len() - 1;
        if all.any(|one| one.is_custom() != self.histograms[0].is_custom()) {
            sink.warn(annotations::mixed_schemas);
            return None;
        }
        if is_counter && self.histograms.iter().any(|one| is_gauge(one)) {
            sink.warn(annotations::not_a_counter);
        }
        let left = if self.is_smoothed && self.times[0] < self.start {
            self.interpolate_at(0, self.start, is_counter, sink)?
        } else {
            (*self.histograms[0]).clone()
        };
        let right = if self.is_smoothed && last > 0 && self.times[last] > self.end {
            self.interpolate_at(last - 1, self.end, is_counter, sink)?
        } else {
            (*self.histograms[last]).clone()
        };
        if !(is_counter || is_gauge(&left) && is_gauge(&right)) {
            sink.warn(annotations::not_a_gauge);
        }
        let mut change = right.clone();
        let subtracted = change.subtract(&left);
        sink.note_reconciled(subtracted, "subtraction")?;
        if is_counter {
            for histogram in self.histograms_before_resets(&left, &right) {
                let added = change.add(histogram);
                sink.note_reconciled(added, "addition")?;
            }
        }
        change.counter_reset = CounterReset::Gauge;
        Some(change)
    }

    fn interpolate_at(
        &self,
        index: usize,
        time: TimeMs,
        is_counter: bool,
        sink: &mut AnnotationSink<'_>,
    ) -> Option<FloatHistogram> {
        let sample = |at: usize| TimedValue { time: self.times[at], value: &*self.histograms[at] };
        interpolate_histograms(sample(index), sample(index + 1), time, is_counter, sink)
    }

    /// What had been counted whenever counting began anew between the bounds.
    fn histograms_before_resets<'a>(
        &'a self,
        left: &'a FloatHistogram,
        right: &'a FloatHistogram,
    ) -> Vec<&'a FloatHistogram> {
        let histograms = self.histograms;
        let last = histograms.len() - 1;
        let (mut first, mut previous) = (1, left);
        if self.is_smoothed
            && self.times[0] < self.start
            && histograms[1].is_reset_since(&histograms[0])
        {
            // The value at the left bound is that of a counter that began anew already.
            (first, previous) = (2, &*histograms[1]);
        }
        if first > last {
            return Vec::new();
        }
        let mut before_resets = Vec::new();
        // The last one is what the right bound has, which says the same of resets.
        for current in histograms[first..last].iter().map(|one| &**one).chain([right]) {
            if current.is_reset_since(previous) {
                before_resets.push(previous);
            }
            previous = current;
        }
        before_resets
    }
}
