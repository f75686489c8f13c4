//! Samples in memory: the source of tests and of the runner of `.test` files.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_metrics_model::{CounterReset, Labels, TimeMs, is_stale};

use super::error::QueryError;
use super::histogram::FloatHistogram;
use super::source::{SampleColumns, Selection, SeriesSet, Source, Spend};

/// Series in memory, each with samples in any order of arrival.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    series: BTreeMap<Labels, SampleColumns>,
}

/// Index of a time, or where to insert it. Most samples come in order.
fn find_time(times: &[TimeMs], time: TimeMs) -> Result<usize, usize> {
    match times.last() {
        Some(last) if *last >= time => times.binary_search(&time),
        _ => Err(times.len()),
    }
}

impl MemorySource {
    fn columns(&mut self, labels: &Labels) -> &mut SampleColumns {
        self.series.entry(labels.clone()).or_default()
    }

    /// Adds a number; a sample that has the same time is replaced.
    pub fn add(&mut self, labels: &Labels, time: TimeMs, value: f64) {
        self.add_with_start(labels, time, value, 0);
    }

    /// Adds a number of which it is known when counting towards it began; 0 where it is not known.
    pub(crate) fn add_with_start(
        &mut self,
        labels: &Labels,
        time: TimeMs,
        value: f64,
        start: TimeMs,
    ) {
        let columns = self.columns(labels);
        if let Ok(index) = find_time(&columns.histogram_times, time) {
            columns.histogram_times.remove(index);
            columns.histograms.remove(index);
            if !columns.histogram_starts.is_empty() {
                columns.histogram_starts.remove(index);
            }
        }
        if start != 0 && columns.starts.is_empty() {
            columns.starts.resize(columns.times.len(), 0);
        }
        let has_starts = start != 0 || !columns.starts.is_empty();
        match find_time(&columns.times, time) {
            Ok(at) => {
                columns.values[at] = value;
                if has_starts {
                    columns.starts[at] = start;
                }
            }
            Err(at) => {
                columns.times.insert(at, time);
                columns.values.insert(at, value);
                if has_starts {
                    columns.starts.insert(at, start);
                }
            }
        }
    }

    /// Adds a histogram; a sample that has the same time is replaced.
    pub(crate) fn add_histogram(
        &mut self,
        labels: &Labels,
        time: TimeMs,
        value: Arc<FloatHistogram>,
    ) {
        self.add_histogram_with_start(labels, time, value, 0);
    }

    /// Adds a histogram of which it is known when counting towards it began; 0 where it is not
    /// known.
    pub(crate) fn add_histogram_with_start(
        &mut self,
        labels: &Labels,
        time: TimeMs,
        value: Arc<FloatHistogram>,
        start: TimeMs,
    ) {
        if is_stale(value.sum) {
            return self.add(labels, time, value.sum);
        }
        let columns = self.columns(labels);
        if let Ok(index) = find_time(&columns.times, time) {
            columns.times.remove(index);
            columns.values.remove(index);
            if !columns.starts.is_empty() {
                columns.starts.remove(index);
            }
        }
        if start != 0 && columns.histogram_starts.is_empty() {
            let known = columns.histograms.len();
            columns.histogram_starts.resize(known, 0);
        }
        let has_starts = start != 0 || !columns.histogram_starts.is_empty();
        match find_time(&columns.histogram_times, time) {
            Ok(at) => {
                columns.histograms[at] = value;
                if has_starts {
                    columns.histogram_starts[at] = start;
                }
            }
            Err(at) => {
                columns.histogram_times.insert(at, time);
                columns.histograms.insert(at, value);
                if has_starts {
                    columns.histogram_starts.insert(at, start);
                }
            }
        }
    }

    /// Lets histograms say of resets what Prometheus's storage lets them say: that counts did not
    /// begin anew since the sample before, or nothing where they did, where that is not known, and
    /// where another kind of sample lies between.
    pub(crate) fn mark_resets(&mut self) {
        for columns in self.series.values_mut() {
            for index in 0..columns.histograms.len() {
                let time = columns.histogram_times[index];
                let (earlier, rest) = columns.histograms.split_at_mut(index);
                let histogram = &mut rest[0];
                if histogram.counter_reset == CounterReset::Gauge {
                    continue;
                }
                let has_no_reset = earlier.last().is_some_and(|before| {
                    let between = columns.histogram_times[index - 1]..time;
                    let is_adjacent = !columns.times.iter().any(|time| between.contains(time));
                    let is_alike = histogram.schema == before.schema
                        && histogram.zero_threshold == before.zero_threshold
                        && histogram.custom_bounds == before.custom_bounds
                        && before.counter_reset != CounterReset::Gauge;
                    is_adjacent && is_alike && !histogram.is_reset_since(before)
                });
                Arc::make_mut(histogram).counter_reset =
                    if has_no_reset { CounterReset::NotReset } else { CounterReset::Unknown };
            }
        }
    }

    /// Removes all series and their samples.
    pub fn clear(&mut self) {
        self.series.clear();
    }
}

struct MemorySelection<'a> {
    series: Vec<(&'a Labels, &'a SampleColumns)>,
    start: TimeMs,
    end: TimeMs,
}

impl Source for MemorySource {
    /// Everything is in memory as it is.
    fn select(
        &self,
        selection: &Selection,
        _: Spend<'_>,
    ) -> Result<Box<dyn SeriesSet + '_>, QueryError> {
        let is_selected = |labels: &Labels| {
            let mut matchers = selection.matchers.iter();
            matchers.all(|matcher| matcher.matches(labels.get(&matcher.matcher().name)))
        };
        let series = self.series.iter().filter(|(labels, _)| is_selected(labels));
        Ok(Box::new(MemorySelection {
            series: series.collect(),
            start: selection.start,
            end: selection.end,
        }))
    }
}

impl MemorySelection<'_> {
    fn within(&self, times: &[TimeMs]) -> std::ops::Range<usize> {
        let from = times.partition_point(|time| *time < self.start);
        let to = times.partition_point(|time| *time <= self.end);
        from..to.max(from)
    }
}

impl SeriesSet for MemorySelection<'_> {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, index: usize) -> &Labels {
        self.series[index].0
    }

    fn read(&self, index: usize, into: &mut SampleColumns) -> Result<(), QueryError> {
        into.clear();
        let columns = self.series[index].1;
        let numbers = self.within(&columns.times);
        into.times.extend_from_slice(&columns.times[numbers.clone()]);
        into.values.extend_from_slice(&columns.values[numbers.clone()]);
        if let Some(starts) = columns.starts.get(numbers) {
            into.starts.extend_from_slice(starts);
        }
        let histograms = self.within(&columns.histogram_times);
        let (times, values) = (&columns.histogram_times, &columns.histograms);
        into.histogram_times.extend_from_slice(&times[histograms.clone()]);
        into.histograms.extend_from_slice(&values[histograms.clone()]);
        if let Some(starts) = columns.histogram_starts.get(histograms) {
            into.histogram_starts.extend_from_slice(starts);
        }
        Ok(())
    }
}
