//! Samples in memory: the source of tests and of the runner of `.test` files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::QueryError;
use super::histogram::FloatHistogram;
use super::source::{Columns, Selection, SeriesSet, Source};
use crate::model::{CounterReset, Labels, TimeMs};

/// Series in memory, each with samples in any order of arrival.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    series: BTreeMap<Labels, BTreeMap<TimeMs, Stored>>,
}

/// A sample.
#[derive(Clone, Debug)]
enum Stored {
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl MemorySource {
    /// Adds a number; one that has the same time is replaced.
    pub fn add(&mut self, labels: &Labels, time: TimeMs, value: f64) {
        let series = self.series.entry(labels.clone()).or_default();
        series.insert(time, Stored::Float(value));
    }

    /// Adds a histogram; a sample that has the same time is replaced.
    pub fn add_histogram(&mut self, labels: &Labels, time: TimeMs, value: Arc<FloatHistogram>) {
        let series = self.series.entry(labels.clone()).or_default();
        series.insert(time, Stored::Histogram(value));
    }

    /// Lets histograms say of resets what Prometheus's storage lets them say: that counts did not begin anew since the
    /// sample before, or nothing where they did, where that is not known, and where another kind of sample lies
    /// between.
    pub(crate) fn mark_resets(&mut self) {
        for samples in self.series.values_mut() {
            let mut before: Option<Arc<FloatHistogram>> = None;
            for stored in samples.values_mut() {
                let Stored::Histogram(histogram) = stored else {
                    before = None;
                    continue;
                };
                if histogram.counter_reset != CounterReset::Gauge {
                    let continues = before.as_ref().is_some_and(|before| {
                        let is_alike = histogram.schema == before.schema
                            && histogram.zero_threshold == before.zero_threshold
                            && histogram.custom_bounds == before.custom_bounds
                            && before.counter_reset != CounterReset::Gauge;
                        is_alike && !histogram.is_reset_since(before)
                    });
                    Arc::make_mut(histogram).counter_reset = match continues {
                        true => CounterReset::NotReset,
                        false => CounterReset::Unknown,
                    };
                }
                before = Some(Arc::clone(histogram));
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.series.clear();
    }
}

/// What was selected.
struct Selected<'a> {
    series: Vec<(&'a Labels, &'a BTreeMap<TimeMs, Stored>)>,
    start: TimeMs,
    end: TimeMs,
}

impl Source for MemorySource {
    fn select(&self, selection: &Selection) -> Result<Box<dyn SeriesSet + '_>, QueryError> {
        let wanted = |labels: &Labels| {
            let mut matchers = selection.matchers.iter();
            matchers.all(|matcher| matcher.matches(labels.get(&matcher.matcher().name)))
        };
        let series = self.series.iter().filter(|(labels, _)| wanted(labels));
        Ok(Box::new(Selected {
            series: series.collect(),
            start: selection.start,
            end: selection.end,
        }))
    }
}

impl SeriesSet for Selected<'_> {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, index: usize) -> &Labels {
        self.series[index].0
    }

    fn read(&self, index: usize, into: &mut Columns) -> Result<(), QueryError> {
        into.clear();
        if self.start > self.end {
            return Ok(());
        }
        for (time, stored) in self.series[index].1.range(self.start..=self.end) {
            match stored {
                Stored::Float(value) => into.push(*time, *value),
                Stored::Histogram(value) => into.push_histogram(*time, Arc::clone(value)),
            }
        }
        Ok(())
    }
}
