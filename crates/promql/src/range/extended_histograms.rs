//! `anchored` and `smoothed` of native histograms.

use std::sync::Arc;

use egret_metrics_model::{CounterReset, TimeMs};

use super::super::annotations;
use super::super::histogram::FloatHistogram;
use super::super::smooth::{AnnotationSink, TimedValue, between_histograms};

/// The histograms in a window and next to it, as [`super::extended::around`] finds them.
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
    pub(super) fn change(
        &self,
        is_counter: bool,
        remarks: &mut AnnotationSink<'_>,
    ) -> Option<FloatHistogram> {
        let is_gauge = |one: &FloatHistogram| one.counter_reset == CounterReset::Gauge;
        let mut all = self.histograms.iter();
        let last = self.histograms.len() - 1;
        if all.any(|one| one.is_custom() != self.histograms[0].is_custom()) {
            remarks.warn(annotations::mixed_schemas);
            return None;
        }
        if is_counter && self.histograms.iter().any(|one| is_gauge(one)) {
            remarks.warn(annotations::not_a_counter);
        }
        let left = if self.is_smoothed && self.times[0] < self.start {
            self.between(0, self.start, is_counter, remarks)?
        } else {
            (*self.histograms[0]).clone()
        };
        let right = if self.is_smoothed && last > 0 && self.times[last] > self.end {
            self.between(last - 1, self.end, is_counter, remarks)?
        } else {
            (*self.histograms[last]).clone()
        };
        if !(is_counter || is_gauge(&left) && is_gauge(&right)) {
            remarks.warn(annotations::not_a_gauge);
        }
        let mut change = right.clone();
        let subtracted = change.subtract(&left);
        remarks.reconciled(subtracted, "subtraction")?;
        if is_counter {
            for lost in self.lost(&left, &right) {
                let added = change.add(lost);
                remarks.reconciled(added, "addition")?;
            }
        }
        change.counter_reset = CounterReset::Gauge;
        Some(change)
    }

    fn between(
        &self,
        at: usize,
        time: TimeMs,
        is_counter: bool,
        remarks: &mut AnnotationSink<'_>,
    ) -> Option<FloatHistogram> {
        let sample = |at: usize| TimedValue {
            time: self.times[at],
            value: &*self.histograms[at],
        };
        between_histograms(sample(at), sample(at + 1), time, is_counter, remarks)
    }

    /// What had been counted whenever counting began anew between the bounds.
    fn lost<'a>(
        &'a self,
        left: &'a FloatHistogram,
        right: &'a FloatHistogram,
    ) -> Vec<&'a FloatHistogram> {
        let all = self.histograms;
        let last = all.len() - 1;
        let (mut first, mut before) = (1, left);
        if self.is_smoothed && self.times[0] < self.start && all[1].is_reset_since(&all[0]) {
            // The value at the left bound is that of a counter that began anew already.
            (first, before) = (2, &*all[1]);
        }
        if first > last {
            return Vec::new();
        }
        let mut lost = Vec::new();
        // The last one is what the right bound has, which says the same of resets.
        for now in all[first..last].iter().map(|one| &**one).chain([right]) {
            if now.is_reset_since(before) {
                lost.push(before);
            }
            before = now;
        }
        lost
    }
}
